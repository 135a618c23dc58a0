"""Weibull fits of the same half-normal weights by rmtbase and by others: how right, how fast, in how much memory.

The contenders:

* ``exact``: :func:`rmtbase.statistics.weibull_fit`, least squares on the probability plot of all order statistics;
* ``streaming``: the same from an element sketch, which never holds the weights, and has all other statistics beside it;
* ``likelihood``: :func:`rmtbase.statistics.weibull_likelihood_fit`;
* ``scipy``: ``scipy.stats.weibull_min.fit`` of the magnitudes with the location held at 0, maximum likelihood too;
* ``npm-weibull-py``: its ``weibull_fit`` of its ``extract_to_histogram``, least squares on 1024 bins of log₁₀ |w| from
  −12 to 2, at the middle 80 %. Left out where it is not installed (``pip install --no-deps npm-weibull-py``).

``accuracy``: z = (k̂ − mean)/sd with mean and sd of ``rmtbase.laws.element_null`` at that N, over draws: its mean and
spread, which are 0 and 1 for a right fit, and the share of |z| > 1.96. ``quantiles``: fits of the half-normal law's own
quantiles at (i − 1/2)/N, which have no noise, against the anchor, at several scales. ``cost``: time of one fit and peak
memory beyond that of a process that only holds the weights, each in a fresh process.

    python benchmarks/weibull_peers.py [--quick] [--output FILE]
"""

import json
import math
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from _machine import Check, arguments, describe_machine, finish, limit_on_time, recorded, run_process, timed
from rmtbase.laws import element_null, weibull_anchor, weibull_maximum_likelihood
from rmtbase.statistics import element_sketch, weibull_fit, weibull_likelihood_fit

Weights = NDArray[np.floating]
Fit = Callable[[Weights], tuple[float, float]]

SIGMA = 0.02
SIZES = {49_152: 400, 1_000_000: 60, 16_777_216: 4}  # and how many draws of each
SLOW = {49_152: 40, 1_000_000: 3, 16_777_216: 0}  # draws of a contender that takes minutes
QUICK = {49_152: 10}
QUANTILES, QUICK_QUANTILES = 10_000_000, 100_000
SCALES = 8  # within one of npm-weibull-py's bins, of 14/1024 decades
ROUNDS = 3

LACKS = {
    "exact": "holds and sorts a copy of the weights; refuses zeros between the trims",
    "streaming": "k and λ to 5e-8 of the exact fit, not to the last digit",
    "likelihood": "reads the weights several times; no trim, so it follows the tails",
    "scipy": "no trim, no standard error, no null; a simplex over two parameters that reads all weights at each step",
    "npm-weibull-py": "bins on a fixed grid of 3.2 %, so that k depends on the unit of the weights; no standard error, "
    "no null, a band for 'initial' of fixed width; no maximum likelihood; trims of 0, 5 and 10 % alone; zeros are "
    "taken for 1e-13 and dropped",
}


def _exact(weights: Weights) -> tuple[float, float]:
    return weibull_fit(weights)[:2]


def _streaming(weights: Weights) -> tuple[float, float]:
    return element_sketch([weights]).weibull_fit()[:2]


def _likelihood(weights: Weights) -> tuple[float, float]:
    return weibull_likelihood_fit(weights)[:2]


def _scipy(weights: Weights) -> tuple[float, float]:
    from scipy.stats import weibull_min

    shape, _, scale = weibull_min.fit(np.abs(weights), floc=0.0)
    return shape, scale


def _npm(weights: Weights) -> tuple[float, float]:
    import npm_weibull

    fit = npm_weibull.weibull_fit(npm_weibull.extract_to_histogram(weights))
    return fit["k"], fit["lambda"]


def contenders() -> dict[str, Fit]:
    fits: dict[str, Fit] = {"exact": _exact, "streaming": _streaming, "likelihood": _likelihood, "scipy": _scipy}
    try:
        version("npm-weibull-py")
    except PackageNotFoundError:
        return fits
    return fits | {"npm-weibull-py": _npm}


def draw(n: int, seed: int) -> Weights:
    return (np.random.default_rng(seed).standard_normal(n) * SIGMA).astype(np.float32)


def statistic_of(name: str) -> str:
    return "weibull_shape_ml" if name in ("likelihood", "scipy") else "weibull_shape"


