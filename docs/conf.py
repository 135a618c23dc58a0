"""Configuration of Sphinx for the site: ``sphinx-build -W --keep-going -n docs build/site``."""

from __future__ import annotations

import os
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

import rmtbase

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def _mathjax() -> Path:
    """MathJax as one file of an installed package: the site asks no other host for it."""
    (found,) = (file for file in files("sphinx-mathjax-offline") or () if file.name == "tex-svg.js")
    return Path(str(found.locate()))


project = "rmtbase"
author = "The rmtbase developers"
project_copyright = "the rmtbase developers, BSD-3-Clause"
release = version = rmtbase.__version__
extensions = [
    "_generate._site",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_*"]

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
nb_execution_mode = "force"
nb_execution_in_temp = True
myst_heading_anchors = 4
myst_mathjax_classes = "tex2jax_process|mathjax_process|math|output_area|text_html"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "warn"
os.environ["RMTBASE_PROOF"] = "0"  # which would load torch, of the bundled model
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of what draws bars in notebooks, and has nothing to draw

smartquotes = False
highlight_language = "text"  # of blocks that name none: commands and drawings, no Python
autodoc_type_aliases = {name: name for name in ("ArrayLike", "FloatArray")}
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style"), "Source", "Sources", "Reference", "Accuracy"]
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
nitpicky = True
toc_object_entries = False
nitpick_ignore_regex = [
    ("py:.*", r"rmtbase\.drawing\..*"),
    (r"py:.*", r"(?!rmtbase\.).*"),  # what other packages define: their sites are not asked
    (r"py:.*", r"rmtbase\.((.*\.)?_.*|results\.\w+\.report\..*)"),  # in signatures: classes that no room exports
]

bibtex_bibfiles = ["../src/rmtbase/constants/references.bib"]
bibtex_default_style = "plain"

html_theme = "furo"
html_title = f"rmtbase {release}"
html_static_path = ["_static", str(_mathjax())]
html_css_files = ["site.css"]
html_js_files = ["drawers.js"]
html_favicon = "_static/icon.svg"
html_copy_source = False
html_show_sphinx = False
mathjax_path = "tex-svg.js"
mathjax3_config: dict[str, Any] = {
    "options": {"enableMenu": False},  # it would make each formula a stop of the Tab key
    "tex": {"inlineMath": [["\\(", "\\)"], ["$", "$"]]},  # as notebooks have it, in what their cells show
}
