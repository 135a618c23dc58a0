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
            metavar="[NAME]...", help="Constants whose literature is cited, too.", autocompletion=_completion.constants
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="bibtex, apa (lines of text), or cff (CITATION.cff, of rmtbase alone).",
            autocompletion=_completion.one_of(*FORMATS),
        ),
    ] = "bibtex",
) -> None:
    """Print how to cite rmtbase, and the literature of the constants that are named.

    Example: rmtbase cite product_upper_edge > references.bib
    """
    from rmtbase.constants import bibliography, citation_file, find, software
    from rmtbase.errors import ParameterError

    if output not in FORMATS:
        raise ParameterError("format", output, f"one of {', '.join(FORMATS)}")
    cited = {key for name in names or () for key in find(name).references}
    if output == "cff":
        if names:
            raise ParameterError("format", output, f"bibtex or apa: CITATION.cff holds rmtbase alone, not {names[0]}")
        print(citation_file(), end="")
        return
    references = [*(one for key, one in bibliography().items() if key in cited), software()]
    print("\n\n".join(one.bibtex if output == "bibtex" else one.apa for one in references))
