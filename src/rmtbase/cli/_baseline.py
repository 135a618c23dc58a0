"""``rmtbase baseline``: the null's table for any shape and σ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def baseline(
    d_model: Annotated[list[int], typer.Option(help="Width of the residual stream; repeat for more shapes.")],
    d_head: Annotated[list[int], typer.Option(help="Head dimension; one, or one for each --d-model.")],
    sigma: Annotated[
        list[float] | None,
        typer.Option(help="Standard deviation of the weights; repeat for more. Default 1."),
    ] = None,
    draws: Annotated[int, typer.Option(help="Monte Carlo draws per shape.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers to the bit.")] = 0,
    normalization: Annotated[
        str,
        typer.Option(help="'sqrt_d': W_QK divided by the square root of d_model; 'none': the raw product."),
    ] = "sqrt_d",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default baseline-DxH.nc, here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the statistics as JSON.")] = False,
) -> None:
    """Make a baseline table: W_QK = W_Q^T W_K of random weights, simulated beside analytic.

    Example: rmtbase baseline --d-model 768 --d-head 64 --draws 10000 -o gpt2.nc
    """
    from rmtbase.cli._tables import baseline_json, print_baseline
    from rmtbase.cli._terminal import bars, note, out
    from rmtbase.montecarlo import baseline as make_baseline
    from rmtbase.tables import check_writable, write_table

    path = output or Path(f"baseline-{d_model[0]}x{d_head[0]}.nc")
    check_writable(path)
    with bars() as progress:
        shapes = max(len(d_model), len(d_head))
        table = make_baseline(
            d_model,
            d_head,
            sigma or 1.0,
            draws,
            seed,
            normalization,  # type: ignore[arg-type]  # checked where it is used
            progress.bar("drawing", max(draws, 1) * shapes),
        )
    write_table(table, path)
    if as_json:
        print(json.dumps(baseline_json(table, path), indent=1))
    else:
        print_baseline(table, out())
    note(f"wrote {path}")
