"""Scale of heads, and their scores by one circuit as groups of a scores file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.key_shares import KeyShares
from rmtbase.laws import PROBABILITIES
from rmtbase.models import Place, Site
from rmtbase.nulls import Heads, HeadScores, NullModel, RandomHeads, UpperPoint, chain_scale
from rmtbase.results.scores._relation import Relation, relation
from rmtbase.results.scores.schema import heads_schema, null_schema, own_null_schema
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, moved_parts, moved_share
from rmtbase.tables import CIRCUITS, QK, Circuit, describe

_NO_LAW = "no statistic has a null that is known for its spectrum"


def require_scores(scores: xr.DataTree, name: str = "scores") -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless ``scores`` is a scores tree."""
    if not {"heads", "null"} <= set(scores.children):
        raise ParameterError(
            name,
            type(scores).__name__,
            "a scores tree with /heads and /null, as rmtbase.score makes and rmtbase.open_table opens it",
        )


@dataclass(frozen=True)
class Block:
    """Sites with equal shapes and numbers of heads, and the scores of these heads."""

    sites: list[int]  # indices of the sites
    dims: tuple[int, ...]  # sizes of the circuit's matrices at these sites
    null: NullModel  # null against which the heads were scored
    heads: Heads  # the heads
    # σ̂ of the circuit's matrices; ``heads`` has other σ̂ if these matrices are products
    sigmas: tuple[Float[np.ndarray, "layer head"], ...]
    scores: HeadScores  # scores of the heads
    null_group: Callable[[], xr.Dataset]  # makes the null's group of a file
    random: RandomHeads | None = None  # moved shares of random heads of the shape; None if they are not known
    # singular values of the heads with equal axes; None without head axes
    equal_axes: Float[np.ndarray, "layer head rank"] | None = None
    key_shares: KeyShares | None = None  # how much of each W_QK reads the row space of W_Q; None if not defined


def heads_dataset(
    circuit: Circuit,
    sites: Sequence[Site],
    blocks: Sequence[Block],
    null: xr.Dataset,
    reasons: Mapping[tuple[int, int], str],
) -> xr.Dataset:
    """Return the scores of the heads at all sites as the ``heads`` group of a scores file.

    The q-values are over all heads that could be tested; ``reasons`` explains, by site and head, why others could not.
    ``null`` is the group of the same file with the null of these heads.
    """
    places = np.concatenate([block.sites for block in blocks])
    rows = {int(site): row for row, site in enumerate(np.sort(places))}
    names = list(SPECTRAL_STATISTICS)

    def joined(of: Callable[[Block], Shaped[np.ndarray, "layer ..."]]) -> Shaped[np.ndarray, "layer ..."]:
        return _padded([([rows[site] for site in block.sites], of(block)) for block in blocks])

    score: dict[str, Shaped[np.ndarray, "layer ..."]] = {
        field.name: joined(lambda block, name=field.name: getattr(block.scores, name)) for field in fields(HeadScores)
    }
    p_value, omnibus, farthest = score["p_value"], score["omnibus_p_value"], score.pop("farthest")
    values = score | {
        "q_value": benjamini_hochberg(p_value.reshape(-1, len(names)), axis=0).reshape(p_value.shape),
        "omnibus_q_value": benjamini_hochberg(omnibus),
        "farthest_statistic": np.where(np.isnan(omnibus), "", np.array(names)[farthest]),
        "eigenvalue": joined(lambda block: block.heads.singular_values**2),
    }
    means = _null_means(null, "eigenvalue_mean")
    values["moved_share"] = moved_share(values["eigenvalue"], means)
    values["moved_towards_fewer"], values["moved_towards_more"] = moved_parts(values["eigenvalue"], means)
    if circuit.head_axes:
        means = _null_means(null, "eigenvalue_mean_equal_axes")
        values["moved_share_equal_axes"] = moved_share(joined(_equal_axes), means)
    if circuit == QK:
        relations = {block.sites[0]: _relation(block) for block in blocks}
        names_of = {"value": "relation", "p_value": "relation_p_value", "upper": "relation_upper"}
        for field, name in names_of.items():
            values[name] = joined(lambda block, field=field: getattr(relations[block.sites[0]], field))
        values["relation_q_value"] = benjamini_hochberg(values["relation_p_value"])
    reason = np.where(np.isnan(omnibus), _NO_LAW, "").astype(object)
    reason[np.isnan(joined(lambda block: block.sigmas[0]))] = ""  # a layer with fewer heads
    for (site, head), why in reasons.items():
        reason[rows[site], head] = why
    for name in ("outliers_above", "outliers_below"):
        values[name] = np.where(np.isnan(omnibus), np.nan, values[name])
    values["reason"] = np.where(np.isnan(omnibus), reason, "").astype(str)
    for k, factor in enumerate(circuit.factors):
        values[factor.sigma] = joined(lambda block, k=k: block.sigmas[k])
    if len(circuit.factors) > 1:
        values["key_head"] = joined(lambda block: _key_heads([sites[site] for site in block.sites]))
    schema = heads_schema(circuit)
    here = [sites[site] for site in rows]
    dataset = xr.Dataset(
        {name: (schema[name].dims, value) for name, value in values.items()},
        coords={
            **layer_coordinates([site.place for site in here]),
            **sizes_of(circuit, here)[1],
            **_null_scale(blocks, joined),
            "head": np.arange(omnibus.shape[-1]),
            "statistic": names,
            "probability": np.array(PROBABILITIES),
            "index": np.arange(values["eigenvalue"].shape[-1]),
        },
    )
    return describe(dataset[list(schema)], schema)


