"""The Monte Carlo engine: draws per second and memory, beside the dense way and beside the bare cost of LAPACK.

* ``cases``: for each ensemble, in turns,

  - ``rmtbase``: ``draw_spectra`` (or ``draw_elements``) with all statistics, on all cores, after compilation;
  - ``svdvals``: ``numpy.linalg.svdvals`` of the matrices that rmtbase draws, each core with its own, one thread each;
  - ``svdvals_one_core``: the same on one core alone;
  - ``normals``, ``products``: of a residual path, NumPy's normal numbers and the matrix products that it needs, each
    core with its own;
  - ``dense``: NumPy draws the factors, multiplies them and takes ``svdvals`` of the d × d product;

  then the peak memory of a fresh process that draws.
* ``elements``: ``draw_elements`` with all statistics, beside NumPy's and SciPy's way and beside the bare product.
* ``split``: processor time per draw of sampling, solving and statistics, on one core.
* ``scaling``: the command line on a plan of more and more draws, ten million at last; rmtbase at d_model from 1 024 to
  a million.
* ``workers``: the command line with one and with two Dask workers.

On an accelerator: ``engine_accelerator.py``.

    python benchmarks/engine.py [--quick] [--output FILE]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from _machine import RMTBASE, Check, arguments, describe_machine, finish, recorded, run_process, timed
from null_tables import side_by_side
from rmtbase.ensembles import Ensemble, low_rank_product, residual_path
from rmtbase.linalg import HOST_SOLVERS, available_cores, reproducible_jax, single_threaded_blas
from rmtbase.montecarlo import case_key, choose_solver, draw_elements, draw_keys, draw_spectra
from rmtbase.statistics import element_moments, spectral_statistics, weibull_fit

Stack = NDArray[np.float64]
CORES = available_cores()


@dataclass(frozen=True)
class Case:
    """Ensemble, and how much of it is drawn.

    Attributes:
        name: for the record.
        make: an expression of ``rmtbase.ensembles`` that makes the ensemble, for a process of its own, too.
        draws: in a round.
        rounds: of each contender, in turns; of ``dense`` as many as ``dense_draws`` allows.
        d_model: side of the dense matrix.
        depth: factors of d_model × d_model of a residual path; 0 for a chain.
        dense_draws: of the dense way in all; none where it would take minutes.
    """

    name: str
    make: str
    draws: int
    rounds: int
    d_model: int
    depth: int = 0
    dense_draws: int = 0

    @property
    def ensemble(self) -> Ensemble:
        """Ensemble that is drawn."""
        return eval(self.make, {"low_rank_product": low_rank_product, "residual_path": residual_path})


def chain(d: int, h: int, draws: int, dense_draws: int = 0, rounds: int = 5) -> Case:
    return Case(f"chain ({d}, {h})", f"low_rank_product({d}, {h})", draws, rounds, d, dense_draws=dense_draws)


def residual(depth: int, draws: int, rounds: int = 3) -> Case:
    return Case(f"residual d = 512, depth {depth}", f"residual_path(512, {depth})", draws, rounds, 512, depth, 2)


CASES = (
    chain(512, 64, 8192, 6),
    chain(768, 64, 8192, 6),
    chain(4096, 128, 2048, 1),
    chain(8192, 256, 256),
    residual(1, 64),
    residual(4, 64),
    residual(16, 16),
    residual(32, 16),
)
QUICK = (chain(512, 64, 1024, 2, rounds=2), residual(4, 8, rounds=2))


def ours(ensemble: Ensemble, draws: int, solver: str | None = None) -> None:
    for chunk in draw_spectra(ensemble, draws, 0, solver=solver):
        spectral_statistics(chunk.singular_values)


def matrices(ensemble: Ensemble, draws: int) -> Stack:
    with reproducible_jax():
        keys = draw_keys(case_key(0, ensemble.name), jnp.arange(draws, dtype=np.uint32))
        return np.asarray(jax.jit(lambda keys: jax.lax.map(lambda key: ensemble.sample(key).matrix, keys))(keys))


def on_each_core(call: Callable[[Stack], Any], stack: Stack) -> None:
    with single_threaded_blas(), ThreadPoolExecutor(CORES) as pool:
        list(pool.map(call, np.array_split(stack, min(len(stack), 8 * CORES))))


def on_one_core(call: Callable[[Stack], Any], stack: Stack) -> None:
    with single_threaded_blas():
        call(stack)


def products(depth: int, stack: Stack) -> None:
    for matrix in stack:
        for _ in range(depth - 1):
            matrix @ matrix


def normals(depth: int, stack: Stack) -> None:
    rng = np.random.default_rng(0)
    for matrix in stack:
        for _ in range(depth):
            rng.standard_normal(matrix.shape)


def dense(case: Case) -> None:
    rng, d = np.random.default_rng(0), case.d_model
    if case.depth:
        product = np.eye(d)
        for _ in range(case.depth):
            product = product @ (np.eye(d) + rng.standard_normal((d, d)) / np.sqrt(d))
        spectral_statistics(np.linalg.svdvals(product))
        return
    w_q, w_k = rng.standard_normal((2, case.ensemble.rank, d))
    spectral_statistics(np.linalg.svdvals(w_q.T @ w_k)[: case.ensemble.rank])


def compare(case: Case) -> tuple[dict[str, Any], list[Check]]:
    ensemble = case.ensemble
    choice = choose_solver(ensemble)
    first = timed(partial(ours, ensemble, 1)).seconds
    count = min(case.draws, max(8 * CORES, 2**24 // int(np.prod(ensemble.matrix_shape))))
    stack = matrices(ensemble, count)
    contenders: dict[str, tuple[int, int, Callable[[], Any]]] = {
        "rmtbase": (case.draws, case.rounds, partial(ours, ensemble, case.draws)),
        "svdvals": (count, case.rounds, partial(on_each_core, np.linalg.svdvals, stack)),
        "svdvals_one_core": (count, min(case.rounds, 2), partial(on_one_core, np.linalg.svdvals, stack)),
    }
    if case.depth:
        contenders["normals"] = (count, case.rounds, partial(on_each_core, partial(normals, case.depth), stack))
        contenders["products"] = (count, case.rounds, partial(on_each_core, partial(products, case.depth), stack))
    if case.dense_draws:
        contenders["dense"] = (1, case.dense_draws, partial(dense, case))
    found = side_by_side(contenders)
    median = {name: one["median_ms"] for name, one in found.items()}
    bare = median["svdvals"] + median.get("normals", 0.0) + median.get("products", 0.0)
    ratios = {
        "rmtbase / svdvals": median["rmtbase"] / median["svdvals"],
        "rmtbase / svdvals_one_core, per core": median["rmtbase"] * CORES / median["svdvals_one_core"],
        "rmtbase / (svdvals + normals + products)": median["rmtbase"] / bare,
    }
    if "dense" in median:
        ratios["dense / rmtbase"] = median["dense"] / median["rmtbase"]
    memory = run_process([sys.executable, "-c", _DRAW.format(make=case.make, draws=case.draws)])
    per_second = 1e3 / median["rmtbase"]
    busy = found["rmtbase"]["minimum_cpu_ms"] / min(found["rmtbase"]["all_ms"])
    print(f"\n{case.name}: {per_second:,.0f} draws per second, {memory.peak_rss_gib:.2f} GiB, {choice.name}")
    for name, one in median.items():
        print(f"  {name:20} {one:12.4f} ms a draw")
    for name, value in ratios.items():
        print(f"  {name:40} {value:10.2f}")
    result = {
        "case": case.name,
        "solver": choice._asdict(),
        "first_call_seconds": first,
        "draws_per_second": per_second,
        "cores_busy": busy,
        "contenders": found,
        "ratios_of_medians": ratios,
        "process": recorded(memory),
    }
    # A residual path must also draw and multiply depth d × d matrices, whatever draws it.
    claim = "rmtbase / (svdvals + normals + products)" if case.depth else "rmtbase / svdvals"
    return result, [Check(f"{claim}, all {CORES} cores busy, {case.name}", ratios[claim], at_most=1.5)]


_DRAW = """
from rmtbase.ensembles import low_rank_product, residual_path
from rmtbase.montecarlo import draw_spectra
from rmtbase.statistics import spectral_statistics
for chunk in draw_spectra({make}, {draws}, 0):
    spectral_statistics(chunk.singular_values)
