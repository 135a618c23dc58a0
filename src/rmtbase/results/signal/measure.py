"""Signal and noise of every head and matrix of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import SiteSpectra, read_sites, require_circuits, sites_of
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import ONE_WAY, Difference, MatrixName, WeightMatrices, require_model
from rmtbase.nulls import LARGEST_KURTOSIS, Null, find_null
from rmtbase.progress import SILENT, Progress
from rmtbase.results.attributes import file_attributes
from rmtbase.results.large_matrices import tell_of_large
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.scores._heads import sizes_of
from rmtbase.results.scores._read_matrices import products_of
from rmtbase.results.signal._learned_bound import HeadBounds, ShareBound, no_bound
from rmtbase.results.signal._matrix_spectra import MatrixSpectrum, MatrixSpectrumTaker
from rmtbase.results.signal._noise import Noise, NoiseOfHead, noise_of
from rmtbase.results.signal._sequential_count import NO_NUMBER
from rmtbase.results.signal._sign_flips import SignCount, signal_of_counts
from rmtbase.results.signal._signal_tails import tail_variables
from rmtbase.results.signal._spectral_signal import (
    DIRECTION_FIELDS,
    SpectralSignal,
    no_law_at,
    require_level,
    spectral_signal,
)
from rmtbase.results.signal.schema import SIGNAL_SCHEMA
from rmtbase.tables import CIRCUITS, Circuit, describe

_MatrixSpectra = Literal["none", "spectra"]

_NO_SHAPE = "all zeros, which have no shape to test"


def signal(
    model: Any,
    null: Null | str | None = None,
    *,
    circuits: Sequence[str] | None = None,
    matrices: _MatrixSpectra = "spectra",
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
    level, tails = require_level(level), progress if heavy_tails else None

    def wanted_of(opened: WeightMatrices) -> tuple[Circuit, ...]:
        return require_circuits(opened, circuits_of(opened) if circuits is None else circuits)

    def noise_for(opened: WeightMatrices) -> tuple[Null, Noise]:
        found = find_null(null or ("signs" if isinstance(opened, Difference) else "gaussian"))
        return found, noise_of(found, level)

    def reads(opened: WeightMatrices) -> tuple[Sequence[str] | None, tuple[()]]:
        noise_for(opened)
        of_heads = [f"attention_{factor.name}" for circuit in wanted_of(opened) for factor in circuit.factors]
        read = None if matrices == "spectra" else of_heads
        tell_of_large(opened, read, progress, int(matrices == "spectra"), np.square)
        return read, ()

    model = require_model(model, reads)
    wanted, (null, noise) = wanted_of(model), noise_for(model)
    whole = MatrixSpectrumTaker(noise) if matrices == "spectra" else None
    heads_of = HeadBounds(wanted)
    taker = heads_of if heads_of.circuits else None
    with (
        single_threaded_blas(),
        read_sites(model, wanted, whole, taker, progress, noise.preparation, joint=True) as reading,
    ):
        spectra, _ = reading.result()
    more = () if noise.flips is None else (noise.flips.note,)
    notes = (*model.notes, *more)
    for line in (*model.notes_now, *more):
        progress.detail(line)
    for line in model.warnings:
        progress.note(line)
    advance = progress.bar("finding directions", len(wanted) + (whole is not None))
    groups: dict[str, xr.Dataset] = {}
    for circuit in wanted:
        heads = spectra[circuit]
        groups[f"/circuits/{circuit.name}/heads"] = _of_heads(model, circuit, heads, heads_of, level, noise, tails)
        if any(one.groups is not None for one in heads.values()):
            groups[f"/circuits/{circuit.name}/groups"] = _of_groups(model, circuit, heads, level, noise)
        advance(1)
    if whole is not None:
        groups["/matrices"] = _of_matrices(model, whole.spectra, level, noise, tails)
        advance(1)
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    tree.attrs = _attributes(
        model, [circuit.name for circuit in wanted], matrices, level, null, noise, tails is not None, notes
    )
    for circuit in wanted:
        sizes, _ = sizes_of(circuit, [model.sites[site] for site in spectra[circuit]])
        tree["circuits"][circuit.name].attrs = {"circuit": circuit.name, **sizes}
    return tree


def circuits_of(model: WeightMatrices) -> list[str]:
    """List the circuits that heads of a model have."""
    return [name for name, circuit in CIRCUITS.items() if sites_of(model, circuit)]


class _Spectrum(NamedTuple):
    """Spectrum with its place in a group, the dims of its chain, its noise, and the bound on its learned share."""

    at: tuple[int, int]
    eigenvalues: Float[np.ndarray, " r"]
    dims: tuple[int, ...]
    noise: NoiseOfHead
    bound: ShareBound


def _of_heads(
    model: WeightMatrices,
    circuit: Circuit,
    spectra: Mapping[int, SiteSpectra],
    heads_of: HeadBounds,
    level: float,
    noise: Noise,
    tails: Progress | None,
) -> xr.Dataset:
    """Compute the variables of one circuit's heads at all sites."""
    sites = sorted(spectra)
    here = [model.sites[site] for site in sites]
    n_heads = max(getattr(site, circuit.heads) for site in here)
    found = []
    for row, site in enumerate(sites):
        shape, reason = _chain(model, site, circuit)
        one = spectra[site]
        bounds = heads_of.of_site(model, site, circuit, len(one.singular_values))
        for head, values in enumerate(one.singular_values):
            told = noise.of_head(shape, len(circuit.factors), None if one.prepared is None else one.prepared[head])
            own = told._replace(reason=reason or told.reason)
            found.append(_Spectrum((row, head), values**2, shape, own, bounds[head]))
    coordinates = layer_coordinates([site.place for site in here]) | sizes_of(circuit, here)[1]
    return _group(
        found, (len(sites), n_heads), coordinates | {"head": np.arange(n_heads)}, level,
        f"/circuits/{circuit.name}/heads", tails,
    )  # fmt: skip