def _null_scale(
    blocks: Sequence[Block], joined: Callable[[Callable[[Block], np.ndarray]], np.ndarray]
) -> dict[str, tuple[tuple[str, str], np.ndarray]]:
    """Return the factors by which to multiply the null's eigenvalues at σ = 1, if matrices are products themselves."""
    if all(block.heads.sigmas is block.sigmas for block in blocks):
        return {}
    return {"null_scale": (("layer", "head"), joined(lambda block: chain_scale(block.heads.sigmas)))}


def _null_means(null: xr.Dataset, name: str) -> Float[np.ndarray, "... index"]:
    """Return mean eigenvalues of the group ``null`` as they broadcast to those of the heads, (layer, head, index)."""
    mean = null[name].transpose(..., "index").values
    return mean[null["layer_shape"].values][:, None] if "layer_shape" in null else mean


def _equal_axes(block: Block) -> Float[np.ndarray, "layer head rank"]:
    """Return the eigenvalues of a block's heads with equal axes; NaN if they are not known."""
    values = block.equal_axes
    return np.full(block.heads.singular_values.shape, np.nan) if values is None else values**2


def _relation(block: Block) -> Relation:
    """Return the relation of keys to queries of a block's heads; NaN where they read different streams."""
    d_query, d_head, _ = block.dims
    eigenvalues = block.heads.singular_values**2
    unknown = np.full(eigenvalues.shape[:-1], np.nan)
    return relation(block.key_shares or KeyShares(unknown, unknown, unknown), eigenvalues, d_head, d_query)


def null_dataset(circuit: Circuit, sites: Sequence[Site], blocks: Sequence[Block]) -> xr.Dataset:
    """Return the nulls of all heads as the ``null`` group of a scores file."""
    if blocks[0].null.per_head:
        return _own_nulls(circuit, sites, blocks)
    of_null = {id(block.null): block for block in reversed(blocks)}
    nulls = list(dict.fromkeys(id(block.null) for block in blocks))
    shapes = [of_null[null] for null in nulls]  # one block for each null
    groups = [_null_group(circuit, block).drop_vars("bin", errors="ignore") for block in shapes]
    if len(groups) == 1:
        return describe(groups[0], null_schema(circuit))
    longest = np.arange(max(group.sizes["index"] for group in groups))
    joined: xr.Dataset = xr.concat([group.reindex(index=longest) for group in groups], dim="shape")  # type: ignore[assignment]
    places = {site: nulls.index(id(block.null)) for block in blocks for site in block.sites}
    joined = joined.assign(
        {name: ("shape", [block.dims[k] for block in shapes]) for k, name in enumerate(circuit.dims)}
        | {
            "null_draws": ("shape", [block.null.draws for block in shapes]),
            "p_value_floor": ("shape", [block.null.p_value_floor for block in shapes]),
            "null_source": ("shape", [block.null.source for block in shapes]),
            "layer_shape": ("layer", [places[site] for site in sorted(places)]),
        }
    )
    joined = joined.assign_coords(layer_coordinates([sites[site].place for site in sorted(places)]))
    schema = null_schema(circuit, several=True)
    return describe(joined[list(schema)], schema)


def _null_group(circuit: Circuit, block: Block) -> xr.Dataset:
    """Return the null of a block's heads, with what is known of the moved shares of random heads."""
    group = block.null_group()
    dims = group["edge_quantile_lower"].dims  # of heads that each have their own null, or none

    def each(value: float | Float[np.ndarray, " index"]) -> tuple[tuple[Hashable, ...], np.ndarray]:
        shape = tuple(group.sizes[name] for name in dims)
        return (*dims, *["index"] * np.ndim(value)), np.broadcast_to(value, (*shape, *np.shape(value)))

    unknown = UpperPoint(np.nan, np.nan)
    upper = unknown if block.random is None else block.random.upper
    known: dict[str, Any] = {"moved_share": upper}
    if circuit.head_axes:
        random = block.random if block.equal_axes is not None else None
        mean = None if random is None else random.equal_mean
        mean = np.full(group.sizes["index"], np.nan) if mean is None else mean
        group = group.assign(eigenvalue_mean_equal_axes=each(mean))
        known["moved_share_equal_axes"] = (random and random.equal_upper) or unknown
    for name, point in known.items():
        if f"{name}_upper" not in group:
            group[f"{name}_upper"] = each(point.value)
            group[f"{name}_upper_standard_error"] = each(point.standard_error)
    return group