"""
_DRAW_ELEMENTS = """
from rmtbase.ensembles import low_rank_product
from rmtbase.montecarlo import draw_elements
list(draw_elements(low_rank_product({d}, {h}, "dense"), {draws}, 0))
"""


def dense_elements(d: int, h: int) -> None:
    rng = np.random.default_rng(0)
    w_q, w_k = rng.standard_normal((2, h, d))
    elements = (w_q.T @ w_k).ravel()
    element_moments(elements)
    np.histogram(elements, bins=120)
    weibull_fit(elements)


def multiply(d: int, h: int) -> None:
    w_q, w_k = np.ones((2, h, d))
    w_q.T @ w_k


def elements(quick: bool) -> dict[str, Any]:
    d, h, draws = (1024, 64, 4) if quick else (4096, 128, 4)
    ensemble = low_rank_product(d, h, "dense")
    list(draw_elements(ensemble, 1, 0))
    found = side_by_side(
        {
            "rmtbase": (draws, 2, lambda: list(draw_elements(ensemble, draws, 0))),
            "product": (1, 2, partial(multiply, d, h)),
            "dense": (1, 2, partial(dense_elements, d, h)),
        }
    )
    median = {name: one["median_ms"] for name, one in found.items()}
    memory = run_process([sys.executable, "-c", _DRAW_ELEMENTS.format(d=d, h=h, draws=draws)])
    print(f"\nelements ({d}, {h}): {1e3 / median['rmtbase']:.2f} draws per second, {memory.peak_rss_gib:.2f} GiB")
    for name, one in median.items():
        print(f"  {name:20} {one:12.2f} ms a draw")
    return {"case": f"elements ({d}, {h})", "contenders": found, "process": recorded(memory)}


def split(quick: bool) -> dict[str, Any]:
    """Microseconds of processor time per draw: drawing the matrices, each host solver, and all statistics."""
    found = {}
    for d, h, draws in ((768, 64, 2048), (4096, 128, 512), (8192, 256, 64))[: 1 if quick else None]:
        ensemble = low_rank_product(d, h)
        one = {"all": cpu_microseconds(partial(ours_on_one_core, ensemble, draws), draws)}
        stack = matrices(ensemble, draws)
        with single_threaded_blas():
            for name, solver in HOST_SOLVERS.items():
                one[name] = cpu_microseconds(partial(solver, stack, None), draws)
            values = np.linalg.svdvals(stack)
            one["statistics"] = cpu_microseconds(partial(spectral_statistics, values), draws)
        one["sampling"] = one["all"] - one[choose_solver(ensemble).name] - one["statistics"]
        found[f"({d}, {h})"] = one
        print(f"({d}, {h}), µs of one core a draw:", ", ".join(f"{name} {value:.1f}" for name, value in one.items()))
    return found


def ours_on_one_core(ensemble: Ensemble, draws: int) -> None:
    for chunk in draw_spectra(ensemble, draws, 0, cores=1):
        spectral_statistics(chunk.singular_values)


def cpu_microseconds(call: Callable[[], Any], draws: int, rounds: int = 3) -> float:
    call()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return 1e6 * min(times) / draws


PLAN = """
name = "scaling"
ensemble = "low_rank_product"
draws = {draws}
seed = 0
keep_sample = false

