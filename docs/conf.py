"""Settings of the pages."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the package of this checkout, and the directives

import xtensor  # noqa: E402 - found through the line above

project = "xtensor"
author = "the xtensor developers"
release = version = xtensor.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "directives"]
exclude_patterns = ["_build", "upstream"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"  # what docstrings mean by `name`

html_theme = "furo"
html_title = f"xtensor {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
