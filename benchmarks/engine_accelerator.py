"""The Monte Carlo engine on an accelerator: its rates, and whether its draws are those of a CPU.

* ``cases``: for each ensemble, per draw and in turns,

  - ``rmtbase``: ``draw_spectra`` with all statistics, after compilation;
  - ``eigvalsh``: ``jax.numpy.linalg.eigvalsh`` on the same device of the symmetric matrices whose eigenvalues the
    solver takes, a whole tile of them at once: the lower bound;
  - ``normals``, ``products``: of a residual path, the normal numbers and matrix products that it needs, on the device;
  - ``svd``: ``jax.numpy.linalg.svd`` of the matrices that rmtbase draws, in a stack on the same device;
  - ``processor_svd``, ``processor_gram``: rmtbase on all cores of the host, by each solver that keeps the digits;
  - ``dense``: the dense way on the same device, factors, d × d product and ``jax.numpy.linalg.svd`` of it;
  - ``dense_numpy``: the same by NumPy on all cores of the host.

* ``elements``: ``draw_elements`` on the device, on all cores of the host, and NumPy's and SciPy's way.
* ``draws``: the first draws of many ensembles on the device and on the CPU of the same machine, the same run twice, and
  runs that begin elsewhere or come in other batches. Differences of singular values are in units of n ε s_1, n the
  smaller side and ε of the precision: what a backward stable solver may err by.
* ``ceilings``: of the device, by a large product and a large copy of random numbers, and what share of them is reached.
  A symmetric eigensolver of n × n does 4/3 n³ operations at least, half of them products of the trailing matrix with a
  vector, which read it once: 8 n³/3 bytes.

    python benchmarks/engine_accelerator.py [--quick] [--output FILE]
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from _machine import Check, arguments, describe_machine, finish, timed
from engine import CORES, Case, chain, dense, dense_elements, residual
from null_tables import side_by_side
from rmtbase.ensembles import (
    Ensemble,
    axis_permuted_head,
    gaussian_chain,
    initialized_matrix,
    low_rank_product,
    random_subspaces,
    residual_path,
    student_t_matrix,
)
from rmtbase.linalg import HOST_SOLVERS, reproducible_jax
from rmtbase.montecarlo import case_key, choose_solver, draw_elements, draw_keys, draw_spectra
from rmtbase.statistics import spectral_statistics

Values = NDArray[np.float64]

CPU = jax.devices("cpu")
TILE_BYTES = 2**28  # of matrices, as many as rmtbase draws at once
DRAWS = 300  # of each ensemble that is compared

CASES = (chain(768, 64, 262_144, 2), chain(4096, 128, 65_536, 1), residual(16, 1024))
QUICK = (chain(768, 64, 16_384, 1), residual(4, 128))

ENSEMBLES: dict[str, Ensemble] = {
    "low_rank_product (768, 64)": low_rank_product(768, 64),
    "low_rank_product (32, 32)": low_rank_product(32, 32),
    "low_rank_product (256, 16), dense": low_rank_product(256, 16, "dense"),
    "gaussian_chain (96, 48, 64, 80)": gaussian_chain((96, 48, 64, 80)),
    "initialized_matrix xavier_uniform (128, 48)": initialized_matrix(128, 48, "xavier_uniform"),
    "initialized_matrix orthogonal (64, 32)": initialized_matrix(64, 32, "orthogonal"),
    "student_t_matrix (96, 32)": student_t_matrix(96, 32, 3.0, 1.0),
    "random_subspaces (128, 16)": random_subspaces(128, 16),
    "axis_permuted_head (128, 16)": axis_permuted_head(*np.random.default_rng(0).standard_normal((2, 16, 128))),
    "residual_path (64, 4)": residual_path(64, 4),
}
IN_SINGLE = ("low_rank_product (768, 64)", "initialized_matrix xavier_uniform (128, 48)", "residual_path (64, 4)")
CUT = IN_SINGLE


def ours(ensemble: Ensemble, draws: int, **where: Any) -> None:
    for chunk in draw_spectra(ensemble, draws, 0, **where):
        spectral_statistics(chunk.singular_values)


def on_the_device(call: Callable[..., Any], *inputs: Any) -> None:
    with reproducible_jax():
        jax.block_until_ready(call(*inputs))


def symmetric(ensemble: Ensemble, solver: str, count: int) -> tuple[jax.Array, jax.Array]:
    """So many draws, and the symmetric matrices whose eigenvalues that solver takes."""
    with reproducible_jax():
        keys = draw_keys(case_key(0, ensemble.name), jnp.arange(count, dtype=np.uint32))
        matrices = jax.jit(jax.vmap(lambda key: ensemble.sample(key).matrix))(keys)
        transposed, zeros = matrices.swapaxes(-1, -2), jnp.zeros_like(matrices)
        if solver == "device_gram":
            return matrices, matrices @ transposed
        return matrices, jnp.block([[zeros, matrices], [transposed, zeros]])


@partial(jax.jit, static_argnames=("d", "h", "depth"))
def dense_spectrum(key: jax.Array, d: int, h: int, depth: int) -> jax.Array:
    if depth:
        factors = jnp.eye(d) + jax.random.normal(key, (depth, d, d)) / np.sqrt(d)
        return jnp.linalg.svd(reduce(jnp.matmul, factors), compute_uv=False)
    w_q, w_k = jax.random.normal(key, (2, h, d))
    return jnp.linalg.svd(w_q.T @ w_k, compute_uv=False)[:h]


def compare(case: Case, ceilings: dict[str, float]) -> tuple[dict[str, Any], list[Check]]:
    ensemble, d, h = case.ensemble, case.d_model, case.ensemble.rank
    choice, choice_of_host = choose_solver(ensemble), choose_solver(ensemble, devices=CPU)
    first = timed(partial(ours, ensemble, 1)).seconds
    tile = TILE_BYTES // (8 * h * h)
    matrices, doubled = symmetric(ensemble, choice.name, tile)
    eigvalsh, svd = jax.jit(jnp.linalg.eigvalsh), jax.jit(partial(jnp.linalg.svd, compute_uv=False))
    on_cores = 8192 if h == 64 else 2048 if h == 128 else 64
    few = matrices[: 64 if h < 512 else 4]
    contenders: dict[str, tuple[int, int, Callable[[], Any]]] = {
        "rmtbase": (case.draws, 3, partial(ours, ensemble, case.draws, solver=choice.name)),
        "eigvalsh": (tile, 3, partial(on_the_device, eigvalsh, doubled)),
        "svd": (len(few), 2, partial(on_the_device, svd, few)),
    }
    for name in HOST_SOLVERS if choice_of_host.name == "gram" else ("svd",):
        of_the_host = partial(ours, ensemble, on_cores, devices=CPU, solver=name)
        contenders[f"processor_{name}"] = (on_cores, 2, of_the_host)
    if case.depth:
        normal = jax.jit(partial(jax.random.normal, shape=(32, case.depth, d, d)))
        multiply = jax.jit(lambda factors: reduce(jnp.matmul, factors.swapaxes(0, 1)))
        with reproducible_jax():
            factors = normal(jax.random.key(0)) / np.sqrt(d)
        contenders["normals"] = (32, 3, partial(on_the_device, normal, jax.random.key(0)))
        contenders["products"] = (32, 3, partial(on_the_device, multiply, factors))
    for _, _, call in contenders.values():
        call()  # compiles
    if case.dense_draws:
        with reproducible_jax():
            compiled = dense_spectrum.lower(jax.random.key(0), d, h, case.depth).compile()
        contenders["dense"] = (1, case.dense_draws, partial(on_the_device, compiled, jax.random.key(0)))
        contenders["dense_numpy"] = (1, case.dense_draws, partial(dense, case))
    found = side_by_side(contenders)
    median = {name: one["median_ms"] for name, one in found.items()}
    bare = median["eigvalsh"] + median.get("normals", 0.0) + median.get("products", 0.0)
    ratios = {"rmtbase / bare": median["rmtbase"] / bare}
    ratios |= {f"{name} / rmtbase": median[name] / median["rmtbase"] for name in median if name not in NEEDED}
    processor = min(ratio for name, ratio in ratios.items() if name.startswith("processor"))
    n, rate = doubled.shape[-1], 1e3 / median["rmtbase"]
    shares = {
        "of the product's flops": rate * 4 / 3 * n**3 / ceilings["flops"],
        "of the copy's bytes": rate * 8 / 3 * n**3 / ceilings["bytes"],
    }
    print(f"\n{case.name}: {rate:,.0f} draws a second, {choice.name}; {choice.reason}", flush=True)
    for name, one in median.items():
        print(f"  {name:20} {one:14.5f} ms a draw")
    for name, value in {**ratios, **shares}.items():
        print(f"  {name:30} {value:12.4g}")
    result = {
        "case": case.name,
        "solver": choice._asdict(),
        "solver_of_processor": choice_of_host._asdict(),
        "first_call_seconds": first,
        "draws_per_second": rate,
        "contenders": found,
        "ratios_of_medians": ratios,
        "shares_of_ceilings": shares,
    }
    what = "(eigvalsh + normals + products)" if case.depth else "eigvalsh"
    return result, [
        Check(f"rmtbase / {what}, {case.name}", ratios["rmtbase / bare"], at_most=1.5),
        Check(f"{CORES} cores of the host, the faster solver / rmtbase, {case.name}", processor, at_least=1.0),
    ]


NEEDED = ("rmtbase", "eigvalsh", "normals", "products")


def elements(quick: bool) -> tuple[dict[str, Any], list[Check]]:
    d, h = (1024, 64) if quick else (4096, 128)
    ensemble, draws = low_rank_product(d, h, "dense"), 4 * CORES

    def draw(device: Any) -> None:
        jax.config.update("jax_default_device", device)
        list(draw_elements(ensemble, draws, 0))
        jax.config.update("jax_default_device", None)

    contenders: dict[str, tuple[int, int, Callable[[], Any]]] = {
        "rmtbase": (draws, 3, partial(draw, None)),
        "processor": (draws, 2, partial(draw, CPU[0])),
    }
    for _, _, call in contenders.values():
        call()  # compiles
    found = side_by_side(contenders | {"dense_numpy": (1, 1, partial(dense_elements, d, h))})
    median = {name: one["median_ms"] for name, one in found.items()}
    print(f"\nelements ({d}, {h}):", ", ".join(f"{name} {one:.2f} ms" for name, one in median.items()), flush=True)
    times = median["processor"] / median["rmtbase"]
    result = {"case": f"elements ({d}, {h})", "contenders": found, "processor / rmtbase": times}
    return result, [Check(f"{CORES} cores of the host / rmtbase, elements ({d}, {h})", times, at_least=1.0)]


def values(ensemble: Ensemble, draws: int = DRAWS, **options: Any) -> Values:
    return np.concatenate([chunk.singular_values for chunk in draw_spectra(ensemble, draws, 0, **options)])


def same_draws(quick: bool) -> tuple[dict[str, Any], list[Check]]:
    print(f"\nsingular values of {DRAWS} draws, differences in n ε s_1")
    found: dict[str, Any] = {}
    for name, ensemble in ENSEMBLES.items():
        for precision in ("float64", "float32") if name in IN_SINGLE else ("float64",):
            if quick and name not in IN_SINGLE:
                continue
            expected = values(ensemble, precision=precision, solver="svd", devices=CPU)
            solver = choose_solver(ensemble, precision).name
            here = partial(values, ensemble, precision=precision, solver=solver)
            unit = ensemble.rank * np.finfo(precision).eps * expected[:, :1]
            drawn = here()
            one = {
                "solver": solver,
                "from the CPU's": float((np.abs(drawn - expected) / unit).max()),
                "relative to each": float((np.abs(drawn - expected) / expected).max()),
                "values that differ when drawn twice": int((here() != drawn).sum()),
            }
            if name in CUT:
                one["in batches of 37"] = float((np.abs(here(batch=37) - drawn) / unit).max())
                later = here(draws=DRAWS - 50, start=50)
                one["begun at draw 50"] = float((np.abs(later - drawn[50:]) / unit[50:]).max())
            found[f"{name}, {precision}"] = one
            print(
                f"  {name}, {precision}:",
                ", ".join(f"{k} {v:.3g}" if k != "solver" else v for k, v in one.items()),
                flush=True,
            )
    uniform = ENSEMBLES["initialized_matrix xavier_uniform (128, 48)"]
    here, there = values(uniform, solver="svd"), values(uniform, solver="svd", devices=CPU)
    differing = int((here != there).sum())
    cuts = [one[cut] for one in found.values() for cut in ("in batches of 37", "begun at draw 50") if cut in one]
    return found, [
        Check("singular values of uniform elements that differ from the CPU's, solved there", differing, at_most=0),
        Check(
            "largest difference from the CPU's, in n ε s_1",
            max(one["from the CPU's"] for one in found.values()),
            at_most=1.0,
        ),
        Check(
            "values that differ when drawn twice",
            sum(one["values that differ when drawn twice"] for one in found.values()),
            at_most=0,
        ),
        Check("largest difference by batch or beginning, in n ε s_1", max(cuts), at_most=1.0),
    ]


def find_ceilings() -> dict[str, float]:
    with reproducible_jax():
        square = jax.random.normal(jax.random.key(0), (8192, 8192))
        product, copy = jax.jit(jnp.matmul), jax.jit(lambda x: x + 1.0)

        def seconds(call: Callable[[], Any]) -> float:
            jax.block_until_ready(call())
            return min(timed(lambda: jax.block_until_ready(call())).seconds for _ in range(5))

        flops = 2 * 8192**3 / seconds(lambda: product(square, square))
        moved = 2 * 8 * 8192**2 / seconds(lambda: copy(square))
    print(f"{flops / 1e12:.1f} Tflop/s of a float64 product, {moved / 1e12:.2f} TB/s of a copy")
    return {"flops": flops, "bytes": moved}


def main() -> None:
    options = arguments("The Monte Carlo engine on an accelerator.", "engine_accelerator.json")
    device = jax.local_devices()[0]
    result: dict[str, Any] = {
        "benchmark": "engine_accelerator",
        "command": "python benchmarks/engine_accelerator.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "cores": CORES,
        "device_kind": device.device_kind,
        "devices": jax.local_device_count(),
        "ceilings": find_ceilings(),
        "cases": [],
    }
    checks: list[Check] = []
    for case in QUICK if options.quick else CASES:
        one, found = compare(case, result["ceilings"])
        result["cases"].append(one)
        checks += found
        finish(result, checks, options.output)
    result["elements"], found = elements(options.quick)
    checks += found
    result["draws"], found = same_draws(options.quick)
    finish(result, checks + found, options.output)


if __name__ == "__main__":
    main()
