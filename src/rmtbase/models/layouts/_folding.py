"""Biases and norms folded into the matrices of a site, so that W_QK is the form that the forward pass computes.

If x̂ is the output of a norm before its gains g and bias β, and q = W (g ⊙ x̂ + β) + b, the folded matrix acts on
(x̂, 1):
    [W diag(g), W β + b]

The gains of a norm of queries or keys multiply rows. The divisor of such a norm depends on the token, so that W_QK
gives q·k up to a factor for each pair of tokens.
"""

from collections.abc import Collection, Container
from dataclasses import replace

from rmtbase.errors import ParameterError
from rmtbase.models.layouts import _expressions as made
from rmtbase.models.layouts._sites import Norm, Site
from rmtbase.shown import quoted

FOLDS = ("biases", "norms")  # what can be folded in


def require_folds(fold: object) -> tuple[str, ...]:
    if isinstance(fold, str):
        fold = [part.strip() for part in fold.split(",")]
    if not isinstance(fold, Collection) or not all(name in FOLDS for name in fold):
        raise ParameterError("fold", fold, f"some of {', '.join(map(repr, FOLDS))}")
    return tuple(name for name in FOLDS if name in fold)


def fold_site(site: Site, fold: Collection[str], stored: Container[str]) -> Site:
    norms = {"inputs of queries": site.query_input_norm, "inputs of keys": site.key_input_norm}
    norms |= {"queries": site.query_norm, "keys": site.key_norm}
    unknown = [input_ for input_, norm in norms.items() if norm is None]
    if "norms" in fold and unknown:
        described = [f"{input_}: {norm.gain or 'no gains'}" for input_, norm in norms.items() if norm is not None]
        raise ParameterError(
            "fold",
            "norms",
            f"none: in {site.place} ({quoted(site.module)}) no norm is known that fits a matrix for "
            f"{', '.join(unknown)}" + (f"; known for {', '.join(described)}" if described else ""),
        )
    sides = {
        "query": (site.query, site.query_input_norm, site.query_norm),
        "key": (site.key, site.key_input_norm, site.key_norm),
        "value": (site.value, site.key_input_norm, None),
    }
    folded: dict[str, made.Expression] = {}
    for side, (matrix, before, behind) in sides.items():
        if matrix is None:
            continue
        column = _bias(matrix, stored) if "biases" in fold else None
        if before is not None and "norms" in fold:
            if before.bias is not None and "biases" in fold:
                moved = made.Product((matrix, made.Column(before.bias)))
                column = moved if column is None else made.Sum((moved, column))
            matrix = _gained(matrix, before, rows=False)
        if column is not None:
            matrix = made.Biased(matrix, column)
        folded[side] = _gained(matrix, behind, rows=True) if behind is not None and "norms" in fold else matrix
    return replace(
        site,
        **folded,
        d_query=site.d_query + _is_wider(folded.get("query")),
        d_key=site.d_key + _is_wider(folded.get("key")),
    )


def has_biases(site: Site, stored: Container[str]) -> bool:
    return any(matrix is not None and _bias(matrix, stored) is not None for matrix in (site.query, site.key))


def _is_wider(matrix: made.Expression | None) -> bool:
    return isinstance(matrix.of if isinstance(matrix, made.Gained) else matrix, made.Biased)


def _gained(matrix: made.Expression, norm: Norm, rows: bool) -> made.Expression:
    return matrix if norm.gain is None else made.Gained(matrix, norm.gain, norm.offset, rows)


def _bias(matrix: made.Expression, stored: Container[str]) -> made.Expression | None:
    """Return the bias of a linear map as one column, or None if it has none."""
    match matrix:
        case made.Tensor(weight, index=None) if weight.endswith("weight"):
            name = weight.removesuffix("weight") + "bias"
            return made.Column(name) if name in stored else None
        case made.Rows() | made.Scaled():
            column = _bias(matrix.of, stored)
            return None if column is None else replace(matrix, of=column)
        case made.Product((first, *others)):
            inner = _bias(others[0] if len(others) == 1 else made.Product(tuple(others)), stored)
            parts = [_bias(first, stored), None if inner is None else made.Product((first, inner))]
        case made.Sum() | made.Stacked():
            parts = [_bias(part, stored) for part in matrix.of]
            if isinstance(matrix, made.Stacked) and any(parts):
                if not all(parts):
                    raise ParameterError("fold", "biases", "none: only a part of the outputs has a bias here")
                return made.Stacked(tuple(part for part in parts if part is not None))
        case _:
            return None
    present = tuple(part for part in parts if part is not None)
    return made.Sum(present) if len(present) > 1 else next(iter(present), None)
