"""Signal and noise of every head and matrix of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import HeadWork, SiteSpectra, Takers, read_sites, require_circuits, sites_of
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import Difference, MatrixName, WeightMatrices, require_model
from rmtbase.nulls import Null, find_null
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.attributes import file_attributes, tell_of_large
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.scores._heads import sizes_of
from rmtbase.results.scores._matrices import products_of
from rmtbase.results.signal._heavy_tails import tail_draws, tail_values
from rmtbase.results.signal._learned_bound import HeadBounds
from rmtbase.results.signal._noise import MatrixSpectrumTaker, Noise, Spectrum, noise_of
from rmtbase.results.signal._sign_flips import signal_of_counts
from rmtbase.results.signal._spectral_signal import require_level, spectral_signal
from rmtbase.results.signal.schema import OF_TAIL, SIGNAL_SCHEMA
from rmtbase.tables import CIRCUITS, Circuit, describe


def signal(
    model: Any,
    null: Null | str | None = None,
    *,
    circuits: Sequence[str] | None = None,
    matrices: Literal["none", "spectra"] = "spectra",
    level: float = 0.05,
    heavy_tails: bool = False,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Find what every head and matrix of a model has learned: how many directions, how strong, in how much noise.

    Each spectrum is treated separately by :func:`rmtbase.results.signal.spectral_signal`, whose documentation explains
    the numbers and their accuracy. The noise has independent entries, normal unless ``null`` or its ``initialization``
    says otherwise. Except with ``"signs"``, gains and tails heavier than a logistic law's count as learned directions.

    Heads that share a key head (values, for W_OV) are not independent. What they have learned together shows in
    [W_Q1 ... W_Qg]ᵀ W_K, a chain of dims (g d_model, d_head, d_model), with every W_Qi scaled to their common σ̂. There
    a direction that all of them read counts once. Its strength is the root of the sum of their squared strengths, and
    ``head_share`` is the part of its square that each head contributes; noise makes up (1 - ``overlap_left``)/g of it.

    A matrix of a head by itself (W_Q, W_K, W_V, W_O) also has a lower bound on its learned share that needs no number
    of directions and no ``null``, ``learned_share_bound``, if its moments are beyond chance. The low-rank update of a
    module is treated as one head, a chain (d_out, r, d_in) for rank r.

    Args:
        model: as in :func:`rmtbase.score`; or a difference of two models, ``open_model(…, minus=…)``.
        null: noise that directions must stand out from, an object of :mod:`rmtbase.nulls` or its name. ``"gaussian"``:
            entries as the null's ``initialization`` draws them. ``"kurtosis"``: entries of any law with the excess
            kurtosis of each head's factors, or of the matrix, up to 3. ``"signs"``: random sign flips of each head's
            factors, or of the matrix, for independent entries of any laws that are symmetric about 0, at most ``draws``
            (10/level - 1 if None), so that no p-value is below 1/(draws + 1); variables of ``schema.NEED_A_LAW`` are
            then NaN. If None, signs for a difference of models, which is rounded, and gaussian for any other model.
        circuits: circuits of each head, as in :func:`rmtbase.score`; all that the model has if None.
        matrices: ``"spectra"`` to include whole weight matrices of the layers (a full SVD of each), or ``"none"``.
        level: significance level of each test; limits have confidence 1 - level.
        heavy_tails: whether to also fit a power law to every spectrum, and to classify the spectrum as noise, spikes on
            a bulk, a power law or a residual path (:func:`rmtbase.results.signal.heavy_tails`).
        progress: shows the layers read, and receives the notes on the model.

    Returns:
        The tree of a signal file, ``rmtbase.results.signal.schema.SIGNAL_SCHEMA``: ``/circuits/qk/heads`` and the like,
        with the dims layer, head, direction, index; where heads share a key head, ``/circuits/qk/groups`` with layer,
        key_head, direction, member, index; and ``/matrices`` with layer, component, direction, index.

    Raises:
        ParameterError: an argument outside its domain.
        CheckpointError: the checkpoint cannot be read; its subclasses say what is wrong.
    """
    if matrices not in ("none", "spectra"):
        raise ParameterError("matrices", matrices, "'none' or 'spectra'")
    level = require_level(level)
    if heavy_tails:
        tail_draws(level)  # judges the level before long work

    def circuits_for(opened: WeightMatrices) -> tuple[Circuit, ...]:
        return require_circuits(opened, circuits_of(opened) if circuits is None else circuits)

    def settings_for(opened: WeightMatrices) -> _Settings:
        chosen = find_null(null or ("signs" if isinstance(opened, Difference) else "gaussian"))
        return _Settings(level, chosen, noise_of(chosen, level), progress if heavy_tails else None)

    def reads(opened: WeightMatrices) -> tuple[Sequence[str] | None, tuple[()]]:
        settings_for(opened)
        factors = [f"attention_{factor.name}" for circuit in circuits_for(opened) for factor in circuit.factors]
        components = None if matrices == "spectra" else factors
        tell_of_large(opened, components, progress, int(matrices == "spectra"), np.square)
        return components, ()

    model = require_model(model, reads)
    of_heads, settings = circuits_for(model), settings_for(model)
    noise = settings.noise
    whole_matrices = MatrixSpectrumTaker(noise) if matrices == "spectra" else None
    bounds = HeadBounds(of_heads)
    takers = Takers(whole_matrices, bounds if bounds.circuits else None)
    work = HeadWork(noise.preparation, joint=True)
    with single_threaded_blas(), read_sites(model, of_heads, takers, work, progress) as reading:
        spectra, _ = reading.result()
    of_flips = () if noise.flips is None else (noise.flips.note,)
    for line in (*model.notes_now, *of_flips):
        progress.detail(line)
    for line in model.warnings:
        progress.note(line)
    advance = progress.bar("finding directions", len(of_heads) + (whole_matrices is not None))
    groups: dict[str, xr.Dataset] = {}
    for circuit in of_heads:
        sites = spectra[circuit]
        groups[f"/circuits/{circuit.name}/heads"] = _of_heads(model, circuit, sites, bounds, settings)
        if any(site.groups is not None for site in sites.values()):
            groups[f"/circuits/{circuit.name}/groups"] = _of_groups(model, circuit, sites, settings)
        advance(1)
    if whole_matrices is not None:
        groups["/matrices"] = _of_matrices(model, whole_matrices.spectra, settings)
        advance(1)
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    of_kind = {"level": level, "null": settings.null.name, "initialization": settings.null.initialization}
    names = [circuit.name for circuit in of_heads]
    call = {"function": "rmtbase.results.signal.signal", "circuits": names, "matrices": matrices, **of_kind}
    call |= {} if noise.flips is None else {"draws": noise.flips.draws, "seed": noise.flips.seed}
    call |= {"heavy_tails": True} if heavy_tails else {}
    notes, weights = (*model.notes, *of_flips), {"query_key_sha256": model.fingerprint()}
    tree.attrs = file_attributes("signal", model, of_kind, notes, model.warnings, call, weights=weights)
    for circuit in of_heads:
        sizes, _ = sizes_of(circuit, [model.sites[site] for site in spectra[circuit]])
        tree["circuits"][circuit.name].attrs = {"circuit": circuit.name, **sizes}
    return tree


