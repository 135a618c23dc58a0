"""Weight matrices of scores: their classes by role and by Weibull shape k, their scales, drifts and initial σ."""

from functools import cache
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._two_models import LEVEL
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._scores_tree import attention_class as attention_class
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import layer_names, matrices_present

EXPERT = "expert_"
"""Prefix of the components of experts where these stand beside the other matrices."""

FUSED = ("attention_query_key_value", "attention_query_key", "attention_key_value")
"""Fused projections: several components stored in one matrix."""
_MLP_READS, _MLP_WRITES = ("mlp_gate", "mlp_in", "expert_mlp_gate", "expert_mlp_in"), ("mlp_out", "expert_mlp_out")
READS = ("attention_query", "attention_key", "attention_value", *FUSED, *_MLP_READS)
"""Components that read the residual stream; Pythia's recipes draw all of them at one σ."""
WRITES = ("attention_output", *_MLP_WRITES)
"""Components that write to the residual stream; Pythia's recipes draw them at another σ."""
TRANSMISSION = (
    *("attention_output", "mlp_gate", "mlp_in", "mlp_out"),
    *("expert_mlp_gate", "expert_mlp_in", "expert_mlp_out"),
)
"""The Transmission Class: every MLP and expert matrix, and attention's output projection (arXiv:2605.18898, 2.2)."""
SELECTION = ("attention_query", "attention_key", "attention_query_key_value", "attention_query_key")
"""The Selection Class: queries, keys and the fused projection, as in section 2.2 and Fig. 4 of the paper. Values are in
neither class in section 2.2, and in the Transmission Class in Fig. 4; here they are in neither."""

_PUBLISHED = ((0.76, 0.99, "deep_selection"), (1.10, 1.16, "mild_selection"), (1.186, 1.204, "transmission"))
_FUSED = (1.05, 1.18, "transitional")

WEIBULL = ("weibull_shape", "weibull_scale", "weibull_r_squared", "weibull_closure", "body_tail_gap")
"""The statistics of ``/matrices`` that the framework uses."""

_SCORE = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
_STD = 0.02  # of GPT-NeoX's defaults


def published_class(shape: float, fused: bool = False) -> str:
    """Classify a Weibull shape k by the published ranges for medians of trained models.

    k in [0.76, 0.99] is "deep_selection", in [1.10, 1.16] "mild_selection", in [1.186, 1.204] "transmission"; a fused
    projection with k in [1.05, 1.18] is "transitional". Any other k has no published class; the result then names its
    neighbours, as in "below_deep_selection".

    Source: T. Ding, arXiv:2605.18898 (2026), 3.1 and 4.3.
    """
    if not shape > 0:
        raise ParameterError("shape", shape, "a positive number")
    below = ""
    for low, high, name in (_FUSED,) if fused and _FUSED[0] <= shape <= _FUSED[1] else _PUBLISHED:
        if shape < low:
            return f"between_{below}_and_{name}" if below else f"below_{name}"
        if shape <= high:
            return name
        below = name
    return f"above_{below}"


def attention_classes(scores: xr.DataTree) -> dict[str, str]:
    """Return the :func:`attention_class` of each layer that has attention, by the layer's name.

    Raises:
        ParameterError: it is not a scores tree.
    """
    require_scores(scores)
    heads = scores["heads"].to_dataset()
    names = layer_names(heads)
    if "attention" in heads.coords:
        return dict(zip(names, heads["attention"].values.tolist(), strict=True))
    return dict.fromkeys(names, str(scores.attrs["attention"]))


def fitted_matrices(scores: xr.DataTree, name: str = "scores") -> xr.Dataset:
    require_scores(scores, name)
    matrices = weight_matrices(scores)
    if matrices is None:
        raise ParameterError(name, "only scores of heads", "one of which matrices were scored")
    statistics = matrices["statistic"].values.tolist()
    for statistic in WEIBULL:
        if statistic not in statistics:
            raise ParameterError(name, f"matrices without {statistic}", "scores made by this version")
    return matrices.assign(scale=weibull_scales(matrices))


