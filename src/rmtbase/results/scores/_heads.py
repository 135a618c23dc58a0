"""Scores of heads by one circuit, as the groups ``heads`` and ``null`` of a scores file."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped
from scipy.special import betainc, betaincinv

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import KeyShares
from rmtbase.laws import PROBABILITIES
from rmtbase.models import Place, Site
from rmtbase.nulls import UPPER, Heads, HeadScores, NullModel, RandomHeads, UpperPoint, chain_scale
from rmtbase.reasons import Reason
from rmtbase.results.scores.schema import heads_schema, null_schema, own_null_schema
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, moved_parts, moved_share
from rmtbase.tables import CIRCUITS, QK, Circuit, describe


def relation(
    shares: KeyShares, eigenvalues: Float[np.ndarray, "... index"], d_head: int, d_model: int
) -> dict[str, np.ndarray]:
    """Return R, its p-value and its 95 % point at the heads' own spectrum; docs/concepts.md has the formulas.

    Diagonals of projectors are taken as if the rows of W_Q were orthogonal, which is conservative where h > d/4.
    """
    h, d = float(d_head), float(d_model)
    mean = h / d
    with np.errstate(invalid="ignore", divide="ignore"):
        p = eigenvalues / np.nansum(eigenvalues, axis=-1, keepdims=True)
        squares = np.nansum(p * p, axis=-1)
        of_diagonals = (shares.query_columns - h * mean) * (shares.key_columns - 1.0 / d) / (d - 1.0)
        of_others = np.maximum(h - shares.query_columns, 0.0) * np.maximum(squares - shares.key_columns, 0.0)
        variance = of_diagonals + 2.0 * of_others / (d * (d - 1.0))
        concentration = mean * (1.0 - mean) / variance - 1.0
        value = (shares.share - mean) / (1.0 - mean)
        defined = np.isfinite(value) & (concentration > 0.0)
    a, b = (np.where(defined, concentration, 1.0) * max(each, 0.5 / d) for each in (mean, 1.0 - mean))
    tail = betainc(b, a, np.where(defined, 1.0 - shares.share, 1.0))
    upper = (betaincinv(a, b, UPPER) - mean) / max(1.0 - mean, 0.5 / d)
    relations = {"relation": value, "relation_p_value": tail, "relation_upper": upper}
    return {name: np.where(defined, values, np.nan) for name, values in relations.items()}


_OF_QK = ("n_heads", "n_key_heads", "d_model", "d_head", "d_query", "d_key", "null_draws", "p_value_floor")


def require_scores(scores: xr.DataTree, name: str = "scores") -> None:
    if not {"heads", "null"} <= set(scores.children):
        expected = "a scores tree with /heads and /null, as rmtbase.score makes and rmtbase.open_table opens it"
        raise ParameterError(name, type(scores).__name__, expected)


@dataclass(frozen=True)
class Block:
    sites: list[int]  # indices of sites with equal shapes and numbers of heads
    dims: tuple[int, ...]  # sizes of the circuit's matrices at these sites
    null: NullModel
    heads: Heads
    sigmas: tuple[Float[np.ndarray, "layer head"], ...]  # σ̂ of the matrices; ``heads`` has other σ̂ of products
    scores: HeadScores
    null_group: Callable[[], xr.Dataset]  # makes the null's group of a file
    random: RandomHeads | None = None  # moved shares of random heads of the shape; None if they are not known
    equal_axes: Float[np.ndarray, "layer head rank"] | None = None  # eigenvalues with equal axes, if heads have axes
    key_shares: KeyShares | None = None  # how much of each W_QK reads the row space of W_Q; None if not defined

    @property
    def eigenvalues(self) -> Float[np.ndarray, "layer head rank"]:
        return self.heads.singular_values**2


def heads_dataset(
    circuit: Circuit,
    sites: Sequence[Site],
    blocks: Sequence[Block],
    null: xr.Dataset,
    reasons: Mapping[tuple[int, int], Reason],
) -> xr.Dataset:
    rows, names = _rows(blocks), list(SPECTRAL_STATISTICS)
    scored_sites = [sites[site] for site in rows]

    def joined(arrays: Iterable[Shaped[np.ndarray, "layer ..."]]) -> Shaped[np.ndarray, "layer ..."]:
        places = ([rows[site] for site in block.sites] for block in blocks)
        return _padded(list(zip(places, arrays, strict=True)))

    values = {field.name: joined(getattr(block.scores, field.name) for block in blocks) for field in fields(HeadScores)}
    omnibus, p_value = values["omnibus_p_value"], values["p_value"]
    untested = np.isnan(omnibus)
    sigmas = [joined(sigma) for sigma in zip(*(block.sigmas for block in blocks), strict=True)]
    reason = np.where(untested & ~np.isnan(sigmas[0]), "no_law", "").astype(object)
    for (site, head), why in reasons.items():
        reason[rows[site], head] = str(why)
    eigenvalue, means = joined(block.eigenvalues for block in blocks), _null_means(null, "eigenvalue_mean")
    fewer, more = moved_parts(eigenvalue, means)
    values |= {
        "q_value": benjamini_hochberg(p_value.reshape(-1, len(names)), axis=0).reshape(p_value.shape),
        "omnibus_q_value": benjamini_hochberg(omnibus),
        "farthest_statistic": np.where(untested, "", np.array(names)[values.pop("farthest")]),
        "eigenvalue": eigenvalue,
        "moved_share": moved_share(eigenvalue, means),
        "moved_towards_fewer": fewer,
        "moved_towards_more": more,
        "reason": np.where(untested, reason, "").astype(str),
        **{name: np.where(untested, np.nan, values[name]) for name in ("outliers_above", "outliers_below")},
        **{factor.sigma: sigma for factor, sigma in zip(circuit.factors, sigmas, strict=True)},
    }
    if circuit.head_axes:
        equal = joined(
            np.full(block.eigenvalues.shape, np.nan) if block.equal_axes is None else block.equal_axes
            for block in blocks
        )
        values["moved_share_equal_axes"] = moved_share(equal, _null_means(null, "eigenvalue_mean_equal_axes"))
    if circuit == QK:
        relations = []
        for block in blocks:
            unknown = np.full(block.eigenvalues.shape[:-1], np.nan)  # queries and keys read different streams
            shares = block.key_shares or KeyShares(unknown, unknown, unknown)
            relations.append(relation(shares, block.eigenvalues, block.dims[1], block.dims[0]))
        values |= {name: joined(of_block[name] for of_block in relations) for name in relations[0]}
        values["relation_q_value"] = benjamini_hochberg(values["relation_p_value"])
    if len(circuit.factors) > 1:
        key_heads = [np.arange(site.n_heads) // (site.n_heads // site.n_key_heads) for site in sites]
        values["key_head"] = joined(np.stack([key_heads[site] for site in block.sites]) for block in blocks)
    scale = {}
    if any(block.heads.sigmas is not block.sigmas for block in blocks):  # matrices are products themselves
        scale = {"null_scale": (("layer", "head"), joined(chain_scale(block.heads.sigmas) for block in blocks))}
    schema = heads_schema(circuit)
    dataset = xr.Dataset(
        {name: (schema[name].dims, value) for name, value in values.items()},
        coords={
            **layer_coordinates([site.place for site in scored_sites]),
            **sizes_of(circuit, scored_sites)[1],
            **scale,
            "head": np.arange(omnibus.shape[-1]),
            "statistic": names,
            "probability": np.array(PROBABILITIES),
            "index": np.arange(eigenvalue.shape[-1]),
        },
    )
    return describe(dataset[list(schema)], schema)


def _null_means(null: xr.Dataset, name: str) -> Float[np.ndarray, "... index"]:
    mean = null[name].transpose(..., "index").values
    return mean[null["layer_shape"].values][:, None] if "layer_shape" in null else mean


def null_dataset(circuit: Circuit, sites: Sequence[Site], blocks: Sequence[Block]) -> xr.Dataset:
    """Return the nulls of all heads as the ``null`` group of a scores file; a head's own is padded as its scores."""
    if blocks[0].null.per_head:
        rows, schema = _rows(blocks), own_null_schema(circuit)
        parts = [([rows[site] for site in block.sites], _null_group(circuit, block)) for block in blocks]
        variables = {
            name: (variable.dims, _padded([(at, group[name].transpose(*variable.dims).values) for at, group in parts]))
            for name, variable in schema.items()
        }
        own = xr.Dataset(variables, {"probability": parts[0][1]["probability"].values})
        numbers = {name: np.arange(own.sizes[name]) for name in ("head", "index")}
        return describe(own.assign_coords(numbers | layer_coordinates([sites[site].place for site in rows])), schema)
    first_of: dict[int, Block] = {}  # block for each null
    for block in blocks:
        first_of.setdefault(id(block.null), block)
    nulls, shapes = list(first_of), list(first_of.values())
    groups = [_null_group(circuit, block).drop_vars("bin", errors="ignore") for block in shapes]
    if len(groups) == 1:
        return describe(groups[0], null_schema(circuit))
    longest = np.arange(max(group.sizes["index"] for group in groups))
    joined: xr.Dataset = xr.concat([group.reindex(index=longest) for group in groups], dim="shape")  # type: ignore[assignment]
    places = {site: nulls.index(id(block.null)) for block in blocks for site in block.sites}
    of_shapes = {name: [block.dims[k] for block in shapes] for k, name in enumerate(circuit.dims)} | {
        "null_draws": [block.null.draws for block in shapes],
        "p_value_floor": [block.null.p_value_floor for block in shapes],
        "null_source": [block.null.source for block in shapes],
    }
    joined = joined.assign({name: ("shape", values) for name, values in of_shapes.items()})
    joined["layer_shape"] = "layer", [places[site] for site in sorted(places)]
    joined = joined.assign_coords(layer_coordinates([sites[site].place for site in sorted(places)]))
    schema = null_schema(circuit, several=True)
    return describe(joined[list(schema)], schema)


