"""Statistics of the query heads of one group, jointly: what the heads of a model that learned nothing share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from rmtbase.ensembles import Draw, GroupedQueryProduct, grouped_query_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import SpectrumSolver, reproducible_jax
from rmtbase.montecarlo._draws._keys import case_key, draw_keys
from rmtbase.montecarlo._draws._program import COMPILER_OPTIONS, tile_size
from rmtbase.montecarlo._draws._room import require_draw_fits, require_results_fit
from rmtbase.parameters import require_draws
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

Array = NDArray[np.float64]


class HeadCorrelation(NamedTuple):
    """Correlation of each statistic between two heads of a group, with its standard error; (statistic,) each.

    In the registry's order. NaN where a statistic does not vary.
    """

    value: Array
    standard_error: Array


@dataclass(frozen=True)
class GroupedQuerySample:
    """Joint draws of the heads of a group, at σ = 1, of the raw product.

    Attributes:
        d_model, d_head: the shape.
        sample: (draw, group, statistic), in the registry's order.
        norm_squared: ‖W_Q,1‖_F², …, ‖W_Q,g‖_F², ‖W_K‖_F², (draw, group + 1).
    """

    d_model: int
    d_head: int
    sample: Array = field(repr=False)
    norm_squared: Array = field(repr=False)

    @property
    def self_normalized(self) -> Array:
        """The sample with every head at its own estimates of σ, as heads are scored."""
        estimate = self.norm_squared / (self.d_model * self.d_head)
        scale = estimate[:, :-1] * estimate[:, -1:]
        columns = [
            one.rescale(self.sample[..., k], 1.0 / scale, self.d_head)
            for k, one in enumerate(SPECTRAL_STATISTICS.values())
        ]
        return np.stack(columns, axis=-1)

    def head_correlation(self, self_normalized: bool = True) -> HeadCorrelation:
        """Correlation of each statistic between two heads that share W_K, from all pairs of a group.

        ρ = E z_i z_j / E z², z the deviations from the mean; its standard error is that of a ratio of means of
        independent draws (delta method). Without self-normalisation exactly d / (2d + h + 1) for the trace and 1/2 for
        the log-determinant.

        Args:
            self_normalized: every head at its own estimates of σ, as heads are scored; else at σ = 1.

        Raises:
            ParameterError: a group of one head.
        """
        draws, group = self.sample.shape[:2]
        if group < 2:
            raise ParameterError("group", group, "at least 2 heads to correlate")
        z = self.self_normalized if self_normalized else self.sample
        z = z - z.mean(axis=(0, 1))
        squares = (z**2).mean(axis=1)
        pairs = (z.sum(axis=1) ** 2 - group * squares) / (group * (group - 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = pairs.mean(axis=0) / squares.mean(axis=0)
            error = (pairs - value * squares).std(axis=0, ddof=1) / (np.sqrt(draws) * squares.mean(axis=0))
        return HeadCorrelation(value, error)


@partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def _sample_many(ensemble: GroupedQueryProduct, key: jax.Array, indices: jax.Array) -> Draw:
    return jax.vmap(ensemble.sample)(draw_keys(key, indices))


def simulate_grouped_query(
    d_model: int,
    d_head: int,
    group: int,
    draws: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> GroupedQuerySample:
    """Spectral statistics of ``group`` query heads that read one key head, jointly, exact in law.

    Args:
        d_model: width of the residual stream.
        d_head: head dimension.
        group: query heads per key head.
        draws: how many groups.
        seed: the draws are a function of (seed, shape, group, index) alone.
        progress: called with the number of draws finished since the last call.

    Returns:
        The draws, in memory: 16 bytes for each statistic of each head while they are joined.

    Raises:
        ParameterError: a dimension or the group is not a positive integer, d_head > d_model, draws is not an integer of
            at least 2 or more than memory holds, or the seed is out of range.
        AllocationError: one draw does not fit in memory.
    """
    ensemble = grouped_query_product(d_model, d_head, group)
    draws = require_draws(draws)
    require_draw_fits(ensemble)
    numbers = ensemble.group * len(SPECTRAL_STATISTICS) + ensemble.group + 1
    require_results_fit(draws, 16 * numbers, "ask for fewer")
    with reproducible_jax():
        key = case_key(seed, ensemble.name)
    size = tile_size((ensemble.group * ensemble.rank, ensemble.rank))
    indices = np.arange(size, dtype=np.uint32)  # always a whole tile, so that the draws do not depend on how many
    sample, norms = [], []
    with SpectrumSolver() as solver:
        for start in range(0, draws, size):
            with reproducible_jax():
                draw = _sample_many(ensemble, key, indices + np.uint32(start))
            count = min(size, draws - start)
            cores = np.asarray(draw.matrix)[:count]
            values = solver.singular_values(cores.reshape(-1, *cores.shape[2:])).reshape(cores.shape[:3])
            sample.append(spectral_statistics(values))
            norms.append(np.asarray(draw.norm_squared)[:count])
            if progress is not None:
                progress(count)
    return GroupedQuerySample(int(ensemble.d_model), ensemble.d_head, np.concatenate(sample), np.concatenate(norms))