[[case]]
d_model = {d_model}
d_head = {d_head}
"""


def plan_run(folder: Path, d_model: int, d_head: int, draws: int, *options: str) -> dict[str, Any]:
    """`rmtbase baseline --plan` in a fresh process."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(draws=draws, d_model=d_model, d_head=d_head))
    output = folder / "table.nc"
    output.unlink(missing_ok=True)
    run = run_process([*RMTBASE, "baseline", str(plan), "-o", str(output), *options])
    print(
        f"  ({d_model}, {d_head}), {draws:,} draws {' '.join(options)}: {run.seconds:.1f} s, {run.peak_rss_gib:.2f} GiB"
    )
    return {"d_model": d_model, "d_head": d_head, "draws": draws, "options": options, **recorded(run)}


def scaling(folder: Path, quick: bool) -> tuple[dict[str, Any], list[Check]]:
    print("\nscaling")
    few, more, most = (2_000, 10_000, 20_000) if quick else (100_000, 1_000_000, 10_000_000)
    runs = [plan_run(folder, 64, 8, draws) for draws in (few, more, most)]
    # What is not drawing, a process's start and its compilations, falls out of the differences.
    rates = [(two["seconds"] - one["seconds"]) / (two["draws"] - one["draws"]) for one, two in zip(runs, runs[1:])]  # noqa: B905, RUF007
    widths = (1024, 65_536, 10**6)
    by_width = side_by_side(
        {str(d): (8192, 2 if quick else 9, partial(ours, low_rank_product(d, 64), 8192)) for d in widths}
    )
    medians = [one["median_ms"] for one in by_width.values()]
    print("  d_head 64:", ", ".join(f"d_model {d}: {ms:.4f} ms" for d, ms in zip(widths, medians, strict=True)))
    result = {"runs": runs, "seconds_per_draw": rates, "by_d_model": by_width}
    return result, [
        Check(f"time per draw up to {most:,} draws over that up to {more:,}", rates[1] / rates[0], at_most=1.2),
        Check(f"peak memory at {most:,} draws over that at {more:,}", peak(runs[2]) / peak(runs[1]), at_most=1.1),
        Check("largest over smallest time a draw, d_model 1 024 to 10^6", max(medians) / min(medians), at_most=1.1),
    ]