def _null_group(circuit: Circuit, block: Block) -> xr.Dataset:
    group, random = block.null_group(), block.random
    dims = group["edge_quantile_lower"].dims  # of heads that each have their own null, or none

    def spread(value: float | Float[np.ndarray, " index"]) -> tuple[tuple[Hashable, ...], np.ndarray]:
        shape = tuple(group.sizes[name] for name in dims)
        return (*dims, *["index"] * np.ndim(value)), np.broadcast_to(value, (*shape, *np.shape(value)))

    points = {"moved_share": random and random.upper}
    if circuit.head_axes:
        equal = random if block.equal_axes is not None else None
        mean = np.full(group.sizes["index"], np.nan) if equal is None or equal.equal_mean is None else equal.equal_mean
        group = group.assign(eigenvalue_mean_equal_axes=spread(mean))
        points["moved_share_equal_axes"] = equal and equal.equal_upper
    for name, known in points.items():
        point = known or UpperPoint(np.nan, np.nan)
        if f"{name}_upper" not in group:
            group[f"{name}_upper"] = spread(point.value)
            group[f"{name}_upper_standard_error"] = spread(point.standard_error)
    return group


def circuit_attributes(circuit: Circuit, sites: Sequence[Site], blocks: Sequence[Block]) -> dict[str, object]:
    nulls = [block.null for block in blocks]
    factors = " and ".join(factor.symbol for factor in circuit.factors)
    facts: dict[str, object] = dict(sizes_of(circuit, [sites[site] for block in blocks for site in block.sites])[0])
    facts |= {
        "null": "; ".join(dict.fromkeys(null.described(factors) for null in nulls)),
        "null_method": nulls[0].method,
        "null_entries": nulls[0].entries,
        "table": "; ".join(dict.fromkeys(null.source for null in nulls)),
    }
    for name in ("draws", "p_value_floor", "edge_level"):
        numbers = {getattr(null, name) for null in nulls}
        if len(numbers) == 1:
            facts["null_draws" if name == "draws" else name] = numbers.pop()
    return facts


