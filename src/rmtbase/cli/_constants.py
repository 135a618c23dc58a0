"""``rmtbase constants``: every number of the null that may be worth citing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rmtbase.terminal import completion as _completion
from rmtbase.terminal.command_line import INTEGER, next_command
from rmtbase.terminal.options import DHead, Dims, DModel, Normalization, Sigma, sigma_keywords

if TYPE_CHECKING:
    from rmtbase.constants import Constant, ConstantFunction

FORMATS = ("text", "latex", "latex-rows")
_LISTED_DIGITS = 15
_NAMED_DIGITS = 30
_SENTENCE_DIGITS = 6
_WIDE = 130  # number of columns from which a description stands next to its value, not below its name


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
    from rmtbase.constants import as_json, as_latex, bibliography, chain_constants, current_set, software
    from rmtbase.errors import ParameterError
    from rmtbase.parameters import require_head_shape, require_positive_integer
    from rmtbase.terminal.output import JSON
    from rmtbase.terminal.streams import out, print_json

    if output not in FORMATS:
        raise ParameterError("format", output, f"one of {', '.join(FORMATS)}; see 'rmtbase cite' for references")
    if JSON.get() and output != "text":
        raise ParameterError("format", output, "none with --json")
    shape = _given(d_model=d_model, d_head=d_head, dims=dims)
    scale = {**sigma_keywords(sigma), **_given(normalization=normalization)}
    if dims is not None and len(shape) > 1:
        raise ParameterError("dims", dims, "no --d-model and --d-head beside it")
    if len(shape) == 2:
        require_head_shape(**shape)
    elif scale and not names and dims is None:
        raise ParameterError(next(iter(scale)), next(iter(scale.values())), "--d-model and --d-head beside it")
    chosen = current_set()
    found, named = chosen.groups(), False
    if dims is not None:
        chain = chain_constants(dims, sigma, normalization)
        found, named = {f"Edges of the chain {' × '.join(map(str, dims))}": _chosen(chain, names)}, bool(names)
    elif names:
        matches = [_matching(name) for name in names]
        named = all(len(one) == 1 for one in matches)
        found = {"": tuple({entry.name: entry for one in matches for entry in one}.values())}
        _refuse_unused(found[""], shape, scale)
    default = _NAMED_DIGITS if named else _LISTED_DIGITS
    count = require_positive_integer("digits", default if digits is None else digits)
    sections = {heading: [_at(entry, shape, scale, named) for entry in entries] for heading, entries in found.items()}
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
        for place, entry in enumerate(entries):
            print(end="\n" if place else "")
            _print_one(entry, count, digits or _SENTENCE_DIGITS, out())
    else:
        _print_all(sections, count, shape, out())


def _chosen(chain: dict[str, Constant], names: list[str] | None) -> tuple[Constant, ...]:
    from rmtbase.errors import ParameterError

    for name in names or ():
        if name not in chain:
            raise ParameterError("constant", name, f"one of those of a chain: {', '.join(chain)}")
    return tuple(chain[name] for name in names or chain)


def _matching(word: str) -> tuple[Constant | ConstantFunction, ...]:
    """Return the entry with this name or identifier, or else every entry with this word."""
    from rmtbase.constants import current_set, find
    from rmtbase.errors import ParameterError

    try:
        return (find(word),)
    except ParameterError:
        if found := current_set().search(word):
            return found
        raise


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _at(
    entry: Constant | ConstantFunction, shape: dict[str, int], scale: dict[str, Any], named: bool
) -> Constant | ConstantFunction:
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


def _refuse_unused(
    entries: tuple[Constant | ConstantFunction, ...], shape: dict[str, int], scale: dict[str, Any]
) -> None:
    """Refuse a shape or a scale on which no entry depends."""
    from rmtbase.constants import ConstantFunction
    from rmtbase.errors import ParameterError

    normalization = scale.get("normalization", "sqrt_d")
    functions = [entry for entry in entries if isinstance(entry, ConstantFunction)]
    taken = {name for entry in functions for name in entry.takes(normalization)} | (set(scale) if functions else set())
    for name, value in (shape | scale).items():
        if name not in taken:
            names = ", ".join(entry.name for entry in entries)
            raise ParameterError(name, value, f"none: {names} does not depend on it")


def _conditions(entries: list[Constant | ConstantFunction]) -> list[str]:
    from rmtbase.constants import as_identified

    return [f"{as_identified(entry)}: {entry.description}; {entry.conditions}" for entry in entries]


def _latex(entry: Constant | ConstantFunction, digits: int) -> str:
    """Write an entry's sentence after a comment with its conditions; only the comment if it lacks its shape."""
    from rmtbase.constants import Constant, as_latex_sentence

    (comment,) = _conditions([entry])
    sentence = f"\n{as_latex_sentence(entry, digits)}" if isinstance(entry, Constant) else ""
    return f"% {comment}{sentence}"


