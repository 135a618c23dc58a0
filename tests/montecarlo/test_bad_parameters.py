"""Every parameter outside its domain is refused by name, with what was found and what was expected."""

import math

import numpy as np
import pytest

import rmtbase
from rmtbase.ensembles import low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.montecarlo import case_key, draw_spectra, simulate_gaussian_matrix
from telling import Told

SHAPE = (32, 8)
REFUSED = [
    *(("d_head", 33, "at most d_model = 32", (d_model, 33), {}) for d_model in (32, [64, 32])),
    *(("d_head", found, "integer", (32, found), {}) for found in (0, -8, 8.0, "8", True, None, np.float64(8))),
    *(("d_model", found, "integer", (found, 1), {}) for found in (0, -8, 8.0, "8", True, None, np.float64(8))),
    ("d_model", 10**30, "at most", (10**30, 2), {}),
    ("d_head", [8, 4, 2], "one for each of the 2 of d_model", ([32, 64], [8, 4, 2]), {}),
    ("d_model", [], "at least one value", ([], 8), {}),
    *(("draws", found, "integer", SHAPE, {"draws": found}) for found in (0, -1, 2.0, "10", True, None)),
    ("draws", 1, "at least 2", SHAPE, {"draws": 1}),
    *(("draws", found, "", SHAPE, {"draws": found}) for found in (2**32, 10**13, 10**30)),
    *(
        ("sigma", found, "number", SHAPE, {"sigma": sigma})
        for found in (0, 0.0, -0.02, math.nan, math.inf, "0.02", None, True)
        for sigma in (found, [1.0, found], (1.0, found))
    ),
    ("sigma", (1, 2, 3), "a pair", SHAPE, {"sigma": (1, 2, 3)}),
    *(("sigma", found, "", SHAPE, {"sigma": found}) for found in (1e200, 1e60, 1e-60, 1e-200)),
    *(("seed", found, "an integer", SHAPE, {"seed": found}) for found in (-1, 2**63, 1.0, "0", True, None)),
    *(("normalization", found, "'sqrt_d'", SHAPE, {"normalization": found}) for found in ("sqrt", "", None, 1)),
]


@pytest.mark.parametrize(("name", "found", "expected", "arguments", "options"), REFUSED, ids=repr)
def test_baseline_names_what_is_outside_its_domain(name, found, expected, arguments, options):
    told = Told()
    with pytest.raises(ParameterError) as caught:
        rmtbase.baseline(*arguments, **{"draws": 10, "progress": told} | options)
    assert caught.value.name.startswith(name)  # or an item of it, such as sigma[1]
    assert f" = {found!r}: expected" in str(caught.value)
    assert expected in str(caught.value)
    assert not told.steps  # drawing has not begun


def test_numpy_numbers_are_numbers():
    usual = rmtbase.baseline(32, 8, 0.5, draws=8)
    for size in (np.int64(8), np.array(8)):
        assert rmtbase.baseline(32, size, 0.5, draws=size, seed=np.int64(0)).equals(usual)
    for sigma in (np.float64(0.5), np.array(0.5), np.array([0.5]), np.float32(0.5)):
        assert rmtbase.baseline(32, 8, sigma, draws=8).equals(usual)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: case_key(-1, "case"), "seed = -1"),
        (lambda: simulate_gaussian_matrix(0, 4, 10), "n_rows = 0"),
        (lambda: simulate_gaussian_matrix(4, 4, 0), "draws = 0"),
        (lambda: draw_spectra(low_rank_product(8, 2), 4, 0, batch=0), "batch = 0"),
        (lambda: low_rank_product(8, 2, "fat"), "method = 'fat': expected 'thin' or 'dense'"),
    ],
)
def test_parts_refuse_what_the_whole_refuses(call, words):
    with pytest.raises(ParameterError, match=words):
        call()
