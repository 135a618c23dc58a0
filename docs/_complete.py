"""Test that the built site covers every public name, command, option, kind of file and constant."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import typer
from sphinx.util.inventory import InventoryFile

import rmtbase
from rmtbase.cli._app import app
from rmtbase.constants import constants, functions
from rmtbase.results import register_all
from rmtbase.tables import KINDS

register_all()


def missing(site: Path) -> list[str]:
    """List what the pages lack."""
    return [f"not on the site: {what}" for lacking in (_names, _commands, _kinds, _constants) for what in lacking(site)]


def _names(site: Path) -> Iterator[str]:
    """Yield exported names of the package and its subpackages that are not in the site's object inventory."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    for room in ("", *(f".{module.name}" for module in pkgutil.iter_modules(rmtbase.__path__))):
        module = importlib.import_module(f"rmtbase{room}") if room != ".__main__" else None
        for name in getattr(module, "__all__", ()):
            if f"rmtbase{room}.{name}" not in known:
                yield f"rmtbase{room}.{name}"


def _page(site: Path, name: str) -> str:
    return (site / "generated" / f"{name}.html").read_text(encoding="utf-8")


def _text(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", markup))


def _commands(site: Path) -> Iterator[str]:
    """Every command, and within its section each argument, and each option by each of its names."""
    parts = re.split(r'<section id="([\w-]+)">', _page(site, "commands"))
    sections = {name: _text(markup) for name, markup in zip(parts[1::2], parts[2::2], strict=True)}
    group: Any = typer.main.get_command(app)
    for name, command in {"": group, **group.commands}.items():
        words = f"rmtbase {name}".strip()
        section = sections.get(words.replace(" ", "-"))
        if section is None:
            yield words
            continue
        for param in command.params:
            is_option = param.param_type_name == "option"
            for shown in (*param.opts, *param.secondary_opts) if is_option else (param.metavar or param.name,):
                if not re.search(rf"(?<![\w-]){re.escape(shown)}(?![\w-])", section):
                    yield f"{words} {shown}"


def _kinds(site: Path) -> Iterator[str]:
    text = _text(_page(site, "schemas"))
    for kind in KINDS.values():
        for name in (*kind.attributes, *kind.may_have, *(name for schema in kind.groups.values() for name in schema)):
            if name not in text:
                yield f"{name} of {kind.name}"


def _constants(site: Path) -> Iterator[str]:
    text = _text(_page(site, "constants"))
    for entry in (*constants(), *functions()):
        if entry.name not in text:
            yield entry.name
