"""Every parameter outside its domain is refused by name, with what was found and what was expected."""

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.montecarlo import case_key, draw_spectra, simulate_gaussian_matrix
from telling import Told


def refused(name, found, expected, *arguments, **options):
    with pytest.raises(ParameterError) as caught:
        rmtbase.baseline(*arguments, **{"draws": 10} | options)
    assert caught.value.name.startswith(name)  # or an item of it, such as sigma[1]
    assert f"{caught.value.name} = {found}: expected" in str(caught.value)
    assert expected in str(caught.value)


def test_d_head_beyond_d_model():
    refused("d_head", 33, "at most d_model = 32", 32, 33)
    refused("d_head", 33, "at most d_model = 32", [64, 32], 33)


@pytest.mark.parametrize("found", [0, -8, 8.0, "8", True, None, np.float64(8)])
def test_dimension_that_is_no_positive_integer(found):
    refused("d_head", repr(found), "integer", 32, found)
    refused("d_model", repr(found), "integer", found, 1)


def test_d_model_beyond_what_float64_counts_exactly():
    refused("d_model", 10**30, "at most", 10**30, 2)


def test_dimensions_that_do_not_pair():
    refused("d_head", "[8, 4, 2]", "one for each of the 2 of d_model", [32, 64], [8, 4, 2])


def test_no_dimension_at_all():
    with pytest.raises(ParameterError, match="at least one value"):
        rmtbase.baseline([], 8)


@pytest.mark.parametrize("found", [0, -1, 2.0, "10", True, None])
def test_draws_that_are_no_positive_integer(found):
    refused("draws", repr(found), "integer", 32, 8, draws=found)


def test_one_draw_has_no_standard_error():
    refused("draws", 1, "at least 2", 32, 8, draws=1)


@pytest.mark.parametrize("draws", [2**32, 10**13, 10**30])
def test_more_draws_than_there_are_keys_or_there_is_memory(draws):
    refused("draws", draws, "", 32, 8, draws=draws)


@pytest.mark.parametrize("found", [0, 0.0, -0.02, float("nan"), float("inf"), "0.02", None, True])
def test_sigma_that_is_no_finite_positive_number(found):
    refused("sigma", repr(found), "number", 32, 8, found)
    refused("sigma", repr(found), "number", 32, 8, [1.0, found])
    refused("sigma", repr(found), "number", 32, 8, (1.0, found))


def test_sigma_of_three():
    refused("sigma", "(1, 2, 3)", "a pair", 32, 8, (1, 2, 3))


@pytest.mark.parametrize("sigma", [1e200, 1e100, 1e60, 1e-60, 1e-100, 1e-200])
def test_sigma_whose_statistics_are_beyond_double_precision(sigma):
    with pytest.raises(ParameterError, match="sigma"):
        rmtbase.baseline(32, 8, sigma, draws=10)


@pytest.mark.parametrize("found", [-1, 2**63, 1.0, "0", True, None])
def test_seed_out_of_range(found):
    refused("seed", repr(found), "an integer", 32, 8, seed=found)


@pytest.mark.parametrize("found", ["sqrt", "", None, 1])
def test_unknown_normalization(found):
    refused("normalization", repr(found), "'sqrt_d'", 32, 8, normalization=found)
    refused("normalization", repr(found), "'none'", 32, 8, normalization=found)


def test_bad_parameters_are_found_before_anything_is_drawn():
    told = Told()
    for bad in ({"seed": -1}, {"normalization": "x"}, {"sigma": -1.0}, {"draws": 1}):
        with pytest.raises(ParameterError):
            rmtbase.baseline([32, 16], 8, **{"draws": 10, "progress": told} | bad)
    with pytest.raises(ParameterError):
        rmtbase.baseline([32, 4], 8, draws=10, progress=told)
    assert not told.steps  # drawing has not begun


@pytest.mark.parametrize("scalar", [np.int64(8), np.array(8)])
def test_numpy_integers_are_integers(scalar):
    usual = rmtbase.baseline(32, 8, draws=8)
    assert rmtbase.baseline(32, scalar, draws=scalar, seed=np.int64(0)).equals(usual)


def test_numpy_numbers_are_numbers():
    usual = rmtbase.baseline(32, 8, 0.5, draws=8)
    for sigma in (np.float64(0.5), np.array(0.5), np.array([0.5]), np.float32(0.5)):
        assert rmtbase.baseline(32, 8, sigma, draws=8).equals(usual)


def test_parts_refuse_what_the_whole_refuses():
    with pytest.raises(ParameterError, match=r"seed = -1"):
        case_key(-1, "case")
    with pytest.raises(ParameterError, match=r"n_rows = 0"):
        simulate_gaussian_matrix(0, 4, 10)
    with pytest.raises(ParameterError, match=r"draws = 0"):
        simulate_gaussian_matrix(4, 4, 0)
    from rmtbase.ensembles import low_rank_product

    with pytest.raises(ParameterError, match=r"batch = 0"):
        draw_spectra(low_rank_product(8, 2), 4, 0, batch=0)
    with pytest.raises(ParameterError, match=r"method = 'fat': expected 'thin' or 'dense'"):
        low_rank_product(8, 2, "fat")
