"""Null tables against the dense way: seconds per draw with all spectral statistics, side by side in one run.

The contenders, interleaved round by round:

* ``dense``: W_Q and W_K of shape (d_head, d_model), their d × d product, ``numpy.linalg.svd`` of it without singular
  vectors (``compute_uv=False``: the cheaper way, and so the harder one to beat), statistics of the first d_head values;
* ``dense_with_vectors``: the same with singular vectors, as scripts do that call ``numpy.linalg.svd(product)``;
* ``rmtbase``: ``draw_spectra`` and ``spectral_statistics``, from key to numbers, after compilation;
* ``rmtbase_baseline``: the whole of ``rmtbase.baseline``, with quantiles, densities and analytic values;
* ``svdvals``: ``numpy.linalg.svdvals`` of the stack of h × h matrices that rmtbase draws, the bare cost of the spectra,
  without drawing and without statistics; with BLAS's own threads, and with one thread.

Then the same d_head at a small and at a large d_model; and the command line in a fresh process, run twice, against
exact values and those of an independent simulation.

    python benchmarks/null_tables.py [--quick] [--output FILE]
"""

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import digamma, polygamma
from threadpoolctl import threadpool_limits

import rmtbase
from _machine import RMTBASE, Check, Timing, arguments, describe_machine, finish, recorded, run_process, timed
from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key, draw_keys, draw_spectra
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

CASE = "benchmark"


@dataclass(frozen=True)
class Plan:
    """Plan of one shape: how many rounds, and how many draws of each contender in a round."""

    d_model: int
    d_head: int
    draws: int
    rounds: int
    dense_draws: int
    dense_rounds: int
    times_faster: float


PLANS = (
    Plan(768, 64, draws=8192, rounds=7, dense_draws=10, dense_rounds=7, times_faster=300.0),
    Plan(4096, 128, draws=2048, rounds=7, dense_draws=1, dense_rounds=3, times_faster=10_000.0),
)
QUICK = (Plan(768, 64, draws=1024, rounds=2, dense_draws=2, dense_rounds=2, times_faster=300.0),)
WIDTHS = ((64, (1024, 65536), 8192), (128, (4096, 65536), 2048))  # d_head, the two d_model, draws
TABLE_DRAWS = 10_000


