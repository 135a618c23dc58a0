"""The reference of the library: a page for each package, with every name that it exports."""

from __future__ import annotations

import ast
import builtins
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.pycode import ModuleAnalyzer

import rmtbase.errors
from _generate import write_page

SECTIONS = [
    "Args",
    "Attributes",
    "Example",
    "Raises",
    "Reference",
    "References",
    "Returns",
    "Source",
    "Sources",
    "Yields",
    "Accuracy",
]
_OPTIONS = {"class": ("   :members:", "   :show-inheritance:"), "exception": ("   :show-inheritance:",)}
_HEADINGS = {"function": "Functions", "class": "Classes", "exception": "Exceptions", "data": "Data"}
_LONGEST_VALUE = 100
_SECTION = re.compile(r"(Args|Attributes|Examples?|Raises|References?|Returns|Sources?|Yields|Accuracy):$")
_LITERAL = re.compile(r"(``.*?``|:\w+:`.*?`)")


def public_modules() -> dict[str, ModuleType]:
    """``rmtbase`` and every module in it that is public, by its dotted name."""
    below = [f"rmtbase.{module.name}" for module in pkgutil.iter_modules(rmtbase.__path__) if module.name[0] != "_"]
    below += [f"rmtbase.drawing.{name}" for name in ("theme", "figure", "color_scales")]
    for package in map(import_module, ("rmtbase.heads", "rmtbase.tables", "rmtbase.results")):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        below += [
            one.name for one in found if not re.search(r"\._|results\.(outputs|\w+\.(command|report))$", one.name)
        ]
    return {name: import_module(name) for name in ("rmtbase", *below) if name != "rmtbase.terminal"}


def public_names(module: ModuleType) -> list[str]:
    """Names that a module exports: its ``__all__``, or else its own functions, classes and documented data."""
    if hasattr(module, "__all__"):
        return sorted({*module.__all__} - {"figure_recipes"})  # which the registry of kinds calls
    data = {name for _, name in ModuleAnalyzer.for_module(module.__name__).find_attr_docs()}
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "figure_recipes"
        and (name in data or getattr(value, "__module__", "") == module.__name__)
    )


def write_api() -> None:
    """Write the page of each module, and the one that lists them."""
    modules = {name: module for name, module in public_modules().items() if public_names(module)}
    for name, module in modules.items():
        write_page(f"api/{name}.rst", "\n".join(_page(name, module)))
    rows = "\n".join(
        f"* {{doc}}`{name}`: {(inspect.getdoc(module) or '').partition(chr(10))[0]}" for name, module in modules.items()
    )
    listed = "\n".join(modules)
    write_page("api/index.md", f"# Library\n\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n")


def _page(name: str, module: ModuleType) -> Iterator[str]:
    yield from (name, "=" * len(name), "", f".. automodule:: {name}", "")
    listed = (f":py:obj:`{public} <{name}.{public}>`" for public in public_names(module))
    yield from (".. rst-class:: names", "", " · ".join(listed), "")
    kinds: dict[str, list[str]] = {"function": [], "class": [], "exception": [], "data": []}
    for public in public_names(module):
        kinds[_kind(getattr(module, public))].append(public)
    for kind, names in kinds.items():
        if names:
            yield from ("", _HEADINGS[kind], "-" * len(_HEADINGS[kind]), "")
        for public in names:
            if kind == "data":
                yield from _datum(module, public)
                continue
            yield from (f".. auto{kind}:: {name}.{public}", *_OPTIONS.get(kind, ()), "")


def _datum(module: ModuleType, name: str) -> Iterator[str]:
    """Describe a number or a table: its value if that is short, and the docstring below its definition."""
    value = repr(getattr(module, name))
    yield f".. py:data:: {name}"
    if len(value) <= _LONGEST_VALUE and " at 0x" not in value:
        yield f"   :value: {value}"
    home = ModuleAnalyzer.for_module(_home(module, name))
    yield from ("", *(f"   {line}" for line in _as_text(home.find_attr_docs().get(("", name), []))), "")


def _home(module: ModuleType, name: str) -> str:
    """Name of the module whose source defines what another module exports under that name."""
    stub = Path(str(module.__file__)).with_suffix(".pyi")  # of a package that imports when it is asked
    source = stub.read_text(encoding="utf-8") if stub.is_file() else inspect.getsource(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            return _home(import_module("." * node.level + str(node.module), module.__name__), name)
    return module.__name__


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) else "data"


def as_restructured_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with roles: bars are bars, and what is indented is a formula, line by line."""
    lines[:] = _as_text(lines)


def resolve_by_full_name(app: Any, doctree: nodes.document) -> None:
    """Turn references to other packages' objects into plain text, and resolve errors in their own module.

    Sphinx would compare each with the end of every name that there is, and then find the wrong one or none.
    """
    for dash in list(doctree.findall(lambda node: isinstance(node, nodes.Text) and node == " -- ")):
        dash.parent.replace(dash, nodes.Text(" – "))
    errors = public_names(rmtbase.errors)
    for reference in list(doctree.findall(pending_xref)):
        if reference.get("refdomain") != "py" or reference["reftarget"].startswith("."):
            continue
        if reference["reftarget"].startswith("rmtbase."):
            reference["refspecific"] = False  # the name is whole
            continue
        if reference["reftarget"] in errors:
            reference["reftarget"] = f"rmtbase.errors.{reference['reftarget']}"
        elif reference.get("refspecific") or reference["reftarget"] in vars(builtins):
            reference.replace_self(reference.children)


def _as_text(lines: list[str]) -> list[str]:
    return _with_formulas([_escaped(line) for line in lines])


def _escaped(line: str) -> str:
    return "".join(part if place % 2 else part.replace("|", r"\|") for place, part in enumerate(_LITERAL.split(line)))


def _with_formulas(lines: list[str]) -> list[str]:
    made: list[str] = []
    in_section = in_formula = False
    for line in lines:
        if line and not line.startswith(" "):
            in_section, in_formula = bool(_SECTION.match(line)), False
        elif line and not in_section and not in_formula and made and not made[-1] and not _continues(made):
            made += ["::", ""]
            in_formula = True
        made.append(line)
    return made


def _continues(lines: list[str]) -> bool:
    """Return True if the last paragraph is a list entry, or introduces a block itself."""
    last = next((line for line in reversed(lines) if line and not line.startswith(" ")), "")
    return last.startswith(("* ", "- ", ".. ")) or last.endswith("::") or lines[-2].endswith("::")
