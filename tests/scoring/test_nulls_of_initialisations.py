"""Nulls of heads as they are really initialised, and which initialisation a model is said to have.

False failures: p-values of 300 heads must not be less uniform than a correct null makes them once in 10⁵ runs, each of
the few statistics that are looked at.
"""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.stats import truncnorm

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.nulls import Gaussian, find_null, kurtosis_range
from rmtbase.nulls._kurtosis_null import KURTOSIS, initialization
from statistical.harness import uniform

RNG = np.random.default_rng(20261123)
HEADS = (30, 10, 16, 64)
LEVEL = 1e-5
LOOKED_AT = ["log_determinant", "normalized_participation_ratio", "largest_eigenvalue", "trace_of_square"]

DRAWN = {
    "uniform": lambda shape: RNG.uniform(-0.1, 0.1, shape),
    "truncated_normal": lambda shape: stats.truncnorm(-2, 2).rvs(shape, random_state=RNG),
    "of kurtosis 0.76": lambda shape: stats.gennorm(1.5).rvs(shape, random_state=RNG),
}


def score(w_q, w_k, null="gaussian", **options):
    return rmtbase.score_heads(w_q, w_k, find_null(null, **options))


@pytest.mark.parametrize(
    ("drawn", "options"),
    mostly_exhaustive(
        [
            ("uniform", {"initialization": "uniform", "draws": 2000}),
            ("uniform", {"null": "analytic", "initialization": "uniform"}),
            ("truncated_normal", {"null": "analytic", "initialization": "truncated_normal"}),
            ("uniform", {"null": "kurtosis"}),
            ("of kurtosis 0.76", {"null": "kurtosis"}),
        ],
        always=1,
    ),
)
def test_p_values_of_untrained_heads_are_uniform(drawn, options):
    tree = score(DRAWN[drawn](HEADS), DRAWN[drawn](HEADS), **options)
    for name in LOOKED_AT:
        p_value = tree["heads"]["p_value"].sel(statistic=name).values
        assert uniform(p_value[~np.isnan(p_value)], tree.attrs["null_draws"] or None) > LEVEL, name


def test_against_normal_entries_they_are_not():
    """The log-determinant lies 0.8 standard deviations off on average, 16 standard errors."""
    tree = score(DRAWN["uniform"](HEADS), DRAWN["uniform"](HEADS), "analytic")
    assert 0.5 < tree["heads"]["z_score"].sel(statistic="log_determinant").mean() < 1.1


def test_heads_of_tails_too_heavy_for_the_kurtosis_null_have_no_p_values_and_one_line_names_them():
    w_q, w_k = RNG.standard_normal((2, 3, 8, 64))
    w_q[2] = RNG.standard_t(3, (8, 64)) ** 3
    tree = score(w_q, w_k, "kurtosis")
    assert np.isnan(tree["heads"]["p_value"].values[0]).all(axis=1).tolist() == [False, False, True]
    assert any("head 2" in line and "--null signs" in line for line in json.loads(tree.attrs["warnings"]))
    w_q, w_k = RNG.laplace(size=(2, 40, 32, 256))
    tree = score(w_q, w_k, "kurtosis")
    scored = ~np.isnan(tree["heads"]["omnibus_p_value"].values[0])
    kurtosis = np.mean([np.mean(w**4, (1, 2)) / np.mean(w**2, (1, 2)) ** 2 - 3.0 for w in (w_q, w_k)], axis=0)
    assert (scored == (kurtosis <= kurtosis_range((256, 32, 256))[1])).all() and not scored.any()
    w_q, w_k = RNG.standard_t(3, (2, 20, 30, 8, 16)) ** 5
    tree = score(w_q, w_k, "kurtosis")
    (line,) = json.loads(tree.attrs["warnings"])
    assert (
        line.startswith("layer 0 head 0, layer 0 head 1, ")
        and " and 592 more (600 in all): elements of excess kurtosis" in line
    )
    assert len(line) < 700


def test_small_heads_admit_less_kurtosis_and_what_does_not_go_together_is_refused():
    """((1 + κ/2)² - 1)/d_head = 0.1, and at most 1."""
    for d_head, largest in ((4, 0.3664), (12, 0.9664), (13, 1.0), (64, 1.0)):
        assert kurtosis_range((256, d_head, 256)) == (-1.75, pytest.approx(largest, abs=1e-4))
    with pytest.raises(ParameterError, match="initialization"):
        score(*RNG.standard_normal((2, 2, 8, 24)), "kurtosis", initialization="uniform")


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{"null": "kurtosis"}, {"null": "analytic", "initialization": "uniform"}])
def test_observed_values_are_the_heads_own_and_agree_with_z(options):
    w_q, w_k = DRAWN["uniform"]((2, 6, 16, 64))
    plain = score(w_q, w_k, "analytic")["heads"].to_dataset()
    heads = score(w_q, w_k, **options)["heads"].to_dataset()
    assert (heads["observed"].values == plain["observed"].values).all()
    z = (heads["observed"] - heads["null_mean"]) / heads["null_std"]
    assert z.values == pytest.approx(heads["z_score"].values, abs=1e-9)
    assert (heads["eigenvalue"].values == plain["eigenvalue"].values).all()


def test_report_says_what_heads_were_compared_with():
    w_q, w_k = RNG.standard_normal((2, 2, 8, 24))
    uniform_entries = {"null": "analytic", "initialization": "uniform"}
    for options, words in (
        (uniform_entries, "independent, uniformly distributed numbers"), ({"null": "kurtosis"}, "with tails as heavy"),
    ):  # fmt: skip
        assert words in rmtbase.results.scores.render(score(w_q, w_k, **options), pictures=False)


DRAWN_BY = np.random.default_rng(20261122)
LAWS_OF_ENTRIES = {
    "normal": DRAWN_BY.normal,
    "uniform": lambda size: DRAWN_BY.uniform(-0.2, 0.2, size),
    "truncated_normal": lambda size: truncnorm(-2, 2).rvs(size=size, random_state=DRAWN_BY),
    "": lambda size: DRAWN_BY.laplace(size=size),
}


def scores_of(draw):
    return rmtbase.score_heads(draw(size=(3, 4, 16, 64)), draw(size=(3, 4, 16, 64)), "analytic", matrices="elements")


@pytest.mark.parametrize("name", LAWS_OF_ENTRIES)
def test_initialisation_is_told_by_the_entries(name):
    """Six matrices of 4096 entries: the law is missed by five standard errors in one of 300 000 runs."""
    tree = scores_of(LAWS_OF_ENTRIES[name])
    assert initialization(tree["matrices"].to_dataset()) == name
    notes = [note for note in json.loads(tree.attrs["notes"]) if "excess kurtosis" in note]
    assert len(notes) == bool(name) and all(f"{KURTOSIS[name]:.2f}" in note for note in notes)
    assert all(("not calibrated" in note) == (name != "normal") for note in notes)


def test_of_matrices_too_small_to_tell_or_trained_nothing_is_said():
    tree = rmtbase.score_heads(*DRAWN_BY.normal(size=(2, 2, 4, 8)), Gaussian(draws=100), matrices="elements")
    assert initialization(tree["matrices"].to_dataset()) == ""
    assert initialization(rmtbase.score("demo", "analytic")["matrices"].to_dataset()) == ""