def circuits_of(model: WeightMatrices) -> list[str]:
    """List the circuits that heads of a model have."""
    return [name for name, circuit in CIRCUITS.items() if sites_of(model, circuit)]


@dataclass(frozen=True)
class _Settings:
    level: float
    null: Null
    noise: Noise
    tails: Progress | None  # shows the tests of tails; None without them


Spectra = dict[tuple[int, int], Spectrum]
"""Spectra by their place in a group: layer, and head or component."""


def _of_heads(
    model: WeightMatrices, circuit: Circuit, sites: Mapping[int, SiteSpectra], bounds: HeadBounds, settings: _Settings
) -> xr.Dataset:
    order = sorted(sites)
    at_sites = [model.sites[site] for site in order]
    spectra: Spectra = {}
    for row, site in enumerate(order):
        shape, reason = _chain(model, site, circuit)
        values, prepared = (
            sites[site].singular_values,
            sites[site].prepared or [None] * len(sites[site].singular_values),
        )
        of_site = bounds.of_site(model, site, circuit, len(values))
        for head, (singular_values, of_head) in enumerate(zip(values, prepared, strict=True)):
            spectrum = settings.noise.spectrum(singular_values, shape, len(circuit.factors), of_head, reason)
            spectra[row, head] = spectrum._replace(bound=of_site[head])
    coordinates = layer_coordinates([site.place for site in at_sites]) | sizes_of(circuit, at_sites)[1]
    coordinates |= {"head": np.arange(max(getattr(site, circuit.heads) for site in at_sites))}
    return _group(spectra, coordinates, f"/circuits/{circuit.name}/heads", settings)


def _of_groups(
    model: WeightMatrices, circuit: Circuit, sites: Mapping[int, SiteSpectra], settings: _Settings
) -> xr.Dataset:
    """Compute the variables of one circuit's groups of heads that share a matrix, of dims (g n_0, n_1, n_2)."""
    groups = {site: spectra.groups for site, spectra in sorted(sites.items()) if spectra.groups is not None}
    spectra: Spectra = {}
    for row, (site, joint) in enumerate(groups.items()):
        (first, *lower), reason = _chain(model, site, circuit)
        shape = (joint.shares.shape[-1] * first, *lower)
        if len(shape) != len(circuit.factors) + 1:
            reason = reason or Reason("product_shared")
        for group, singular_values in enumerate(joint.singular_values):
            prepared = None if joint.prepared is None else joint.prepared[group]
            spectrum = settings.noise.spectrum(singular_values, shape, len(circuit.factors), prepared, reason)
            spectra[row, group] = spectrum._replace(shares=joint.shares[group])
    coordinates = layer_coordinates([model.sites[site].place for site in groups])
    coordinates |= {"key_head": np.arange(max(len(joint.shares) for joint in groups.values()))}
    coordinates |= {"member": np.arange(max(joint.shares.shape[-1] for joint in groups.values()))}
    return _group(spectra, coordinates, f"/circuits/{circuit.name}/groups", replace(settings, tails=None))


