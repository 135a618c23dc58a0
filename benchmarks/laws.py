"""The laws against the naive way and against bare lower bounds: microseconds per point, side by side in one run.

The contenders, interleaved round by round, on one thread:

* ``naive``: what a script does at each point: the roots of the chain's polynomial (``numpy.roots``) for its pdf,
  ``scipy.integrate.quad`` of that pdf for its cdf, ``scipy.optimize.brentq`` on that cdf for its quantile; a 48-point
  Fredholm determinant for a Tracy-Widom cdf, a central difference of it for the pdf, ``brentq`` for the quantile;
* ``rmtbase``: one call on an array of 100 000 points, after the one-time set-up;
* ``complex logarithm`` and ``cubic spline``: ``numpy.log`` of a complex array, and ``scipy.interpolate.CubicSpline``
  with 400 knots, at as many points: the least that one step of any iteration for psi costs, and that any table does.

Before them, in fresh processes: the import of ``rmtbase.laws`` beside that of the libraries under it, and the first
value of each law, set-up included, the analytic null of one shape among them.

    python benchmarks/laws.py [--quick] [--output FILE]
"""

import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import airy
from threadpoolctl import threadpool_limits

from _machine import Check, arguments, describe_machine, finish, recorded, run_process, timed
from rmtbase.laws import GaussianChain, TracyWidom

POINTS = 100_000
ROUNDS, QUICK_ROUNDS = 7, 2
CHAINS = ((768, 64, 768), (64, 64, 64), (10_000, 1, 10_000))
LIBRARIES = "import scipy.integrate, scipy.interpolate, scipy.optimize, scipy.optimize.elementwise, scipy.stats"
IMPORT_LIMIT_S = 0.3  # beyond the libraries that it imports
FIRST_VALUES = {  # the expression, and the seconds that it may take in a fresh process after the import
    "GaussianChain((768, 64, 768)).pdf(700.0)": 0.1,
    "GaussianChain((64, 64, 64)).cdf(100.0)": 0.1,
    "TracyWidom(1).cdf(0.0)": 0.1,
    "TracyWidom(1).ppf(0.5)": 0.1,
    "largest_eigenvalue((768, 64, 768)).isf(1e-3)": 0.1,
    "[null(name, (768, 64, 768), self_normalized=True).std() for name in NULL_STATISTICS]": 0.2,
}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Item:
    """Function to be timed at many points: ours at all of them, the naive way at the first few.

    Attributes:
        name: the law and the function.
        ours: the call on all points.
        naive: the call on one point.
        points: where.
        naive_points: how many of them the naive way gets.
        tolerance: how far the two may differ, relatively.
        limit_ms: what ours may take at POINTS points.
    """

    name: str
    ours: Callable[[FloatArray], FloatArray]
    naive: Callable[[float], float]
    points: FloatArray
    naive_points: int
    tolerance: float
    limit_ms: float = 50.0


def chain_items(dims: tuple[int, ...], points: int) -> list[Item]:
    """pdf, cdf and ppf of one chain, at random quantiles of it."""
    law = GaussianChain(dims=dims, normalization="none")
    q = np.random.default_rng(0).random(points)
    x = law.ppf(q)
    lower, upper = law.support

    def pdf(value: float) -> float:
        return roots_pdf(dims, value)

    def cdf(value: float) -> float:
        # The square root at the upper edge is left to the adaptive rule, as scripts do.
        return 1.0 - quad(pdf, value, upper, limit=200)[0]

    def ppf(probability: float) -> float:
        return brentq(lambda value: cdf(value) - probability, lower + 1e-6 * (upper - lower), upper, rtol=1e-8)

    return [
        Item(f"{dims} pdf", law.pdf, pdf, x, 200, 1e-6),
        Item(f"{dims} cdf", law.cdf, cdf, x, 5, 1e-6),
        Item(f"{dims} ppf", law.ppf, ppf, np.clip(q, 0.01, 0.99), 1, 1e-4, limit_ms=150.0),
    ]


def roots_pdf(dims: tuple[int, ...], x: float) -> float:
    """Max |Im psi| / (pi x) over the roots of prod (1 + c psi) - psi x / C; right for L <= 2."""
    rank = min(dims)
    polynomial = np.ones(1)
    for n in dims:
        polynomial = np.convolve(polynomial, [rank / n, 1.0])
    polynomial[-2] -= x * rank / math.prod(dims)
    return float(np.abs(np.roots(polynomial).imag).max() / (np.pi * x))


def tracy_widom_items(beta: int, points: int) -> list[Item]:
    """cdf, sf, pdf and ppf of one Tracy-Widom law, at random quantiles of it."""
    law = TracyWidom(beta)
    q = np.random.default_rng(1).random(points)
    s = law.ppf(q)
    nodes, weights = np.polynomial.legendre.leggauss(48)

    def cdf(value: float) -> float:
        x, root = 8.0 * (nodes + 1.0), np.sqrt(8.0 * weights)
        kernel = root[:, None] * airy(x[:, None] + x + value)[0] * root
        return float(np.linalg.det(np.eye(48) - (kernel if beta == 1 else kernel @ kernel)))

    def ppf(probability: float) -> float:
        return brentq(lambda value: cdf(value) - probability, -7.0, 7.0)

    return [
        Item(f"Tracy-Widom {beta} cdf", law.cdf, cdf, s, 20, 1e-9),
        Item(f"Tracy-Widom {beta} sf", law.sf, lambda value: 1.0 - cdf(value), s, 20, 1e-9),
        Item(f"Tracy-Widom {beta} pdf", law.pdf, lambda v: (cdf(v + 1e-4) - cdf(v - 1e-4)) / 2e-4, s, 20, 1e-6),
        Item(f"Tracy-Widom {beta} ppf", law.ppf, ppf, q, 5, 1e-8),
    ]


