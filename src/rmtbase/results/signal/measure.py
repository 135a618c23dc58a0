"""Signal and noise of every head and matrix of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import HeadWork, SiteSpectra, Takers, read_sites, require_circuits, sites_of
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import Difference, MatrixName, WeightMatrices, require_model
from rmtbase.nulls import LARGEST_KURTOSIS, Null, find_null
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.attributes import file_attributes
from rmtbase.results.large_matrices import tell_of_large
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.scores._heads import sizes_of
from rmtbase.results.scores._read_matrices import products_of
from rmtbase.results.signal._heavy_tails import tail_draws, tail_values
from rmtbase.results.signal._learned_bound import HeadBounds, ShareBound, no_bound
from rmtbase.results.signal._noise import MatrixSpectrum, MatrixSpectrumTaker, Noise, NoiseOfHead, noise_of
from rmtbase.results.signal._sign_flips import signal_of_counts
from rmtbase.results.signal._spectral_signal import SpectralSignal, no_law_at, require_level, spectral_signal
from rmtbase.results.signal.schema import OF_DIRECTION, OF_TAIL, SIGNAL_SCHEMA
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
    of directions, ``learned_share_bound``, if its moments are beyond chance; see
    :mod:`rmtbase.results.signal._learned_bound`. It does not depend on ``null``.

    The low-rank update of a module is treated as one head, a chain (d_out, r, d_in) for rank r. A difference of
    checkpoints (``rmtbase.models.difference``) can be given as a model, too.

    Args:
        model: as in :func:`rmtbase.score`; or a difference of two models, ``open_model(…, minus=…)``.
        null: noise that directions must stand out from, an object of :mod:`rmtbase.nulls` or its name. ``"gaussian"``:
            entries as the null's ``initialization`` draws them. ``"kurtosis"``: entries of any law with the excess
            kurtosis of each head's factors, or of the matrix, up to 3. ``"signs"``: random sign flips of each head's
            factors, or of the matrix, for independent entries of any laws that are symmetric about 0; its ``draws`` are
            the largest number of flips for each number of directions (10/level - 1 if None), so that no p-value is
            below 1/(draws + 1). If None, signs for a difference of models, whose entries are not normal because of
            rounding, and gaussian for any other model. With signs there are no confidence limits of strengths, no error
            of the noise's scale, and no test of the remaining noise (``rmtbase.results.signal.schema.NEED_A_LAW``).
        circuits: circuits of each head, as in :func:`rmtbase.score`; all that the model has if None.
        matrices: ``"spectra"`` to include whole weight matrices of the layers (a full SVD of each), or ``"none"``.
        level: significance level of each test; limits have confidence 1 - level.
        heavy_tails: whether to also fit a power law to every spectrum, and to classify the spectrum as noise, spikes on
            a bulk, a power law or a residual path (:func:`rmtbase.results.signal.heavy_tails`).
        progress: shows the layers read, and receives the notes on the model.

    Returns:
        The tree of a signal file: ``/circuits/qk/heads`` and the like, with the dimensions layer, head, direction,
        index; where heads share a key head, ``/circuits/qk/groups`` with layer, key_head, direction, member, index; and
        ``/matrices`` with layer, component, direction, index. Its variables are described in
        ``rmtbase.results.signal.schema.SIGNAL_SCHEMA``.

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
    by_null = {"null": settings.null.name, "initialization": settings.null.initialization}
    call = {
        "function": "rmtbase.results.signal.signal",
        "circuits": [circuit.name for circuit in of_heads],
        "matrices": matrices,
        "level": level,
        **by_null,
        **({} if noise.flips is None else {"draws": noise.flips.draws, "seed": noise.flips.seed}),
        **({"heavy_tails": True} if heavy_tails else {}),
    }
    notes, weights = (*model.notes, *of_flips), {"query_key_sha256": model.fingerprint()}
    of_kind = {"level": level, **by_null}
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
    """Settings of all tests of a call."""

    level: float
    null: Null
    noise: Noise
    tails: Progress | None  # shows the tests of tails; None without them


class _Spectrum(NamedTuple):
    """Spectrum with its place in a group, the dims of its chain, its noise, and the bound on its learned share."""

    at: tuple[int, int]
    eigenvalues: Float[np.ndarray, " r"]
    dims: tuple[int, ...]
    noise: NoiseOfHead
    bound: ShareBound

    @property
    def known_reason(self) -> Reason:
        """Reason why nothing can be said of the spectrum."""
        return self.noise.reason or Reason("" if self.eigenvalues.any() else "all_zeros")

    @property
    def reason(self) -> Reason:
        """Reason why directions cannot be counted."""
        counts = self.noise.counted
        no_law = no_law_at(self.dims) if counts is None else counts.untested
        if self.known_reason or no_law or self.noise.kurtosis <= LARGEST_KURTOSIS:
            return self.known_reason or no_law
        return Reason("heavy_entries", {"largest": LARGEST_KURTOSIS})


def _of_heads(
    model: WeightMatrices, circuit: Circuit, sites: Mapping[int, SiteSpectra], bounds: HeadBounds, settings: _Settings
) -> xr.Dataset:
    """Compute the variables of one circuit's heads at all sites."""
    order = sorted(sites)
    at_sites = [model.sites[site] for site in order]
    n_heads = max(getattr(site, circuit.heads) for site in at_sites)
    spectra = []
    for row, site in enumerate(order):
        shape, reason = _chain(model, site, circuit)
        values, prepared = sites[site].singular_values, sites[site].prepared
        of_site = bounds.of_site(model, site, circuit, len(values))
        for head, singular_values in enumerate(values):
            noise = settings.noise.of_head(shape, len(circuit.factors), None if prepared is None else prepared[head])
            noise = noise._replace(reason=reason or noise.reason)
            spectra.append(_Spectrum((row, head), singular_values**2, shape, noise, of_site[head]))
    coordinates = layer_coordinates([site.place for site in at_sites]) | sizes_of(circuit, at_sites)[1]
    coordinates |= {"head": np.arange(n_heads)}
    return _group(spectra, (len(order), n_heads), coordinates, f"/circuits/{circuit.name}/heads", settings)


