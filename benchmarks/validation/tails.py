"""Tails of participation ratios, entropies and ranks of Gaussian chains other than W_QK's grid, to 1e-3.

For (n_0, ..., n_L) the core with the singular values of the product is drawn: an r x r triangular Bartlett factor of
n_l degrees of freedom for every dimension but one that is the rank r. A tail of 1e-3 has a standard error of 7 % at
200 000 draws, of 10 % at 100 000. The laws were corrected by other draws of some of these chains; not by draws of those
from (48, 24, 48) to (55, 25, 35, 30, 65, 28), of (768, 64, 768), or of eight factors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from effort import Effort, generator

from comparison import ASYMPTOTIC, FloatArray, Limits, Row, Subject
from rmtbase.laws import null

SECTION = "tails"
CHAINS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((40, 16), 200_000),
    ((96, 32), 100_000),
    ((64, 16, 64), 200_000),
    ((768, 64, 768), 100_000),
    ((512, 32, 48), 100_000),
    ((48, 48, 48), 100_000),
    ((50, 20, 70, 30), 200_000),
    ((64, 24, 40, 96), 200_000),
    ((1000, 20, 50, 3000), 200_000),
    ((60, 16, 16, 60), 200_000),
    ((24, 24, 24, 24), 200_000),
    ((40, 40, 12, 60, 25), 200_000),
    ((60, 30, 40, 20, 50, 35, 45), 200_000),
    ((48, 24, 48), 200_000),
    ((26, 26, 40), 200_000),
    ((72, 18, 27, 90), 200_000),
    ((13, 26, 39, 18), 200_000),
    ((36, 28, 44, 30, 52), 200_000),
    ((55, 25, 35, 30, 65, 28), 200_000),
    ((20, 8, 30, 25), 200_000),
    ((32,) * 9, 100_000),
)
TAILS = (1e-2, 1e-3)
LIMITS = Limits(0.1, 0.03, tail={(p, side): 0.25 for p in TAILS for side in ("lower", "upper")})
_BYTES = 1 << 26  # of cores drawn at a time


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Mean, standard deviation and tails of seven statistics of every chain."""
    rows: list[Row] = []
    for dims, draws in CHAINS:
        samples = sample(generator(f"tails {dims}"), dims, effort.draws(draws))
        for statistic, values in samples.items():
            subject = Subject(SECTION, statistic, {"dims": list(dims)}, ASYMPTOTIC, LIMITS)
            rows += subject.law(values, null(statistic, dims=dims), (), TAILS)
        print(f"  {dims}", flush=True)
    return rows, {}


def sample(rng: np.random.Generator, dims: Sequence[int], draws: int) -> dict[str, FloatArray]:
    """Independent draws of each statistic."""
    chunk = max(1, _BYTES // (8 * min(dims) ** 2))
    parts = [_statistics(_eigenvalues(rng, dims, min(chunk, draws - start))) for start in range(0, draws, chunk)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _eigenvalues(rng: np.random.Generator, dims: Sequence[int], draws: int) -> FloatArray:
    others, rank = list(dims), min(dims)
    others.remove(rank)
    diagonal, core = np.arange(rank), np.eye(rank)[None]
    for n in others:
        factor = np.triu(rng.standard_normal((draws, rank, rank)), 1)
        factor[:, diagonal, diagonal] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (n - diagonal), (draws, rank)))
        core = factor @ core
    return np.maximum(np.linalg.eigvalsh(core @ core.mT), 0.0)  # no statistic here looks at the smallest


def _statistics(eigenvalues: FloatArray) -> dict[str, FloatArray]:
    found = {}
    for suffix, of in (("", eigenvalues), ("_singular", np.sqrt(eigenvalues))):
        total = of.sum(axis=1)
        share = of / total[:, None]
        entropy = -(share * np.log(np.maximum(share, 1e-300))).sum(axis=1)
        found[f"participation_ratio{suffix}"] = total**2 / (of**2).sum(axis=1)
        found[f"spectral_entropy{suffix}"] = entropy
        found[f"stable_rank{suffix}"] = total / of.max(axis=1)
    return found | {"effective_rank": np.exp(found["spectral_entropy_singular"])}
