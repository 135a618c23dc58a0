"""Ensembles by the names that plans give them, and what is said of a plan that asks for what is not there."""

import pytest

from rmtbase.ensembles import ENSEMBLES, gaussian_chain, make_ensemble
from rmtbase.errors import ParameterError


def test_an_ensemble_is_made_by_name():
    assert make_ensemble("gaussian_chain", {"dims": [6, 4, 5]}) == gaussian_chain((6, 4, 5))
    assert make_ensemble("low_rank_product", {"d_model": 8, "d_head": 2, "method": "dense"}).matrix_shape == (8, 8)


def test_names_are_those_of_the_factories():
    assert {name: factory.__name__ for name, factory in ENSEMBLES.items()} == {name: name for name in ENSEMBLES}


@pytest.mark.parametrize("name", ["wishart", "", 3, None, ["low_rank_product"]])
def test_an_unknown_ensemble_is_refused_with_the_names_there_are(name):
    with pytest.raises(ParameterError, match=r"ensemble = .*: expected one of .*gaussian_chain, .*residual_path"):
        make_ensemble(name, {})


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        (
            "low_rank_product",
            {"d_modle": 8, "d_head": 2},
            "d_modle = 8: expected a parameter of low_rank_product: d_model, d_head, method",
        ),
        ("residual_path", {"sigma": 1.0}, "expected d_model, depth too, which residual_path needs"),
        ("low_rank_product", {"d_model": 8, "d_head": 9}, "d_head = 9: expected at most d_model = 8"),
    ],
)
def test_unknown_missing_and_wrong_parameters_are_named(name, parameters, words):
    with pytest.raises(ParameterError, match=words):
        make_ensemble(name, parameters)
