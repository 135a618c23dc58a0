"""Diagnostics of one model by the Weibull framework, each with its null, from the scores of the model."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._classes import (
    EXPERT,
    FUSED,
    READS,
    SELECTION,
    TRANSMISSION,
    WRITES,
    attention_classes,
    published_class,
    significant_class,
)
from rmtbase.results.comparison._training_budget import Training
from rmtbase.results.scores._heads import require_scores
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import matrices_present

WEIBULL = ("weibull_shape", "weibull_scale", "weibull_r_squared", "weibull_closure", "body_tail_gap")
"""The statistics of ``/matrices`` that the framework uses."""

_SCORE = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
_LEVEL = 0.05
RECIPES = {
    "A": "small_init and wang_init, of Pythia up to 1B: √(2/(5 d)) and 2/(L √d)",
    "B": "normal and scaled_normal, GPT-NeoX's defaults, of Pythia-6.9B: 0.02 and 0.02/√(2 L)",
}
"""The two recipes of the Pythia models, by the letters of arXiv:2605.18898, appendix A.3."""

_STD = 0.02


def diagnose(scores: xr.DataTree, training: Training | None = None) -> xr.Dataset:
    """Diagnose every weight matrix of a model, and the model, by the Weibull framework.

    Dataset with the dimensions layer, component, statistic (:data:`WEIBULL`) and recipe; experts stand below the
    layers as in :func:`weight_matrices`. Variables: the scores of the fit as in ``/matrices``; ``scale``, λ in the
    units of the weights; ``published_class`` and ``significant_class`` of each shape k; ``initial_sigma`` by both
    recipes of Pythia, and ``initial_z``, (σ̂/σ − 1) √(2N) of each matrix, which is standard normal for initial
    weights by that recipe; ``role`` of each component. Attributes: ``attention``, the attention classes of the
    layers; ``initial_recipe``, the recipe that no matrix contradicts ("" if there is none); with ``training``:
    ``budget``, ``budget_state`` and ``root``, √(η/λ_wd).
    """
    matrices = require_weibull(scores)
    found = matrices[list(_SCORE)].sel(statistic=list(WEIBULL))
    shape = found.sel(statistic="weibull_shape")
    components = matrices["component"].values.tolist()
    dims = ("layer", "component")
    k, z, q = (shape[name].transpose(*dims).values for name in ("observed", "z_score", "q_value"))
    fused = [name in FUSED for name in components]
    classes = np.full((2, *k.shape), "", dtype=object)
    for place in np.argwhere(np.isfinite(k)).tolist():
        at = tuple(place)
        classes[(0, *at)] = published_class(float(k[at]), fused[at[1]])
        classes[(1, *at)] = significant_class(float(z[at]), float(q[at]), _LEVEL)
    roles = dict.fromkeys(SELECTION, "selection") | dict.fromkeys(TRANSMISSION, "transmission")
    found = found.assign(
        sigma=matrices["sigma"],
        scale=weibull_scales(matrices),
        published_class=(dims, classes[0]),
        significant_class=(dims, classes[1]),
        role=("component", [roles.get(name, "") for name in components]),
    )
    attributes: dict[str, Any] = {
        "model": scores.attrs["model"],
        "attention": "; ".join(dict.fromkeys(attention_classes(scores).values())),
        "initial_recipe": "",
    }
    if {"d_model", "n_layers"} <= set(scores.attrs):
        initial = _initial_scores(matrices, int(scores.attrs["n_layers"]), int(scores.attrs["d_model"]))
        found = found.assign(initial)
        attributes["initial_recipe"] = _compatible(initial["initial_z"])
    if training is not None:
        attributes |= {"budget": training.budget, "budget_state": training.state, "root": training.root}
    return found.assign_attrs(attributes)


def require_weibull(scores: xr.DataTree, name: str = "scores") -> xr.Dataset:
    """Return the :func:`weight_matrices` of a scores tree, which must hold the statistics of :data:`WEIBULL`."""
    require_scores(scores, name)
    matrices = weight_matrices(scores)
    if matrices is None:
        raise ParameterError(name, "only scores of heads", "one of which matrices were scored")
    missing = [name for name in WEIBULL if name not in matrices["statistic"].values.tolist()]
    if missing:
        raise ParameterError(name, f"matrices without {missing[0]}", "scores made by this version")
    return matrices


def weight_matrices(scores: xr.DataTree) -> xr.Dataset | None:
    """Scores of all weight matrices: ``/matrices``, and below them ``/experts``; None if there are none.

    The matrices of each expert have a row of their own, so that a ``layer`` is repeated for each of its experts; their
    components are named ``expert_mlp_in`` and so on. ``expert`` is the number of the expert, and -1 in other rows.
    """
    if "matrices" not in scores.children:
        return None
    matrices = scores["matrices"].to_dataset()
    if "experts" not in scores.children:
        return matrices
    experts = scores["experts"].to_dataset()
    kept, names = [*_SCORE, "sigma", "n_rows", "n_columns"], experts["statistic"].values
    both = [name for name in matrices["statistic"].values if name in names]
    own, rows = matrices[kept].sel(statistic=both), experts[kept].sel(statistic=both).stack(row=("layer", "expert"))
    places = {name: ("layer", rows[name].values) for name in ("layer", "expert")}
    components = [EXPERT + str(name) for name in rows["component"].values]
    rows = rows.reset_index("row").reset_coords(drop=True).rename(row="layer")
    rows = rows.assign_coords(places | {"component": components})
    own = own.reset_coords(drop=True).assign_coords(expert=("layer", np.full(own.sizes["layer"], -1)))
    found = xr.concat([own, rows], "layer", join="outer", data_vars="all")
    return found.sel(component=[*own["component"].values, *components])


def weibull_scales(matrices: xr.Dataset) -> xr.DataArray:
    """λ of each matrix in the units of its weights: λ/rms times rms = σ̂ √(1 − 1/N + (w̄/σ̂)²).

    ``matrices`` is the group ``/matrices`` of scores or a trajectory; the result has the dimensions of its ``sigma``.
    """
    if not {"observed", "sigma", "n_rows", "n_columns"} <= set(matrices):
        raise ParameterError("matrices", sorted(map(str, matrices)), "the group /matrices of scores or a trajectory")
    of = {name: matrices["observed"].sel(statistic=name, drop=True) for name in ("weibull_scale", "mean")}
    inverse_number = 1.0 / (matrices["n_rows"] * matrices["n_columns"])
    return of["weibull_scale"] * matrices["sigma"] * np.sqrt(1.0 - inverse_number + of["mean"] ** 2)


def shape_drift(first: xr.DataTree, last: xr.DataTree) -> xr.Dataset:
    """Δk = k(last) − k(first) of each weight matrix of one model at two checkpoints, with its standard error.

    The error is that of two independent samples of untrained weights, √(s₁² + s₂²). If some of the first weights remain
    in the last ones, their fits are correlated and the error is too large; p-values are then too large, never too
    small.

    Returns:
        Dataset by layer and component: ``drift``, ``standard_error``, ``z_score``, two-sided ``p_value``, ``q_value``.

    Raises:
        ParameterError: one is not a scores tree with these statistics, or their matrices differ in size.
    """
    trees = {"first": first, "last": last}
    both = [require_weibull(tree, name).sel(statistic="weibull_shape", drop=True) for name, tree in trees.items()]
    for size in ("n_rows", "n_columns"):
        if not both[0][size].equals(both[1][size]):
            raise ParameterError("last", last.attrs["model"], f"the same matrices as {first.attrs['model']}")
    drift = both[1]["observed"] - both[0]["observed"]
    error = np.hypot(both[0]["null_std"], both[1]["null_std"])
    z = drift / error
    p = 2.0 * ndtr(-abs(z))
    return xr.Dataset(
        {
            "drift": drift,
            "standard_error": error,
            "z_score": z,
            "p_value": p,
            "q_value": (p.dims, benjamini_hochberg(p.values)),
        }
    )


def _initial_scores(matrices: xr.Dataset, n_layers: int, d_model: int) -> xr.Dataset:
    """σ of each component by each recipe, and z-scores of the matrices' σ̂ against it."""
    components = matrices["component"].values.tolist()
    sigma = np.full((len(RECIPES), len(components)), np.nan)
    for row, recipe in enumerate(RECIPES):
        expected = initial_sigmas(recipe, n_layers, d_model)
        for place, name in enumerate(components):
            if name in (*READS, *WRITES):
                sigma[row, place] = expected.reads if name in READS else expected.writes
    expected = xr.DataArray(sigma, {"recipe": list(RECIPES), "component": components}, ("recipe", "component"))
    z = (matrices["sigma"] / expected - 1.0) * np.sqrt(2.0 * matrices["n_rows"] * matrices["n_columns"])
    z = z.where(matrices["layer"] >= 0).transpose("recipe", "layer", "component")
    return xr.Dataset({"initial_sigma": expected, "initial_z": z})


