"""The quantiles that `rmtbase.laws._null._simulated_law` holds of five statistics of few weights.

    python studies/element_nulls/quantiles.py

writes `src/rmtbase/laws/_null/simulated_quantiles.json` (3 minutes of one core; seeded). The statistics are made of
whole arrays here, and compared with the registry's on the first samples of each size. With `--kurtosis` only the
excess kurtosis of normal weights is drawn again, and the rest is kept.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from scipy import special
from study import PARENTS

from rmtbase.statistics import ELEMENT_STATISTICS, element_sketch

TABLE = Path(__file__).parents[2] / "src/rmtbase/laws/_null/simulated_quantiles.json"
SEED, DRAWS, AT_A_TIME, COMPARED = 20_261_125, 20_000, 250, 20
STATISTICS = ("entropy_residual", "kl_core_normal", "kde_entropy_residual", "weibull_r_squared")
SCORES = np.linspace(-3.5, 3.5, 15)
SIZES = {"normal": 8, "uniform": 25, "truncated_normal": 25}
"""How many n from 100 to 1000: where the law ends with a jump it matters where in a cell that is."""

KURTOSIS_SIZES = (20, 30, 45, 70, 100, 150, 225, 350, 500, 750, 1_000, 1_500, 2_500, 5_000, 10_000)
KURTOSIS_NUMBERS = 1_500_000_000
"""Weights drawn for each n, at most; never more than a million samples."""


def trimmed(n: int) -> slice:
    """Ranks of the middle 80 %."""
    dropped = max(0, int(np.ceil(0.1 * n - 0.5 - 1e-9)))
    return slice(dropped, n - dropped)


def divergences(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divergences by cells of rows of ascending numbers: from N(w̄, s²), and from the normal law of the core."""
    n = w.shape[1]
    mean, s = w.mean(axis=1), w.std(axis=1, ddof=1)
    lower, upper = np.quantile(w, [0.25, 0.75], axis=1)
    width = np.minimum(s, (upper - lower) / 1.3489795003921634) * max(3.49 * n ** (-1.0 / 3.0), 1.0 / 16.0)
    place = np.floor((w - mean[:, None]) / width[:, None] + 0.5).astype(int)
    first, cells = place.min(), place.max() - place.min() + 1
    count = np.apply_along_axis(np.bincount, 1, place - first, minlength=cells)
    edge = mean[:, None] + (first + np.arange(cells + 1) - 0.5) * width[:, None]
    low, high = edge[:, :-1].copy(), edge[:, 1:].copy()
    row = np.arange(len(w))
    for cell, end, sign, of in ((place[:, 0] - first, w[:, 0], 1.0, low), (place[:, -1] - first, w[:, -1], -1.0, high)):
        many = count[row, cell] >= 16
        of[row[many], cell[many]] = sign * np.maximum(sign * of[row[many], cell[many]], sign * end[many])
    few = np.clip(count, 1, 16)
    parity = np.where(count < 16, 0.5 - few % 2, 0.0)
    g = special.digamma(np.maximum(count, 1)) + parity * (special.digamma((few + 1) / 2) - special.digamma(few / 2))
    own = (count * g).sum(axis=1) / n - np.log(n)
    z = special.ndtri((np.arange(n) + 0.5) / n)[trimmed(n)]
    core = w[:, trimmed(n)]

    def from_normal(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        a, b = ((one - centre[:, None]) / scale[:, None] for one in (low, high))
        flip = a > 0.0
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        log_mass = special.log_ndtr(b) + np.log(-np.expm1(special.log_ndtr(a) - special.log_ndtr(b)))
        return own - (count * np.where(count > 0, log_mass, 0.0)).sum(axis=1) / n

    return from_normal(mean, s), from_normal(core.mean(axis=1), core @ z / (z @ z))


def kernel_residual(z: np.ndarray) -> np.ndarray:
    """Entropy residual of rows with mean 0 and s = 1, by a Gaussian kernel of width n^(−1/5)."""
    n = z.shape[1]
    bandwidth = n**-0.2
    reach = float(np.abs(z).max()) + 9.0 * bandwidth
    points = 1 << int(np.ceil(np.log2(2.0 * reach / bandwidth * 16)))
    step = 2.0 * reach / points
    place = (z + reach) / step
    below = np.floor(place).astype(int)
    flat = below + points * np.arange(len(z))[:, None]
    mass = np.bincount(flat.ravel(), (1.0 - place + below).ravel(), points * len(z))
    mass += np.bincount(flat.ravel() + 1, (place - below).ravel(), points * len(z))
    frequency = np.pi * np.arange(points // 2 + 1) / reach
    kernel = np.exp(-0.5 * (bandwidth**2 - step**2 / 6.0) * frequency**2)
    share = np.maximum(np.fft.irfft(np.fft.rfft(mass.reshape(len(z), points) / n) * kernel, points), 0.0)
    return special.entr(share).sum(axis=1) + np.log(step) - 0.5 * np.log(2.0 * np.pi * np.e)


def r_squared(x: np.ndarray) -> np.ndarray:
    """R² of the Weibull plot of the middle 80 % of rows of ascending magnitudes."""
    n = x.shape[1]
    y = np.log(-np.log1p(-(np.arange(n) + 0.5) / n))[trimmed(n)]
    log_x, y = np.log(x[:, trimmed(n)]), y - y.mean()
    log_x -= log_x.mean(axis=1, keepdims=True)
    return (log_x @ y) ** 2 / ((log_x**2).sum(axis=1) * (y @ y))


def statistics_of(rows: np.ndarray) -> np.ndarray:
    """Compute the four statistics, (row, statistic)."""
    w = np.sort(rows, axis=1)
    matched, of_core = divergences(w)
    z = (w - w.mean(axis=1, keepdims=True)) / w.std(axis=1, ddof=1, keepdims=True)
    found = -0.5 / w.shape[1] - matched, of_core, kernel_residual(z), r_squared(np.sort(np.abs(w), axis=1))
    return np.stack(found, axis=1)


def quantiles(parent: str, n: int) -> np.ndarray:
    """(statistic, score)."""
    rng = np.random.default_rng([SEED, list(PARENTS).index(parent), n])
    blocks = [PARENTS[parent](rng, AT_A_TIME * n).reshape(AT_A_TIME, n) for _ in range(DRAWS // AT_A_TIME)]
    found = np.concatenate([statistics_of(block) for block in blocks])
    sketches = [element_sketch([one]) for one in blocks[0][:COMPARED]]
    registered = [[ELEMENT_STATISTICS[name].function(one) for name in STATISTICS] for one in sketches]
    assert np.abs(np.median(found[:COMPARED] - registered, axis=0)).max() < 1e-4
    return np.quantile(found, special.ndtr(SCORES), axis=0).T


def kurtosis_quantiles(n: int) -> np.ndarray:
    """Draw the quantiles of the excess kurtosis of n normal weights, (score,)."""
    rng = np.random.default_rng([SEED, n])
    draws = min(1_000_000, KURTOSIS_NUMBERS // n)
    found = []
    for start in range(0, draws, 1 << 12):
        w = rng.standard_normal((min(1 << 12, draws - start), n))
        w -= w.mean(axis=1, keepdims=True)
        w *= w
        found.append((w * w).mean(axis=1) / w.mean(axis=1) ** 2 - 3.0)
    return np.quantile(np.concatenate(found), special.ndtr(SCORES))


def main() -> None:
    """Draw and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kurtosis", action="store_true", help="draw only the excess kurtosis again")
    record = json.loads(TABLE.read_text(encoding="utf-8"))["quantile"] if parser.parse_args().kurtosis else drawn()
    record["normal"]["excess_kurtosis"] = {}
    for n in KURTOSIS_SIZES:
        record["normal"]["excess_kurtosis"][str(n)] = [float(f"{x:.6g}") for x in kurtosis_quantiles(n)]
        print("excess kurtosis", n, f"{os.times().user:.0f} s", flush=True)
    text = json.dumps({"draws": DRAWS, "score": SCORES.tolist(), "quantile": record}, separators=(",", ":"))
    TABLE.write_text(text.replace("},", "},\n") + "\n", encoding="utf-8")


def drawn() -> dict[str, dict[str, dict[str, list[float]]]]:
    """Draw the quantiles of the other statistics, by parent, statistic and n."""
    record: dict[str, dict[str, dict[str, list[float]]]] = {}
    for parent, count in SIZES.items():
        record[parent] = {name: {} for name in STATISTICS}
        for n in np.geomspace(100, 1000, count).round().astype(int).tolist():
            for name, values in zip(STATISTICS, quantiles(parent, n), strict=True):
                record[parent][name][str(n)] = [float(f"{x:.6g}") for x in values]
            print(parent, n, f"{os.times().user:.0f} s", flush=True)
    return record


if __name__ == "__main__":
    main()
