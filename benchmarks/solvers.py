"""The solvers of spectra: microseconds of one core per matrix, the digits they keep, and what single precision costs.

* ``times``: the solvers of the host on stacks of n × n matrices in float64 and float32, on one core. From these
  ``rmtbase.montecarlo.MICROSECONDS`` is copied, by which a solver is chosen; a test compares the two. On an accelerator
  its own solvers, on stacks as large as are drawn there; ``host`` are then those of the host beside it, on one core and
  on all at once.
* ``accuracy``: the Gram matrix, and on an accelerator its SVD, against LAPACK's SVD on matrices of a given condition
  number.
* ``float32``, on a CPU: the statistics of matrices drawn and solved in float32, against float64 on the same matrices;
  and their means over many draws, against draws in float64.

    python benchmarks/solvers.py [--quick] [--output FILE]
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv

from _machine import Check, arguments, describe_machine, finish
from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import (
    DEVICE_SOLVERS,
    GRAM_CONDITION,
    HOST_SOLVERS,
    PRECISIONS,
    available_cores,
    device_singular_values,
    reproducible_jax,
    single_threaded_blas,
)
from rmtbase.montecarlo import MICROSECONDS, case_key, draw_keys, draw_spectra, time_solver
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

Array = NDArray[np.floating]

SIZES = (8, 16, 32, 64, 128, 256, 512)
SHAPES = ((64, 64), (768, 64), (4096, 128))
ROUNDS = 7
STACK_BYTES = 2**28  # of matrices on an accelerator

DEVICE = jax.local_devices()[0]
ACCELERATED = DEVICE.platform != "cpu"


def solve(solver: str, stack: Array) -> NDArray[np.float64]:
    if solver in HOST_SOLVERS:
        return HOST_SOLVERS[solver](stack, None)
    solve_all = partial(device_singular_values, solver=solver)
    if not ACCELERATED:  # one matrix after the other, as the runner has it
        solve_all = partial(jax.lax.map, solve_all)
    with reproducible_jax(str(stack.dtype)):
        values = jax.jit(solve_all)(stack)
        return np.asarray(values, dtype=np.float64)


def cpu_microseconds(call: Callable[[], Any], matrices: int, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return float(f"{1e6 * min(times) / matrices:.3g}")


def times(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {precision: {solver: {} for solver in HOST_SOLVERS} for precision in PRECISIONS}
    for size in SIZES:
        wide = with_condition(5.0, size, max(2, int(1000 * (32 / size) ** 2.5)))
        for precision in PRECISIONS:
            stack = wide.astype(precision)
            for solver in HOST_SOLVERS:
                found[precision][solver][str(size)] = cpu_microseconds(lambda: solve(solver, stack), len(stack), rounds)  # noqa: B023
    print("microseconds of one core per matrix")
    for precision, by_solver in found.items():
        for solver, by_size in by_solver.items():
            print(f"  {precision} {solver:5}", *(f"{size}: {time:g}" for size, time in by_size.items()))
    return found


def times_on_the_accelerator(rounds: int) -> tuple[dict[str, Any], dict[str, Any], list[Check]]:
    """Microseconds per matrix: of the device's solvers, of those of the host by number of cores, and the comparison."""
    found: dict[str, Any] = {precision: {solver: {} for solver in DEVICE_SOLVERS} for precision in PRECISIONS}
    host: dict[str, Any] = {str(cores): {solver: {} for solver in HOST_SOLVERS} for cores in (1, available_cores())}
    for size in SIZES:
        few = with_condition(5.0, size, max(8, int(1000 * (32 / size) ** 2.5)))
        for precision in PRECISIONS:
            count = STACK_BYTES // (size**2 * np.dtype(precision).itemsize)
            stack = np.resize(few.astype(precision), (count, size, size))
            for solver in DEVICE_SOLVERS:
                microseconds = min(time_solver(solver, stack, DEVICE, 1, first=count) for _ in range(rounds))
                found[precision][solver][str(size)] = float(f"{microseconds:.3g}")
        for cores, by_solver in host.items():
            for solver in HOST_SOLVERS:
                microseconds = min(time_solver(solver, few, DEVICE, int(cores)) for _ in range(rounds))
                by_solver[solver][str(size)] = float(f"{microseconds:.3g}")
        print(f"n = {size}, microseconds per matrix:", flush=True)
        for name, by_solver in [*found.items(), *((f"{cores} cores", one) for cores, one in host.items())]:
            print(f"  {name:8}", *(f"{solver} {by_size[str(size)]:g}" for solver, by_size in by_solver.items()))
    device, cores = found["float64"], host[str(available_cores())]
    fastest = min(min(cores["svd"][n], cores["gram"][n]) / device["device_gram"][n] for n in map(str, SIZES))
    fastest_svd = min(cores["svd"][n] / device["device_svd"][n] for n in map(str, SIZES))
    checks = [
        Check("the faster solver on all cores of the host / device_gram, at the least", fastest, at_least=1.0),
        Check("svd on all cores of the host / device_svd, at the least", fastest_svd, at_least=1.0),
    ]
    return found, host, checks


def with_condition(condition: float, size: int, count: int) -> Array:
    """Matrices with λ_1/λ_n = condition and the logarithms of their singular values evenly spaced."""
    rng = np.random.default_rng(1)
    left, right = np.linalg.qr(rng.standard_normal((2, count, size, size)))[0]
    return left * np.geomspace(1.0, condition**-0.5, size) @ right


