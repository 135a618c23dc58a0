"""Effective depths of all the weight matrices of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.models import Model, Place, open_model
from rmtbase.progress import SILENT, Progress
from rmtbase.results.attributes import file_attributes
from rmtbase.results.depth._depth_fitter import Advance, DepthFitter, depth_fitter
from rmtbase.results.depth._effective_depth import DRAWING, EffectiveDepth, depth_of_spectrum
from rmtbase.results.depth.schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.results.large_matrices import tell_of_large
from rmtbase.results.scores import layer_coordinates
from rmtbase.tables import describe

_ZEROS = "all zeros, which have no shape to compare"
_SINGLE = "a single row or column, which has one singular value and no shape to compare"
_DISTANCE_WORDS = {
    "wasserstein": "wasserstein: W1 of the singular values over their mean",
    "kolmogorov_smirnov": "kolmogorov_smirnov: largest difference of the distribution functions",
}


def depth(
    model: Model | Path | str,
    sigma: float | Sequence[float] | None = 1.0,
    depths: Iterable[int] | None = None,
    part: str = "path",
    distance: str = "wasserstein",
    draws: int = 99,
    level: float = 0.05,
    width: int | None = None,
    seed: int = 0,
    components: Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Find the effective depth of every weight matrix of a checkpoint, as :func:`effective_depth` does for one matrix.

    Only one matrix at a time is in memory. Matrices with the same size and fitted depth are compared with the same
    draws: each p-value is valid, but the p-values are not independent. The test rejects a share ``level`` of matrices
    that are residual paths.

    Args:
        model: a folder, a hub id, ``"demo"`` for the bundled model, or an opened model.
        sigma: σ of the blocks; this and the next seven arguments as in :func:`rmtbase.results.depth.effective_depth`.
        depths: candidate depths.
        part: ``"path"`` or ``"update"``.
        distance: ``"wasserstein"`` or ``"kolmogorov_smirnov"``.
        draws: number of draws of each fitted ensemble.
        level: significance level of the test; the interval has confidence 1 − level.
        width: width of the draws.
        seed: seed of the draws.
        components: names of weight matrices; all that the model has if None.
        progress: shows the matrices and the draws, and receives the notes on the model and on matrices that were not
            fitted.

    Returns:
        A dataset with the dims layer, component, depth (the candidates) and index; its variables are described in
        ``rmtbase.results.depth.schema.EFFECTIVE_DEPTH_SCHEMA``.

    Raises:
        ParameterError: an argument outside its domain.
        CheckpointError: the checkpoint cannot be read; its subclasses say what is wrong.
    """
    fitter = depth_fitter(sigma, depths, part, distance, draws, level, width, seed)
    model = open_model(model)
    names = _require_components(model, components)
    tell_of_large(model, names, progress, 1, np.square)
    model.require_finite(names)
    for line in model.notes:
        progress.detail(line)
    fitted = progress.bar("fitting", model.n_layers * len(names))
    drawn = progress.bar(DRAWING, model.n_layers * len(names) * fitter.draws)
    found: dict[tuple[int, str], EffectiveDepth] = {}
    shapes: dict[tuple[int, str], tuple[int, ...]] = {}
    reasons: dict[tuple[int, str], str] = {}
    for layer, place in enumerate(model.layers):
        for component in names:
            if not model.has(layer, component):
                drawn(fitter.draws)
                fitted(1)
                continue
            matrix = model.matrix(layer, component)
            shapes[layer, component] = matrix.shape
            if matrix.any() and min(matrix.shape) > 1:
                values = matrix_singular_values(matrix.astype(np.float64))
                with _share(drawn, fitter.draws) as advance:
                    found[layer, component] = depth_of_spectrum(fitter, values, matrix.shape, advance)
            else:
                drawn(fitter.draws)
                reasons[layer, component] = _ZEROS if min(matrix.shape) > 1 else _SINGLE
                progress.note(f"{place} {component}: {reasons[layer, component]}")
            fitted(1)
    warnings = [f"{model.layers[layer]} {component}: {reason}" for (layer, component), reason in reasons.items()]
    table = _table(model.layers, names, fitter.depths, found, shapes, reasons)
    return table.assign_attrs(_attributes(model, fitter, warnings))


