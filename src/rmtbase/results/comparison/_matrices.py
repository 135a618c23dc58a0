"""Weight matrices of the models of a comparison: their classes, scales, drifts and initial σ, and tables of these."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._findings import Training, shape_band
from rmtbase.results.comparison._two_models import LEVEL, fingerprint
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._scores_tree import attention_class as attention_class
from rmtbase.shown import shown
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import heads_present, layer_names, matrices_present

_EXPERT = "expert_"  # prefix of the components of experts where these stand beside the other matrices
FUSED = ("attention_query_key_value", "attention_query_key", "attention_key_value")
"""Fused projections: several components stored in one matrix."""
_READS = (  # from the residual stream; Pythia's recipes draw all of them at one σ, and those that write at another
    *("attention_query", "attention_key", "attention_value", *FUSED),
    *("mlp_gate", "mlp_in", "expert_mlp_gate", "expert_mlp_in"),
)
_WRITES = ("attention_output", "mlp_out", "expert_mlp_out")
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
_MEDIANS = {"weibull_r_squared": "r_squared", "weibull_closure": "closure", "body_tail_gap": "body_tail_gap"}
_SCORE = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
_STD = 0.02  # of GPT-NeoX's defaults


def published_class(shape: float, fused: bool = False) -> str:
    """Classify k by the published ranges of trained models, or name the neighbours (arXiv:2605.18898, 3.1, 4.3)."""
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
    """Scores of all matrices, if any, and below them a row for each expert, with components ``expert_mlp_in``."""
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
    components = [_EXPERT + str(name) for name in rows["component"].values]
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
    """Name the recipe from whose σ no matrix differs significantly; "" if none or nothing can be tested."""
    if not {"d_model", "n_layers"} <= set(scores.attrs):
        return ""
    components, number = matrices["component"].values.tolist(), matrices["n_rows"] * matrices["n_columns"]
    for recipe in ("A", "B"):
        sigmas = initial_sigmas(recipe, int(scores.attrs["n_layers"]), int(scores.attrs["d_model"]))
        sigma = dict.fromkeys(_READS, sigmas.reads) | dict.fromkeys(_WRITES, sigmas.writes)
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

    depth = {"n_layers": require_positive_integer("n_layers", n_layers)}
    width, std = {"d_model": require_positive_integer("d_model", d_model)}, {"std": _STD}
    if recipe not in ("A", "B"):
        raise ParameterError("recipe", recipe, "one of A, B")
    drawn = ("small_init", width), ("wang_init", depth | width)
    if recipe == "B":
        drawn = ("normal", std), ("scaled_normal", depth | std)
    initializers = (INITIALIZERS[name].from_options(options) for name, options in drawn)
    return InitialSigmas(*(entry.law(1, 1).std for entry in initializers if isinstance(entry, Initializer)))


class FitsOfMatrices(NamedTuple):
    """k, N, q, λ, σ and the body-tail gap of fitted matrices."""

    shapes: Float[np.ndarray, " matrix"]
    numbers: Float[np.ndarray, " matrix"]
    q_values: Float[np.ndarray, " matrix"]
    scales: Float[np.ndarray, " matrix"]
    sigmas: Float[np.ndarray, " matrix"]
    gaps: Float[np.ndarray, " matrix"]


@dataclass(frozen=True)
class ComparedModel:
    name: str  # its name in the comparison
    scores: xr.DataTree  # its scores tree
    matrices: xr.Dataset | None  # its fitted matrices; None if its scores have no Weibull fits
    training: Training | None  # settings of its training, if known
    untrained: bool | None = None  # whether it has initial weights; None if that was not stated
    trajectory: xr.DataTree | None = None  # the trajectory whose last step is ``scores``; None if there is none

    @cached_property
    def components(self) -> tuple[str, ...]:
        return () if self.matrices is None else tuple(self.matrices["component"].values.tolist())

    def fits(self, *components: str) -> FitsOfMatrices:
        if self.matrices is None:
            return FitsOfMatrices(*np.empty((len(FitsOfMatrices._fields), 0)))
        fit, number = self.matrices.sel(statistic="weibull_shape"), self.matrices["n_rows"] * self.matrices["n_columns"]
        gap = self.matrices["observed"].sel(statistic="body_tail_gap")
        columns = (fit["observed"], number, fit["q_value"], self.matrices["scale"], self.matrices["sigma"], gap)
        values = [values_of(self.matrices, column, *components, finite=False) for column in columns]
        return FitsOfMatrices(*(column[np.isfinite(values[0])] for column in values))

    def values(self, variable: str, component: str, statistic: str = "") -> Float[np.ndarray, " matrix"]:
        if self.matrices is None or component not in self.components:
            return np.empty(0)
        values = self.matrices[variable]
        return values_of(self.matrices, values.sel(statistic=statistic) if statistic else values, component)

    def mean(self, variable: str, component: str) -> float:
        values = self.values(variable, component)
        return float(values.mean()) if values.size else float("nan")


def models_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    rows: Entries = {}
    for place, model in enumerate(models):
        heads, attributes = model.scores["heads"].to_dataset(), model.scores.attrs
        q_value, fits = heads["omnibus_q_value"].values, model.fits(*TRANSMISSION)
        n_departed, n_scored = int((q_value < LEVEL).sum()), int(np.isfinite(q_value).sum())
        untrained = n_scored > 0 and not n_departed if model.untrained is None else model.untrained
        row: dict[str, Any] = {
            "name": shown(attributes.get("model", "")),
            **{name: shown(attributes.get(name, "")) for name in ("revision", "family", "null")},
            "attention": "; ".join(dict.fromkeys(attention_classes(model.scores).values())),
            "fingerprint": fingerprint(model.scores),
            "n_scored_heads": n_scored,
            "n_untested_heads": int(heads_present(heads).sum()) - n_scored,
            "n_departed_heads": n_departed,
            "untrained": int(untrained),
        }
        if model.training is not None:
            training = model.training
            row |= {"budget": training.budget, "budget_state": training.state, "root": training.root}
        if model.matrices is not None:
            row["initial_recipe"] = initial_recipe(model.scores, model.matrices)
        if fits.shapes.size:
            row |= {f"transmission_{name}": value for name, value in _shape(fits, seed).items()}
            # mean over layers, then over components, as in the paper
            row["transmission_scale"] = np.nanmean([model.mean("scale", name) for name in TRANSMISSION])
            row["transmission_shape_untrimmed"] = np.median(fits.shapes - fits.gaps)
            row["transmission_gap"] = np.median(fits.gaps)
        rows[place,] = row
    schema, fitted = COMPARISON_SCHEMA["/models"], any(model.components for model in models)
    names = [name for name, variable in schema.items() if fitted or not variable.part]
    return filled(schema, {"model": [model.name for model in models]}, rows, names)


def _shape(fits: FitsOfMatrices, seed: int) -> dict[str, float]:
    band = shape_band([fits.shapes], [fits.numbers], seed=seed)
    return {"shape": band.medians[0], "shape_null_mean": band.null_medians[0], "shape_null_std": band.null_errors[0]}


def components_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    schema, components = COMPARISON_SCHEMA["/components"], all_components(models)
    entries: Entries = {}
    for (row, model), (column, component) in product(enumerate(models), enumerate(components)):
        if component not in model.components:
            continue
        fits = model.fits(component)
        entry: dict[str, Any] = {
            "n_matrices": 0 if model.matrices is None else members_of(model.matrices, component).sum(),
            "n_departed": (fits.q_values < LEVEL).sum(),
            "n_tested": np.isfinite(fits.q_values).sum(),
            "scale": model.mean("scale", component),
            "sigma": model.mean("sigma", component),
        }
        if fits.shapes.size:
            entry |= _shape(fits, seed)
            entry["published_class"] = published_class(entry["shape"], component in FUSED)
        for statistic, name in _MEDIANS.items():
            for variable, ending in (("observed", ""), ("null_mean", "_null_mean")):
                values = model.values(variable, component, statistic)
                entry[f"{name}{ending}"] = np.median(values) if values.size else np.nan
        entries[row, column] = entry
    names = [name for name, variable in schema.items() if not variable.part]
    return filled(schema, {"model": [model.name for model in models], "component": components}, entries, names)


def all_components(models: Sequence[ComparedModel]) -> list[str]:
    return list(dict.fromkeys(name for model in models for name in model.components))
