"""Gaussian chains other than W_QK, drawn as dense matrices: a weight block, a low-rank update, a product of three.

Extreme eigenvalues, log-determinant, traces, sums of functions over the eigenvalues, and the density of them all.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from effort import Effort, generator

from comparison import ASYMPTOTIC, UNJUDGED, FloatArray, Limits, Row, Subject
from rmtbase.laws import (
    GaussianChain,
    LogDeterminant,
    largest_eigenvalue,
    linear_statistics,
    null,
    smallest_eigenvalue,
    trace_cumulant,
    trace_cumulants,
)

SECTION = "chains"
_BYTES = 1 << 27  # of matrices drawn at a time
_EDGE = Limits(0.05, 0.03, 0.1, tail={(p, "upper"): 0.2 for p in (1e-2, 1e-3)})
_SUMS = Limits(0.1, 0.03)
_QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99, 0.999)
_BINS = 60


@dataclass(frozen=True)
class Chain:
    """A chain and how often to draw it."""

    name: str
    dims: tuple[int, ...]
    draws: int
    sigmas: tuple[float, ...] | None = None


CHAINS = (
    Chain("weight block", (96, 32), 100_000, (0.5,)),
    Chain("square weight block", (48, 48), 40_000),
    Chain("low-rank update", (256, 16, 128), 100_000),
    Chain("head of d_model 192", (192, 48, 192), 40_000, (0.02, 0.03)),
    Chain("product of three", (64, 24, 40, 96), 60_000),
    Chain("square product of three", (24, 24, 24, 24), 40_000),
)
_FUNCTIONS = {"sum of lambda^(1/2)": np.sqrt, "sum of lambda^(3/2)": lambda x: x**1.5, "sum of ln lambda": np.log}


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare every chain."""
    rows: list[Row] = []
    densities: list[dict[str, Any]] = []
    for chain in CHAINS:
        eigenvalues = draw(generator(f"chain {chain.dims}"), chain.dims, effort.draws(chain.draws), chain.sigmas)
        rows += _compare(chain, eigenvalues)
        densities.append(_density(chain, eigenvalues))
        print(f"  {chain.name} {chain.dims}", flush=True)
    return rows, {"densities": densities}


