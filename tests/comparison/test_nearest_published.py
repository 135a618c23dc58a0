"""The nearest published component: a planted one is named, and an untrained one is no nearer than chance brings it."""

import math
import re
import statistics

import numpy as np
import pytest
import xarray as xr
from matrices_group import SHAPES, matrices_group
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.results import open_table
from rmtbase.results.comparison import TRANSMISSION, compare
from rmtbase.results.comparison._published import PUBLISHED_MODELS, published_models
from rmtbase.results.comparison.report import as_json, report
from rmtbase.results.comparison.summary import summarize_comparison
from rmtbase.tables import export, write_table

PUBLISHED = published_models()
PLANTED = {"attention_query": (0.8123, 0.001729), "attention_key": (0.9716, 0.01324)}  # OLMo-1-7B's and OLMo-2-7B's


def with_matrices(tree, drawn):
    made = tree.copy()
    made["matrices"] = xr.DataTree(matrices_group(drawn))
    return made


def weibull_weights(rng, shape, k, scale):
    """Weights whose magnitudes are the quantiles of a Weibull law at (i − ½)/N, so that their fit has no noise."""
    n = math.prod(shape)
    magnitudes = scale * (-np.log1p(-(np.arange(n) + 0.5) / n)) ** (1 / k)
    return (rng.permutation(magnitudes) * rng.choice([-1.0, 1.0], n)).reshape(shape)


