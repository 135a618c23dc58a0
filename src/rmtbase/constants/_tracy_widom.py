"""Constants of the Tracy–Widom laws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpmath import mp

from rmtbase.constants._digits import Number
from rmtbase.constants._painleve import tracy_widom_moments, tracy_widom_quantile


def _law(beta: int) -> dict[str, Callable[..., Number]]:
    def moment(place: int) -> Number:
        return tracy_widom_moments(beta)[place]

    def quantile(percent: str) -> Number:
        return tracy_widom_quantile(beta, mp.mpf(percent) / 100)

    return {
        "mean": partial(moment, 0),
        "variance": partial(moment, 1),
        "std": mp.sqrt,
        "skewness": partial(moment, 2),
        "excess_kurtosis": partial(moment, 3),
        "quantile_50": partial(quantile, "50"),
        "quantile_95": partial(quantile, "95"),
        "quantile_99": partial(quantile, "99"),
        "quantile_99_9": partial(quantile, "99.9"),
    }


CONSTANTS: dict[str, Callable[..., Number]] = {
    **{f"tracy_widom_{beta}_{name}": compute for beta in (1, 2) for name, compute in _law(beta).items()},
    "zeta_prime_minus_one": lambda: mp.zeta(-1, derivative=1),
    "tracy_widom_1_left_tail": lambda zeta: mp.mpf(2) ** (mp.mpf(-11) / 48) * mp.exp(zeta / 2),
    "tracy_widom_2_left_tail": lambda zeta: mp.mpf(2) ** (mp.mpf(1) / 24) * mp.exp(zeta),
}