def accuracy() -> tuple[dict[str, Any], list[Check]]:
    found = {}
    for condition in (5.0, 1e2, 1e4):
        for size in (16, 64, 256):
            stack = with_condition(condition, size, 8)
            for solver in ("device_gram", "device_svd") if ACCELERATED else ("gram",):
                difference = (solve(solver, stack)[:, -1] / solve("svd", stack)[:, -1]) ** 2 - 1
                name = f"n = {size}, condition {condition:g}" + (f", {solver}" if ACCELERATED else "")
                found[name] = float(np.abs(difference).max())
    print("\nλ_n over that by LAPACK's SVD, minus one")
    for name, value in found.items():
        print(f"  {name:36} {value:.1e}")
    claim = f"largest relative difference of λ_n up to λ_1/λ_n = {GRAM_CONDITION['float64']:g}"
    return found, [Check(claim, max(found.values()), at_most=1e-12)]


def relative(found: Array, expected: Array) -> dict[str, float]:
    """Largest relative error of each statistic."""
    error = np.abs(found - expected) / np.abs(expected)
    return dict(zip(SPECTRAL_STATISTICS, error.max(axis=0).tolist(), strict=True))


def solved_in_single(shape: tuple[int, int], draws: int) -> dict[str, dict[str, float]]:
    ensemble = low_rank_product(*shape)
    with reproducible_jax():
        key = case_key(0, ensemble.name)
    with reproducible_jax("float32"):
        keys = draw_keys(key, jax.numpy.arange(draws, dtype=np.uint32))
        stack = np.asarray(jax.jit(jax.vmap(ensemble.sample))(keys).matrix)
    exact = spectral_statistics(solve("svd", stack))
    solvers = DEVICE_SOLVERS if shape[0] > shape[1] else ("device_svd",)  # at d = h Gram matrices are not trusted
    return {solver: relative(spectral_statistics(solve(solver, stack)), exact) for solver in solvers}


def drawn_in_single(shape: tuple[int, int], draws: int) -> dict[str, float]:
    """Each mean in float32 less that in float64, in standard deviations of the statistic."""
    samples = []
    for precision in PRECISIONS:
        chunks = draw_spectra(low_rank_product(*shape), draws, 0, precision=precision)
        samples.append(np.concatenate([spectral_statistics(chunk.singular_values) for chunk in chunks]))
    wide, single = samples
    difference = (single.mean(axis=0) - wide.mean(axis=0)) / wide.std(axis=0)
    return dict(zip(SPECTRAL_STATISTICS, difference.tolist(), strict=True))


def single_normals() -> dict[str, float]:
    """Moments of JAX's float32 normals, exactly: over all 2^23 uniforms that they are made of."""
    uniform = np.arange(2**23, dtype=np.float32) / np.float32(2**23)
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    z = np.sqrt(2.0) * erfinv(np.maximum(low, uniform * (np.float32(1.0) - low) + low).astype(np.float64))
    return {
        "mean": float(z.mean()),
        "variance_minus_one": float((z**2).mean() - 1),
        "fourth_moment_over_three_minus_one": float((z**4).mean() / 3 - 1),
        "largest": float(np.abs(z).max()),
    }


def single_precision(quick: bool) -> tuple[dict[str, Any], list[Check]]:
    found: dict[str, Any] = {"normals": single_normals()}
    checks = []
    for shape in SHAPES:
        draws = 2_000 if quick or shape[1] == 128 else 20_000
        solved, drawn = solved_in_single(shape, 64 if quick else 512), drawn_in_single(shape, draws)
        found[f"{shape}"] = {"relative_error": solved, "difference_of_means_in_sd": drawn, "draws": draws}
        print(f"\n{shape}: largest relative error by solving in float32 ({', '.join(solved)}); means' difference in sd")
        for name in SPECTRAL_STATISTICS:
            errors = "".join(f"{errors[name]:9.1e}" for errors in solved.values())
            print(f"  {name:42}{errors}{drawn[name]:+9.4f}")
        z = max(abs(one) for one in drawn.values()) * float(np.sqrt(draws / 2))
        checks.append(Check(f"largest |z| of a mean in float32 against float64 at {shape}", z, at_most=4.5))
        if shape[0] > shape[1]:
            largest = max(solved["device_svd"].values())
            checks.append(Check(f"largest relative error of device_svd in float32 at {shape}", largest, at_most=2e-5))
    return found, checks


def off_the_table(times: dict[str, Any]) -> list[Check]:
    """Check that the package's table, if it has one for this device, still holds."""
    ratios = [
        abs(np.log(times[precision][solver][str(size)] / microseconds))
        for precision, by_solver in MICROSECONDS.get(DEVICE.device_kind, {}).items()
        for solver, by_size in by_solver.items()
        for size, microseconds in by_size.items()
    ]
    claim = "largest ratio of a time to that in the package's table"
    return [Check(claim, float(np.exp(max(ratios))), at_most=2.0)] if ratios else []


def main() -> None:
    options = arguments("The solvers of spectra.", "solvers_accelerator.json" if ACCELERATED else "solvers.json")
    result: dict[str, Any] = {
        "benchmark": "solvers",
        "command": "python benchmarks/solvers.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "device_kind": DEVICE.device_kind,
    }
    checks: list[Check] = []
    with single_threaded_blas():
        if ACCELERATED:
            result["times"], result["host"], checks = times_on_the_accelerator(1 if options.quick else 3)
        else:
            result["times"] = times(2 if options.quick else ROUNDS)
        result["accuracy"], found = accuracy()
    checks += [*found, *off_the_table(result["times"])]
    if not ACCELERATED:
        result["float32"], found = single_precision(options.quick)
        checks += found
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
