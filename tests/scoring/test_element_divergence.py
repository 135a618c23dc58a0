"""Divergence of heads' elements from their initial law: its formula, its null, and changes that were planted.

False failures: Kolmogorov–Smirnov tests and the sizes of tests at 1e-5 each, moments at five standard errors.
"""

import numpy as np
import pytest
from scipy import stats

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase import laws, models
from rmtbase.errors import ParameterError
from rmtbase.models import ArrayModel
from rmtbase.results.diff import element_divergence
from statistical.harness import uniform

SIGMA, LEVEL = 0.02, 1e-5
HEADS, KEY_HEADS, D_HEAD, D_MODEL = 200, 200, 12, 64
FACTORS = ("W_Q", "W_K")


def drawn(seed, scale=1.0, layers=10, law="normal", key_heads=KEY_HEADS):
    """Heads that have learned nothing."""
    rng = np.random.default_rng(seed)

    def factor(heads):
        shape = layers, heads, D_HEAD, D_MODEL
        unit = rng.standard_normal(shape) if law == "normal" else rng.uniform(-(3**0.5), 3**0.5, shape)
        return SIGMA * scale * unit

    return ArrayModel.from_factors(factor(HEADS), factor(key_heads), law)


def test_an_element_is_compared_with_the_formula_for_normal_laws():
    scaled = drawn(0, scale=1.5, layers=1)
    found = element_divergence(scaled, SIGMA)["observed"]
    weights = np.array([scaled.queries(0), scaled.keys(0)])
    exact = laws.normal_kl(weights.std(axis=(-2, -1)), SIGMA, weights.mean(axis=(-2, -1)))
    own = found.sel(component=list(FACTORS)).values[0].T - exact  # D(P || N(mean, s²)) of a normal law is zero
    assert np.abs(own.mean()) < 5 * own.std() / np.sqrt(own.size) + 1e-3
    of_width = float(laws.normal_kl(1.5**2, 1.0))  # of W_QK, and the divergence of a product in first order
    assert found.sel(component="W_QK").mean() == pytest.approx(of_width, rel=0.05)


def test_the_variance_of_the_scale_is_that_of_random_products():
    rng = np.random.default_rng(1)
    h, m, n = 5, 12, 20
    squares = np.sum((rng.normal(size=(20_000, m, h)) @ rng.normal(size=(20_000, h, n))) ** 2, axis=(1, 2))
    exact = (2 + 6 / h + 2 * (m + n - 2) / h) / (m * n)  # as the module states it
    variance = squares.var() / (m * n * h) ** 2
    assert variance == pytest.approx(exact, rel=5 * np.sqrt((stats.kurtosis(squares) + 2) / 20_000))
    mean, centred = (laws.trace_cumulant((1,) * order, dims=(m, h, n)) for order in (1, 2))
    assert float(centred) / float(mean) ** 2 == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("layers", [2, pytest.param(20, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("law", "initial", "components"),
    mostly_exhaustive(
        [
            ("normal", "law", (*FACTORS, "W_QK")),
            ("normal", "sample", (*FACTORS, "W_QK")),
            ("uniform", "sample", FACTORS),
        ],
        always=1,
    ),
)
def test_null_p_values_are_uniform(law, initial, components, layers):
    other = drawn(3, law=law, layers=layers) if initial == "sample" else SIGMA
    found = element_divergence(drawn(2, law=law, layers=layers), other)
    for component in components:
        one = found.sel(component=component)
        p_value, heads = one["p_value"].values.ravel(), one["p_value"].size
        assert uniform(p_value) > LEVEL
        assert stats.binomtest(int((p_value <= 0.05).sum()), heads, 0.05).pvalue > LEVEL
        assert stats.binomtest(int((p_value <= 0.005).sum()), heads, 0.005).pvalue > LEVEL
        score = (one["observed"] - one["null_mean"]) / one["null_std"]
        assert abs(float(score.mean())) < 5 / np.sqrt(heads) + 0.05  # right to second order
        assert float(score.std()) == pytest.approx(1.0, abs=0.05 + 5 / np.sqrt(heads))


@pytest.mark.parametrize("initial", ["law", "sample"])
def test_a_planted_change_is_found_where_it_is(initial):
    rng = np.random.default_rng(4)
    heads = 8
    first = [SIGMA * rng.standard_normal((1, heads, 64, 256)) for _ in range(2)]
    query, key = (SIGMA * rng.standard_normal(one.shape) for one in first)
    query[0, 3] *= 1.06  # width, by ten of its standard errors
    key[0, 5] += 0.1 * SIGMA  # mean
    key[0, 6, rng.random((64, 256)) < 0.03] *= 3.0  # tails
    reference = SIGMA if initial == "law" else ArrayModel.from_factors(*first, "first")
    p_value = element_divergence(ArrayModel.from_factors(query, key, "planted"), reference)["p_value"]
    changed = {"W_Q": [3], "W_K": [5, 6]}
    for component, places in changed.items():
        low = np.flatnonzero(p_value.sel(component=component).values[0] < 1e-6).tolist()
        assert low == places
    assert (p_value.sel(component=list(FACTORS)) < 1e-4).sum() == 3


def test_a_module_drawn_anew_has_not_left_its_initial_law():
    def gpt2(seed):
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            n_layer=4, n_embd=128, n_head=8, vocab_size=9, n_positions=8, bos_token_id=0, eos_token_id=0
        )
        module = GPT2LMHeadModel(config)
        models.initialize(module, seed=seed)
        return rmtbase.open_model(module)

    for initial in (0.02, gpt2(1)):
        found = element_divergence(gpt2(0), initial)
        assert found["observed"].dims == ("layer", "head", "component")
        assert uniform(found["p_value"].values) > LEVEL


def test_the_first_checkpoint_is_at_no_distance_from_itself_and_few_elements_have_no_null():
    first = rmtbase.open_model("demo", "step-0")
    same = element_divergence(first, first)
    held = same["p_value"].notnull()
    assert (same["observed"].where(held, 0.0) == 0.0).all() and (same["p_value"].where(held, 1.0) > 0.999).all()
    assert (~held).sum() == 4 * 4  # heads that share a key head have one W_K
    for initial in (first, 0.02):
        later = [element_divergence(rmtbase.open_model("demo", step), initial) for step in ("step-200", "final")]
        assert (later[0]["p_value"].where(held, 0.0) < 1e-6).all()
        assert (later[1]["observed"].mean(["layer", "head"]) > later[0]["observed"].mean(["layer", "head"])).all()
    query = np.ones((1, 2, 4, 10))
    query[0, 1] += np.arange(40.0).reshape(4, 10)
    found = element_divergence(ArrayModel.from_factors(query, query, "few"), 1.0)
    assert found["p_value"].isnull().all()
    assert np.isnan(found["observed"].sel(component="W_Q").values[0]).tolist() == [True, False]


@pytest.mark.parametrize("initial", [0.0, -1.0, float("nan"), True, drawn(0, layers=1)])
def test_what_is_no_deviation_nor_a_model_of_such_heads_is_refused(initial):
    with pytest.raises(ParameterError, match="initial"):
        element_divergence("demo", initial)