@contextmanager
def _share(advance: Advance, number: int) -> Iterator[Advance]:
    """Advance the bar by ``number`` steps for one matrix, even if its draws exist already or have two widths."""
    left = number

    def within(count: int) -> None:
        nonlocal left
        count = min(count, left)
        left -= count
        advance(count)

    yield within
    advance(left)


def _require_components(model: Model, wanted: Sequence[str] | None) -> tuple[str, ...]:
    if wanted is None:
        return model.components
    if isinstance(wanted, str) or not wanted or len(set(wanted)) < len(wanted):
        raise ParameterError("components", wanted, f"distinct ones of {', '.join(model.components)}")
    for name in wanted:
        if name not in model.components:
            raise ParameterError("components", name, f"one of {', '.join(model.components)}")
    return tuple(wanted)


def _table(
    layers: Sequence[Place],
    names: tuple[str, ...],
    depths: tuple[int, ...],
    found: dict[tuple[int, str], EffectiveDepth],
    shapes: dict[tuple[int, str], tuple[int, ...]],
    reasons: dict[tuple[int, str], str],
) -> xr.Dataset:
    longest = max((one.singular_values.size for one in found.values()), default=0)
    coords = layer_coordinates(layers) | {"component": list(names), "depth": list(depths), "index": np.arange(longest)}
    table = xr.Dataset(coords=coords)
    for name, variable in EFFECTIVE_DEPTH_SCHEMA.items():
        size = [table.sizes[dim] for dim in variable.dims]
        table[name] = variable.dims, np.full(size, "", dtype=object) if name == "reason" else np.full(size, np.nan)
    for (layer, component), one in found.items():
        place = {"layer": layer, "component": names.index(component)}
        for name, value in _entries(one).items():
            table[name][place] = value
        table["singular_value"][place | {"index": slice(0, one.singular_values.size)}] = one.singular_values
    for (layer, component), reason in reasons.items():
        table["reason"][{"layer": layer, "component": names.index(component)}] = reason
    table["reason"] = table["reason"].astype(str)
    for (layer, component), shape in shapes.items():
        for name, size in zip(("n_rows", "n_columns"), shape, strict=True):
            table[name][{"layer": layer, "component": names.index(component)}] = size
    if len(shapes) == len(layers) * len(names):  # otherwise NaN marks the matrices that a layer lacks
        table = table.assign({name: table[name].astype(np.int64) for name in ("n_rows", "n_columns")})
    return describe(table, EFFECTIVE_DEPTH_SCHEMA)


def _entries(found: EffectiveDepth) -> dict[str, object]:
    """Return one matrix's values of every variable except its singular values and shape."""
    return {
        "effective_depth": found.depth,
        "effective_depth_low": found.interval[0],
        "effective_depth_high": found.interval[1],
        "sigma": found.sigma,
        "scale": found.scale,
        "distance": found.distance,
        "p_value": found.p_value,
        "fits": found.fits,
        "distance_profile": found.distances,
        "scale_profile": found.scales,
        "sigma_profile": found.sigmas,
    }


def _attributes(model: Model, fitter: DepthFitter, warnings: list[str]) -> dict[str, object]:
    settings = {name: getattr(fitter, name) for name in ("part", "distance", "draws", "level", "width", "seed")}
    candidates = {str(laws[0].depth): [law.sigma for law in laws] for laws in fitter.candidates}
    call = {"function": "rmtbase.results.depth.depth", **settings}
    asked = {name: settings[name] for name in ("part", "level", "draws", "seed")}
    asked["distance"] = _DISTANCE_WORDS[fitter.distance]
    return file_attributes("effective_depth", model, asked, model.notes, warnings, call, candidates=candidates)
