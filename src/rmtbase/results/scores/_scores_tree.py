"""Tree of a scores file: heads in blocks of one shape, each block scored against the null of that shape."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase import nulls
from rmtbase.errors import ParameterError
from rmtbase.heads.factors import StoredRows, has_latent_keys, head_axis, head_sigmas, null_shape, stored_rows
from rmtbase.heads.read_sites import (
    HeadWork,
    KeyShares,
    SiteSpectra,
    Takers,
    read_factors,
    read_sites,
    require_circuits,
    sites_of,
)
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import FUSED_COMPONENTS, MatrixName, WeightMatrices
from rmtbase.parameters import require_independent_entries, require_positive_integer
from rmtbase.progress import Progress
from rmtbase.reasons import Reason
from rmtbase.results.attributes import file_attributes, tell_of_large
from rmtbase.results.scores._element_scores import ELEMENT_MODES, ElementMode, HeadElements, summarized
from rmtbase.results.scores._heads import Block, circuit_attributes, heads_dataset, null_dataset
from rmtbase.results.scores._matrices import LAYERS, MATRIX_MODES, MatrixScores, require_components
from rmtbase.results.scores.schema import circuit_group, heads_schema
from rmtbase.shown import shown
from rmtbase.statistics import LatentShape
from rmtbase.tables import CIRCUITS, QK, Circuit, describe
from rmtbase.words import listing

_NAMED = 8  # heads named in one line; the file lists all
Reasons = Mapping[tuple[int, int], Reason]  # why heads of a circuit cannot be tested, by site and head


@dataclass(frozen=True)
class Scope:
    null: nulls.Null
    matrices: str = "none"
    circuits: Sequence[str] = ("qk",)
    components: Sequence[str] | str = (LAYERS,)
    elements: ElementMode = "matrices"

    def __post_init__(self) -> None:
        if self.elements not in ELEMENT_MODES:
            raise ParameterError("elements", self.elements, f"one of {', '.join(ELEMENT_MODES)}")
        if self.elements != "matrices":
            require_independent_entries(self.null.initialization, f"elements={self.elements!r}")
        if self.matrices not in MATRIX_MODES:
            raise ParameterError("matrices", self.matrices, f"one of {', '.join(MATRIX_MODES)}")

    def parts(self, model: WeightMatrices) -> tuple[str, ...]:
        return require_components(model, self.components, self.matrices != "none")

    def reads(self, progress: Progress) -> Callable[[WeightMatrices], tuple[Sequence[str] | None, Sequence[str]]]:
        """Return ``reads`` of ``require_model``, which judges these options for an opened model."""

        def judged(model: WeightMatrices) -> tuple[Sequence[str] | None, Sequence[str]]:
            parts, circuits = self.parts(model), require_circuits(model, self.circuits)
            shapes = (block.key for circuit in circuits for block in _blocks(model, circuit, self.null))
            for shape, stored in dict.fromkeys(shapes):
                self.null.require_shape(nulls.HeadShape(shape, 1, stored))
            if self.elements != "matrices":
                circuits = tuple(circuit for circuit in CIRCUITS.values() if len(circuit.factors) == 1)
            of_heads = [f"attention_{factor.name}" for circuit in circuits for factor in circuit.factors]
            components = None if LAYERS in parts else of_heads
            spectra = self.matrices == "spectra" and LAYERS in parts
            tell_of_large(model, components, progress, int(spectra), summarized)
            return components, parts

        return judged


def scores_tree(model: WeightMatrices, function: str, scope: Scope, progress: Progress) -> xr.DataTree:
    null, circuits = scope.null, require_circuits(model, scope.circuits)
    blocks_of = {circuit: _blocks(model, circuit, null) for circuit in circuits}
    n_heads = max(sum(len(block.sites) * block.n_heads for block in blocks) for blocks in blocks_of.values())
    matrices = MatrixScores(model, scope.parts(model), scope.matrices == "spectra", null)
    of_heads = None
    if scope.elements != "matrices":
        of_heads = HeadElements(model.sites, scope.elements == "heads", null.initialization)
    with single_threaded_blas():  # else the last bits depend on the number of cores
        takers, work = Takers(matrices.layers, of_heads), HeadWork(null, how_much=True)
        with read_sites(model, circuits, takers, work, progress) as reading:
            keys = dict.fromkeys(block.key for blocks in blocks_of.values() for block in blocks)
            models = {key: null.for_heads(nulls.HeadShape(key[0], n_heads, key[1]), progress) for key in keys}
            spectra, ways = reading.result()
        matrices.read(progress)
        unscored = unscored_heads(model, spectra, null)
        warnings = [*model.warnings, *unscored_lines(model, unscored), *matrices.missing]
        warnings += of_heads.missing() if of_heads is not None else []
        of_matrices = matrices.datasets()
        notes: list[str | None] = [*matrices.notes]
        if null.entry_law is not None and matrices.layers:
            notes.append(nulls.initialization_note(of_matrices["/matrices"], null.entry_law))
        notes += [] if null.needs_stored_rows else [equal_values_note(spectra[QK])]
        own_notes = [line for line in notes if line]
        for line in (*model.notes_now, *own_notes):
            progress.detail(line)
        for line in warnings:
            progress.note(line)
        scored: dict[Circuit, list[Block]] = {}
        for circuit, blocks in blocks_of.items():
            parts = ((block, spectra[circuit], models[block.key]) for block in blocks)
            scored[circuit] = [_scored(model, circuit, *of_block, null.seed, progress) for of_block in parts]
    fixed, differing = fixed_spectra(model, scored)
    lines = [*unscored_lines(model, fixed), *differing]
    for line in lines:
        progress.note(line)
    groups: dict[str, xr.Dataset] = {}
    for circuit, blocks in scored.items():
        place, of_null = circuit_group(circuit), null_dataset(circuit, model.sites, blocks)
        reasons = {**fixed[circuit], **unscored[circuit]}
        groups[f"{place}/heads"] = heads_dataset(circuit, model.sites, blocks, of_null, reasons)
        groups[f"{place}/null"] = of_null
    if of_heads is not None:
        groups["/heads/elements"] = of_heads.dataset()
    groups["/heads"], attention = with_attention(groups["/heads"], model)
    tree = xr.DataTree.from_dict(groups | of_matrices)
    about = [*model.notes, *own_notes], [*warnings, *lines]
    tree.attrs = attention | _attributes(model, function, scope, scored, about, ways)
    for circuit in circuits[1:]:
        facts = circuit_attributes(circuit, model.sites, scored[circuit])
        tree["circuits"][circuit.name].attrs = {"circuit": circuit.name, **facts}
    return tree


class _Sites(NamedTuple):
    key: tuple[tuple[int, ...] | LatentShape, StoredRows | None]  # what the null of the heads depends on
    n_heads: int
    of_last_factor: int
    sites: list[int]


def _blocks(model: WeightMatrices, circuit: Circuit, null: nulls.Null) -> list[_Sites]:
    blocks: dict[tuple, _Sites] = {}
    for index in sites_of(model, circuit):
        site, shape = model.sites[index], null_shape(model, index, circuit)
        if shape == (site.d_query, site.d_head, site.d_key) and site.d_head > min(site.d_query, site.d_key):
            raise ParameterError("d_head", site.d_head, f"at most d_model = {min(site.d_query, site.d_key)}")
        first, last = (getattr(site, factor.heads) for factor in (circuit.factors[0], circuit.factors[-1]))
        stored = stored_rows(model, index, circuit) if null.needs_stored_rows else None
        facts = (shape, stored), first, last
        blocks.setdefault(facts, _Sites(*facts, [])).sites.append(index)
    return list(blocks.values())


def _scored(
    model: WeightMatrices,
    circuit: Circuit,
    block: _Sites,
    spectra: Mapping[int, SiteSpectra],
    null: nulls.NullModel,
    seed: int,
    progress: Progress,
) -> Block:
    (shape, stored), sites, of_sites = block.key, block.sites, [spectra[site] for site in block.sites]
    sigmas = tuple(np.stack(sigma) for sigma in zip(*(site.sigmas for site in of_sites), strict=True))
    heads = nulls.Heads(
        np.stack([site.singular_values for site in of_sites]),
        sigmas,
        lambda layer: read_factors(model, sites[layer], circuit),
        prepared=[site.prepared for site in of_sites if site.prepared is not None] or None,
    )
    dims = tuple(getattr(model.sites[sites[0]], name) for name in circuit.dims)
    if shape != dims and not null.per_head:
        # the heads have σ̂ of every factor that their null is drawn from; 0 where a matrix is zero
        names = [factor.name for factor in circuit.factors]
        of_null = [head_sigmas(model.sites[site], names, model.stored_shape, model.stored) for site in sites]
        stacked = (np.stack(sigma) for sigma in zip(*(sigmas for sigmas, _ in of_null), strict=True))
        ratios = [ratio for _, ratio in of_null if ratio is not None]
        scored = np.all([sigma > 0 for sigma in sigmas], axis=0)
        of_scored = tuple(np.where(scored, sigma, 0.0) for sigma in stacked)
        heads = replace(heads, sigmas=of_scored, rope_ratio=np.stack(ratios) if ratios else None)
    random = None
    if isinstance(shape, tuple) and stored is None:
        random = nulls.random_heads(shape, head_axis(model, sites[0], circuit), seed)
    equal_axes = [site.equal_axes for site in of_sites if site.equal_axes is not None]
    key_shares = [site.key_shares for site in of_sites if site.key_shares is not None]
    scores, null_group = null.score_heads(heads, progress)
    equal_eigenvalues = np.stack(equal_axes) ** 2 if equal_axes else None
    shares = KeyShares(*map(np.stack, zip(*key_shares, strict=True))) if key_shares else None
    return Block(sites, dims, null, heads, sigmas, scores, null_group, random, equal_eigenvalues, shares)


def _attributes(
    model: WeightMatrices,
    function: str,
    scope: Scope,
    scored: Mapping[Circuit, Sequence[Block]],
    about: tuple[Sequence[str], Sequence[str]],
    ways: Mapping[str, int],
) -> dict[str, object]:
    blocks, parts, initialization = scored[QK], scope.parts(model), scope.null.initialization
    facts = circuit_attributes(QK, model.sites, blocks)
    if model.d_model is not None:
        del facts["d_query"], facts["d_key"]
        facts["d_model"] = model.d_model
    draws, source = facts.get("null_draws"), facts["table"]
    call = {"function": function, "matrices": scope.matrices, "null_draws": draws, "null_source": source}
    call |= {} if parts in ((), (LAYERS,)) else {"components": list(parts)}
    call |= {} if scope.elements == "matrices" else {"elements": scope.elements}
    call |= {} if initialization == "normal" else {"initialization": initialization}
    call |= {} if len(scored) == 1 else {"circuits": [circuit.name for circuit in scored]}
    weights = {"architecture": model.architecture, "query_key_sha256": model.fingerprint(), "factorised": ways}
    records = {str(block.dims): block.null.record() for block in blocks}
    record = next(iter(records.values())) if len(records) == 1 else records
    order = ("n_heads", "n_key_heads", "d_model", "d_query", "d_key", "d_head", "null_draws", "p_value_floor")
    of_kind = {
        **{name: facts[name] for name in ("null", "null_method", "null_entries")},
        "table": shown(facts["table"]),
        "initialization": initialization,
        "normalization": "none",
        "n_layers": model.n_layers,
        **{name: facts[name] for name in (*order, "edge_level") if name in facts},
    }
    return file_attributes("scores", model, of_kind, *about, call, weights=weights, null=record)


def attention_class(n_heads: int, n_key_heads: int, fused: bool = False, latent: bool = False) -> str:
    """Name the sharing of keys: "MHA" (none), "GQA" (groups), "MQA" (all heads), "latent" (a shared projection).

    ``fused`` adds that queries, keys and values are stored as one matrix: "MHA, fused".

    Source: J. Ainslie et al., EMNLP (2023); DeepSeek-AI, arXiv:2405.04434 (2024) for latent attention.
    """
    heads, keys = require_positive_integer("n_heads", n_heads), require_positive_integer("n_key_heads", n_key_heads)
    if heads % keys:
        raise ParameterError("n_heads", heads, f"a multiple of n_key_heads = {keys}")
    shared = "MHA" if keys == heads else "MQA" if keys == 1 else "GQA"
    return f"{'latent' if latent else shared}{', fused' if fused else ''}"


def with_attention(heads: xr.Dataset, model: WeightMatrices) -> tuple[xr.Dataset, dict[str, str]]:
    fused, classes = model.parts.get("fused", ()), []
    for site in model.sites:
        is_fused = any(MatrixName(site.place, component) in fused for component in FUSED_COMPONENTS)
        latent = has_latent_keys(site, model.stored_shape)
        classes.append(attention_class(site.n_heads, site.n_key_heads, is_fused, latent))
    if len(set(classes)) == 1:
        return heads, {"attention": classes[0]}
    return describe(heads.assign_coords(attention=("layer", classes)), heads_schema(QK)), {}


def unscored_heads(
    model: WeightMatrices, spectra: Mapping[Circuit, Mapping[int, SiteSpectra]], null: nulls.Null
) -> dict[Circuit, Reasons]:
    unscored: dict[Circuit, Reasons] = {}
    for circuit, by_site in spectra.items():
        reasons: dict[tuple[int, int], Reason] = {}
        for site, of_site in by_site.items():
            dims = tuple(getattr(model.sites[site], name) for name in circuit.dims)
            of_null = null.unscored(dims, of_site.prepared)
            for head in range(len(of_site.singular_values)):
                sigmas = zip(circuit.factors, of_site.sigmas, strict=True)
                zero, reason = [factor.symbol for factor, sigma in sigmas if sigma[head] == 0], Reason()
                if zero:
                    name = "zero_factor" if len(zero) == 1 else "zero_factors"
                    reason = Reason(name, {name.removeprefix("zero_"): " and ".join(zero)})
                if reason := Reason.join(reason, of_null.get(head, Reason())):
                    reasons[site, head] = reason
        unscored[circuit] = reasons
    return unscored


def unscored_lines(model: WeightMatrices, unscored: Mapping[Circuit, Reasons]) -> list[str]:
    """Write the warnings of a file: one for each circuit and code of a reason, in the words of the first head's."""
    lines = []
    for circuit, reasons in unscored.items():
        groups: dict[tuple[str, ...], list[tuple[str, Reason]]] = {}
        for (site, head), reason in reasons.items():
            name = f"{model.sites[site].place} {circuit.noun} {head}"
            groups.setdefault(reason.codes, []).append((name, reason))
        for heads in groups.values():
            names = _listed([name for name, _ in heads])
            lines.append(f"{names}: {heads[0][1].words}; not tested by {circuit.symbol}")
    return list(dict.fromkeys(lines))