def untrained(rng, sigma=0.02, n_layers=2):
    return {name: [sigma * rng.standard_normal(shape) for _ in range(n_layers)] for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def heads(scored):
    return scored(1, matrices=False)


@pytest.fixture(scope="module")
def planted(heads):
    """An untrained model in which two components have the shape and scale of published ones."""
    rng = np.random.default_rng(21)
    drawn = untrained(rng)
    for name, (k, scale) in PLANTED.items():
        drawn[name] = [weibull_weights(rng, SHAPES[name], k, scale) for _ in range(2)]
    return compare({"planted": with_matrices(heads, drawn)}, published=True)


def test_a_planted_component_is_named_at_a_distance_in_standard_deviations_over_published_models(planted):
    components = planted["components"].to_dataset().isel(model=0)
    for name, model in (("attention_query", "OLMo-1-7B"), ("attention_key", "OLMo-2-7B")):
        found = components.sel(component=name)
        assert found["nearest_model"].item() == model
        assert found["nearest_distance"].item() < 0.01
        assert found["nearest_random_low"].item() > 10 * found["nearest_distance"].item()
        assert found["nearest_p_value"].item() == 1 / 4001
        assert found["nearest_q_value"].item() < 0.001
        assert found["nearest_between_published"].item() == 0.0
    (sentence,) = (line for line in summarize_comparison(planted) if line.startswith("planted: "))
    assert sentence.startswith("planted: 2 of 6 components lie nearer to a published one than untrained matrices")
    own = planted["components"].to_dataset().isel(model=0).sel(component="attention_output")
    output = PUBLISHED.sel(component="attention_output")
    pairs = zip(output["shape"].values.tolist(), output["scale"].values.tolist(), strict=True)
    fits = dict(zip(output["published_model"].values.tolist(), pairs, strict=True))
    s_k = statistics.stdev(k for k, _ in fits.values())
    s_scale = statistics.stdev(math.log(scale) for _, scale in fits.values())
    k, scale = own["shape"].item(), own["median_scale"].item()
    away = {name: math.hypot((fit[0] - k) / s_k, math.log(fit[1] / scale) / s_scale) for name, fit in fits.items()}
    assert own["nearest_model"].item() == min(away, key=lambda name: away[name])
    assert own["nearest_distance"].item() == pytest.approx(min(away.values()), rel=1e-9)
    near = [
        min(math.hypot((a[0] - b[0]) / s_k, math.log(a[1] / b[1]) / s_scale) for b in fits.values() if b is not a)
        for a in fits.values()
    ]
    assert own["nearest_between_published"].item() == statistics.mean(one <= min(away.values()) for one in near)


@pytest.mark.parametrize("models", mostly_exhaustive([6, 40], always=1))
def test_an_untrained_component_is_no_nearer_than_chance_brings_it(heads, models):
    # Six p-values of each model, which are uniform: their Kolmogorov-Smirnov distance passes the limit in 1 % of cases,
    # and more than a quarter of the models have a nearer component in under 1 % (5 % of models should).
    p_values, named = [], 0
    for seed in range(models):
        drawn = untrained(np.random.default_rng(300 + seed), sigma=(0.003, 0.02)[seed % 2])
        tree = compare({"random": with_matrices(heads, drawn)}, published=True, seed=seed)
        p_values += tree["components"]["nearest_p_value"].values.ravel().tolist()
        named += not any("random: none of 6 components" in line for line in summarize_comparison(tree))
    assert len(p_values) == 6 * models
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert named <= max(2, models // 4)


def test_published_scales_agree_with_the_means_that_the_paper_prints():
    # Table 4 prints the mean over feed-forward and output matrices and layers, the database medians over layers; the
    # paper had 27 of the 48 layers of Qwen2.5-14B.
    for model in PUBLISHED_MODELS:
        medians = PUBLISHED["scale"].sel(published_model=model.name, component=list(TRANSMISSION[:4])).values
        expected = 0.15 if model.name == "Qwen2.5-14B" else 0.06
        assert np.nanmean(medians) == pytest.approx(model.mean_scale, rel=expected), model.name


def test_shape_scale_r_squared_and_trims_stand_beside_the_published_ones(planted, tmp_path):
    items = list(report(planted))
    (rows,) = (item for item in items if getattr(item, "title", "") == "By component")
    columns = [column.name for column in rows.columns]
    cells = {tuple(row[:2]): dict(zip(columns, row, strict=True)) for row in rows.texts}
    published = cells["OLMo-2-7B (published)", "attention_query"]
    assert (published["median k"], published["R²"], published["median λ"]) == ("0.9895", "0.9909", "0.01406")
    own = cells["planted", "attention_key"]
    assert float(own["median λ"]) == pytest.approx(0.01324, rel=1e-3)
    assert float(own["median k"]) == pytest.approx(0.9716, rel=1e-3)
    (trims,) = (item for item in items if getattr(item, "title", "") == "By trim")
    printed = {row[0]: tuple(row[1:]) for row in trims.texts}
    assert printed["twelve models (published)"] == ("1.195", "1.182", "1.143", "0.0519 ± 0.0017")
    assert printed["untrained"] == ("1.205", "1.191", "1.151", "0.0544")
    models = planted["models"].to_dataset().isel(model=0)
    gap = models["transmission_shape"] - models["transmission_shape_untrimmed"]
    assert gap.item() == pytest.approx(models["transmission_gap"].item(), abs=0.03)  # a median of differences
    answer = as_json(planted)
    assert answer["trims"]["untrained_shape_10"] == pytest.approx(1.205434319017451, rel=1e-12)
    assert answer["trims"]["untrained_gap"] == pytest.approx(0.0543677, abs=5e-8)
    (row,) = (row for row in answer["published"] if row["published_model"] == "Mistral-7B")
    (fit,) = (one for one in row["components"] if one["component"] == "mlp_out")
    assert (fit["shape"], fit["scale"], fit["r_squared"]) == (1.1926, 0.002546, 0.9982)
    text = export(planted, "latex", group="published").decode()
    assert r"Mistral-7B & mlp out & $1.1926$ & $0.0025460$ & $0.99820$" in text
    text = export(planted, "latex", group="components").decode()
    assert re.search(r"planted & attention query &.* & OLMo-1-7B & ", text)
    assert open_table(write_table(planted, tmp_path / "all.nc"), "comparison").identical(planted)


def test_a_component_that_no_published_model_has_is_compared_with_none(heads):
    rng = np.random.default_rng(5)
    drawn = untrained(rng) | {"embedding": [0.02 * rng.standard_normal((64, 32)) for _ in range(2)]}
    tree = compare({"a": with_matrices(heads, drawn)}, published=True)
    of = tree["components"].to_dataset().sel(model="a", component="embedding")
    assert of["nearest_model"].item() == ""
    assert np.isnan(of["nearest_distance"].item()) and np.isnan(of["nearest_q_value"].item())
    assert set(PUBLISHED["component"].values) >= set(SHAPES)