def dense(plan: Plan, draws: int, vectors: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(draws):
        w_q = rng.standard_normal((plan.d_head, plan.d_model))
        w_k = rng.standard_normal((plan.d_head, plan.d_model))
        product = w_q.T @ w_k / np.sqrt(plan.d_model)
        values = np.linalg.svd(product)[1] if vectors else np.linalg.svd(product, compute_uv=False)
        spectral_statistics(values[: plan.d_head])


def ours(d_model: int, d_head: int, draws: int) -> None:
    for chunk in draw_spectra(low_rank_product(d_model, d_head), draws, 0, CASE):
        spectral_statistics(chunk.singular_values)


def cores(plan: Plan) -> NDArray[np.float64]:
    """Draw the h × h matrices whose spectra :func:`ours` solves."""
    ensemble = low_rank_product(plan.d_model, plan.d_head)
    with reproducible_jax():
        keys = draw_keys(case_key(0, CASE), jax.numpy.arange(plan.draws, dtype=np.uint32))
        return np.asarray(jax.jit(jax.vmap(ensemble.sample))(keys).matrix)


def bare(stack: NDArray[np.float64], threads: int | None) -> None:
    with threadpool_limits(limits=threads, user_api="blas"):
        np.linalg.svdvals(stack)


def per_draw(timings: list[Timing], draws: int) -> dict[str, Any]:
    milliseconds = [1e3 * one.seconds / draws for one in timings]
    return {
        "draws_per_round": draws,
        "rounds": len(timings),
        "median_ms": statistics.median(milliseconds),
        "minimum_ms": min(milliseconds),
        "minimum_cpu_ms": 1e3 * min(one.cpu_seconds for one in timings) / draws,
        "all_ms": milliseconds,
        "load_average": [one.load_average for one in timings],
        "other_cores": [one.other_cores for one in timings],
    }


def side_by_side(contenders: dict[str, tuple[int, int, Callable[[], Any]]]) -> dict[str, Any]:
    """Time contenders (draws, rounds, call) in turn, so that a change of the machine's load meets them all."""
    timings: dict[str, list[Timing]] = {name: [] for name in contenders}
    for turn in range(max(rounds for _, rounds, _ in contenders.values())):
        for name, (_, rounds, call) in contenders.items():
            if turn < rounds:
                timings[name].append(timed(call))
    return {name: per_draw(timings[name], draws) for name, (draws, _, _) in contenders.items()}


def compare(plan: Plan) -> tuple[dict[str, Any], list[Check]]:
    shape = f"({plan.d_model}, {plan.d_head})"
    first = timed(partial(ours, plan.d_model, plan.d_head, 1)).seconds  # compiles
    table = timed(partial(rmtbase.baseline, plan.d_model, plan.d_head, draws=2)).seconds  # integrates the laws
    stack = cores(plan)
    found = side_by_side(
        {
            "rmtbase": (plan.draws, plan.rounds, partial(ours, plan.d_model, plan.d_head, plan.draws)),
            "svdvals": (plan.draws, plan.rounds, partial(bare, stack, None)),
            "svdvals_one_thread": (plan.draws, plan.rounds, partial(bare, stack, 1)),
            "rmtbase_baseline": (
                plan.draws, 3, partial(rmtbase.baseline, plan.d_model, plan.d_head, draws=plan.draws),
            ),
            "dense": (plan.dense_draws, plan.dense_rounds, partial(dense, plan, plan.dense_draws, False)),
            "dense_with_vectors": (1, 1, partial(dense, plan, 1, True)),
        }
    )  # fmt: skip
    median = {name: one["median_ms"] for name, one in found.items()}
    ratios = {
        "dense / rmtbase": median["dense"] / median["rmtbase"],
        "dense_with_vectors / rmtbase": median["dense_with_vectors"] / median["rmtbase"],
        "dense / rmtbase_baseline": median["dense"] / median["rmtbase_baseline"],
        "rmtbase / svdvals": median["rmtbase"] / median["svdvals"],
        "rmtbase / svdvals_one_thread": median["rmtbase"] / median["svdvals_one_thread"],
    }
    print(f"\n{shape}, milliseconds per draw with all statistics")
    for name, one in found.items():
        print(f"  {name:20} median {one['median_ms']:11.4f}   minimum {one['minimum_ms']:11.4f}")
    for name, value in ratios.items():
        print(f"  {name:32} {value:12.2f}")
    result = {
        **asdict(plan),
        "first_call_seconds": first,
        "first_table_of_two_draws_seconds": table,
        "contenders": found,
        "ratios_of_medians": ratios,
    }
    checks = [
        Check(f"times faster than the dense way at {shape}", ratios["dense / rmtbase"], at_least=plan.times_faster),
        Check(f"cost over that of bare svdvals at {shape}", ratios["rmtbase / svdvals"], at_most=2.5),
    ]
    return result, checks


def widths(d_head: int, d_models: tuple[int, int], draws: int, rounds: int) -> tuple[dict[str, Any], Check]:
    ours(d_models[0], d_head, 1)
    found = side_by_side({str(d): (draws, rounds, partial(ours, d, d_head, draws)) for d in d_models})
    narrow, wide = (found[str(d)]["median_ms"] for d in d_models)
    print(f"\nd_head {d_head}: {narrow:.4f} ms at d_model {d_models[0]}, {wide:.4f} ms at {d_models[1]}")
    claim = f"time at d_model {d_models[1]} over that at {d_models[0]}, d_head {d_head}"
    return {"d_head": d_head, "by_d_model": found}, Check(claim, wide / narrow, at_most=1.1)


def references(d: int, h: int) -> dict[str, dict[str, tuple[float, float]]]:
    """(value, its own standard error) at σ = 1, sqrt_d, for (768, 64). Errors are 0 where the value is exact.

    Exact: E Σλ = d h, E Σλ² = h (d² + 2dh + 2d + h + 3) and their spreads by Wick's theorem; the log-determinant of two
    independent Wishart matrices. The others come from an independent simulation.
    """
    i = np.arange(h)
    log_determinant = 2 * (np.log(2) + digamma((d - i) / 2)).sum() - h * np.log(d)
    return {
        "mean": {
            "normalized_participation_ratio": (0.855223, 0.00006),
            "largest_eigenvalue": (1515.7, 0.7),
            "smallest_eigenvalue": (302.14, 0.18),
            "trace": (d * h, 0.0),
            "trace_of_square": (h * (d**2 + 2 * d * h + 2 * d + h + 3), 0.0),
            "log_determinant": (log_determinant, 0.0),
        },
        "std": {
            "trace": (452.68974, 0.0),
            "trace_of_square": (866074.17, 0.0),
            "log_determinant": (np.sqrt(2 * polygamma(1, (d - i) / 2).sum()), 0.0),
        },
    }


def bits(variable: xr.DataArray) -> object:
    """Content by which two variables are the same to the bit, NaN and signed zeros included."""
    values = variable.values
    return values.tolist() if values.dtype.kind in "OT" else (values.dtype, values.shape, values.tobytes())


def command_line(folder: Path, draws: int) -> tuple[dict[str, Any], list[Check]]:
    options = ["baseline", "--d-model", "768", "--d-head", "64", "--draws", str(draws), "-o"]
    files = [folder / name for name in ("gpt2.nc", "again.nc")]
    runs = [run_process([*RMTBASE, *options, str(file)]) for file in files]
    with xr.open_dataset(files[0]) as table, xr.open_dataset(files[1]) as again:
        different = sorted(
            str(name) for name in {*table.variables, *again.variables} if bits(table[name]) != bits(again[name])
        )
        values = []
        for which, error in (("mean", "standard_error"), ("std", "std_standard_error")):
            for name, (reference, own_error) in references(768, 64)[which].items():
                measured, mc_error = (float(table[k].sel(statistic=name).item()) for k in (which, error))
                z = (measured - reference) / np.hypot(mc_error, own_error)
                values.append(
                    {"statistic": name, "of": which, "measured": measured, "standard_error": mc_error,
                     "reference": float(reference), "reference_error": own_error, "z": float(z)}
                )  # fmt: skip
    seconds, memory = max(run.seconds for run in runs), max(run.peak_rss_gib for run in runs)
    command = " ".join(["rmtbase", *options, "gpt2.nc"])
    print(f"\n{command}: {seconds:.1f} s, peak {memory:.2f} GiB")
    for value in values:
        numbers = f"{value['measured']:16.6f}{value['reference']:16.6f}  z {value['z']:+.2f}"
        print(f"  {value['of']:5}{value['statistic']:32}{numbers}")
    result = {
        "command": command,
        "runs": [recorded(run) for run in runs],
        "different_variables": different,
        "values": values,
    }
    return result, [
        Check(f"seconds of `{command}`", seconds, at_most=15.0),
        Check("its peak memory in GiB", memory, at_most=1.5),
        Check("variables that differ between two runs of it", len(different), at_most=0),
        Check("largest |z| of its values against the references", max(abs(v["z"]) for v in values), at_most=4.0),
    ]


def main() -> None:
    options = arguments("Null tables against the dense way.", "null_tables.json")
    checks: list[Check] = []
    result: dict[str, Any] = {
        "benchmark": "null_tables",
        "command": "python benchmarks/null_tables.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "statistics_per_draw": len(SPECTRAL_STATISTICS),
    }
    with tempfile.TemporaryDirectory() as folder:
        result["command_line"], found = command_line(Path(folder), TABLE_DRAWS // (10 if options.quick else 1))
        checks += found
    result["shapes"], result["widths"] = [], []
    for plan in QUICK if options.quick else PLANS:
        one, found = compare(plan)
        result["shapes"].append(one)
        checks += found
    for d_head, d_models, draws in WIDTHS[: 1 if options.quick else None]:
        one, check = widths(d_head, d_models, draws // (8 if options.quick else 1), 2 if options.quick else 7)
        result["widths"].append(one)
        checks.append(check)
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
