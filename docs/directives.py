"""Directives for the pages: `{run}`, `{plot}` and `{picture}` run their code when the page is built, `{speed}` and
`{panels}` draw the committed benchmark result, the others write tables.

The running itself stands in pages.py.
"""

from __future__ import annotations

import io
from base64 import b64encode
from html import escape
from typing import Any, ClassVar

import charts
import pages
import rules
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Run(SphinxDirective):
    """Run code in the namespace of its page and show it with what it shows; an exception fails the build."""

    has_content = True
    option_spec: ClassVar[Any] = {"raises": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        session = self.env.temp_data.setdefault("session", pages.Session())
        try:
            pieces = session.run("\n".join(self.content), self.options.get("raises", ""))
        except Exception as error:
            raise self.error(f"{type(error).__name__}: {error}") from error  # with its page and line
        shown: list[nodes.Node] = []
        for code, output in pieces:
            shown.append(nodes.literal_block(code, code, language="python", classes=["code"]))
            if output:
                shown.append(nodes.literal_block(output, output, language="text", classes=["output"]))
        return shown


class Coverage(SphinxDirective):
    """Write the table of every function of the standard."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(f"{pages.counts_table()}\n\n{pages.coverage_table()}\n")


class Numpy(SphinxDirective):
    """Write the table of NumPy's names."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(f"{pages.numpy_table()}\n")


class Special(SphinxDirective):
    """Write the table of special functions."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(f"{pages.special_table()}\n")


class Plot(Run):
    """Run code that leaves a Matplotlib `figure`, and show both; the argument says in words what the figure shows."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        super().run()
        code = "\n".join(self.content)
        drawn = io.BytesIO()
        self.env.temp_data["session"].names["figure"].savefig(drawn, format="svg")
        source = "data:image/svg+xml;base64," + b64encode(drawn.getvalue()).decode("ascii")
        words = self.arguments[0]
        self.env.first_figures.setdefault(self.env.docname, (source, words))
        figure = nodes.figure("", nodes.image(uri=source, alt=words), nodes.caption(words, words))
        return [nodes.literal_block(code, code, language="python", classes=["code"]), figure]


class cards(nodes.General, nodes.Element):  # noqa: N801 - nodes of docutils are written so
    """A place for the first figures of some pages, which are known when all pages are read."""


class Gallery(SphinxDirective):
    """Show the pages named in the block, each as its title over its first figure."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return [cards("", pages=list(self.content))]


def show_cards(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put the figures in their places."""
    for place in list(tree.findall(cards)):
        shown = []
        for name in place["pages"]:
            source, words = app.env.first_figures[name]
            title = escape(app.env.titles[name].astext())
            link = app.builder.get_relative_uri(page, name)
            shown.append(f'<a href="{link}">{title}<img src="{source}" alt="{escape(words)}"></a>')
        place.replace_self(nodes.raw("", f'<div class="gallery">{"".join(shown)}</div>', format="html"))


class Picture(Run):
    """Run code whose last line is something that notebooks draw, and show both."""

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        session = self.env.temp_data.setdefault("session", pages.Session())
        drawn = session.value(code)._repr_svg_()
        shown = nodes.raw("", f'<div class="picture">{drawn}</div>', format="html")
        return [nodes.literal_block(code, code, language="python", classes=["code"]), shown]


class Speed(SphinxDirective):
    """Draw one expression of the benchmarks, with the time that each library takes for it."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", charts.speed(charts.result()), format="html")]


class Panels(SphinxDirective):
    """Draw the benchmarks, a panel for each size."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", charts.panels(charts.result()), format="html")]


class Rules(SphinxDirective):
    """Write the table of derivative rules and the functions that they are made of."""

    def run(self) -> list[nodes.Node]:
        shown = self.parse_text_to_nodes(rules.table() + "\n")
        for name, text in rules.helpers().items():
            shown += [nodes.paragraph("", "", nodes.literal(name, name))]
            shown += [nodes.literal_block(text, text, language="python", classes=["code"])]
        return shown


class Functions(SphinxDirective):
    """Write the signature and docstring of every function, chapter by chapter."""

    def run(self) -> list[nodes.Node]:
        found = pages.functions()
        text = []
        for chapter in dict.fromkeys(function.chapter for function in found):
            names = [function.name for function in found if function.chapter == chapter]
            entries = "\n".join(f".. autofunction:: xtensor.{name}" for name in names)
            text.append(f"## {chapter}\n\n```{{eval-rst}}\n{entries}\n```\n")
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives; every page is built every time, because the code it shows may have changed."""
    app.add_directive("run", Run)
    app.add_directive("coverage", Coverage)
    app.add_directive("functions", Functions)
    app.add_directive("gallery", Gallery)
    app.add_directive("numpy", Numpy)
    app.add_directive("panels", Panels)
    app.add_directive("picture", Picture)
    app.add_directive("plot", Plot)
    app.add_directive("rules", Rules)
    app.add_directive("special", Special)
    app.add_directive("speed", Speed)
    app.connect("doctree-resolved", show_cards)
    app.connect("builder-inited", lambda app: setattr(app.env, "first_figures", {}))
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: list(env.found_docs))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
