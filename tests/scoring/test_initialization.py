"""Which initialisation a model is said to have: by its entries alone, and none where it was trained."""

import json

import numpy as np
import pytest
from scipy.stats import truncnorm

import rmtbase
from rmtbase.nulls import Gaussian
from rmtbase.nulls._kurtosis_null import KURTOSIS, initialization

RNG = np.random.default_rng(20261122)
DRAWN = {
    "normal": RNG.normal,
    "uniform": lambda size: RNG.uniform(-0.2, 0.2, size),
    "truncated_normal": lambda size: truncnorm(-2, 2).rvs(size=size, random_state=RNG),
    "": lambda size: RNG.laplace(size=size),
}


def scores_of(draw):
    return rmtbase.score_heads(draw(size=(3, 4, 16, 64)), draw(size=(3, 4, 16, 64)), "analytic", matrices="elements")


@pytest.mark.parametrize("name", DRAWN)
def test_initialisation_is_told_by_the_entries(name):
    """Six matrices of 4096 entries: the law is missed by five standard errors in one of 300 000 runs."""
    tree = scores_of(DRAWN[name])
    assert initialization(tree["matrices"].to_dataset()) == name
    notes = [note for note in json.loads(tree.attrs["notes"]) if "excess kurtosis" in note]
    assert len(notes) == bool(name)
    assert all(f"{KURTOSIS[name]:.2f}" in note for note in notes)
    assert all(("not calibrated" in note) == (name != "normal") for note in notes)


def test_of_matrices_too_small_to_tell_or_trained_nothing_is_said():
    tree = rmtbase.score_heads(*RNG.normal(size=(2, 2, 4, 8)), Gaussian(draws=100), matrices="elements")
    assert initialization(tree["matrices"].to_dataset()) == ""
    assert initialization(rmtbase.score("demo", "analytic")["matrices"].to_dataset()) == ""
