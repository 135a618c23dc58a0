"""Biases and norms folded into the matrices of a site, so that W_QK is the form that the forward pass computes.

If x̂ is the output of a norm before its gains g and bias β, and q = W (g ⊙ x̂ + β) + b, the folded matrix acts on
(x̂, 1):

    [W diag(g), W β + b]

The gains of a norm of queries or keys multiply rows. The divisor of such a norm depends on the token, so that W_QK
gives q·k up to a factor for each pair of tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace

from rmtbase.errors import ParameterError
from rmtbase.models.layouts._expressions import (
    Biased,
    Column,
    Expression,
    Gained,
    Product,
    Rows,
    Scaled,
    Stacked,
    Sum,
    Tensor,
)
from rmtbase.models.layouts._sites import Norm, Site
from rmtbase.shown import quoted

FOLDS = ("biases", "norms")
"""What can be folded in."""


def require_folds(fold: object) -> tuple[str, ...]:
    """Return the names of what to fold in, each once, in the order of :data:`FOLDS`."""
    if isinstance(fold, str):
        fold = [part.strip() for part in fold.split(",")]
    if not isinstance(fold, Collection) or not all(one in FOLDS for one in fold):
        raise ParameterError("fold", fold, f"some of {', '.join(map(repr, FOLDS))}")
    return tuple(one for one in FOLDS if one in fold)


def fold_site(site: Site, fold: Collection[str], stored: Container[str]) -> Site:
    """Fold biases or norms into the queries, keys and values of a site.

    The site, with one more input where there is a bias. W_O is unchanged: its bias is added once for all heads.
    """
    if "norms" in fold:
        _require_norms(site)
    sides = {
        "query": (site.query, site.query_input_norm, site.query_norm),
        "key": (site.key, site.key_input_norm, site.key_norm),
        "value": (site.value, site.key_input_norm, None),
    }
    folded: dict[str, Expression] = {}
    for side, (matrix, before, behind) in sides.items():
        if matrix is None:
            continue
        column = _bias(matrix, stored) if "biases" in fold else None
        if before is not None and "norms" in fold:
            if before.bias is not None and "biases" in fold:
                moved = Product((matrix, Column(before.bias)))
                column = moved if column is None else Sum((moved, column))
            matrix = _gained(matrix, before, rows=False)
        if column is not None:
            matrix = Biased(matrix, column)
        folded[side] = _gained(matrix, behind, rows=True) if behind is not None and "norms" in fold else matrix
    return replace(
        site,
        **folded,
        d_query=site.d_query + _is_wider(folded.get("query")),
        d_key=site.d_key + _is_wider(folded.get("key")),
    )


def has_biases(site: Site, stored: Container[str]) -> bool:
    """Return True if queries or keys have a bias that :func:`fold_site` folds in, named after its weight."""
    return any(one is not None and _bias(one, stored) is not None for one in (site.query, site.key))


def _require_norms(site: Site) -> None:
    """Raise ParameterError unless the norms of queries, of keys and of their inputs are all known."""
    norms = {
        "inputs of queries": site.query_input_norm,
        "inputs of keys": site.key_input_norm,
        "queries": site.query_norm,
        "keys": site.key_norm,
    }
    unknown = [what for what, norm in norms.items() if norm is None]
    if unknown:
        known = [f"{what}: {norm.gain or 'no gains'}" for what, norm in norms.items() if norm is not None]
        raise ParameterError(
            "fold",
            "norms",
            f"none: in {site.place} ({quoted(site.module)}) no norm is known that fits a matrix for "
            f"{', '.join(unknown)}" + (f"; known for {', '.join(known)}" if known else ""),
        )


def _is_wider(matrix: Expression | None) -> bool:
    """Return True if the matrix has a column for a bias."""
    return isinstance(matrix.of if isinstance(matrix, Gained) else matrix, Biased)


def _gained(matrix: Expression, norm: Norm, rows: bool) -> Expression:
    return matrix if norm.gain is None else Gained(matrix, norm.gain, norm.offset, rows)


def _bias(matrix: Expression, stored: Container[str]) -> Expression | None:
    """Return the bias of a linear map as one column, or None if it has none."""
    if isinstance(matrix, Tensor):
        name = matrix.name.removesuffix("weight") + "bias"
        return Column(name) if matrix.index is None and matrix.name.endswith("weight") and name in stored else None
    if isinstance(matrix, Rows):
        column = _bias(matrix.of, stored)
        return None if column is None else Rows(column, matrix.runs)
    if isinstance(matrix, Scaled):
        column = _bias(matrix.of, stored)
        return None if column is None else Scaled(column, matrix.factor)
    if isinstance(matrix, Product):
        first, *rest = matrix.of
        inner = _bias(rest[0] if len(rest) == 1 else Product(tuple(rest)), stored)
        parts = [_bias(first, stored), None if inner is None else Product((first, inner))]
    elif isinstance(matrix, (Sum, Stacked)):
        parts = [_bias(one, stored) for one in matrix.of]
        if isinstance(matrix, Stacked) and any(parts):
            if not all(parts):
                raise ParameterError("fold", "biases", "none: only a part of the outputs has a bias here")
            return Stacked(tuple(part for part in parts if part is not None))
    else:
        return None
    present = tuple(part for part in parts if part is not None)
    return Sum(present) if len(present) > 1 else next(iter(present), None)
