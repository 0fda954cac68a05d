"""Directives for the pages: `{run}` runs its code when the page is built, the others write tables and listings.

The running itself stands in pages.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pages
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
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: list(env.found_docs))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
