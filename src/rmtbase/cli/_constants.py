"""``rmtbase constants``: every number of the null that may be worth citing."""

from typing import Annotated

import typer

from rmtbase.terminal import completion as _completion
from rmtbase.terminal.command_line import INTEGER
from rmtbase.terminal.options import DHead, Dims, DModel, Normalization, Sigma, sigma_keywords

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
    from rmtbase.cli._constants_report import at_shape, entry_report, latex, list_report, refuse_unused
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
        refuse_unused(groups[""], shape, scale)
    default = _NAMED_DIGITS if named else _LISTED_DIGITS
    count = require_positive_integer("digits", default if digits is None else digits)
    sections = {heading: [at_shape(entry, shape, scale, named) for entry in group] for heading, group in groups.items()}
    entries = [entry for section in sections.values() for entry in section]
    for entry in entries if named and digits is not None else ():
        entry.require_digits(count)
    keys = {key for entry in entries for key in entry.references}
    if output == "latex":
        print("\n\n".join(latex(entry, digits or _SENTENCE_DIGITS) for entry in entries))
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
            print_report(entry_report(entry, count, digits or _SENTENCE_DIGITS), out())
    else:
        print_report(list_report(sections, count, shape), out())
