"""The constants: each with its value, definition, uncertainty, conditions and references, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from _generate import as_plain, write_page
from rmtbase.constants import Constant, ConstantFunction, groups

_INTRODUCTION = """# Constants

Every number has its conditions and its uncertainty. The digits shown are all right; `rmtbase constants NAME --digits N`
has more, `--format latex` a sentence for a paper, and `rmtbase cite NAME` the BibTeX of what is to be cited. In Python
they are names of {py:mod}`rmtbase.constants`."""


def write_constants() -> None:
    """Write the page of all constants."""
    parts = [_INTRODUCTION]
    for heading, entries in groups().items():
        parts.append(f"## {as_plain(heading)}")
        parts += (part for entry in entries for part in _entry(entry))
    write_page("constants.md", "\n\n".join(parts) + "\n")


def _entry(entry: Constant | ConstantFunction) -> Iterator[str]:
    yield f"### {as_plain(entry.name)}"
    yield f"{as_plain(entry.description)}."
    yield f"$$\n{entry.symbol} = {entry.definition}\n$$"
    fields = {"identifier": f"`{entry.id}`", **dict(_value(entry))}
    fields |= {name: as_plain(text) for name, text in entry.conditions.stated().items()}
    fields["computed by"] = as_plain(entry.method)
    if entry.parents:
        fields["computed from"] = ", ".join(f"[](#{parent.replace('_', '-')})" for parent in entry.parents)
    if isinstance(entry, Constant) and entry.enclosure:
        fields["proved"] = "bounds of 110 digits in ball arithmetic, by `rmtbase constants NAME --format json`"
    fields["references"] = f"{{cite}}`{','.join(entry.references)}`"
    yield "\n".join(f"* {name}: {text}" for name, text in fields.items())


def _value(entry: Constant | ConstantFunction) -> Iterator[tuple[str, str]]:
    if isinstance(entry, Constant):
        value, error = entry.rounded()
        yield "value", f"`{value}`" + (f" ± `{error}`" if error else "")
        yield "uncertainty", as_plain(entry.uncertainty)
        return
    yield "function of", ", ".join(f"`{name}`" for name in entry.parameters)
    if isinstance(entry.uncertainty, str):
        yield "uncertainty", as_plain(entry.uncertainty)