def sizes_of(circuit: Circuit, sites: Iterable[Site]) -> tuple[dict[str, int], dict[str, tuple[str, list[int]]]]:
    names = dict.fromkeys((*circuit.dims, *(factor.heads for factor in circuit.factors)))
    sizes = {name: [getattr(site, name) for site in sites] for name in names}
    common = {name: of_sites[0] for name, of_sites in sizes.items() if len(set(of_sites)) == 1}
    return common, {name: ("layer", of_sites) for name, of_sites in sizes.items() if name not in common}


def layer_coordinates(places: Sequence[Place]) -> dict[str, Any]:
    """Return the coordinates of the dimension ``layer``: the layer numbers, or a running count if there are stacks.

    With a running count, ``stack`` and ``stack_layer`` identify each layer.
    """
    stacks, numbers = [place.stack for place in places], [place.layer for place in places]
    if len(set(stacks)) == 1 and numbers == sorted(set(numbers)):
        return {"layer": np.array(numbers)} | ({"stack": ("layer", stacks)} if stacks[0] else {})
    return {"layer": np.arange(len(places)), "stack": ("layer", stacks), "stack_layer": ("layer", numbers)}


def circuit_scores(scores: xr.DataTree, circuit: str = "qk") -> xr.DataTree:
    """Return the scores of one circuit as a scores tree, which every figure and summary of heads accepts."""
    names = circuits_of(scores)
    if circuit not in names:
        raise ParameterError("circuit", circuit, f"one that was scored: {', '.join(names)}")
    if circuit == "qk":
        return scores
    group = scores["circuits"][circuit]
    tree: xr.DataTree = xr.DataTree.from_dict({f"/{name}": group[name].to_dataset() for name in ("heads", "null")})
    tree.attrs = {name: value for name, value in scores.attrs.items() if name not in _OF_QK} | group.attrs
    return tree


def circuits_of(scores: xr.DataTree) -> list[str]:
    """List the circuits that a scores tree holds: ``qk``, and those in its group ``circuits``."""
    require_scores(scores)
    further: Mapping[Any, Any] = scores.children.get("circuits", {})
    return ["qk", *(name for name in CIRCUITS if name in getattr(further, "children", {}))]


def _rows(blocks: Sequence[Block]) -> dict[int, int]:
    return {site: row for row, site in enumerate(sorted(site for block in blocks for site in block.sites))}


def _padded(parts: Sequence[tuple[Sequence[int], Shaped[np.ndarray, "layer ..."]]]) -> Shaped[np.ndarray, "layer ..."]:
    arrays = [array for _, array in parts]
    shape = sum(map(len, arrays)), *np.max([array.shape[1:] for array in arrays], axis=0).astype(int)
    padded = np.full(shape, np.nan if arrays[0].dtype.kind == "f" else 0, dtype=arrays[0].dtype)
    for rows, array in parts:
        padded[(rows, *(slice(size) for size in array.shape[1:]))] = array
    return padded