def _chain(model: WeightMatrices, site: int, circuit: Circuit) -> tuple[tuple[int, ...], Reason]:
    """Return the dims of the noise of a site's heads; if it has no known law, the dims of their matrices, and why."""
    try:
        shape = null_shape(model, site, circuit)
    except ParameterError:
        return tuple(getattr(model.sites[site], name) for name in circuit.dims), Reason("several_sources")
    if isinstance(shape, tuple):
        layer = model.layers.index(model.sites[site].place)
        return shape, _one_way(model, layer, *(f"attention_{factor.name}" for factor in circuit.factors))
    return shape.dims, Reason("rotated_keys")


def _one_way(model: WeightMatrices, layer: int, *components: str) -> Reason:
    one_way = isinstance(model, Difference) and any(model.rounds_one_way(layer, name) for name in components)
    return Reason("one_way_rounding" if one_way else "")


def _of_matrices(model: WeightMatrices, matrices: Mapping[MatrixName, Spectrum], settings: _Settings) -> xr.Dataset:
    components = [name for name in model.components if any(matrix.component == name for matrix in matrices)]
    products, spectra = products_of(model), Spectra()
    for name, spectrum in matrices.items():
        layer = model.layers.index(name.place)
        reason = Reason("stored_product") if name in products else _one_way(model, layer, name.component)
        spectra[layer, components.index(name.component)] = spectrum._replace(reason=reason or spectrum.reason)
    return _group(spectra, layer_coordinates(model.layers) | {"component": components}, "/matrices", settings)


def _group(spectra: Spectra, coordinates: Mapping[str, Any], name: str, settings: _Settings) -> xr.Dataset:
    """Compute all variables of a group; spectra with the same dims are tested together."""
    entries: Entries = {}
    by_dims: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for place, spectrum in spectra.items():
        sigma = np.sqrt(spectrum.eigenvalues.sum() / np.prod([float(n) for n in spectrum.dims]))
        share, no_bound = spectrum.bound
        entries[place] = {"eigenvalue": spectrum.eigenvalues, "sigma": sigma, "reason": str(spectrum.uncounted)}
        entries[place] |= {"learned_share_bound": share, "no_bound": no_bound}
        if name == "/matrices":
            entries[place] |= zip(("n_rows", "n_columns"), spectrum.dims, strict=True)
        if not spectrum.uncounted:
            by_dims.setdefault(spectrum.dims, []).append(place)
    width = 0
    for dims, places in by_dims.items():
        tested = [spectra[place] for place in places]
        eigenvalues = np.array([spectrum.eigenvalues for spectrum in tested])
        counts = [spectrum.counted for spectrum in tested if spectrum.counted is not None]
        if counts:
            result = signal_of_counts(eigenvalues, dims, counts)
        else:
            kurtosis = np.array([spectrum.kurtosis for spectrum in tested])
            result = spectral_signal(eigenvalues, dims, settings.level, kurtosis)
        expected_error = np.where(np.isnan(result.n_directions), np.nan, result.expected_error)
        variables = {field.name: getattr(result, field.name) for field in fields(result)}
        variables |= {"expected_error": expected_error, "reason": result.no_number}
        width = max(width, result.p_value.shape[1])
        for row, place in enumerate(places):
            entries[place] |= {variable: values[row] for variable, values in variables.items()}
            if (shares := spectra[place].shares) is not None:
                entries[place]["head_share"] = shares[: np.isfinite(result.strength[row]).sum()]
    if settings.tails is not None:
        advance = settings.tails.bar("comparing tails", len(spectra))
        for place, spectrum in spectra.items():
            if spectrum.reason:
                entries[place]["tail_reason"] = str(spectrum.reason)
            else:
                entries[place] |= tail_values(spectrum.eigenvalues, spectrum.dims, settings.level)
            advance(1)
    schema = SIGNAL_SCHEMA[name]
    longest = max(spectrum.eigenvalues.size for spectrum in spectra.values())
    coordinates = {**coordinates, "direction": np.arange(width), "index": np.arange(longest)}
    names = [variable for variable in schema if settings.tails is not None or variable not in OF_TAIL]
    table = filled(schema, coordinates, entries, names)
    texts = {variable: table[variable].astype(str) for variable in names if table[variable].dtype == object}
    return describe(table.assign(texts), schema)