def _compatible(z: xr.DataArray) -> str:
    """Name of the recipe from whose σ no matrix differs significantly; "" if there is none or nothing can be tested."""
    for recipe in z["recipe"].values.tolist():
        q = benjamini_hochberg(2.0 * ndtr(-abs(z.sel(recipe=recipe).values)))
        if np.isfinite(q).any() and not (q < _LEVEL).any():
            return str(recipe)
    return ""


def matrices_of(matrices: xr.Dataset, components: tuple[str, ...]) -> Bool[np.ndarray, "layer component"]:
    """Mask of the matrices that are present, lie inside the layers and belong to these components."""
    wanted = np.isin(matrices["component"].values.astype(str), components)
    return matrices_present(matrices) & wanted & (matrices["layer"].values >= 0)[:, None]


def of_matrices(values: xr.DataArray, chosen: Bool[np.ndarray, "layer component"]) -> Float[np.ndarray, " matrix"]:
    """Values of the chosen matrices as a one-dimensional array."""
    return values.transpose("layer", "component").values[chosen]


class InitialSigmas(NamedTuple):
    """Standard deviations σ of initial weights."""

    reads: float  #: σ of matrices that read the residual stream (queries, keys, values, input projections of an MLP)
    writes: float  #: σ of matrices that write to it (output projections of attention and of an MLP)

    @property
    def ratio(self) -> float:
        """Ratio of ``reads`` to ``writes``: L/√10 for recipe A, √(2 L) for B."""
        return self.reads / self.writes


@cache
def initial_sigmas(recipe: str, n_layers: int, d_model: int) -> InitialSigmas:
    """Compute σ by a recipe for a model of L layers and width d, from the initializers of :mod:`rmtbase.ensembles`.

    Raises:
        ParameterError: no recipe has that name, or a size is not a positive integer.
    """
    from rmtbase.ensembles import INITIALIZERS, Initializer

    sizes = {
        "n_layers": require_positive_integer("n_layers", n_layers),
        "d_model": require_positive_integer("d_model", d_model),
    }
    if recipe == "A":
        drawn = ("small_init", {"d_model": sizes["d_model"]}), ("wang_init", sizes)
    elif recipe == "B":
        drawn = ("normal", {"std": _STD}), ("scaled_normal", {"n_layers": sizes["n_layers"], "std": _STD})
    else:
        raise ParameterError("recipe", recipe, f"one of {', '.join(RECIPES)}")
    recipes = (INITIALIZERS[name].from_options(options) for name, options in drawn)
    return InitialSigmas(*(one.law(1, 1).std for one in recipes if isinstance(one, Initializer)))
