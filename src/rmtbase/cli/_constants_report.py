"""Constants at a shape, and their report: a list of many, all that is known of one."""

from collections.abc import Iterator
from typing import Any

from rmtbase import constants
from rmtbase.errors import ParameterError
from rmtbase.report import Column, Heading, Item, Rows
from rmtbase.terminal.command_line import next_command

Entry = constants.Constant | constants.ConstantFunction


def at_shape(entry: Entry, shape: dict[str, int], scale: dict[str, Any], named: bool) -> Entry:
    """Evaluate an entry at the given shape, if any; in a list of all entries, only if it has a value at that shape."""
    if isinstance(entry, constants.Constant) or not (scale or any(name in shape for name in entry.parameters)):
        return entry
    takes = entry.takes(scale.get("normalization", "sqrt_d"))
    try:
        return entry(**{name: value for name, value in shape.items() if name in takes}, **scale)
    except ParameterError:
        if named:
            raise
        return entry


def refuse_unused(entries: tuple[Entry, ...], shape: dict[str, int], scale: dict[str, Any]) -> None:
    normalization = scale.get("normalization", "sqrt_d")
    functions = [entry for entry in entries if isinstance(entry, constants.ConstantFunction)]
    taken = {name for entry in functions for name in entry.takes(normalization)} | (set(scale) if functions else set())
    for name, value in (shape | scale).items():
        if name not in taken:
            names = ", ".join(entry.name for entry in entries)
            raise ParameterError(name, value, f"none: {names} does not depend on it")


def latex(entry: Entry, digits: int) -> str:
    sentence = f"\n{constants.as_latex_sentence(entry, digits)}" if isinstance(entry, constants.Constant) else ""
    return f"% {constants.as_identified(entry)}: {entry.description}; {entry.conditions}{sentence}"


def _value(entry: Entry, digits: int, shape: dict[str, int] | None = None) -> str:
    if isinstance(entry, constants.Constant):
        return entry.shown(digits)
    has_shape = shape is not None and all(name in shape for name in entry.parameters)
    return "none at this shape" if has_shape else f"of {', '.join(entry.parameters)}"


def list_report(sections: dict[str, list[Entry]], digits: int, shape: dict[str, int]) -> Iterator[Item]:
    columns = [Column(name, "left") for name in ("name", "value", "description")]
    for heading, entries in sections.items():
        rows = [(entry.name, _value(entry, digits, shape), entry.description) for entry in entries]
        yield Rows(columns, rows, title=heading)
    first = next(entry.name for entries in sections.values() for entry in entries)
    yield f"Conditions, definition, uncertainty and references of one: {next_command(first)}"


def entry_report(entry: Entry, digits: int, sentence_digits: int) -> Iterator[Item]:
    rows = {
        "id": f"{entry.id}, released {entry.released.date}" if entry.released else "not released",
        "value": _value(entry, digits),
        "uncertainty": entry.uncertainty if isinstance(entry.uncertainty, str) else "depends on the shape",
        "OEIS": entry.oeis,
        **entry.conditions.stated(),
        "symbol": entry.symbol,
        "definition": entry.definition,
        "computed by": entry.method,
        "from": ", ".join(entry.parents),
        "digits": f"up to {entry.most_digits}",
    }
    if isinstance(entry, constants.Constant):
        numbers = f"absolute {entry.error:.1e}, relative {entry.relative_error:.1e}" if entry.relative_error else "0"
        rows |= {
            "one draw": constants.of_one_draw(entry),
            "error": f"{numbers}: {constants.KINDS_OF_ERROR[entry.error_kind]}",
            "enclosed": constants.shown_enclosure(entry, digits),
            "to cite": constants.as_sentence(entry, sentence_digits),
        }
    yield Heading(f"{entry.name}: {entry.description}")
    yield from (f"{label}: {text}" for label, text in rows.items() if text)
    references = [constants.bibliography()[key] for key in entry.references]
    for number, reference in enumerate([*references, constants.software()], 1):
        source = reference.link or reference.fields.get("note", "")
        yield f"[{number}] {reference.key}: {reference.title}. {source}".rstrip()