def fixed_spectra(
    model: WeightMatrices, scored: Mapping[Circuit, Sequence[Block]]
) -> tuple[dict[Circuit, Reasons], list[str]]:
    """Give the reasons why heads with a spectrum fixed by orthogonal initialization cannot be tested, and warnings."""
    fixed: dict[Circuit, Reasons] = {}
    lines = []
    for circuit, blocks in scored.items():
        agreeing, differing = {}, []
        for block in blocks:
            if isinstance(block.null, nulls.OrthogonalNull) and block.null.fixed:
                names = ", ".join(block.null.fixed)
                heads = f"{circuit.noun}s of {block.dims}"
                lines.append(f"{heads}: not tested by {names}, the same in all draws of the null")
            if not isinstance(block.null, nulls.FixedSpectrum):
                continue
            scale = nulls.chain_scale(block.heads.sigmas)
            agrees = block.null.agrees(block.eigenvalues / scale[..., None])
            for row, head in np.argwhere(~np.isnan(scale)).tolist():
                if agrees[row, head]:
                    agreeing[block.sites[row], head] = Reason("fixed_spectrum")
                else:
                    differing.append(f"{model.sites[block.sites[row]].place} {circuit.noun} {head}")
        fixed[circuit] = agreeing
        if differing:
            lines.append(
                f"{_listed(differing)}: not as by orthogonal initialisation, which makes all singular values of "
                f"{circuit.symbol} equal: rejected with certainty, whatever changed them"
            )
    return fixed, lines


def equal_values_note(spectra: Mapping[int, SiteSpectra]) -> str | None:
    heads = [values for site in spectra.values() for values in site.singular_values if values[-1] > 0.0]
    flat = sum(values[0] <= (1.0 + 0.5 * nulls.FLAT) * values[-1] for values in heads)
    if not flat:
        return None
    return (
        f"{flat} of {len(heads)} heads have equal singular values of W_QK, as orthogonal initialisation makes them: "
        "a null of independent entries rejects them for that; --initialization orthogonal has the null for them"
    )


def _listed(heads: list[str]) -> str:
    return listing(heads, _NAMED) + (f" ({len(heads)} in all)" if len(heads) > _NAMED else "")
