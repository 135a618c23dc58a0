"""Effective depths of all the weight matrices of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.models import Model, open_model
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.attributes import file_attributes, tell_of_large
from rmtbase.results.depth._effective_depth import DRAWING, Advance, DepthFitter, FitSettings, depth_of_spectrum
from rmtbase.results.depth.schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores import layer_coordinates
from rmtbase.tables import describe

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
    fitter = FitSettings(sigma, depths, part, distance, draws, level, width, seed).fitter()
    model = open_model(model)
    names = model.components if components is None else tuple(components)
    if components is not None and (isinstance(components, str) or not names or len(set(names)) < len(names)):
        raise ParameterError("components", components, f"distinct ones of {', '.join(model.components)}")
    for name in names:
        if name not in model.components:
            raise ParameterError("components", name, f"one of {', '.join(model.components)}")
    tell_of_large(model, names, progress, 1, np.square)
    model.require_finite(names)
    for line in model.notes:
        progress.detail(line)
    fitted = progress.bar("fitting", model.n_layers * len(names))
    drawn = progress.bar(DRAWING, model.n_layers * len(names) * fitter.draws)
    fits: dict[tuple[int, str], dict[str, Any]] = {}  # values by the names of their variables
    warnings = []
    for layer, place in enumerate(model.layers):
        for component in names:
            with _share(drawn, fitter.draws) as advance:
                if model.has(layer, component):
                    fits[layer, component] = _fit(fitter, model.matrix(layer, component), advance)
            fitted(1)
            if reason := fits.get((layer, component), {}).get("reason"):
                warnings.append(f"{place} {component}: {reason.words}")
                progress.note(warnings[-1])
    longest = max((np.size(fit.get("singular_value", ())) for fit in fits.values()), default=0)
    coordinates = layer_coordinates(model.layers) | {"component": list(names)}
    coordinates |= {"depth": list(fitter.depths), "index": np.arange(longest)}
    entries: Entries = {
        (layer, names.index(component)): fit | {"reason": str(fit.get("reason", ""))}
        for (layer, component), fit in fits.items()
    }
    table = filled(EFFECTIVE_DEPTH_SCHEMA, coordinates, entries, EFFECTIVE_DEPTH_SCHEMA)
    whole = [name for name in ("n_rows", "n_columns") if table[name].notnull().all()]  # every layer has the matrix
    types = dict.fromkeys(whole, np.int64) | {"reason": str}
    typed = {name: table[name].astype(dtype) for name, dtype in types.items()}
    settings = {name: getattr(fitter, name) for name in ("part", "distance", "draws", "level", "width", "seed")}
    candidates = {str(laws[0].depth): [law.sigma for law in laws] for laws in fitter.candidates}
    call = {"function": "rmtbase.results.depth.depth", **settings}
    of_kind = {name: settings[name] for name in ("part", "level", "draws", "seed")}
    of_kind["distance"] = _DISTANCE_WORDS[fitter.distance]
    attributes = file_attributes("effective_depth", model, of_kind, model.notes, warnings, call, candidates=candidates)
    return describe(table.assign(typed), EFFECTIVE_DEPTH_SCHEMA).assign_attrs(attributes)


def _fit(fitter: DepthFitter, matrix: np.ndarray, advance: Advance) -> dict[str, Any]:
    """Return the values of a matrix by the names of their variables, or the reason why it cannot be fitted."""
    shape = dict(zip(("n_rows", "n_columns"), matrix.shape, strict=True))
    if min(matrix.shape) == 1 or not matrix.any():
        return shape | {"reason": Reason("single_row" if min(matrix.shape) == 1 else "all_zeros")}
    fit = depth_of_spectrum(fitter, matrix_singular_values(matrix.astype(np.float64)), advance)
    return shape | {
        "effective_depth": fit.depth,
        "effective_depth_low": fit.interval[0],
        "effective_depth_high": fit.interval[1],
        **{name: getattr(fit, name) for name in ("sigma", "scale", "distance", "p_value", "fits")},
        "distance_profile": fit.distances,
        "scale_profile": fit.scales,
        "sigma_profile": fit.sigmas,
        "singular_value": fit.singular_values,
    }


@contextmanager
def _share(advance: Advance, steps: int) -> Iterator[Advance]:
    """Advance the bar by so many steps for one matrix, even if its draws exist already or have two widths."""
    left = steps

    def within(count: int) -> None:
        nonlocal left
        advance(min(count, left))
        left -= min(count, left)

    yield within
    advance(left)