def peak(run: dict[str, Any]) -> float:
    return run["peak_rss_gib"]


def workers(folder: Path, quick: bool) -> tuple[dict[str, Any], list[Check]]:
    print("\nDask workers")
    few, many = (4_096, 16_384) if quick else (16_384, 262_144)
    runs = {
        number: [plan_run(folder, 768, 64, draws, "--workers", str(number)) for draws in (few, many)]
        for number in (1, 2)
    }
    # The differences leave out what is not drawing: the start of the workers and their compilations.
    seconds = {number: two["seconds"] - one["seconds"] for number, (one, two) in runs.items()}
    speed_up = seconds[1] / seconds[2]
    print(f"  two workers: {speed_up:.2f} times one")
    return {"runs": runs, "speed_up": speed_up}, [Check("two Dask workers against one", speed_up, at_least=1.7)]


def main() -> None:
    options = arguments("The Monte Carlo engine.", "engine.json")
    checks: list[Check] = []
    result: dict[str, Any] = {
        "benchmark": "engine",
        "command": "python benchmarks/engine.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "cores": CORES,
    }
    result["cases"] = []
    for case in QUICK if options.quick else CASES:
        one, found = compare(case)
        result["cases"].append(one)
        checks += found
    result["elements"] = elements(options.quick)
    result["split"] = split(options.quick)
    with tempfile.TemporaryDirectory() as folder:
        result["scaling"], found = scaling(Path(folder), options.quick)
        checks += found
        result["workers"], found = workers(Path(folder), options.quick)
        checks += found
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
