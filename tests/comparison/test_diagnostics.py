"""The framework's diagnostics, each beside its null."""

import math
from itertools import permutations

import numpy as np
import pytest
import xarray as xr
from matrices_group import SHAPES, matrices_group
from scipy import stats

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.laws import AdamWNoise, weibull_null
from rmtbase.models import open_model
from rmtbase.results.comparison import (
    Training,
    attention_classes,
    budget_state,
    built_in_correlation,
    compare,
    initial_sigmas,
    paired_growth,
    scale_law,
    shape_band,
    shape_drift,
)
from rmtbase.results.comparison._groups import measures_of
from rmtbase.results.comparison._matrices import attention_class, fitted_matrices, initial_recipe, published_class
from rmtbase.results.comparison._published import PUBLISHED_MODELS
from rmtbase.statistics import weibull_fit

PYTHIA = [model for model in PUBLISHED_MODELS if model.name.startswith("Pythia")]
ROOTS = np.sqrt([model.peak_rate / model.weight_decay for model in PYTHIA])
SCALES = np.array([model.mean_scale for model in PYTHIA])


def test_published_classes_and_budgets_are_the_ranges_that_were_published():
    classes = {
        0.5: "below_deep_selection",
        0.76: "deep_selection",
        1.0: "between_deep_selection_and_mild_selection",
        1.16: "mild_selection",
        1.17: "between_mild_selection_and_transmission",
        1.195: "transmission",
        1.2054: "above_transmission",
    }
    assert {shape: published_class(shape) for shape in classes} == classes
    assert published_class(1.1, fused=True) == "transitional"
    assert published_class(0.9, fused=True) == "deep_selection"
    with pytest.raises(ParameterError):
        published_class(float("nan"))
    states = [budget_state(x) for x in (0.1, 0.2, 0.4, 0.6, 0.9, 1.0, 1.01)]
    assert states == [
        *("transition", "approaching", "approaching", "approaching or near-saturated"),
        *("near-saturated", "near-saturated", "saturated"),
    ]
    classes = {(8, 8): "MHA", (8, 2): "GQA", (8, 1): "MQA", (1, 1): "MHA"}
    assert {numbers: attention_class(*numbers) for numbers in classes} == classes
    assert attention_class(8, 8, fused=True) == "MHA, fused"
    assert attention_class(16, 16, latent=True) == "latent"
    with pytest.raises(ParameterError, match="a multiple of n_key_heads = 3"):
        attention_class(8, 3)
    training = Training(1e-3, 0.01, 143_000)
    kept = AdamWNoise(1e-3, 0.01).std_after(143_000, 1.0) ** 2 - AdamWNoise(1e-3, 0.01).std_after(143_000, 0.0) ** 2
    assert training.initial_share() == pytest.approx(math.sqrt(kept), rel=1e-4)
    assert training.initial_share(0.55) == pytest.approx(math.exp(-0.55 * 1.43))


def test_the_scale_law_of_pythia_is_no_line_through_the_origin():
    law = scale_law(ROOTS, SCALES)
    assert (law.slope, law.correlation) == pytest.approx((0.087, 0.94), abs=5e-4)
    assert law.r_squared == pytest.approx(-2.0, abs=0.05)
    assert sorted(law.deviations) == pytest.approx([0.07, 0.21, 0.21, 0.23, 0.36], abs=5e-3)
    line, power = stats.linregress(ROOTS, SCALES), stats.linregress(np.log(ROOTS), np.log(SCALES))
    assert (law.intercept, law.intercept_error) == pytest.approx((line.intercept, line.intercept_stderr))
    assert (law.exponent, law.exponent_error) == pytest.approx((power.slope, power.stderr))
    every = [abs(np.corrcoef(ROOTS, SCALES[list(order)])[0, 1]) for order in permutations(range(5))]
    assert law.p_value == pytest.approx(np.mean(np.array(every) >= law.correlation - 1e-12))
    assert law.p_value == 6 / 120


def test_the_scale_law_holds_its_level_and_finds_a_law_of_two_models_that_differ():
    for roots, scales in (([1.0], [1.0]), ([1, 1], [1, 2]), ([1, 2], [1, 1]), ([1, 2], [1, -1]), ([1, 2, 3], [1, 2])):
        with pytest.raises(ParameterError):
            scale_law(roots, scales)
    rng = np.random.default_rng(3)
    p = [scale_law(x, y).p_value for x, y in np.exp(rng.standard_normal((200, 2, 5)))]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.047)  # three errors of 200
    x = np.exp(rng.standard_normal(30))
    law = scale_law(x, 0.1 * x)
    assert (law.exponent, law.slope, law.p_value) == pytest.approx((1.0, 0.1, 1e-4))


def test_the_paired_growth_knows_what_a_shared_start_builds_in_and_holds_its_level():
    starts = 0.887487 * np.array([initial_sigmas("A", *sizes).writes for sizes in ((6, 512), (12, 768), (24, 1024))])
    rng = np.random.default_rng(8)
    later = 0.02 * np.exp(0.2 * rng.standard_normal((2, 20)))
    x, y = (np.concatenate([starts, one]) for one in later)
    initial = np.arange(23) < 3
    found = paired_growth(x, y, initial)
    assert found.correlation == pytest.approx(np.corrcoef(np.log(x), np.log(y))[0, 1])
    assert found.later_correlation == pytest.approx(np.corrcoef(*np.log(later))[0, 1])
    assert found.built_in > 0.8 and found.p_value > 0.05  # nearly all of r is the start
    assert found.built_in == pytest.approx(built_in_correlation(starts, later[0], 20), abs=0.03)
    coupled = paired_growth(x, np.concatenate([starts, later[0] * 1.3]), initial)
    assert coupled.p_value == 1e-4 and coupled.later_correlation == pytest.approx(1.0)
    rng = np.random.default_rng(9)
    points = np.exp(rng.standard_normal((200, 2, 12)))
    points[:, 1, :3] = points[:, 0, :3]
    p = [paired_growth(x, y, np.arange(12) < 3, draws=99).p_value for x, y in points]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.047)  # three errors of 200


