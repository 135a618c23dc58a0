"""Do two ways of training differ? Several models of each, with an error bar: a permutation test on two levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.comparison._diagnose import WEIBULL, matrices_of, of_matrices
from rmtbase.comparison._two_models import PERMUTATIONS, head_units, permutation_p_values
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.scoring import require_scores
from rmtbase.shown import in_one_line


@in_one_line
@dataclass(frozen=True)
class TwoGroups:
    """Several models of each of two recipes: their means, and whether these differ.

    Attributes:
        measures: what was measured of each model, in the order of what follows.
        n_first, n_second: models of each.
        first_mean, second_mean: over the models of each.
        difference: second less first.
        standard_error: of the difference, √(s₁²/n₁ + s₂²/n₂) with s the standard deviation from seed to seed.
        seed_std: pooled standard deviation from seed to seed.
        head_error: what the spread from head to head alone would make it, root mean square over the models; NaN of
            what is not a mean over heads.
        p_value, adjusted_p_value: of each measure, and adjusted for all of them together.
        smallest_p_value: that there can be, with so few models.
    """

    measures: tuple[str, ...]
    n_first: int
    n_second: int
    first_mean: Float[np.ndarray, " measure"]
    second_mean: Float[np.ndarray, " measure"]
    difference: Float[np.ndarray, " measure"]
    standard_error: Float[np.ndarray, " measure"]
    seed_std: Float[np.ndarray, " measure"]
    head_error: Float[np.ndarray, " measure"]
    p_value: Float[np.ndarray, " measure"]
    adjusted_p_value: Float[np.ndarray, " measure"]
    smallest_p_value: float


def compare_groups(
    first: Sequence[xr.DataTree],
    second: Sequence[xr.DataTree],
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> TwoGroups:
    """Compare models of two recipes, several seeds of each.

    Heads are averaged within each model (the lower level), and models are put into groups at random (the upper one):
    all ways where these are no more than ``permutations``, and then p is their share; else (b + 1)/(B + 1) of B random
    ones. The test statistic is Welch's t, adjusted for all measures by the largest.

    Null: all models are exchangeable, as independent seeds of one recipe are. Nothing is assumed of the heads of a
    model, which may depend on each other in any way. Models that share a seed between the groups are not exchangeable.

    Args:
        first: scores of the models of one recipe, 2 at least.
        second: those of the other, likewise.
        permutations: B.
        seed: of these.

    Raises:
        ParameterError: fewer than 2 models in a group, or no scores trees.

    Source: B. L. Welch, Biometrika 34, 28 (1947); P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing
        (Wiley, 1993).
    """
    for name, group in (("first", first), ("second", second)):
        if len(group) < 2:
            raise ParameterError(name, len(group), "2 models at least, to know how far seeds are apart")
    permutations = require_positive_integer("permutations", permutations)
    each = [measures_of(scores) for scores in (*first, *second)]
    names = [name for name in each[0] if all(name in one for one in each)]
    values, errors = (np.array([[one[name][k] for name in names] for one in each]) for k in (0, 1))
    n, n_first = len(each), len(first)
    orders = _splits(n, n_first, permutations, seed)
    everything = orders.shape[0] == comb(n, n_first)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = _welch(values[:n_first], values[n_first:])
        null = np.stack([_welch(values[row], np.delete(values, row, axis=0)) for row in orders])
    known = np.flatnonzero(np.isfinite(values).all(axis=0))
    p_value, adjusted = np.full((2, len(names)), np.nan)
    p_value[known], adjusted[known] = permutation_p_values(observed[known], null[:, known], everything)
    groups = values[:n_first], values[n_first:]
    variances = [group.var(axis=0, ddof=1) for group in groups]
    sizes = [len(group) for group in groups]
    return TwoGroups(
        measures=tuple(names),
        n_first=sizes[0],
        n_second=sizes[1],
        first_mean=groups[0].mean(axis=0),
        second_mean=groups[1].mean(axis=0),
        difference=groups[1].mean(axis=0) - groups[0].mean(axis=0),
        standard_error=np.sqrt(variances[0] / sizes[0] + variances[1] / sizes[1]),
        seed_std=np.sqrt(sum((m - 1) * v for m, v in zip(sizes, variances, strict=True)) / (n - 2)),
        head_error=np.sqrt((errors**2).mean(axis=0)),
        p_value=p_value,
        adjusted_p_value=adjusted,
        smallest_p_value=(2.0 if 2 * n_first == n else 1.0) / len(orders) if everything else 1.0 / (permutations + 1),
    )


def measures_of(scores: xr.DataTree) -> dict[str, tuple[float, float]]:
    """What is measured of a model as a whole, each with its error from head to head (NaN where it is no mean of heads).

    Of each spectral statistic the mean over key heads of the signed distance from the null; the share of heads that
    left the null, their omnibus q-value under 5 %; of each component the median of each Weibull statistic.
    """
    require_scores(scores)
    units = head_units(scores)
    heads = scores["heads"].to_dataset()
    count = np.isfinite(units).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, error = units.mean(axis=0), units.std(axis=0, ddof=1) / np.sqrt(count)
    names = heads["statistic"].values.tolist()
    found = {name: (float(mean[k]), float(error[k])) for k, name in enumerate(names)}
    omnibus = heads["omnibus_q_value"].values
    left = (omnibus < 0.05)[np.isfinite(omnibus)]
    found["heads_departed"] = (float(left.mean()) if left.size else float("nan"), float("nan"))
    if "matrices" in scores.children:
        matrices = scores["matrices"].to_dataset()
        for name in (name for name in WEIBULL if name in matrices["statistic"].values.tolist()):
            observed = matrices["observed"].sel(statistic=name)
            for component in matrices["component"].values.tolist():
                values = of_matrices(observed, matrices_of(matrices, (component,)))
                if values.size:
                    found[f"{component} {name}"] = (float(np.median(values)), float("nan"))
    return found


def _splits(n: int, n_first: int, permutations: int, seed: int) -> np.ndarray:
    """Which of n models are the first group: every way, or random ones where there are more."""
    if comb(n, n_first) <= permutations:
        return np.array(list(combinations(range(n), n_first)))
    return np.random.default_rng(seed).permuted(np.tile(np.arange(n), (permutations, 1)), axis=1)[:, :n_first]


def _welch(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """t of the means, 0 where there is no difference at all."""
    difference = second.mean(axis=0) - first.mean(axis=0)
    error = np.sqrt(first.var(axis=0, ddof=1) / len(first) + second.var(axis=0, ddof=1) / len(second))
    return np.where(difference == 0, 0.0, difference / error)