def weight_matrices(scores: xr.DataTree) -> xr.Dataset | None:
    """Scores of all matrices, if any: below ``/matrices`` a row for each expert, with components ``expert_mlp_in``."""
    if "matrices" not in scores.children:
        return None
    matrices = scores["matrices"].to_dataset()
    if "experts" not in scores.children:
        return matrices
    experts = scores["experts"].to_dataset()
    variables = [*_SCORE, "sigma", "n_rows", "n_columns"]
    statistics = [name for name in matrices["statistic"].values if name in experts["statistic"].values]
    matrices, experts = (group[variables].sel(statistic=statistics) for group in (matrices, experts))
    rows = experts.stack(row=("layer", "expert"))
    layer = ("layer", rows["layer"].values)
    components = [EXPERT + str(name) for name in rows["component"].values]
    rows = rows.reset_index("row").reset_coords(drop=True).rename(row="layer")
    rows = rows.assign_coords(layer=layer, component=components)
    joined = xr.concat([matrices.reset_coords(drop=True), rows], "layer", join="outer", data_vars="all")
    return joined.sel(component=[*matrices["component"].values, *components])


def weibull_scales(matrices: xr.Dataset) -> xr.DataArray:
    """λ of each matrix in the units of its weights: λ/rms times rms = σ̂ √(1 − 1/N + (w̄/σ̂)²).

    ``matrices`` is the group ``/matrices`` of scores or a trajectory; the result has the dimensions of its ``sigma``.
    """
    if not {"observed", "sigma", "n_rows", "n_columns"} <= set(matrices):
        raise ParameterError("matrices", sorted(map(str, matrices)), "the group /matrices of scores or a trajectory")
    scale, mean = (matrices["observed"].sel(statistic=name, drop=True) for name in ("weibull_scale", "mean"))
    inverse_number = 1.0 / (matrices["n_rows"] * matrices["n_columns"])
    return scale * matrices["sigma"] * np.sqrt(1.0 - inverse_number + mean**2)


def members_of(matrices: xr.Dataset, *components: str) -> Bool[np.ndarray, "layer component"]:
    """Mask of the matrices of these components that are present and lie inside the layers."""
    chosen = np.isin(matrices["component"].values.astype(str), components)
    return matrices_present(matrices) & chosen & (matrices["layer"].values >= 0)[:, None]


def values_of(
    matrices: xr.Dataset, values: xr.DataArray, *components: str, finite: bool = True
) -> Float[np.ndarray, " matrix"]:
    chosen = values.transpose("layer", "component").values[members_of(matrices, *components)]
    return chosen[np.isfinite(chosen)] if finite else chosen


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
    before, after = (
        fitted_matrices(tree, name).sel(statistic="weibull_shape", drop=True)
        for name, tree in (("first", first), ("last", last))
    )
    if not all(before[size].equals(after[size]) for size in ("n_rows", "n_columns")):
        raise ParameterError("last", last.attrs["model"], f"the same matrices as {first.attrs['model']}")
    drift = after["observed"] - before["observed"]
    error = np.hypot(before["null_std"], after["null_std"])
    z = drift / error
    p = 2.0 * ndtr(-abs(z))
    q = (p.dims, benjamini_hochberg(p.values))
    return xr.Dataset({"drift": drift, "standard_error": error, "z_score": z, "p_value": p, "q_value": q})


def initial_recipe(scores: xr.DataTree, matrices: xr.Dataset) -> str:
    """Name the recipe from whose σ no matrix differs significantly; "" if there is none or nothing can be tested."""
    if not {"d_model", "n_layers"} <= set(scores.attrs):
        return ""
    components, number = matrices["component"].values.tolist(), matrices["n_rows"] * matrices["n_columns"]
    for recipe in ("A", "B"):
        sigmas = initial_sigmas(recipe, int(scores.attrs["n_layers"]), int(scores.attrs["d_model"]))
        sigma = dict.fromkeys(READS, sigmas.reads) | dict.fromkeys(WRITES, sigmas.writes)
        expected = xr.DataArray([sigma.get(name, np.nan) for name in components], {"component": components})
        # standard normal for initial weights by that recipe
        z = ((matrices["sigma"] / expected - 1.0) * np.sqrt(2.0 * number)).where(matrices["layer"] >= 0)
        q = benjamini_hochberg(2.0 * ndtr(-abs(z.values)))
        if np.isfinite(q).any() and not (q < LEVEL).any():
            return recipe
    return ""


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

    Recipe A, of Pythia up to 1B, is small_init and wang_init: √(2/(5 d)) and 2/(L √d). Recipe B, of Pythia-6.9B, is
    GPT-NeoX's defaults: 0.02 and 0.02/√(2 L).

    Raises:
        ParameterError: no recipe has that name, or a size is not a positive integer.

    Source: T. Ding, arXiv:2605.18898 (2026), A.3.
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
        raise ParameterError("recipe", recipe, "one of A, B")
    initializers = (INITIALIZERS[name].from_options(options) for name, options in drawn)
    return InitialSigmas(*(entry.law(1, 1).std for entry in initializers if isinstance(entry, Initializer)))