def _of_groups(
    model: WeightMatrices, circuit: Circuit, spectra: Mapping[int, SiteSpectra], level: float, noise: Noise
) -> xr.Dataset:
    """Compute the variables of one circuit's groups of heads that share a matrix, of dims (g n_0, n_1, n_2)."""
    held = {site: one.groups for site, one in sorted(spectra.items()) if one.groups is not None}
    found = []
    for row, (site, one) in enumerate(held.items()):
        (first, *others), reason = _chain(model, site, circuit)
        shape = (one.shares.shape[-1] * first, *others)
        if len(shape) != len(circuit.factors) + 1:
            reason = reason or "a product of several matrices, of which the heads share more than one"
        for group, values in enumerate(one.singular_values):
            prepared = None if one.prepared is None else one.prepared[group]
            told = NoiseOfHead(np.nan) if reason else noise.of_head(shape, len(circuit.factors), prepared)
            own = told._replace(reason=reason or told.reason)
            found.append(_Spectrum((row, group), values**2, shape, own, no_bound("product")))
    size = len(held), max(len(one.shares) for one in held.values())
    places = layer_coordinates([model.sites[site].place for site in held])
    name = f"/circuits/{circuit.name}/groups"
    table = _group(found, size, places | {"key_head": np.arange(size[1])}, level, name, None)
    share = np.full((*size, table.sizes["direction"], max(one.shares.shape[-1] for one in held.values())), np.nan)
    for row, one in enumerate(held.values()):
        whole = one.shares[:, : share.shape[2]]
        share[row, : len(whole), : whole.shape[1], : whole.shape[2]] = whole
    share[np.isnan(table["strength"].values)] = np.nan
    schema = SIGNAL_SCHEMA[name]
    table["head_share"] = schema["head_share"].dims, share
    return describe(table.assign_coords(member=np.arange(share.shape[3])), schema)


def _chain(model: WeightMatrices, site: int, circuit: Circuit) -> tuple[tuple[int, ...], str]:
    """Return the dims of the noise of a site's heads; if it has no known law, the dims of their matrices, and why."""
    try:
        shape = null_shape(model, site, circuit)
    except ParameterError as error:
        dims = tuple(getattr(model.sites[site], name) for name in circuit.dims)
        return dims, f"rows of several matrices, whose noise has no known law; expected {error.expected}"
    if isinstance(shape, tuple):
        layer = model.layers.index(model.sites[site].place)
        return shape, _one_way(model, layer, *(f"attention_{factor.name}" for factor in circuit.factors))
    return shape.dims, "a part of the keys is rotated and not compressed, which has no known law"


def _one_way(model: WeightMatrices, layer: int, *components: str) -> str:
    """Say why the rounding of a difference has directions of its own, or return ""."""
    of = isinstance(model, Difference) and any(model.rounds_one_way(layer, one) for one in components)
    return ONE_WAY if of else ""


def _of_matrices(
    model: WeightMatrices,
    spectra: Mapping[MatrixName, MatrixSpectrum],
    level: float,
    noise: Noise,
    tails: Progress | None,
) -> xr.Dataset:
    """Compute the variables of the whole matrices of all layers."""
    components = [one for one in model.components if any(name.component == one for name in spectra)]
    products = products_of(model)
    found = [
        _Spectrum(
            (model.layers.index(name.place), components.index(name.component)),
            one.eigenvalues,
            one.shape,
            one.noise._replace(
                reason="a product of stored matrices: its heads have a law"
                if name in products
                else _one_way(model, model.layers.index(name.place), name.component)
            ),
            no_bound("whole matrix"),
        )
        for name, one in spectra.items()
    ]
    size = len(model.layers), len(components)
    coordinates = layer_coordinates(model.layers) | {"component": components}
    group = _group(found, size, coordinates, level, "/matrices", tails)
    sizes = np.full((*size, 2), np.nan)
    for one in found:
        sizes[one.at] = one.dims
    schema = SIGNAL_SCHEMA["/matrices"]
    for k, variable in enumerate(("n_rows", "n_columns")):
        group[variable] = schema[variable].dims, sizes[..., k]
    return describe(group, schema)


