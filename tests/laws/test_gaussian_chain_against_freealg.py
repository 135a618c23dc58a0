"""The limiting law of a Gaussian chain against the package freealg (Ameli et al. 2025), where that reaches.

freealg knows the polynomial of square chains (whose roots are all taken here: its own choice among them is wrong from
two factors on), and the free compound Poisson law with finitely many jumps, which two rectangular factors follow once
the law of the first is replaced by its Gauss quadrature.
"""

import warnings

import numpy as np
import pytest

from rmtbase.laws import GaussianChain

with warnings.catch_warnings():  # of escapes in its docstrings, where it was installed without being compiled
    warnings.simplefilter("ignore")
    distributions = pytest.importorskip("freealg", reason="freealg comes with the extra `test`").distributions


@pytest.mark.parametrize("factors", range(1, 9))
def test_square_chains_are_its_fuss_catalan_laws(factors):
    law, theirs = GaussianChain(dims=(1,) * (factors + 1), normalization="none"), distributions.FussCatalan(factors)
    np.testing.assert_allclose(law.support, theirs.support()[0], rtol=1e-14)
    for x in law.ppf(np.linspace(0.02, 0.98, 13)):
        densities = np.abs(np.imag(theirs.roots(x))) / np.pi
        assert np.abs(densities / law.pdf(x) - 1).min() < 1e-13


@pytest.mark.parametrize("dims", [(768, 64, 768), (768, 64, 300), (30, 50, 70), (80, 20, 10)], ids=str)
def test_two_factors_are_its_compound_free_poisson_law(dims):
    # W^T W = X_2^T (X_1^T X_1) X_2: free Poisson, the jumps being the nonzero eigenvalues of X_1^T X_1.
    law, rank = GaussianChain(dims=dims, atom=True, normalization="none"), min(dims[:2])
    jumps, weights = wishart_quadrature(*dims[:2], order=26)
    unit = law.mean()
    theirs = distributions.CompoundFreePoisson(jumps * dims[2] / unit, weights, rank / dims[2])
    for z in (0.5 + 1j, 2 + 1j, -0.5 + 0.7j):
        mine = complex(*(law.expect(lambda x, z=z, part=part: part(1 / (x / unit - z))) for part in (np.real, np.imag)))
        with np.errstate(all="ignore"):  # of their Newton iterations, before they fall back on the roots
            stieltjes = theirs.stieltjes(np.array([z]))[0]
        # 26 jumps share 51 moments with the law that they stand for.
        assert abs(stieltjes / mine - 1) < 1e-12


def wishart_quadrature(n_rows: int, n_columns: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss quadrature of the free Poisson law of rate >= 1: its orthogonal polynomials have a constant recurrence."""
    rank, rate = min(n_rows, n_columns), max(n_rows, n_columns) / min(n_rows, n_columns)
    diagonal = np.array([rate] + [rate + 1.0] * (order - 1))
    off_diagonal = np.full(order - 1, np.sqrt(rate))
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return rank * nodes, vectors[0] ** 2 / (vectors[0] ** 2).sum()