def _of_groups(
    model: WeightMatrices, circuit: Circuit, sites: Mapping[int, SiteSpectra], settings: _Settings
) -> xr.Dataset:
    """Compute the variables of one circuit's groups of heads that share a matrix, of dims (g n_0, n_1, n_2)."""
    groups = {site: spectra.groups for site, spectra in sorted(sites.items()) if spectra.groups is not None}
    spectra = []
    for row, (site, joint) in enumerate(groups.items()):
        (first, *lower), reason = _chain(model, site, circuit)
        shape = (joint.shares.shape[-1] * first, *lower)
        if len(shape) != len(circuit.factors) + 1:
            reason = reason or Reason("product_shared")
        for group, singular_values in enumerate(joint.singular_values):
            noise = NoiseOfHead(np.nan, reason=reason)
            if not reason:
                prepared = None if joint.prepared is None else joint.prepared[group]
                noise = settings.noise.of_head(shape, len(circuit.factors), prepared)
            spectra.append(_Spectrum((row, group), singular_values**2, shape, noise, no_bound("product")))
    size = len(groups), max(len(joint.shares) for joint in groups.values())
    coordinates = layer_coordinates([model.sites[site].place for site in groups]) | {"key_head": np.arange(size[1])}
    name = f"/circuits/{circuit.name}/groups"
    table = _group(spectra, size, coordinates, name, replace(settings, tails=None))
    members = max(joint.shares.shape[-1] for joint in groups.values())
    head_share = np.full((*size, table.sizes["direction"], members), np.nan)
    for row, joint in enumerate(groups.values()):
        shares = joint.shares[:, : head_share.shape[2]]
        head_share[row, : len(shares), : shares.shape[1], : shares.shape[2]] = shares
    head_share[np.isnan(table["strength"].values)] = np.nan
    schema = SIGNAL_SCHEMA[name]
    table["head_share"] = schema["head_share"].dims, head_share
    return describe(table.assign_coords(member=np.arange(members)), schema)


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
    """Return the reason if the rounding of a difference has directions of its own."""
    one_way = isinstance(model, Difference) and any(model.rounds_one_way(layer, name) for name in components)
    return Reason("one_way_rounding" if one_way else "")