def _group(
    spectra: Sequence[_Spectrum],
    size: tuple[int, int],
    coordinates: Mapping[str, Any],
    level: float,
    name: str,
    tails: Progress | None,
) -> xr.Dataset:
    """Compute all variables of a group except the sizes of matrices; spectra with the same dims are tested together."""
    longest = max(one.eigenvalues.size for one in spectra)
    eigenvalue = np.full((*size, longest), np.nan)
    sigma, bound = np.full(size, np.nan), np.full(size, np.nan)
    reason, lacks_number, lacks_bound = (np.full(size, "", dtype=object) for _ in range(3))
    by_dims: dict[tuple[int, ...], list[_Spectrum]] = {}
    for one in spectra:
        eigenvalue[one.at][: one.eigenvalues.size] = one.eigenvalues
        bound[one.at], lacks_bound[one.at] = one.bound
        sigma[one.at] = np.sqrt(one.eigenvalues.sum() / np.prod([float(n) for n in one.dims]))
        no_law = no_law_at(one.dims) if one.noise.counted is None else _untold(one.noise.counted)
        reason[one.at] = one.noise.reason or _zeros(one) or no_law or _too_heavy(one.noise.kurtosis)
        if not reason[one.at]:
            by_dims.setdefault(one.dims, []).append(one)
    found: list[tuple[list[_Spectrum], SpectralSignal]] = []
    for dims, alike in by_dims.items():
        found.append((alike, _signal_of(alike, dims, level)))
    width = max((of.p_value.shape[1] for _, of in found), default=0)
    values: dict[str, np.ndarray] = {
        one.name: np.full((*size, width) if one.name in DIRECTION_FIELDS else size, np.nan)
        for one in fields(SpectralSignal)
        if one.name != "no_number"
    } | {"expected_error": np.full(size, np.nan)}
    for alike, of in found:
        rows = tuple(np.array([one.at for one in alike]).T)
        for variable, whole in values.items():
            own = getattr(of, variable)
            whole[(*rows, slice(own.shape[1])) if variable in DIRECTION_FIELDS else rows] = own
        without = np.isnan(of.n_directions)
        values["expected_error"][tuple(part[without] for part in rows)] = np.nan
        for one, why in zip(alike, of.no_number.tolist(), strict=True):
            lacks_number[one.at], reason[one.at] = why, NO_NUMBER.get(why, "")
    if tails is not None:
        each = ((one.at, one.eigenvalues, one.dims, one.noise.reason or _zeros(one)) for one in spectra)
        values |= tail_variables(each, size, level, tails.bar("comparing tails", len(spectra)))
    values |= {"eigenvalue": eigenvalue, "sigma": sigma, "reason": reason.astype(str)}
    values |= {"learned_share_bound": bound, "no_bound": lacks_bound.astype(str)}
    values |= {"no_number": lacks_number.astype(str)}
    schema = SIGNAL_SCHEMA[name]
    places = {"direction": np.arange(width), "index": np.arange(longest)}
    variables = {variable: (schema[variable].dims, whole) for variable, whole in values.items()}
    return describe(xr.Dataset(variables, coords={**coordinates, **places}), schema)


def _signal_of(alike: Sequence[_Spectrum], dims: tuple[int, ...], level: float) -> SpectralSignal:
    """Compute signal and noise of spectra with the same dims."""
    eigenvalues = np.array([one.eigenvalues for one in alike])
    counts = [one.noise.counted for one in alike if one.noise.counted is not None]
    if counts:
        return signal_of_counts(eigenvalues, dims, counts)
    return spectral_signal(eigenvalues, dims, level, np.array([one.noise.kurtosis for one in alike]))


def _untold(count: SignCount) -> str:
    """Say why sign flips cannot test a spectrum, or return ""."""
    return "" if count.p_value.size else count.reason


def _zeros(spectrum: _Spectrum) -> str:
    return "" if spectrum.eigenvalues.any() else _NO_SHAPE


def _too_heavy(kurtosis: float) -> str:
    """Say why there is no law for entries of this excess kurtosis, or return ""."""
    if kurtosis <= LARGEST_KURTOSIS:
        return ""
    return f"elements of excess kurtosis above {LARGEST_KURTOSIS:g}, for which no law is known; null = signs is"


def _attributes(
    model: WeightMatrices,
    circuits: list[str],
    matrices: str,
    level: float,
    null: Null,
    noise: Noise,
    heavy_tails: bool,
    notes: Sequence[str],
) -> dict[str, object]:
    call = {
        "function": "rmtbase.results.signal.signal",
        "circuits": circuits,
        "matrices": matrices,
        "level": level,
        "null": null.name,
        **({} if noise.flips is None else {"draws": noise.flips.draws, "seed": noise.flips.seed}),
        "initialization": null.initialization,
        **({"heavy_tails": True} if heavy_tails else {}),
    }
    of_kind = {"level": level, "null": null.name, "initialization": null.initialization}
    weights = {"query_key_sha256": model.fingerprint()}
    return file_attributes("signal", model, of_kind, notes, model.warnings, call, weights=weights)
