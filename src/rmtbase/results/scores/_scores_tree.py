"""Tree of a scores file: heads in blocks of one shape, each block scored against the null of that shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import StoredRows, has_latent_keys, head_axis, head_sigmas, null_shape, stored_rows
from rmtbase.heads.key_shares import KeyShares
from rmtbase.heads.read_sites import HeadWork, SiteSpectra, Takers, read_factors, read_sites, require_circuits, sites_of
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import FUSED_COMPONENTS, MatrixName, WeightMatrices
from rmtbase.nulls import Heads, HeadShape, Null, NullModel, initialization_note, random_heads
from rmtbase.parameters import require_positive_integer
from rmtbase.progress import Progress
from rmtbase.results.attributes import file_attributes
from rmtbase.results.scores._head_elements import ElementMode, head_elements
from rmtbase.results.scores._heads import Block, circuit_attributes, heads_dataset, null_dataset
from rmtbase.results.scores._read_matrices import LAYERS, MatrixScores
from rmtbase.results.scores._unscored_heads import equal_values_note, fixed_spectra, unscored_heads, unscored_lines
from rmtbase.results.scores.schema import heads_schema
from rmtbase.shown import shown
from rmtbase.statistics import LatentShape
from rmtbase.tables import CIRCUITS, Circuit, describe


def scores_tree(
    model: WeightMatrices,
    function: str,
    null: Null,
    matrices: str,
    circuits: Sequence[str],
    components: Sequence[str],
    elements: ElementMode,
    progress: Progress,
) -> xr.DataTree:
    """Score a model against a null; ``function`` is the call that provenance names."""
    wanted = require_circuits(model, circuits)
    blocks_of = {circuit: _blocks(model, circuit, null) for circuit in wanted}
    n_heads = max(sum(len(sites) * one.n_heads for one, sites in blocks.items()) for blocks in blocks_of.values())
    whole = MatrixScores(model, components, matrices == "spectra", null.seed, null.initialization)
    of_heads = head_elements(elements, null.initialization, model.sites)
    with single_threaded_blas():  # else the last bits depend on the number of cores
        takers, work = Takers(whole.layers, of_heads), HeadWork(null, how_much=True)
        with read_sites(model, wanted, takers, work, progress) as reading:
            shapes = dict.fromkeys((one.null, one.stored) for blocks in blocks_of.values() for one in blocks)
            nulls = {
                (shape, stored): null.for_heads(HeadShape(shape, n_heads, stored), progress) for shape, stored in shapes
            }
            spectra, ways = reading.result()
        whole.read(progress)
        unscored = unscored_heads(model, spectra, null)
        warnings = [*model.warnings, *unscored_lines(model, unscored), *whole.missing]
        warnings += of_heads.missing() if of_heads is not None else []
        of_matrices = whole.datasets()
        told = null.entry_law is not None and whole.layers
        drawn = initialization_note(of_matrices["/matrices"], str(null.entry_law)) if told else None
        flat = None if null.needs_stored_rows else equal_values_note(spectra[wanted[0]])
        more = (*whole.notes, *filter(None, (drawn, flat)))
        notes = (*model.notes, *more)
        for line in (*model.notes_now, *more):
            progress.detail(line)
        for line in warnings:
            progress.note(line)
        scored = {
            circuit: [
                _scored(model, circuit, sites, shape, spectra[circuit], null, nulls, progress)
                for shape, sites in blocks.items()
            ]
            for circuit, blocks in blocks_of.items()
        }
    fixed, lines = fixed_spectra(model, scored)
    warnings += (lines := [*unscored_lines(model, fixed), *lines])
    for line in lines:
        progress.note(line)
    groups: dict[str, xr.Dataset] = {}
    for circuit, blocks in scored.items():
        place = "" if circuit.name == "qk" else f"/circuits/{circuit.name}"
        reasons, of_null = fixed[circuit] | unscored[circuit], null_dataset(circuit, model.sites, blocks)
        groups[f"{place}/heads"] = heads_dataset(circuit, model.sites, blocks, of_null, reasons)
        groups[f"{place}/null"] = of_null
    if of_heads is not None:
        groups["/heads/elements"] = of_heads.dataset()
    groups["/heads"], attention = with_attention(groups["/heads"], model)
    tree = xr.DataTree.from_dict(groups | of_matrices)
    called = {"function": function, "matrices": matrices}
    facts = _attributes(model, called, scored, null, components, elements, notes, warnings, ways)
    tree.attrs = attention | facts
    for circuit in wanted[1:]:
        facts = circuit_attributes(circuit, model.sites, scored[circuit])
        tree["circuits"][circuit.name].attrs = {"circuit": circuit.name, **facts}
    return tree


def factors_read(model: WeightMatrices, circuits: Sequence[str], null: Null, elements: ElementMode) -> Sequence[str]:
    """Judge circuits of a model before its weights are read, and name the matrices of heads that scoring them reads."""
    wanted = require_circuits(model, circuits)
    for shape in dict.fromkeys((one.null, one.stored) for circuit in wanted for one in _blocks(model, circuit, null)):
        null.require_shape(HeadShape(shape[0], 1, shape[1]))
    read = wanted if elements == "matrices" else [one for one in CIRCUITS.values() if len(one.factors) == 1]
    return [f"attention_{factor.name}" for circuit in read for factor in circuit.factors]


class _Shape(NamedTuple):
    """Common properties of the heads of a block of sites: the shape of their null, and their number."""

    null: tuple[int, ...] | LatentShape
    n_heads: int
    of_last_factor: int
    stored: StoredRows | None


def _blocks(model: WeightMatrices, circuit: Circuit, null: Null) -> dict[_Shape, list[int]]:
    """Group the sites whose heads have the same shape, null and number."""
    blocks: dict[_Shape, list[int]] = {}
    for index in sites_of(model, circuit):
        site, shape = model.sites[index], null_shape(model, index, circuit)
        if shape == (site.d_query, site.d_head, site.d_key) and site.d_head > min(site.d_query, site.d_key):
            raise ParameterError("d_head", site.d_head, f"at most d_model = {min(site.d_query, site.d_key)}")
        first, last = (getattr(site, factor.heads) for factor in (circuit.factors[0], circuit.factors[-1]))
        stored = stored_rows(model, index, circuit) if null.needs_stored_rows else None
        blocks.setdefault(_Shape(shape, first, last, stored), []).append(index)
    return blocks


def _scored(
    model: WeightMatrices,
    circuit: Circuit,
    sites: list[int],
    shape: _Shape,
    spectra: Mapping[int, SiteSpectra],
    assumed: Null,
    nulls: Mapping[tuple[tuple[int, ...] | LatentShape, StoredRows | None], NullModel],
    progress: Progress,
) -> Block:
    """Score the heads of a block of sites."""
    null = nulls[shape.null, shape.stored]
    each = [spectra[site] for site in sites]
    sigmas = tuple(np.stack(sigma) for sigma in zip(*(one.sigmas for one in each), strict=True))
    prepared = [one.prepared for one in each if one.prepared is not None]
    heads = Heads(
        np.stack([one.singular_values for one in each]),
        sigmas,
        lambda layer: read_factors(model, sites[layer], circuit),
        prepared=prepared or None,
    )
    dims = tuple(getattr(model.sites[sites[0]], name) for name in circuit.dims)
    if shape.null != dims and not null.per_head:
        heads = _at_scales(heads, model, sites, circuit)
    random = None
    if isinstance(shape.null, tuple) and not assumed.needs_stored_rows:
        random = random_heads(shape.null, head_axis(model, sites[0], circuit), assumed.seed)
    equal_axes = [one.equal_axes for one in each if one.equal_axes is not None]
    key_shares = [one.key_shares for one in each if one.key_shares is not None]
    scores, null_group = null.score_heads(heads, progress)
    return Block(
        sites,
        dims,
        null,
        heads,
        sigmas,
        scores,
        null_group,
        random,
        np.stack(equal_axes) if equal_axes else None,
        KeyShares(*map(np.stack, zip(*key_shares, strict=True))) if key_shares else None,
    )


def _at_scales(heads: Heads, model: WeightMatrices, sites: Sequence[int], circuit: Circuit) -> Heads:
    """Give the heads σ̂ of every factor that their null is drawn from; 0 where a matrix is zero."""
    names = [factor.name for factor in circuit.factors]
    each = [head_sigmas(model.sites[site], names, model.stored_shape, model.stored) for site in sites]
    scored = np.all([sigma > 0 for sigma in heads.sigmas], axis=0)
    sigmas = (np.stack(sigma) for sigma in zip(*(sigmas for sigmas, _ in each), strict=True))
    ratios = [ratio for _, ratio in each if ratio is not None]
    return replace(
        heads,
        sigmas=tuple(np.where(scored, sigma, 0.0) for sigma in sigmas),
        rope_ratio=np.stack(ratios) if ratios else None,
    )


def _attributes(
    model: WeightMatrices,
    called: Mapping[str, object],
    scored: Mapping[Circuit, Sequence[Block]],
    null: Null,
    components: Sequence[str],
    elements: str,
    notes: tuple[str, ...],
    warnings: list[str],
    ways: dict[str, int],
) -> dict[str, object]:
    (qk, blocks), *further = scored.items()
    facts = circuit_attributes(qk, model.sites, blocks)
    if model.d_model is not None:
        del facts["d_query"], facts["d_key"]
        facts["d_model"] = model.d_model
    call = {**called, "null_draws": facts.get("null_draws"), "null_source": facts["table"]}
    if components and tuple(components) != (LAYERS,):
        call["components"] = list(components)
    if elements != "matrices":
        call["elements"] = elements
    if null.initialization != "normal":
        call["initialization"] = null.initialization
    if further:
        call["circuits"] = [circuit.name for circuit in scored]
    weights = {"architecture": model.architecture, "query_key_sha256": model.fingerprint(), "factorised": ways}
    records = {block.dims: block.null.record() for block in blocks}
    record = records[blocks[0].dims] if len(records) == 1 else {str(dims): one for dims, one in records.items()}
    of_heads = ("n_heads", "n_key_heads", "d_model", "d_query", "d_key", "d_head")
    of_null = ("null_draws", "p_value_floor", "edge_level")
    of_kind = {
        "null": facts["null"],
        "null_method": facts["null_method"],
        "table": shown(facts["table"]),
        "initialization": null.initialization,
        "normalization": "none",
        "n_layers": model.n_layers,
        **{name: facts[name] for name in (*of_heads, *of_null) if name in facts},
    }
    return file_attributes("scores", model, of_kind, notes, warnings, call, weights=weights, null=record)


def attention_class(n_heads: int, n_key_heads: int, fused: bool = False, latent: bool = False) -> str:
    """Name the sharing of keys: "MHA" (none), "GQA" (groups), "MQA" (all heads), "latent" (a shared projection).

    ``fused`` adds that queries, keys and values are stored as one matrix: "MHA, fused".

    Source: J. Ainslie et al., EMNLP (2023); DeepSeek-AI, arXiv:2405.04434 (2024) for latent attention.
    """
    heads, keys = require_positive_integer("n_heads", n_heads), require_positive_integer("n_key_heads", n_key_heads)
    if heads % keys:
        raise ParameterError("n_heads", heads, f"a multiple of n_key_heads = {keys}")
    if latent:
        kind = "latent"
    elif keys == heads:
        kind = "MHA"
    else:
        kind = "MQA" if keys == 1 else "GQA"
    return f"{kind}, fused" if fused else kind


def with_attention(heads: xr.Dataset, model: WeightMatrices) -> tuple[xr.Dataset, dict[str, str]]:
    """Add ``attention``, the :func:`attention_class` of the stored matrices, to the scores of a model's heads.

    It is an attribute if it is the same in all layers, and otherwise a coordinate of the heads.
    """
    found = []
    for site in model.sites:
        fused = any(MatrixName(site.place, one) in model.parts.get("fused", ()) for one in FUSED_COMPONENTS)
        latent = has_latent_keys(site, model.stored_shape)
        found.append(attention_class(site.n_heads, site.n_key_heads, fused, latent))
    if len(set(found)) == 1:
        return heads, {"attention": found[0]}
    return describe(heads.assign_coords(attention=("layer", found)), heads_schema(CIRCUITS["qk"])), {}