def _own_nulls(circuit: Circuit, sites: Sequence[Site], blocks: Sequence[Block]) -> xr.Dataset:
    """Return the ``null`` group of heads that each have their own null, padded in the same way as their scores."""
    rows = {site: row for row, site in enumerate(sorted(site for block in blocks for site in block.sites))}
    groups = [([rows[site] for site in block.sites], _null_group(circuit, block)) for block in blocks]
    schema, first = own_null_schema(circuit), groups[0][1]
    variables = {
        name: (variable.dims, _padded([(at, group[name].transpose(*variable.dims).values) for at, group in groups]))
        for name, variable in schema.items()
    }
    joined = xr.Dataset(variables, {"probability": first["probability"].values})
    places = {name: np.arange(joined.sizes[name]) for name in ("head", "index")}
    return describe(joined.assign_coords(places | layer_coordinates([sites[site].place for site in rows])), schema)


def circuit_attributes(circuit: Circuit, sites: Sequence[Site], blocks: Sequence[Block]) -> dict[str, object]:
    """Return the facts that all heads of a circuit share: their sizes and their null."""
    nulls, symbols = [block.null for block in blocks], " and ".join(factor.symbol for factor in circuit.factors)
    facts: dict[str, object] = dict(sizes_of(circuit, [sites[site] for block in blocks for site in block.sites])[0])
    facts |= {
        "null": "; ".join(dict.fromkeys(null.description(symbols) for null in nulls)),
        "null_method": nulls[0].method,
        "table": "; ".join(dict.fromkeys(null.source for null in nulls)),
    }
    for name, each in {
        "null_draws": [null.draws for null in nulls],
        "p_value_floor": [null.p_value_floor for null in nulls],
        "edge_level": [null.edge_level for null in nulls],
    }.items():
        if len(set(each)) == 1:
            facts[name] = each[0]
    return facts


def sizes_of(circuit: Circuit, sites: Iterable[Site]) -> tuple[dict[str, int], dict[str, tuple[str, list[int]]]]:
    """Return the sizes of a circuit's matrices that all sites share, and as coordinates those that differ."""
    names = dict.fromkeys((*circuit.dims, *(factor.heads for factor in circuit.factors)))
    found = {name: [getattr(site, name) for site in sites] for name in names}
    common = {name: each[0] for name, each in found.items() if len(set(each)) == 1}
    return common, {name: ("layer", each) for name, each in found.items() if name not in common}


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
    held = circuits_of(scores)
    if circuit not in held:
        raise ParameterError("circuit", circuit, f"one that was scored: {', '.join(held)}")
    if circuit == "qk":
        return scores
    found = scores["circuits"][circuit]
    tree: xr.DataTree = xr.DataTree.from_dict({f"/{name}": found[name].to_dataset() for name in ("heads", "null")})
    of_model = {name: value for name, value in scores.attrs.items() if name not in _OF_QK}
    tree.attrs = of_model | found.attrs
    return tree


_OF_QK = ("n_heads", "n_key_heads", "d_model", "d_head", "d_query", "d_key", "null_draws", "p_value_floor")


def circuits_of(scores: xr.DataTree) -> list[str]:
    """List the circuits that a scores tree holds: ``qk``, and those in its group ``circuits``."""
    require_scores(scores)
    further: Mapping[Any, Any] = scores.children.get("circuits", {})
    return ["qk", *(name for name in CIRCUITS if name in getattr(further, "children", {}))]


def _key_heads(sites: Sequence[Site]) -> Int[np.ndarray, "layer head"]:
    """Return the key head that each head reads, at sites with equal numbers of heads."""
    return np.stack([np.arange(site.n_heads) // (site.n_heads // site.n_key_heads) for site in sites])


def _padded(parts: Sequence[tuple[Sequence[int], Shaped[np.ndarray, "layer ..."]]]) -> Shaped[np.ndarray, "layer ..."]:
    """Put arrays into their rows of one array, padded with NaN, or with 0 for integers."""
    arrays = [array for _, array in parts]
    shape = sum(map(len, arrays)), *np.max([array.shape[1:] for array in arrays], axis=0).astype(int)
    whole = np.full(shape, np.nan if arrays[0].dtype.kind == "f" else 0, dtype=arrays[0].dtype)
    for rows, array in parts:
        whole[(rows, *(slice(size) for size in array.shape[1:]))] = array
    return whole