def test_the_band_of_untrained_models_is_that_of_its_null_and_not_as_wide_as_the_published_one():
    rng, law = np.random.default_rng(6), weibull_null().shape
    sizes = [np.full(6, 2_000), np.full(12, 5_000), np.full(4, 800)]
    drawn = [
        shape_band(
            [law.mean(int(n[0])) + law.std(int(n[0])) * rng.standard_normal(n.size) for n in sizes], sizes, draws=199
        )
        for _ in range(150)
    ]
    p = np.array([band.p_value for band in drawn])
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.054)  # three errors of 150
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    medians = np.array([band.medians for band in drawn])
    assert medians.std(axis=0) == pytest.approx(drawn[0].null_errors, rel=0.25)
    medians = 1.195 + 0.0061 * np.linspace(-1.5, 1.5, 12)
    band = shape_band([[one] for one in medians], [[4096 * 4096]] * 12, draws=999)
    assert band.p_value == 1e-3
    assert band.variation > 10 * band.null_variation_95


def test_the_recipe_of_initial_weights_is_found_and_heavy_tails_are_a_drift(scored):
    sigmas = initial_sigmas("A", 2, 32)
    by_name = {name: sigmas.writes if name in ("attention_output", "mlp_out") else sigmas.reads for name in SHAPES}
    for scores, recipe in ((scored(21, tuple(by_name.items())), "A"), (scored(22, heavy=("mlp_out",)), "")):
        assert initial_recipe(scores, fitted_matrices(scores)) == recipe
    heavy = ["attention_query", "mlp_out"]
    first, last = scored(22), scored(22, heavy=tuple(heavy))
    assert (fitted_matrices(last)["z_score"].sel(component=heavy, statistic="weibull_shape") < -4).all()
    drift = shape_drift(first, last)
    assert (drift["q_value"].sel(component=heavy) < 0.05).all() and (drift["drift"].sel(component=heavy) < 0).all()
    n = 32 * 128
    assert drift["standard_error"].sel(component="mlp_out").values == pytest.approx(
        math.sqrt(2) * 1.36471 / math.sqrt(n), rel=1e-4
    )


def test_the_scale_is_that_of_a_fit_to_the_weights(model_folder):
    scores, model = rmtbase.score(model_folder, "analytic"), open_model(model_folder)
    scale = fitted_matrices(scores)["scale"]
    for component in scale["component"].values.tolist():
        assert scale.sel(layer=1, component=component).item() == pytest.approx(
            weibull_fit(model.matrix(1, component)).scale, rel=1e-6
        )


def test_attention_is_told_by_layer_and_scores_without_fits_are_refused_by_name(scored):
    tree = scored(1, matrices=False).copy()
    assert attention_classes(tree) == {"layer 0": "MHA", "layer 1": "MHA"}
    tree.attrs["attention"] = "latent"
    assert attention_classes(tree) == {"layer 0": "latent", "layer 1": "latent"}
    assert set(attention_classes(scored(1, n_key_heads=2, matrices=False)).values()) == {"GQA"}
    with pytest.raises(ParameterError, match="only scores of heads"):
        shape_drift(scored(1, matrices=False), scored(1))
    tree = scored(1).copy()
    few = tree["matrices"].to_dataset().sel(statistic=["mean", "weibull_shape"])
    tree["matrices"] = type(tree)(few)
    with pytest.raises(ParameterError, match="matrices without weibull_scale"):
        shape_drift(scored(1), tree)
    with pytest.raises(ParameterError, match="the same matrices as model-1"):
        shape_drift(scored(1), scored(2, n_layers=3))


def test_experts_are_compared_with_what_they_are_experts_of(scored):
    model, rng = scored(1), np.random.default_rng(30)
    sigmas = {"mlp_in": 0.02, "mlp_out": 0.05}
    each = [
        matrices_group(
            {name: [sigma * rng.standard_normal((32, 16)) for _ in range(2)] for name, sigma in sigmas.items()}
        )
        for _ in range(3)
    ]
    mixture = model.copy()
    mixture["experts"] = xr.DataTree(xr.concat(each, "expert").assign_coords(expert=range(3)))
    matrices = fitted_matrices(mixture)
    assert matrices["component"].values.tolist() == [*SHAPES, "expert_mlp_in", "expert_mlp_out"]
    assert matrices["layer"].values.tolist() == [0, 1, 0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(
        matrices["observed"].sel(statistic="weibull_shape", component="expert_mlp_in").values[[4, 7]],
        each[2]["observed"].sel(statistic="weibull_shape", component="mlp_in"),
    )
    dense = matrices.isel(layer=slice(2)).sel(component=list(SHAPES))
    np.testing.assert_array_equal(dense["scale"], fitted_matrices(model)["scale"])
    tree = compare({"dense": model, "mixture": mixture}, permutations=9)
    components = tree["components"].to_dataset()
    assert components["n_matrices"].sel(component="expert_mlp_out").values.tolist() == [0, 6]
    assert components["sigma"].sel(model="mixture", component="expert_mlp_out").item() == pytest.approx(0.05, rel=0.05)
    assert measures_of(mixture)["expert_mlp_out scale"] == pytest.approx(0.0444, rel=0.05)
    assert "expert_mlp_out scale" not in measures_of(model)