def bounds(points: int) -> dict[str, Callable[[], Any]]:
    """Make calls that use only NumPy and SciPy, at as many points."""
    x = np.random.default_rng(2).random(points)
    z = x + 1j * x[::-1]
    knots = np.linspace(0.0, 1.0, 400)
    spline = CubicSpline(knots, np.sin(knots))
    return {"complex logarithm": partial(np.log, z), "cubic spline": partial(spline, x)}


def side_by_side(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, Any]]:
    """Time all calls in turn, so that a change of the machine's load meets them all."""
    timings = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            timings[name].append(timed(call))
    return {
        name: {
            "median_ms": 1e3 * statistics.median(one.seconds for one in taken),
            "minimum_ms": 1e3 * min(one.seconds for one in taken),
            "minimum_cpu_ms": 1e3 * min(one.cpu_seconds for one in taken),
            "all_ms": [1e3 * one.seconds for one in taken],
            "load_average": [one.load_average for one in taken],
            "other_cores": [one.other_cores for one in taken],
        }
        for name, taken in timings.items()
    }


def compare(items: list[Item], points: int, rounds: int) -> tuple[list[dict[str, Any]], dict[str, Any], list[Check]]:
    """Time every item with the bounds, and the naive way once; check the times and that the two ways agree."""
    found = side_by_side({**bounds(points), **{one.name: partial(one.ours, one.points) for one in items}}, rounds)
    bare = {name: found.pop(name) for name in bounds(1)}
    rows, checks = [], []
    print(f"\n{points} points, milliseconds" + " " * 21 + "rmtbase   " + "   ".join(bare) + "   naive / rmtbase")
    for item in items:
        some = item.points[: item.naive_points]
        naive: list[float] = []
        timing = timed(lambda item=item, some=some, naive=naive: naive.extend(item.naive(float(x)) for x in some))
        difference = float(np.max(np.abs(np.array(naive) / item.ours(some) - 1.0)))
        ours = found[item.name]
        naive_ms = 1e3 * timing.seconds * points / some.size
        ratios = {f"rmtbase / {name}": ours["median_ms"] / one["median_ms"] for name, one in bare.items()}
        ratios["naive / rmtbase"] = naive_ms / ours["median_ms"]
        rows.append(
            {
                "item": item.name,
                "rmtbase": ours,
                "naive": {"points": some.size, **asdict(timing), "extrapolated_ms": naive_ms},
                "ratios": ratios,
                "largest_relative_difference": difference,
            }
        )
        print(f"  {item.name:34}{ours['median_ms']:12.2f}" + "".join(f"{ratio:16.2f}" for ratio in ratios.values()))
        at_full_size = ours["median_ms"] * POINTS / points
        checks.append(Check(f"ms per {POINTS} points of {item.name}", at_full_size, at_most=item.limit_ms))
        checks.append(
            Check(f"its relative difference from the naive way, {item.name}", difference, at_most=item.tolerance)
        )
    return rows, bare, checks


def cold(code: str, rounds: int) -> dict[str, Any]:
    """Seconds that ``code`` takes in a fresh process by its own clock, and the whole process's."""
    program = f"import time; begin = time.perf_counter()\n{code}\nprint(time.perf_counter() - begin)"
    runs = [run_process([sys.executable, "-c", program]) for _ in range(rounds)]
    seconds = [json.loads(run.output) for run in runs]
    return {"median_seconds": statistics.median(seconds), "seconds": seconds, "processes": [recorded(r) for r in runs]}


def fresh_processes(rounds: int) -> tuple[dict[str, Any], list[Check]]:
    """Time the import of the laws, and then their first values."""
    importing = cold("import rmtbase.laws", rounds)
    libraries = cold(LIBRARIES, rounds)
    beyond = importing["median_seconds"] - libraries["median_seconds"]
    checks = [Check("seconds of `import rmtbase.laws` beyond NumPy and SciPy", beyond, at_most=IMPORT_LIMIT_S)]
    first_values = {}
    for expression, limit in FIRST_VALUES.items():
        first_values[expression] = cold(
            f"from rmtbase.laws import *\nbegin = time.perf_counter()\n{expression}", rounds
        )
        seconds = first_values[expression]["median_seconds"]
        checks.append(Check(f"seconds of the first {expression}", seconds, at_most=limit))
    return {"import": importing, "import_of_libraries": libraries, "first_values": first_values}, checks


def main() -> None:
    options = arguments("The laws against the naive way.", "laws.json")
    points, rounds = (POINTS // 10, QUICK_ROUNDS) if options.quick else (POINTS, ROUNDS)
    processes, checks = fresh_processes(rounds)
    with threadpool_limits(limits=1):
        items = [item for dims in CHAINS for item in chain_items(dims, points)]
        items += [item for beta in (1, 2) for item in tracy_widom_items(beta, points)]
        rows, bare, found = compare(items, points, rounds)
    result = {
        "benchmark": "laws",
        "command": "python benchmarks/laws.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "points": points,
        "rounds": rounds,
        "fresh_processes": processes,
        "bounds": bare,
        "items": rows,
    }
    finish(result, checks + found, options.output)


if __name__ == "__main__":
    main()
