"""Sphinx extension: writes generated pages before any page is read, and says how docstrings are read."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from _generate import HERE, as_plain, write_page
from _generate._api import as_restructured_text, resolve_by_full_name, write_api
from _generate._commands import write_commands
from _generate._constants import write_constants
from _generate._gallery import write_gallery
from _generate._outside import link_to_copies, write_outside
from _generate._schemas import write_schemas
from rmtbase.report import glossary

_GLOSSARY = """Every page that a command writes ends with those of these terms that it uses, and links to
them where it first uses them; `rmtbase --verbose` prints them below a result.
[Concepts](../concepts.md) has the mathematics.
"""


def _write_pages(app: Any) -> None:
    for write in (write_api, write_commands, write_schemas, write_constants, write_gallery, write_outside):
        write()
    terms = (f"({term.anchor})=\n{as_plain(term.name)}\n: {as_plain(term.text)}\n" for term in glossary())
    write_page("glossary.md", "\n".join(["# What the words mean", _GLOSSARY, *terms]))
    for notebook in (HERE.parent / "examples").glob("*.ipynb"):
        write_page(f"tutorials/{notebook.name}", notebook.read_text(encoding="utf-8"))


def _set_symbols(app: Any, doctree: nodes.document, docname: str) -> None:
    """Set symbols between dollar signs in the titles of the bibliography as symbols."""
    for citation in doctree.findall(nodes.citation):
        for text in list(citation.findall(nodes.Text)):
            parts = re.split(r"\$(\w+)\$", text)
            if len(parts) > 1 and text.parent is not None:
                new = [nodes.emphasis("", one) if place % 2 else nodes.Text(one) for place, one in enumerate(parts)]
                text.parent.replace(text, new)


def setup(app: Any) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("builder-inited", _write_pages)
    app.connect("doctree-read", resolve_by_full_name)
    app.connect("doctree-resolved", _set_symbols)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon
    app.connect("source-read", link_to_copies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