def accuracy(sizes: dict[int, int]) -> tuple[list[dict[str, Any]], list[Check]]:
    rows, checks = [], []
    for n, draws in sizes.items():
        shapes: dict[str, list[float]] = {name: [] for name in contenders()}
        for seed in range(draws):
            weights = draw(n, seed)
            for name, fit in contenders().items():
                if name != "scipy" or seed < SLOW[n]:
                    shapes[name].append(fit(weights)[0])
        for name, found in shapes.items():
            if not found:
                continue
            law = element_null(statistic_of(name), n)
            z = (np.array(found) - law.mean()) / law.std()
            row = {
                "contender": name, "n": n, "draws": len(found), "law": statistic_of(name), "law_mean": law.mean(),
                "law_std": law.std(), "mean_shape": float(np.mean(found)), "mean_z": float(z.mean()),
                "std_z": float(z.std(ddof=1)), "beyond_1.96": float(np.mean(np.abs(z) > 1.96)),
            }  # fmt: skip
            rows.append(row)
            error = 1 / math.sqrt(len(found))
            print(f"{name:15s} {n:9d}  mean z {row['mean_z']:+.3f} ± {error:.3f}, sd {row['std_z']:.3f}")
            if name in ("exact", "streaming", "likelihood"):
                claim = f"{name}: mean z of {len(found)} fits of {n} weights, in its standard errors"
                checks.append(Check(claim, row["mean_z"] * math.sqrt(len(found)), -4.0, 4.0))
    return rows, checks


def quantiles(n: int) -> tuple[list[dict[str, Any]], list[Check]]:
    half_normal = special.ndtri(0.5 + 0.5 * (np.arange(n) + 0.5) / n)
    least_squares, likeliest = weibull_anchor(0.1), weibull_maximum_likelihood()
    rows, checks = [], []
    for name, fit in contenders().items():
        if name == "scipy":
            continue
        anchor = likeliest if statistic_of(name) == "weibull_shape_ml" else least_squares
        scales = [SIGMA * 10 ** (14 / 1024 * j / SCALES) for j in range(SCALES if name == "npm-weibull-py" else 1)]
        found = [fit(half_normal * scale) for scale in scales]
        off = [shape - float(anchor.shape) for shape, _ in found]
        off_scale = [at / scale / float(anchor.scale) - 1 for (_, at), scale in zip(found, scales, strict=True)]
        rows.append(
            {"contender": name, "n": n, "scales": scales, "shape_error": off, "scale_relative_error": off_scale}
        )
        print(f"{name:15s} quantiles at {n}: shape off by {min(off):+.2e} to {max(off):+.2e}")
        if name in ("exact", "streaming"):
            checks.append(Check(f"{name}: distance from the anchor at {n} quantiles", max(map(abs, off)), at_most=1e-9))
    return rows, checks


def cost(n: int, rounds: int) -> tuple[list[dict[str, Any]], list[Check]]:
    rows, checks = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.npy"
        np.save(path, draw(n, 0))

        def run(task: str, name: str) -> dict[str, Any]:
            process = run_process([sys.executable, __file__, "--worker", task, name, str(path)])
            return recorded(process) | json.loads(process.output)

        for name in contenders():
            held = run("hold", name)["peak_rss_gib"]
            runs = [run("fit", name) for _ in range(1 if name == "scipy" else rounds)]
            seconds, cpu, peak = (
                median(one[key] for one in runs) for key in ("fit_seconds", "fit_cpu_seconds", "peak_rss_gib")
            )
            copies = 1.0 + max(0.0, peak - held) * 2**30 / (4 * n)
            row = {"contender": name, "n": n, "seconds": seconds, "cpu_seconds": cpu, "copies": copies}
            rows.append(row | {"runs": runs})
            print(f"{name:15s} {n:9d}  {seconds:8.3f} s, {cpu:8.3f} s of processor, {copies:.1f} copies of the weights")
            if name in ("exact", "streaming") and n == max(SIZES):
                others = max(one["other_cores"] for one in runs)
                checks += [
                    limit_on_time(f"{name}: seconds of one fit of {n} float32 weights", seconds, cpu, others, 1.0),
                    Check(f"{name}: copies of {n} float32 weights in memory", copies, at_most=3.0),
                ]
    return rows, checks


def work(task: str, name: str, path: str) -> None:
    """Time a fit of a file's weights, or of a thousand of them, after a warm-up with its imports; print JSON."""
    weights, fit = np.load(path), contenders()[name]
    fit(weights[:1000])
    timing = timed(lambda: fit(weights if task == "fit" else weights[:1000]))
    print(json.dumps({"fit_seconds": timing.seconds, "fit_cpu_seconds": timing.cpu_seconds}))


def main() -> None:
    options = arguments("Weibull fits of half-normal weights.", "weibull_peers.json")
    sizes = QUICK if options.quick else SIZES
    result: dict[str, Any] = {
        "benchmark": "weibull_peers",
        "command": "python benchmarks/weibull_peers.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "contenders": {name: LACKS[name] for name in contenders()},
        "versions": {name: version(name) for name in ("scipy", "npm-weibull-py") if name in (*contenders(), "scipy")},
    }
    checks: list[Check] = []
    for name, rows, found in (
        ("quantiles", *quantiles(QUICK_QUANTILES if options.quick else QUANTILES)),
        ("accuracy", *accuracy(sizes)),
    ):
        result[name], checks = rows, checks + found
    result["cost"] = []
    for n in sizes:
        rows, found = cost(n, 1 if options.quick else ROUNDS)
        result["cost"], checks = result["cost"] + rows, checks + found
    finish(result, checks, options.output)


if __name__ == "__main__":
    work(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
