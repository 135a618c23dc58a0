"""``rmtbase constants``: every number of the null that may be worth citing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.terminal import completion as _completion
from rmtbase.terminal.command_line import INTEGER, next_command
from rmtbase.terminal.options import DHead, Dims, DModel, Normalization, Sigma, sigma_keywords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmtbase.constants import Constant, ConstantFunction
    from rmtbase.report import Item

    Entry = Constant | ConstantFunction

FORMATS = ("text", "latex", "latex-rows")
_LISTED_DIGITS = 15
_NAMED_DIGITS = 30
_SENTENCE_DIGITS = 6


def constants(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names, identifiers, or words of the description or of the computing function. Default: all.",
            autocompletion=_completion.constants,
        ),
    ] = None,
    digits: Annotated[
        int | None,
        typer.Option(
            help="Significant digits. Default: 30 for a named constant, 15 in the list, 6 in a sentence.", **INTEGER
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="text, latex (a sentence for a paper) or latex-rows (rows of a table).",
            autocompletion=_completion.one_of(*FORMATS),
        ),
    ] = "text",
    d_model: DModel = None,
    d_head: DHead = None,
    dims: Dims = None,
    sigma: Sigma = None,
    normalization: Normalization = None,
) -> None:
    """Print the constants of the null: value, conditions, definition, uncertainty, references, a sentence to cite it.

    With --dims: those of the edges of a chain.

    Example: rmtbase constants product_upper_edge --d-model 768 --d-head 64 --sigma 0.02 --format latex

    Example: rmtbase constants chain_upper_edge --dims 512,64,512,64
    """
    import rmtbase
    from rmtbase.constants import as_json, as_latex, bibliography, chain_constants, current_set, find, software
    from rmtbase.errors import ParameterError
    from rmtbase.parameters import require_head_shape, require_positive_integer
    from rmtbase.report import print_report
    from rmtbase.terminal.output import JSON
    from rmtbase.terminal.streams import out, print_json

    if output not in FORMATS:
        raise ParameterError("format", output, f"one of {', '.join(FORMATS)}; see 'rmtbase cite' for references")
    if JSON.get() and output != "text":
        raise ParameterError("format", output, "none with --json")
    shape = {"d_model": d_model, "d_head": d_head, "dims": dims}
    shape = {name: value for name, value in shape.items() if value is not None}
    scale = sigma_keywords(sigma) | ({} if normalization is None else {"normalization": normalization})
    if dims is not None and len(shape) > 1:
        raise ParameterError("dims", dims, "no --d-model and --d-head beside it")
    if len(shape) == 2:
        require_head_shape(**shape)
    elif scale and not names and dims is None:
        raise ParameterError(next(iter(scale)), next(iter(scale.values())), "--d-model and --d-head beside it")
    chosen = current_set()
    groups, named = chosen.groups(), False
    if dims is not None:
        chain = chain_constants(dims, sigma, normalization)
        for name in names or ():
            if name not in chain:
                raise ParameterError("constant", name, f"one of those of a chain: {', '.join(chain)}")
        heading, named = f"Edges of the chain {' × '.join(map(str, dims))}", bool(names)
        groups = {heading: tuple(chain[name] for name in names or chain)}
    elif names:
        matches = []
        for name in names:
            try:
                matches.append((find(name),))
            except ParameterError:  # else every entry with this word
                matches.append(chosen.search(name))
                if not matches[-1]:
                    raise
        named = all(len(entries) == 1 for entries in matches)
        groups = {"": tuple({entry.name: entry for entries in matches for entry in entries}.values())}
        _refuse_unused(groups[""], shape, scale)
    default = _NAMED_DIGITS if named else _LISTED_DIGITS
    count = require_positive_integer("digits", default if digits is None else digits)
    sections = {heading: [_at(entry, shape, scale, named) for entry in entries] for heading, entries in groups.items()}
    entries = [entry for section in sections.values() for entry in section]
    for entry in entries if named and digits is not None else ():
        entry.require_digits(count)
    keys = {key for entry in entries for key in entry.references}
    if output == "latex":
        print("\n\n".join(_latex(entry, digits or _SENTENCE_DIGITS) for entry in entries))
    elif output == "latex-rows":
        print(as_latex(entries, count))
    elif JSON.get():
        references = {key: reference.bibtex for key, reference in bibliography().items() if key in keys}
        page = {
            "rmtbase_version": rmtbase.__version__,
            "set": {"name": chosen.name, "date": chosen.date, "sha256": chosen.sha256},
            **shape,
            **scale,
            "constants": as_json(entries, count),
        }
        print_json(page | {"references": references, "citation": software().bibtex})
    elif named:
        for entry in entries:
            print_report(_entry_report(entry, count, digits or _SENTENCE_DIGITS), out())
    else:
        print_report(_list_report(sections, count, shape), out())


def _at(entry: Entry, shape: dict[str, int], scale: dict[str, Any], named: bool) -> Entry:
    """Evaluate an entry at the given shape, if any; in a list of all entries, only if it has a value at that shape."""
    from rmtbase.constants import Constant
    from rmtbase.errors import ParameterError

    if isinstance(entry, Constant) or not (scale or any(name in shape for name in entry.parameters)):
        return entry
    takes = entry.takes(scale.get("normalization", "sqrt_d"))
    try:
        return entry(**{name: value for name, value in shape.items() if name in takes}, **scale)
    except ParameterError:
        if named:
            raise
        return entry


def _refuse_unused(entries: tuple[Entry, ...], shape: dict[str, int], scale: dict[str, Any]) -> None:
    from rmtbase.constants import ConstantFunction
    from rmtbase.errors import ParameterError

    normalization = scale.get("normalization", "sqrt_d")
    functions = [entry for entry in entries if isinstance(entry, ConstantFunction)]
    taken = {name for entry in functions for name in entry.takes(normalization)} | (set(scale) if functions else set())
    for name, value in (shape | scale).items():
        if name not in taken:
            names = ", ".join(entry.name for entry in entries)
            raise ParameterError(name, value, f"none: {names} does not depend on it")


def _latex(entry: Entry, digits: int) -> str:
    from rmtbase.constants import Constant, as_identified, as_latex_sentence

    sentence = f"\n{as_latex_sentence(entry, digits)}" if isinstance(entry, Constant) else ""
    return f"% {as_identified(entry)}: {entry.description}; {entry.conditions}{sentence}"


def _value(entry: Entry, digits: int, shape: dict[str, int] | None = None) -> str:
    from rmtbase.constants import Constant

    if isinstance(entry, Constant):
        return entry.shown(digits)
    has_shape = shape is not None and all(name in shape for name in entry.parameters)
    return "none at this shape" if has_shape else f"of {', '.join(entry.parameters)}"


def _list_report(sections: dict[str, list[Entry]], digits: int, shape: dict[str, int]) -> Iterator[Item]:
    from rmtbase.report import Column, Rows

    columns = [Column(name, "left") for name in ("name", "value", "description")]
    for heading, entries in sections.items():
        rows = [(entry.name, _value(entry, digits, shape), entry.description) for entry in entries]
        yield Rows(columns, rows, title=heading)
    first = next(entry.name for entries in sections.values() for entry in entries)
    yield f"Conditions, definition, uncertainty and references of one: {next_command(first)}"


def _entry_report(entry: Entry, digits: int, sentence_digits: int) -> Iterator[Item]:
    from rmtbase.constants import (
        KINDS_OF_ERROR,
        Constant,
        as_sentence,
        bibliography,
        of_one_draw,
        shown_enclosure,
        software,
    )
    from rmtbase.report import Heading

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
    if isinstance(entry, Constant):
        numbers = f"absolute {entry.error:.1e}, relative {entry.relative_error:.1e}" if entry.relative_error else "0"
        rows |= {
            "one draw": of_one_draw(entry),
            "error": f"{numbers}: {KINDS_OF_ERROR[entry.error_kind]}",
            "enclosed": shown_enclosure(entry, digits),
            "to cite": as_sentence(entry, sentence_digits),
        }
    yield Heading(f"{entry.name}: {entry.description}")
    yield from (f"{label}: {text}" for label, text in rows.items() if text)
    references = [bibliography()[key] for key in entry.references]
    for number, reference in enumerate([*references, software()], 1):
        source = reference.link or reference.fields.get("note", "")
        yield f"[{number}] {reference.key}: {reference.title}. {source}".rstrip()
