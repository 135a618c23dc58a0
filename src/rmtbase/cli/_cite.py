"""``rmtbase cite``: how to cite rmtbase, and the literature of its constants."""

from __future__ import annotations

from typing import Annotated

import typer

from rmtbase.terminal import completion as _completion

FORMATS = ("bibtex", "apa", "cff")


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Constants whose literature to cite, too.",
            autocompletion=_completion.constants,
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="bibtex, apa (lines of text), or cff (CITATION.cff, of rmtbase only).",
            autocompletion=_completion.one_of(*FORMATS),
        ),
    ] = "bibtex",
) -> None:
    """Print how to cite rmtbase, and the literature of the named constants.

    Example: rmtbase cite product_upper_edge > references.bib
    """
    from rmtbase.constants import as_identified, bibliography, citation_file, find, software
    from rmtbase.errors import ParameterError
    from rmtbase.terminal.output import JSON
    from rmtbase.terminal.streams import print_json

    if output not in FORMATS:
        raise ParameterError("format", output, f"one of {', '.join(FORMATS)}")
    entries = [find(name) for name in names or ()]
    cited = {key for entry in entries for key in entry.references}
    if output == "cff":
        if names:
            raise ParameterError("format", output, f"bibtex or apa: CITATION.cff is only about rmtbase, not {names[0]}")
        print(citation_file(), end="")
        return
    references = [*(one for key, one in bibliography().items() if key in cited), software()]
    if JSON.get():
        print_json([{"key": one.key, "bibtex": one.bibtex, "apa": one.apa} for one in references])
    elif output == "apa":
        print("\n\n".join(one.apa for one in references))
    else:
        comments = [f"% {as_identified(one)}: {one.description}; {one.conditions}" for one in entries]
        print("\n\n".join(["\n".join(comments), *(one.bibtex for one in references)][not comments :]))