def draw(
    rng: np.random.Generator, dims: Sequence[int], draws: int, sigmas: Sequence[float] | None = None
) -> FloatArray:
    """Nonzero eigenvalues (draw, rank), ascending, of W^T W for W = X_1 ... X_L, each X_l drawn in full.

    With the smallest dimension between A = X_1 ... X_j and B = X_{j+1} ... X_L, and A = Q R, B^T = Q' R', they are the
    squared singular values of R R'^T.
    """
    smallest = int(np.argmin(dims))
    scale = math.prod(sigmas or (1.0,)) ** 2
    chunk = max(1, _BYTES // (8 * sum(n * m for n, m in pairwise(dims))))
    parts = []
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        factors = [rng.standard_normal((count, n, m)) for n, m in pairwise(dims)]
        left, right = factors[:smallest], factors[smallest:]
        identity = np.broadcast_to(np.eye(dims[smallest]), (count, dims[smallest], dims[smallest]))
        a, b = reduce(np.matmul, left) if left else identity, reduce(np.matmul, right) if right else identity
        core = np.linalg.qr(a, mode="r") @ np.linalg.qr(b.mT, mode="r").mT
        parts.append(np.linalg.svdvals(core)[:, ::-1] ** 2)
    return scale * np.concatenate(parts)


def _compare(chain: Chain, eigenvalues: FloatArray) -> Iterator[Row]:
    parameters = {"chain": chain.name, "dims": list(chain.dims)}

    def subject(quantity: str, method: str = "exact", limits: Limits = UNJUDGED) -> Subject:
        return Subject(SECTION, quantity, parameters, method, limits)

    law = GaussianChain(dims=chain.dims, sigmas=chain.sigmas, normalization="none")
    edges = {"largest_eigenvalue": (largest_eigenvalue, -1), "smallest_eigenvalue": (smallest_eigenvalue, 0)}
    for name, (edge_law, index) in edges.items():
        if name == "largest_eigenvalue" or not law.has_hard_edge:
            edge = edge_law(dims=chain.dims, sigmas=chain.sigmas, normalization="none")
            yield from subject(name, ASYMPTOTIC, _EDGE).law(eigenvalues[:, index], edge, _QUANTILES, (1e-2, 1e-3))

    log_determinant = LogDeterminant(dims=chain.dims, sigmas=chain.sigmas, normalization="none")
    sample = np.log(eigenvalues).sum(axis=1)
    exact = subject("log_determinant")
    yield from exact.law(sample, log_determinant, (), (0.1, 1e-2, 1e-3))
    yield exact.skewness(sample, log_determinant.skewness())
    yield exact.excess_kurtosis(sample, log_determinant.excess_kurtosis())

    sums = {k: (eigenvalues**k).sum(axis=1) for k in (1, 2, 3, 4)}
    factor = math.prod(chain.sigmas or (1.0,)) ** 2
    for k, of_power in sums.items():
        moments = trace_cumulants(k, dims=chain.dims, sigmas=chain.sigmas, normalization="none")
        yield subject(f"sum of lambda^{k}").mean(of_power, moments.mean)
        if k <= 2:  # beyond, a few draws make up the variance
            yield subject(f"sum of lambda^{k}").std(of_power, moments.std)
    for j, k in ((1, 2), (1, 3)):
        pair = subject(f"sum of lambda^{j}, sum of lambda^{k}")
        covariance = float(trace_cumulant((k, j), dims=chain.dims, normalization="none"))
        yield pair.covariance(sums[j], sums[k], covariance * factor ** (j + k))

    for statistic, of in (("participation_ratio", eigenvalues), ("participation_ratio_singular", np.sqrt(eigenvalues))):
        sample = of.sum(axis=1) ** 2 / (of**2).sum(axis=1)
        yield from subject(statistic, ASYMPTOTIC, _SUMS).law(
            sample, null(statistic, dims=chain.dims, sigmas=chain.sigmas, normalization="none")
        )

    functions = {name: f for name, f in _FUNCTIONS.items() if f is not np.log or not law.has_hard_edge}
    found = linear_statistics(law, list(functions.values()))
    values = {name: f(eigenvalues).sum(axis=1) for name, f in functions.items()}
    for index, (name, sample) in enumerate(values.items()):
        of = subject(name, ASYMPTOTIC, _SUMS)
        std = math.sqrt(found.covariance[index, index])
        yield of.mean(sample, found.mean[index])
        yield of.std(sample, std)
        yield subject(name, ASYMPTOTIC).skewness(sample, found.third_cumulant[index, index, index] / std**3)
        if index:
            first = next(iter(values))
            expected = found.covariance[0, index] / math.sqrt(found.covariance[0, 0]) / std
            yield subject(f"{first}, {name}", ASYMPTOTIC, Limits(mean=0.02)).correlation(
                values[first], sample, expected
            )
    yield from _distance(subject("density of all eigenvalues", ASYMPTOTIC), law, eigenvalues)


def _distance(subject: Subject, law: GaussianChain, eigenvalues: FloatArray) -> Iterator[Row]:
    """Kolmogorov distance of the pooled eigenvalues from the limiting law, times the rank: of order one."""
    batches = np.array_split(eigenvalues, 20)
    distances = [law.rank * kolmogorov_distance(batch, law) for batch in batches]
    whole = law.rank * kolmogorov_distance(eigenvalues, law)
    error = float(np.std(distances) / math.sqrt(len(batches)))
    yield subject.number("rank x Kolmogorov distance", 0.0, whole, error, len(eigenvalues))
    for k in (1, 2, 3):
        each = (eigenvalues**k).mean(axis=1)
        # The law's own moments leave out 1/r corrections: relative to the spread of one eigenvalue.
        spread = math.sqrt(law.moment(2 * k) - law.moment(k) ** 2)
        error = float(each.std() / math.sqrt(each.size))
        yield subject.number(f"mean of lambda^{k}", law.moment(k), float(each.mean()), error, each.size, spread)


def kolmogorov_distance(sample: FloatArray, law: Any) -> float:
    """Largest distance between the empirical distribution function and the law's."""
    ordered = np.sort(sample, axis=None)
    cdf, count = law.cdf(ordered), ordered.size
    rank = np.arange(count)
    return float(max((cdf - rank / count).max(), ((rank + 1) / count - cdf).max()))


def _density(chain: Chain, eigenvalues: FloatArray) -> dict[str, Any]:
    """Histogram of the singular values in units of the upper edge's, and the law's density there."""
    law = GaussianChain(dims=chain.dims, sigmas=chain.sigmas, normalization="none")
    unit = math.sqrt(law.support[1])
    edges = np.linspace(0.0, 1.25, _BINS + 1)
    counts, _ = np.histogram(np.sqrt(eigenvalues) / unit, edges)
    at = np.linspace(0.5 * (edges[0] + edges[1]), edges[-1], 400)
    return {
        "chain": chain.name,
        "dims": list(chain.dims),
        "edges": edges.tolist(),
        "simulated": (counts / eigenvalues.size / np.diff(edges)).tolist(),
        "at": at.tolist(),
        "law": (unit * law.pdf_singular_values(at * unit)).tolist(),
    }
