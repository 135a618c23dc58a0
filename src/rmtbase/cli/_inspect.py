"""``rmtbase inspect``: the parts of a model, and which of them are scored."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from rmtbase.terminal.options import Fold, ModelArgument

if TYPE_CHECKING:
    from rich.console import Console

    from rmtbase.models import Inspection


def inspect(model: ModelArgument, fold: Fold = None) -> None:
    """Inspect a model: attention sites, the tensors of each matrix, and what is left out, folded and proved.

    Nothing is scored; only weights that a proof of the layout needs are read.

    Example: rmtbase inspect demo
    """
    from rmtbase.models import inspect_model, open_model
    from rmtbase.terminal.output import show

    inspection = inspect_model(open_model(model, fold=fold or ()))
    show(partial(asdict, inspection), partial(_print_inspection, inspection))


def _print_inspection(inspection: Inspection, console: Console) -> None:
    from rmtbase.terminal.streams import cell

    title = inspection.model + (f", revision {inspection.revision}" if inspection.revision else "")
    console.print(cell(title, "bold"))
    console.print(
        cell(f"family {inspection.architecture}; {inspection.n_sites} attention sites in {inspection.n_layers} layers")
    )
    for group in inspection.layers:
        console.print(cell(f"{group.sentence()}:", "bold"))
        for component, words in group.matrices.items():
            rows, columns = group.shapes[component]
            console.print(cell(f"  {component} ({rows} × {columns}): {words}"))
        for note in group.notes:
            console.print(cell(f"  note: {note}"))
    console.print(cell(f"{inspection.read} stored tensors are read; {sum(inspection.left_out.values())} are left out:"))
    for pattern, count in inspection.left_out.items():
        console.print(cell(f"  {pattern}" + (f" ({count} of them)" if count > 1 else "")))
    for note in inspection.notes:
        console.print(cell(f"note: {note}"))