def _of_matrices(
    model: WeightMatrices, spectra: Mapping[MatrixName, MatrixSpectrum], settings: _Settings
) -> xr.Dataset:
    """Compute the variables of the whole matrices of all layers."""
    components = [name for name in model.components if any(matrix.component == name for matrix in spectra)]
    products, entries = products_of(model), []
    for name, matrix in spectra.items():
        layer = model.layers.index(name.place)
        reason = Reason("stored_product") if name in products else _one_way(model, layer, name.component)
        at, noise = (layer, components.index(name.component)), matrix.noise._replace(reason=reason)
        entries.append(_Spectrum(at, matrix.eigenvalues, matrix.shape, noise, no_bound("whole_matrix")))
    size = len(model.layers), len(components)
    coordinates = layer_coordinates(model.layers) | {"component": components}
    group = _group(entries, size, coordinates, "/matrices", settings)
    sizes = np.full((*size, 2), np.nan)
    for entry in entries:
        sizes[entry.at] = entry.dims
    schema = SIGNAL_SCHEMA["/matrices"]
    for k, variable in enumerate(("n_rows", "n_columns")):
        group[variable] = schema[variable].dims, sizes[..., k]
    return describe(group, schema)


def _group(
    spectra: Sequence[_Spectrum], size: tuple[int, int], coordinates: Mapping[str, Any], name: str, settings: _Settings
) -> xr.Dataset:
    """Compute all variables of a group except the sizes of matrices; spectra with the same dims are tested together."""
    longest = max(spectrum.eigenvalues.size for spectrum in spectra)
    values = {"eigenvalue": np.full((*size, longest), np.nan)}
    values |= {variable: np.full(size, np.nan) for variable in ("sigma", "learned_share_bound")}
    values |= {variable: np.full(size, "", dtype=object) for variable in ("reason", "no_number", "no_bound")}
    by_dims: dict[tuple[int, ...], list[_Spectrum]] = {}
    for spectrum in spectra:
        at, reason = spectrum.at, spectrum.reason
        values["eigenvalue"][at][: spectrum.eigenvalues.size] = spectrum.eigenvalues
        values["learned_share_bound"][at], values["no_bound"][at] = spectrum.bound
        values["sigma"][at] = np.sqrt(spectrum.eigenvalues.sum() / np.prod([float(n) for n in spectrum.dims]))
        values["reason"][at] = str(reason)
        if not reason:
            by_dims.setdefault(spectrum.dims, []).append(spectrum)
    signals: list[tuple[list[_Spectrum], SpectralSignal]] = []
    for dims, tested in by_dims.items():
        eigenvalues, noises = np.array([spectrum.eigenvalues for spectrum in tested]), [each.noise for each in tested]
        counts = [noise.counted for noise in noises if noise.counted is not None]
        if counts:
            signals.append((tested, signal_of_counts(eigenvalues, dims, counts)))
        else:
            kurtosis = np.array([noise.kurtosis for noise in noises])
            signals.append((tested, spectral_signal(eigenvalues, dims, settings.level, kurtosis)))
    width = max((signal.p_value.shape[1] for _, signal in signals), default=0)
    computed = [field.name for field in fields(SpectralSignal) if field.name != "no_number"] + ["expected_error"]
    values |= {variable: np.full((*size, width) if variable in OF_DIRECTION else size, np.nan) for variable in computed}
    for tested, signal in signals:
        at = tuple(np.array([spectrum.at for spectrum in tested]).T)
        for variable in computed:
            numbers = getattr(signal, variable)
            values[variable][(*at, slice(numbers.shape[1])) if variable in OF_DIRECTION else at] = numbers
        without = np.isnan(signal.n_directions)
        values["expected_error"][tuple(part[without] for part in at)] = np.nan
        values["no_number"][at] = values["reason"][at] = signal.no_number
    if settings.tails is not None:
        for variable, (_, domain) in OF_TAIL.items():
            values[variable] = np.full(size, "", object) if domain.kinds == "OUT" else np.full(size, np.nan)
        advance = settings.tails.bar("comparing tails", len(spectra))
        for spectrum in spectra:
            of_tail: dict[str, Any] = {"tail_reason": str(spectrum.known_reason)}
            if not spectrum.known_reason:
                of_tail = tail_values(spectrum.eigenvalues, spectrum.dims, settings.level)
            for variable, number in of_tail.items():
                values[variable][spectrum.at] = number
            advance(1)
    schema = SIGNAL_SCHEMA[name]
    places = {"direction": np.arange(width), "index": np.arange(longest)}
    variables = {
        variable: (schema[variable].dims, array.astype(str) if array.dtype == object else array)
        for variable, array in values.items()
    }
    return describe(xr.Dataset(variables, coords={**coordinates, **places}), schema)
