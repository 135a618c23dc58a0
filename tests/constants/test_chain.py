"""Constants of any chain: against the laws in double precision, the released constants of W_QK, and closed forms."""

import copy
import pickle

import numpy as np
import pytest
from mpmath import mp

from rmtbase import constants, laws
from rmtbase.errors import ParameterError

CHAINS = [
    ((512, 64, 512, 64), {}),
    ((3072, 768), {"sigmas": 0.02}),
    ((100, 7, 50, 30, 20), {"sigmas": [1, 2, 0.5, 0.1], "normalization": "none"}),
]


@pytest.mark.parametrize(("dims", "scale"), CHAINS)
def test_edges_are_those_of_the_law(dims, scale):
    chain = constants.chain_constants(dims, **scale)
    given = dict(scale)
    if isinstance(given.get("sigmas"), float):
        given["sigma"] = given.pop("sigmas")
    law = laws.GaussianChain(dims=dims, **given)
    found = [chain[f"chain_{side}_edge"].value for side in ("lower", "upper")]
    np.testing.assert_allclose(found, law.support, rtol=1e-12)
    scales = {side: chain.get(f"chain_{side}_edge_scale") for side in ("lower", "upper")}
    for constant, expected in zip(scales.values(), law.edge_scale, strict=True):
        assert (constant is None) == (expected is None)
        assert constant is None or constant.value == pytest.approx(expected, rel=1e-11)
    mean = laws.largest_eigenvalue(dims=dims, **given).mean()
    assert chain["chain_largest_eigenvalue_mean"].value == pytest.approx(mean, rel=1e-11)


@pytest.mark.parametrize("factors", [1, 2, 3, 5])
def test_square_chains_have_the_edge_of_fuss_and_catalan(factors):
    """(L + 1)^(L + 1) / L^L n^L, and 4 n for one matrix."""
    edge = constants.chain_constants([64] * (factors + 1), normalization="none")["chain_upper_edge"]
    with mp.workdps(80):
        known = mp.mpf(factors + 1) ** (factors + 1) / mp.mpf(factors) ** factors * 64**factors
        assert abs(mp.mpf(edge.digits(60)) / known - 1) < mp.mpf(10) ** -58


def test_it_can_be_cited_with_its_conditions_and_kept():
    edge = constants.chain_constants((512, 64, 512, 64), sigmas=0.02)["chain_upper_edge"]
    said = constants.as_sentence(edge)
    for words in ("divided by √512", "σ = 0.02", "dimensions 512 × 64 × 512 × 64", "[1, 2], computed with rmtbase"):
        assert words in said
    assert "burda_2010_rectangular" in edge.bibtex() or "Burda" in edge.bibtex()
    assert edge.error_kind == "exact"
    for again in (pickle.loads(pickle.dumps(edge)), copy.deepcopy(edge)):
        assert again.digits(50) == edge.digits(50)


def test_what_is_no_chain_is_refused():
    for name, *arguments in (
        ("dims", (8, 0)),
        ("dims", (8,)),
        ("sigma", (8, 4, 8), -1.0),
        ("normalization", (8, 4), 1.0, "sqrt_d"),
        ("normalization", (8, 4, 8), 1.0, "unit"),
        ("sigmas", (8, 4, 8), [1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ParameterError, match=name):
            constants.chain_constants(*arguments)
