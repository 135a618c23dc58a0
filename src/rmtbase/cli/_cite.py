"""``rmtbase cite``: how to cite rmtbase, and the literature of its constants."""

from typing import Annotated

import typer

from rmtbase.terminal import completion as _completion


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Constants whose literature to cite, too.", autocompletion=_completion.constants
        ),
    ] = None,
) -> None:
    """Print how to cite rmtbase, and the literature of the named constants, in BibTeX; with --json also as text.

    Example: rmtbase cite product_upper_edge > references.bib
    """
    from rmtbase.constants import as_identified, bibliography, find, software
    from rmtbase.terminal.output import show

    entries = [find(name) for name in names or ()]
    cited = {key for entry in entries for key in entry.references}
    references = [*(reference for key, reference in bibliography().items() if key in cited), software()]
    comments = "\n".join(f"% {as_identified(entry)}: {entry.description}; {entry.conditions}" for entry in entries)
    text = "\n\n".join(filter(None, [comments, *(reference.bibtex for reference in references)]))
    plain = [{"key": reference.key, "apa": reference.apa, "bibtex": reference.bibtex} for reference in references]
    show(lambda: plain, lambda console: print(text))
