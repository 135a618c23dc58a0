"""The name that keys the draws of a Gaussian chain."""

from __future__ import annotations

from collections.abc import Sequence


def chain_name(dims: Sequence[object]) -> str:
    """``gaussian_chain {n_0}x…x{n_L}``.

    ``gaussian_matrix {n_0}x{n_1}`` and ``low_rank_product {d_model}x{d_head}`` are chains under names of their own.
    """
    if len(dims) == 2:
        return f"gaussian_matrix {dims[0]}x{dims[1]}"
    if len(dims) == 3 and dims[1] <= dims[0] == dims[2]:  # type: ignore[operator]
        return f"low_rank_product {dims[0]}x{dims[1]}"
    return "gaussian_chain " + "x".join(map(str, dims))
