"""``rmtbase law``: every analytic number of the null of one shape, without a single draw."""

from __future__ import annotations

from typing import Annotated

import typer


def law(
    d_model: Annotated[int, typer.Option(help="Width of the residual stream.")],
    d_head: Annotated[int, typer.Option(help="Head dimension, at most d_model.")],
    sigma: Annotated[
        float | None, typer.Option(help="Standard deviation of the weights of W_Q and W_K. Default 1.")
    ] = None,
    normalization: Annotated[
        str,
        typer.Option(help="'sqrt_d': W_QK divided by the square root of d_model; 'none': the raw product."),
    ] = "sqrt_d",
    self_normalized: Annotated[
        bool,
        typer.Option(
            "--self-normalized", help="Each factor divided by its own estimate of sigma first, as heads are scored."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it, in full precision, as JSON.")] = False,
) -> None:
    """Print the laws of W_QK = W_Q^T W_K of random weights: spectrum, edges, statistics, elements, a spike.

    Example: rmtbase law --d-model 768 --d-head 64
    """
    from rmtbase.cli._law_tables import print_law
    from rmtbase.cli._law_values import law_values
    from rmtbase.cli._terminal import out, print_json

    values = law_values(d_model, d_head, sigma, normalization, self_normalized)
    if as_json:
        print_json(values)
    else:
        print_law(values, out())
