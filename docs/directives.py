"""Directives for the pages: `{run}` and `{plot}` run their code when the page is built, the others write tables.

The running itself stands in pages.py.
"""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any, ClassVar

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
        figure = nodes.figure("", nodes.image(uri=source, alt=words), nodes.caption(words, words))
        return [nodes.literal_block(code, code, language="python", classes=["code"]), figure]


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
    app.add_directive("numpy", Numpy)
    app.add_directive("plot", Plot)
    app.add_directive("rules", Rules)
    app.add_directive("special", Special)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: list(env.found_docs))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
