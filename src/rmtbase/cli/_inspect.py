"""``rmtbase inspect``: the parts of a model, and which of them are scored."""

from __future__ import annotations

from typing import Annotated

import typer

from rmtbase.terminal.command_line import Fold, Subfolder
from rmtbase.terminal.completion import revisions
from rmtbase.terminal.scoring_options import ModelArgument


def inspect(
    model: ModelArgument,
    revision: Annotated[
        str | None, typer.Option(help="Revision of a hub id or of 'demo'.", autocompletion=revisions)
    ] = None,
    subfolder: Subfolder = None,
    fold: Fold = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
) -> None:
    """Inspect a model: attention sites, the tensors of each matrix, and what is left out, folded and proved.

    Nothing is scored, and no weight is read but what a proof of the layout needs.

    Example: rmtbase inspect demo
    """
    from rmtbase.models import inspect_model, open_model
    from rmtbase.terminal.streams import cell, out, print_json

    found = inspect_model(open_model(model, revision, subfolder=subfolder).fold(fold or ()))
    if as_json:
        print_json(found.as_dict())
        return
    console = out()
    title = found.model + (f", revision {found.revision}" if found.revision else "")
    console.print(cell(title, "bold"))
    console.print(cell(f"family {found.architecture}; {found.n_sites} attention sites in {found.n_layers} layers"))
    for group in found.layers:
        console.print(cell(f"{group.sentence()}:", "bold"))
        for component, words in group.matrices.items():
            rows, columns = group.shapes[component]
            console.print(cell(f"  {component} ({rows} × {columns}): {words}"))
        for note in group.notes:
            console.print(cell(f"  note: {note}"))
    console.print(cell(f"{found.read} stored tensors are read; {sum(found.left_out.values())} are left out:"))
    for pattern, count in found.left_out.items():
        console.print(cell(f"  {pattern}" + (f" ({count} of them)" if count > 1 else "")))
    for note in found.notes:
        console.print(cell(f"note: {note}"))
