"""Factors of the heads of a site: the shape of their null, and σ̂ of each factor.

Each row of a head's matrix is traced to the stored matrix, or the product of matrices (a latent), that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rmtbase.errors import ParameterError
from rmtbase.models import Expression, Gained, MatrixName, Product, Rows, Scaled, Site, Stacked, Turned, WeightMatrices
from rmtbase.statistics import LatentShape
from rmtbase.tables import Circuit

_FUSED_WITH: Mapping[str, tuple[str, ...]] = {
    "query": ("attention_query_key_value", "attention_query_key"),
    "key": ("attention_query_key_value", "attention_query_key", "attention_key_value"),
    "value": ("attention_query_key_value", "attention_key_value"),
    "output": (),
}

Read = Callable[[str], np.ndarray]
Shapes = Callable[[str], tuple[int, ...]]


class _Source(NamedTuple):
    outer: Expression
    inner: tuple[Expression, ...]


class _Followed(NamedTuple):
    """Rows of an expression: for each, its source and its index in that source."""

    sources: list[_Source]
    source: Int[np.ndarray, " row"]
    row: Int[np.ndarray, " row"]


class _Part(NamedTuple):
    """Part of the rows of every head: each head's matrix and row indices, and the matrices that multiply them all."""

    outer: Sequence[tuple[Expression, Int[np.ndarray, " row"]]]
    inner: tuple[Expression, ...]

    @property
    def rows(self) -> int:
        return len(self.outer[0][1])


def head_dims(site: Site, names: Sequence[str], shapes: Shapes) -> tuple[int, ...] | LatentShape:
    """Find the dims of the null of a site's heads.

    (n_0, …, n_L) including the ranks of latents, for example (d_model, q_rank, d_head, kv_rank, d_model); or the
    shape of latent attention where a part of the keys is rotated and not compressed.
    """
    parts = [_parts(site, name, shapes) for name in names]
    ends = [_width(site, name, part, shapes) for name, part in zip(names, parts, strict=True)]
    if all(len(part) == 1 for part in parts):
        ranks = [[inner.shape(shapes)[0] for inner in part[0].inner] for part in parts]
        sizes = [parts[0][0].rows, *ranks[-1], ends[-1]]
        return tuple(sizes) if len(names) == 1 else (ends[0], *reversed(ranks[0]), *sizes)
    (query,), (latent, rotated) = _of_latent_attention(site, names, parts)
    query_ranks = [inner.shape(shapes)[0] for inner in query.inner]
    (kv_rank,) = (inner.shape(shapes)[0] for inner in latent.inner)
    if len(set(ends)) > 1 or len(query_ranks) > 1:
        raise _unknown(site, f"queries and keys of the widths {ends} and the ranks {query_ranks}")
    return LatentShape(ends[0], kv_rank, latent.rows, rotated.rows, *query_ranks)


def null_shape(model: WeightMatrices, site: int, circuit: Circuit) -> tuple[int, ...] | LatentShape:
    """Find the shape of a circuit's null at a site; it has more dims than the circuit if a matrix is a product."""
    at, names = model.sites[site], [factor.name for factor in circuit.factors]
    if not any(holds_product(getattr(at, name)) for name in names):
        return tuple(getattr(at, name) for name in circuit.dims)
    return head_dims(at, names, model.stored_shape)


def head_axis(model: WeightMatrices, site: int, circuit: Circuit) -> int | None:
    """Find the place of d_head in :func:`null_shape`; None where the basis of the circuit's rank is free."""
    if not circuit.head_axes:
        return None
    first, *second = circuit.factors
    expression = getattr(model.sites[site], first.name)
    inner = _parts(model.sites[site], first.name, model.stored_shape)[0].inner if holds_product(expression) else ()
    return 1 + len(inner) if second else 0


def holds_product(expression: Expression | None) -> bool:
    """Test whether a matrix is known to be a product, or to be made from one."""
    return expression is not None and expression.holds_product()


