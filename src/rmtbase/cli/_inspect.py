"""``rmtbase inspect``: the parts of a model, and which of them are scored."""

from dataclasses import asdict
from functools import partial

from rmtbase.terminal.options import Fold, ModelArgument


def inspect(model: ModelArgument, fold: Fold = None) -> None:
    """Inspect a model: attention sites, the tensors of each matrix, and what is left out, folded and proved.

    Nothing is scored; only weights that a proof of the layout needs are read.

    Example: rmtbase inspect demo
    """
    from rmtbase.models import inspect_model, open_model
    from rmtbase.terminal.output import show
    from rmtbase.terminal.streams import cell

    inspection = inspect_model(open_model(model, fold=fold or ()))
    title = inspection.model + (f", revision {inspection.revision}" if inspection.revision else "")
    sites = f"{inspection.n_sites} attention sites in {inspection.n_layers} layers"
    lines = [cell(title, "bold"), cell(f"family {inspection.architecture}; {sites}")]
    for group in inspection.layers:
        lines.append(cell(f"{group.sentence()}:", "bold"))
        for component, words in group.matrices.items():
            rows, columns = group.shapes[component]
            lines.append(cell(f"  {component} ({rows} × {columns}): {words}"))
        lines += [cell(f"  note: {note}") for note in group.notes]
    lines.append(cell(f"{inspection.read} stored tensors are read; {sum(inspection.left_out.values())} are left out:"))
    for pattern, count in inspection.left_out.items():
        lines.append(cell(f"  {pattern}" + (f" ({count} of them)" if count > 1 else "")))
    lines += [cell(f"note: {note}") for note in inspection.notes]
    show(partial(asdict, inspection), lambda console: console.print(*lines, sep="\n"))