def _value(entry: Constant | ConstantFunction, digits: int, shape: dict[str, int] | None = None) -> str:
    from rmtbase.constants import Constant

    if isinstance(entry, Constant):
        return entry.shown(digits)
    given = shape is not None and all(name in shape for name in entry.parameters)
    return "none at this shape" if given else f"of {', '.join(entry.parameters)}"


def _print_all(
    sections: dict[str, list[Constant | ConstantFunction]], digits: int, shape: dict[str, int], console: Console
) -> None:
    """Print the name, value and description of each entry, under the headings."""
    wide = console.width >= _WIDE
    widths = [len(entry.name) for section in sections.values() for entry in section]
    for heading, entries in sections.items():
        shown = Table(title=heading, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
        shown.add_column(no_wrap=wide, min_width=max(widths) if wide else None, overflow="fold")
        shown.add_column(overflow="fold")
        for entry in entries:
            value = _value(entry, digits, shape)
            if wide:
                shown.add_row(entry.name, value, Text(entry.description, "dim"))
            else:
                below = Padding(Text(entry.description, "dim"), (0, 0, 0, 2))
                shown.add_row(Group(entry.name, below), value)
        console.print(shown)
    first = next(entry.name for entries in sections.values() for entry in entries)
    line = f"Conditions, definition, uncertainty and references of one: {next_command(first)}"
    console.print(line, style="dim")


def _errors(entry: Constant, digits: int) -> list[tuple[str, str]]:
    """Format an entry's uncertainty in numbers, the kind of its error, and its bounds."""
    from rmtbase.constants import KINDS_OF_ERROR, shown_enclosure

    numbers = f"absolute {entry.error:.1e}, relative {entry.relative_error:.1e}" if entry.relative_error else "0"
    return [("error", f"{numbers}: {KINDS_OF_ERROR[entry.error_kind]}"), ("enclosed", shown_enclosure(entry, digits))]


def _print_one(entry: Constant | ConstantFunction, digits: int, sentence_digits: int, console: Console) -> None:
    """Print everything that is known about one entry."""
    from rmtbase.constants import Constant, as_sentence, bibliography, of_one_draw, software

    uncertainty = entry.uncertainty if isinstance(entry.uncertainty, str) else "depends on the shape"
    rows = [
        ("id", f"{entry.id}, released {entry.released.date}" if entry.released else "not released"),
        ("value", _value(entry, digits)),
        ("one draw", of_one_draw(entry) if isinstance(entry, Constant) else ""),
        ("uncertainty", uncertainty),
        *(_errors(entry, digits) if isinstance(entry, Constant) else ()),
        ("OEIS", entry.oeis),
        *entry.conditions.stated().items(),
        ("symbol", entry.symbol),
        ("definition", entry.definition),
        ("computed by", entry.method),
        ("from", ", ".join(entry.parents)),
        ("digits", f"up to {entry.most_digits}"),
    ]
    references = [bibliography()[key] for key in entry.references]
    for number, one in enumerate([*references, software()], 1):
        label = "references" if number == 1 else ""
        rows.append((label, f"[{number}] {one.key}: {one.title}. {one.link or one.fields.get('note', '')}".rstrip()))
    if isinstance(entry, Constant):
        rows.append(("to cite", as_sentence(entry, sentence_digits)))
    shown = Table.grid(padding=(0, 2))
    shown.add_column(no_wrap=True, style="dim")
    shown.add_column(overflow="fold")
    for label, text in rows:
        if text:
            shown.add_row(f"  {label}", Text(text))
    console.print(Text.assemble((entry.name, "bold"), f"  {entry.description}"))
    console.print(shown)