def has_latent_keys(site: Site, shapes: Shapes) -> bool:
    """Test whether all or some keys are projections of a latent, which another matrix computes from the inputs."""
    return holds_product(site.key) and any(part.inner for part in _parts(site, "key", shapes))


def head_sigmas(
    site: Site, names: Sequence[str], shapes: Shapes, read: Read
) -> tuple[tuple[Float[np.ndarray, " head"], ...], Float[np.ndarray, " head"] | None]:
    """Estimate σ̂ of each factor of :func:`head_dims` and, for latent attention, each head's rope_ratio.

    Arguments and errors are those of :func:`head_dims`; ``read`` returns a stored tensor, given its name.
    """
    n_heads = max(len(part.outer) for name in names for part in _parts(site, name, shapes))
    parts = [_parts(site, name, shapes) for name in names]

    def of_part(part: _Part) -> list[Float[np.ndarray, " head"]]:
        matrices: dict[object, np.ndarray] = {}
        for outer, _ in part.outer:
            if outer not in matrices:
                matrices[outer] = outer.evaluate(read).astype(np.float64)
        sigmas = np.array([_root_mean_square(matrices[outer][rows]) for outer, rows in part.outer])
        shared = [_root_mean_square(inner.evaluate(read).astype(np.float64)) for inner in part.inner]
        return [np.repeat(sigmas, n_heads // len(sigmas)), *(np.full(n_heads, sigma) for sigma in shared)]

    if all(len(part) == 1 for part in parts):
        first, *second = (of_part(part[0]) for part in parts)
        return (*(first[::-1] if second else first), *(sigma for sigmas in second for sigma in sigmas)), None
    (query,), (latent, rotated) = _of_latent_attention(site, names, parts)
    (of_up, of_down), (of_rotated,) = of_part(latent), of_part(rotated)
    shape = head_dims(site, names, shapes)
    assert isinstance(shape, LatentShape)  # it has two parts
    return (*of_part(query), of_up, of_down), shape.rope_ratio(of_up, of_down, of_rotated)


def _of_latent_attention(
    site: Site, names: Sequence[str], parts: list[list[_Part]]
) -> tuple[tuple[_Part], tuple[_Part, _Part]]:
    """Return the parts (query), (latent, rotated) of keys [W_UK W_DKV; W_KR]."""
    if tuple(names) == ("query", "key") and [len(part) for part in parts] == [1, 2]:
        latent, rotated = sorted(parts[1], key=lambda part: -len(part.inner))
        if (len(latent.inner), len(rotated.inner)) == (1, 0):
            return (parts[0][0],), (latent, rotated)
    counts = ", ".join(f"{len(part)} of {name}" for name, part in zip(names, parts, strict=True))
    raise _unknown(site, f"heads whose rows are of several matrices ({counts})")


def _unknown(site: Site, fault: str) -> ParameterError:
    expected = "matrices that are products, or keys [W_UK W_DKV; W_KR] of latent attention"
    return ParameterError("site", f"{site.place}: {fault}", expected)


def _parts(site: Site, name: str, shapes: Shapes) -> list[_Part]:
    """Split the rows of each head into parts, in the order of the first head."""
    expression = getattr(site, name)
    if name == "output":  # its heads are columns
        if isinstance(expression, Product | Stacked):
            raise _unknown(site, "an output that is made of several matrices")
        columns, turned = expression.shape(shapes)[1], Turned(expression, 1)
        return [_Part([(turned, rows) for rows in np.arange(columns).reshape(site.n_heads, -1)], ())]
    followed = _follow(expression, shapes)
    n_heads = site.n_heads if name == "query" else site.n_key_heads
    heads = np.arange(len(followed.row)).reshape(n_heads, -1)
    outers: dict[tuple[Expression, ...], list[tuple[Expression, Int[np.ndarray, " row"]]]] = {}
    for rows in heads:
        for index in dict.fromkeys(followed.source[rows].tolist()):
            outer, inner = followed.sources[index]
            outers.setdefault(inner, []).append((outer, followed.row[rows[followed.source[rows] == index]]))
    parts = [_Part(outer, inner) for inner, outer in outers.items()]
    if any(len(part.outer) != n_heads or len({len(rows) for _, rows in part.outer}) > 1 for part in parts):
        raise _unknown(site, f"{name} heads that differ in what they are made of")
    return parts


def _width(site: Site, name: str, parts: list[_Part], shapes: Shapes) -> int:
    widths = {(part.inner[-1] if part.inner else part.outer[0][0]).shape(shapes)[1] for part in parts}
    if len(widths) > 1:
        raise _unknown(site, f"{name} parts of the widths {sorted(widths)}")
    return widths.pop()


def _root_mean_square(matrix: Float[np.ndarray, "row column"]) -> float:
    return float(np.sqrt(np.mean(matrix**2)))


def _follow(expression: Expression, shapes: Shapes) -> _Followed:
    """Trace each row of an expression to the matrix that contains it."""
    if isinstance(expression, Rows):
        followed = _follow(expression.of, shapes)
        taken = np.concatenate([np.arange(*run) for run in expression.runs])
        return _Followed(followed.sources, followed.source[taken], followed.row[taken])
    if isinstance(expression, Stacked):
        stacked = [_follow(part, shapes) for part in expression.of]
        firsts = np.cumsum([0, *(len(part.sources) for part in stacked[:-1])])
        return _Followed(
            [source for part in stacked for source in part.sources],
            np.concatenate([part.source + first for part, first in zip(stacked, firsts, strict=True)]),
            np.concatenate([part.row for part in stacked]),
        )
    if isinstance(expression, Product):
        first, *inner_factors = expression.of
        flat = tuple(inner for part in inner_factors for inner in (part.of if isinstance(part, Product) else (part,)))
        followed = _follow(first, shapes)
        return followed._replace(sources=[source._replace(inner=source.inner + flat) for source in followed.sources])
    if isinstance(expression, Scaled):
        followed = _follow(expression.of, shapes)
        scaled = [source._replace(outer=Scaled(source.outer, expression.factor)) for source in followed.sources]
        return followed._replace(sources=scaled)
    if isinstance(expression, Gained):
        followed = _follow(expression.of, shapes)
        return followed._replace(sources=[_gained(source, expression) for source in followed.sources])
    rows = expression.shape(shapes)[0]
    return _Followed([_Source(expression, ())], np.zeros(rows, dtype=int), np.arange(rows))


def _gained(source: _Source, gained: Gained) -> _Source:
    """Apply gains of the inputs to the matrix that multiplies the inputs."""
    if not source.inner:
        return source._replace(outer=Gained(source.outer, gained.gain, gained.offset))
    *before, last = source.inner
    return source._replace(inner=(*before, Gained(last, gained.gain, gained.offset)))


class StoredRows(NamedTuple):
    """Number of rows of the stored matrix of each factor, along which heads are stacked."""

    rows: tuple[int, ...]  # the number of heads times the rows of each head; for a fused matrix, all of its rows
    fused: bool  # whether all factors are rows of one stored matrix


def stored_rows(model: WeightMatrices, site: int, circuit: Circuit) -> StoredRows:
    """Find the stored matrices that a circuit's factors at a site are rows of."""
    at, fused = model.sites[site], model.parts.get("fused", ())
    components = (_FUSED_WITH[factor.name] for factor in circuit.factors)
    possible = [[MatrixName(at.place, component) for component in of_factor] for of_factor in components]
    names = [next((name for name in of_factor if name in fused), None) for of_factor in possible]
    rows = tuple(
        getattr(at, factor.heads) * getattr(at, factor.rank) if name is None else max(1, model.shape(name)[0])
        for factor, name in zip(circuit.factors, names, strict=True)
    )
    return StoredRows(rows, len(names) > 1 and names[0] is not None and len(set(names)) == 1)
