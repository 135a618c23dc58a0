"""``rmtbase constants``: every number of the null that one may want to cite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rmtbase.constants import Constant, ConstantFunction

FORMATS = ("text", "json", "latex", "bibtex")
_LISTED_DIGITS = 15
_NAMED_DIGITS = 30
_WIDE = 130  # columns from which a description stands beside its value, not below its name


def constants(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which ones; without, all.")] = None,
    digits: Annotated[
        int | None,
        typer.Option(help="Significant digits: 30 of one that is named, 15 in the list, or as many as there are."),
    ] = None,
    output: Annotated[str, typer.Option("--format", help="text, json, latex (rows of a table) or bibtex.")] = "text",
    d_model: Annotated[int | None, typer.Option(help="Width, for the functions of the shape.")] = None,
    d_head: Annotated[int | None, typer.Option(help="Head dimension, likewise.")] = None,
) -> None:
    """Print the constants of the null: definition, digits, uncertainty, references.

    Example: rmtbase constants product_upper_edge --d-model 768 --d-head 64 --digits 20
    """
    import rmtbase
    from rmtbase.cli._terminal import out, print_json
    from rmtbase.constants import as_json, as_latex, bibliography, bibtex, find, groups
    from rmtbase.errors import ParameterError
    from rmtbase.parameters import require_head_shape, require_positive_integer

    if output not in FORMATS:
        raise ParameterError("format", output, f"one of {', '.join(FORMATS)}")
    default = _NAMED_DIGITS if names else _LISTED_DIGITS
    count = require_positive_integer("digits", default if digits is None else digits)
    shape = {name: value for name, value in (("d_model", d_model), ("d_head", d_head)) if value is not None}
    if len(shape) == 2:
        require_head_shape(**shape)
    found = {"": tuple(find(name) for name in names)} if names else groups()
    sections = {heading: [_at(entry, shape, bool(names)) for entry in entries] for heading, entries in found.items()}
    entries = [entry for section in sections.values() for entry in section]
    if names:
        _refuse_unused_shape(found[""], shape)
        for entry in entries if digits is not None else ():
            entry.require_digits(count)
    keys = {key for entry in entries for key in entry.references}
    if output == "bibtex":
        print(bibtex(keys))
    elif output == "latex":
        print(as_latex(entries, count))
    elif output == "json":
        references = {key: reference.bibtex for key, reference in bibliography().items() if key in keys}
        page = {"rmtbase_version": rmtbase.__version__, **shape, "constants": as_json(entries, count)}
        print_json(page | {"references": references})
    elif names:
        for place, entry in enumerate(entries):
            print(end="\n" if place else "")
            _print_one(entry, count, out())
    else:
        _print_all(sections, count, shape, out())


def _at(entry: Constant | ConstantFunction, shape: dict[str, int], named: bool) -> Constant | ConstantFunction:
    """The entry with its shape put in, where there is one; in a list of all, where it has a value at that shape."""
    from rmtbase.constants import Constant
    from rmtbase.errors import ParameterError

    if isinstance(entry, Constant) or not any(name in shape for name in entry.parameters):
        return entry
    try:
        return entry(**{name: value for name, value in shape.items() if name in entry.parameters})
    except ParameterError:
        if named:
            raise
        return entry


def _refuse_unused_shape(entries: tuple[Constant | ConstantFunction, ...], shape: dict[str, int]) -> None:
    from rmtbase.errors import ParameterError

    for name, value in shape.items():
        if not any(name in getattr(entry, "parameters", ()) for entry in entries):
            raise ParameterError(
                name, value, f"none: {', '.join(entry.name for entry in entries)} does not depend on it"
            )


def _value(entry: Constant | ConstantFunction, digits: int, shape: dict[str, int] | None = None) -> str:
    from rmtbase.constants import Constant, shown_digits

    if isinstance(entry, Constant):
        return shown_digits(entry, digits)
    given = shape is not None and all(name in shape for name in entry.parameters)
    return "none at this shape" if given else f"of {', '.join(entry.parameters)}"


def _print_all(
    sections: dict[str, list[Constant | ConstantFunction]], digits: int, shape: dict[str, int], console: Console
) -> None:
    """Name, value and description of each, under the headings."""
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
    console.print("rmtbase constants NAME shows definition, uncertainty and references of one.", style="dim")


def _print_one(entry: Constant | ConstantFunction, digits: int, console: Console) -> None:
    """Everything that is known of one."""
    from rmtbase.constants import bibliography

    uncertainty = entry.uncertainty if isinstance(entry.uncertainty, str) else "depends on the shape"
    rows = [
        ("value", _value(entry, digits)),
        ("uncertainty", uncertainty),
        ("symbol", entry.symbol),
        ("definition", entry.definition),
        ("computed by", entry.method),
        ("from", ", ".join(entry.parents)),
        ("digits", f"up to {entry.most_digits}"),
    ]
    known = bibliography()
    for place, key in enumerate(entry.references):
        rows.append(("" if place else "references", f"{key}: {known[key].title}. {known[key].link}".rstrip()))
    shown = Table.grid(padding=(0, 2))
    shown.add_column(no_wrap=True, style="dim")
    shown.add_column(overflow="fold")
    for label, text in rows:
        if text:
            shown.add_row(f"  {label}", Text(text))
    console.print(Text.assemble((entry.name, "bold"), f"  {entry.description}"))
    console.print(shown)
