"""Scoring a Llama-3-8B-shaped attention stack of random weights, against the dense way.

Writes queries and keys of 32 layers, 32/8 heads, d_model 4096, d_head 128, in bfloat16, as sharded safetensors with an
index under the names of ``transformers`` (about 1.3 GB, in a temporary folder that is removed). Then, each in a fresh
process:

* ``rmtbase score`` with ``--matrices elements`` and ``none``, each with the shipped atlas, with the null simulated and
  with the null cached, and with the analytic null, without the proof of the layout; and once with it;
* the same command of the commit ``--before``, whose factors are taken by QR, in turn with that of today, three times
  each with the shipped atlas. The shortest counts;
* the same work step by step, to see where the time goes. The null is found while the heads are being read: what that
  takes is among their seconds, and what comes after them is what scoring adds;
* the parts of a spectrum side by side, layer by layer in one process, three times: reading the factors, their triangles
  from Gram matrices and by QR, the singular values of the cores; and what nothing can do without, the bytes alone,
  their SHA-256, and the bare products of what is in float64 already. The shortest time counts, as other processes can
  only add to it, and the ratios are those of processor time;
* the analytic null of the shape, and what scoring with it adds to reading the heads.

The files were just written, so that they are read from the page cache. The dense way, the d × d product and its
values-only SVD in float64, is timed on two heads and extrapolated. The weights are the null itself: the p-values of one
head for each key head (heads that share a key are not independent) are tested for uniformity.

    python benchmarks/scoring.py [--quick] [--before COMMIT] [--output FILE]
"""

from __future__ import annotations

import hashlib
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import kstest

from _checkpoints import SIGMA, Stack, write_stack
from _machine import RMTBASE, Check, Process, arguments, describe_machine, finish, recorded, run_process, timed
from rmtbase.statistics import spectral_statistics

if TYPE_CHECKING:
    from rmtbase.models import Model

ROUNDS = 3  # of which the best counts
BEFORE = "ae76517"  # the last commit before factors were taken through their Gram matrices
UNPROVED = {"RMTBASE_PROOF": "0"}

Seconds = NDArray[np.float64]
"""[wall, processor]."""


FULL = Stack(n_layers=32, n_heads=32, n_key_heads=8, d_model=4096, d_head=128)
QUICK = Stack(n_layers=4, n_heads=8, n_key_heads=2, d_model=1024, d_head=128, layers_per_shard=2)


def steps(folder: str) -> None:
    """Score step by step and print the [wall, processor] seconds of each as JSON. The cache must be empty."""
    begin = clocks()
    from rmtbase.models import open_model
    from rmtbase.montecarlo import cached_table
    from rmtbase.nulls import draws_for
    from rmtbase.results.scores import score

    score("demo")  # a first call imports more, and more yet if Dask is installed
    seconds = {"import, and the bundled model scored": clocks() - begin}
    model = open_model(folder)
    (d_model, d_head, _), *_ = {(site.d_query, site.d_head, site.d_key) for site in model.sites}
    draws = draws_for(sum(site.n_heads for site in model.sites))
    begin = clocks()
    cached_table("low_rank_product", {"d_model": d_model, "d_head": d_head}, draws).get()
    seconds["null: simulate"] = clocks() - begin
    begin = clocks()
    model.fingerprint()  # the model remembers it, so that the scores below find it made
    seconds["fingerprint: SHA-256 of queries and keys"] = clocks() - begin
    heads, rest = scored(model, matrices="none")
    seconds["heads: read, triangles, cores, singular values; the null"] = heads
    seconds["heads: statistics, p- and q-values"] = rest
    seconds["matrices: element moments, p- and q-values"] = sum(scored(model, matrices="elements")) - heads - rest
    print(json.dumps({name: one.tolist() for name, one in seconds.items()}))


class Ticks:
    """A progress reporter that keeps when the reading of the layers began, and when each had been read."""

    def __init__(self) -> None:
        self.layers: list[Seconds] = []

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        """Make a bar; only that of the layers is timed."""
        if label != "reading layers":
            return lambda count: None
        self.layers.append(clocks())
        return lambda count: self.layers.append(clocks())

    def note(self, line: str) -> None:
        """Ignore the note."""

    detail = note


def scored(model: Model, **options: Any) -> tuple[Seconds, Seconds]:
    """Score, and return the seconds from the first layer to the last, and those of all the rest."""
    from rmtbase.results.scores import score

    ticks = Ticks()
    begin = clocks()
    score(model, progress=ticks, **options)
    whole = clocks() - begin
    layers = ticks.layers[-1] - ticks.layers[0]
    return layers, whole - layers


def parts(folder: str) -> None:
    """Time the parts of all spectra, the heads spread over the cores, and print the best of three rounds as JSON."""
    from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, single_threaded_blas, triangle
    from rmtbase.models import open_model

    model = open_model(folder)
    contenders: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
        "bare Gram products": lambda w: np.stack([one @ one.T for one in w]),
        "triangles": triangle,
        "triangles by QR": lambda w: np.asarray(np.linalg.qr(np.swapaxes(w.astype(np.float64), -1, -2), mode="r")),
        "cores and their singular values": core_singular_values,
    }
    best: dict[str, Seconds] = {}
    largest_difference = 0.0
    with single_threaded_blas(), ThreadPoolExecutor(available_cores()) as pool:
        for _ in range(ROUNDS):
            total = {name: np.zeros(2) for name in ("bytes alone", "SHA-256 of them", "reading", *contenders)}
            buffer, digest = memoryview(bytearray(1 << 24)), hashlib.sha256()
            for path in model.files:
                with path.open("rb", buffering=0) as stream:
                    begin = clocks()
                    while count := stream.readinto(buffer):
                        total["bytes alone"] += clocks() - begin
                        begin = clocks()
                        digest.update(buffer[:count])
                        total["SHA-256 of them"] += clocks() - begin
                        begin = clocks()

            def over_cores(name: str, stack: NDArray[Any], total: dict[str, Seconds] = total) -> NDArray[np.float64]:
                begin = clocks()
                solved = list(pool.map(contenders[name], np.array_split(stack, max(1, len(stack) // 4))))
                total[name] += clocks() - begin
                return np.concatenate(solved)

            for layer in range(model.n_layers):
                begin = clocks()
                factors = [
                    model.by_head(layer, one, model.stored_matrix(layer, f"attention_{one}"))
                    for one in ("query", "key")
                ]
                total["reading"] += clocks() - begin
                values = []
                for name in list(contenders)[:3]:
                    bare = name == "bare Gram products"
                    stacks = [stack.astype(np.float64) for stack in factors] if bare else factors
                    r_q, r_k = (over_cores(name, stack) for stack in stacks)
                    if not bare:
                        cores = core_of_triangles(r_q, np.repeat(r_k, len(r_q) // len(r_k), axis=0))
                        values.append(over_cores("cores and their singular values", cores))
                largest_difference = max(largest_difference, float(np.abs(values[0] / values[1] - 1.0).max()))
            total["cores and their singular values"] /= 2  # of either way of factorising
            best = {name: np.minimum(one, best.get(name, one)) for name, one in total.items()}
    seconds = {name: one.tolist() for name, one in best.items()}
    print(json.dumps({"seconds": seconds, "largest_relative_difference": largest_difference}))


def analytic_null(folder: str) -> None:
    """Build all of the analytic null of a model's shape and print the [wall, processor] seconds."""
    from rmtbase.models import open_model
    from rmtbase.nulls import AnalyticNull

    model = open_model(folder)
    xr.Dataset({"one": ("x", [1.0])})  # the first dataset of a process imports Dask, if that is installed
    begin = clocks()
    null = AnalyticNull(model.d_model, model.d_head)
    _ = null.mean, null.std, null.quantile, null.edge_quantiles, null.spectrum()  # each is made when it is asked for
    print(json.dumps((clocks() - begin).tolist()))


def analytic_scores(folder: str) -> None:
    """Score heads by the analytic null and print the [wall, processor] seconds beside those of reading them."""
    from rmtbase.models import open_model
    from rmtbase.results.scores import score

    score("demo", "analytic")  # as in ``steps``
    model = open_model(folder)
    model.fingerprint()
    _, rest = scored(model, null="analytic", matrices="none")
    print(json.dumps(rest.tolist()))


def clocks() -> Seconds:
    """Wall and processor time of this process, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def dense(stack: Stack, rng: np.random.Generator) -> None:
    """Score one head the dense way: the d × d product and its singular values, in float64."""
    w_q, w_k = SIGMA * rng.standard_normal((2, stack.d_head, stack.d_model))
    spectral_statistics(np.linalg.svd(w_q.T @ w_k, compute_uv=False)[: stack.d_head])


def uniformity(scores: Path, stack: Stack) -> dict[str, float]:
    """p-value of the KS test of each statistic's p-values against the uniform law, one head for each key head."""
    with xr.open_dataset(scores, group="heads") as heads:
        first = heads.isel(head=slice(None, None, stack.n_heads // stack.n_key_heads))
        samples = {name: first["p_value"].sel(statistic=name).values for name in heads["statistic"].values.tolist()}
        samples["omnibus"] = first["omnibus_p_value"].values
    return {name: float(kstest(sample.ravel(), "uniform").pvalue) for name, sample in samples.items()}


def source_of(commit: str, folder: Path) -> Path:
    """Extract the package as it was at a commit, for ``PYTHONPATH``."""
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def before_and_now(source: Path, model: Path, folder: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Run the command of an earlier source and of this one in turn, with and without statistics of matrices."""
    sources = {"before": source, "now": Path(__file__).parents[1] / "src"}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for mode in ("elements", "none"):
        runs[mode] = {name: [] for name in sources}
        for _ in range(ROUNDS):
            for name, path in sources.items():
                command = [*RMTBASE, "score", str(model), "--matrices", mode, "-o", str(folder / f"{name}.nc")]
                environment = {"PYTHONPATH": str(path), "RMTBASE_CACHE": str(folder / name), **UNPROVED}
                run = run_process(command, environment)
                runs[mode][name].append(recorded(run))
                print(f"  {mode}, {name:18}{run.seconds:8.1f} s   processor {run.cpu_seconds:8.1f} s")
    return runs


def largest_difference(before: Path, now: Path) -> dict[str, float]:
    """Largest relative difference between the head scores of two files, by variable."""
    with xr.open_dataset(before, group="heads") as one, xr.open_dataset(now, group="heads") as other:
        return {
            name: float(abs(other[name] / one[name] - 1.0).where(one[name] != 0).max())
            for name in ("eigenvalue", "observed", "sigma_q", "sigma_k")
        }


def best(runs: list[dict[str, Any]], clock: str) -> float:
    """Shortest time of some runs."""
    return min(run[clock] for run in runs)


def main() -> None:
    options = arguments("Scoring a Llama-3-8B-shaped stack.", "scoring.json", before=BEFORE)
    stack = QUICK if options.quick else FULL
    nulls: dict[str, list[str]] = {
        "atlas": [],
        "simulated": ["--seed", "1"],  # the atlas is of seed 0
        "analytic": ["--null", "analytic"],
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        scores = {kind: Path(temporary) / f"{kind}.nc" for kind in nulls}
        folder.mkdir()
        size = write_stack(stack, folder)
        print(f"{stack.heads} heads of ({stack.d_model}, {stack.d_head}), {size / 2**30:.2f} GiB of weights")
        runs: dict[str, Process] = {}
        for name, mode, cache, kind in (
            ("elements, null of the atlas", "elements", "cache", "atlas"),
            ("elements, null simulated", "elements", "cache", "simulated"),
            ("elements, null cached", "elements", "cache", "simulated"),
            ("none, null of the atlas", "none", "cache", "atlas"),
            ("none, null simulated", "none", "another cache", "simulated"),
            ("none, null cached", "none", "cache", "simulated"),
            ("none, null analytic", "none", "cache", "analytic"),
        ):
            command = [*RMTBASE, "score", str(folder), "--matrices", mode, "-o", str(scores[kind])]
            command += nulls[kind]
            runs[name] = run_process(command, {"RMTBASE_CACHE": str(Path(temporary) / cache), **UNPROVED})
            print(f"  {name:28}{runs[name].seconds:8.1f} s   peak {runs[name].peak_rss_gib:5.2f} GiB")
        proved = run_process([*RMTBASE, "score", str(folder), "-o", str(Path(temporary) / "proved.nc")])
        compared = before_and_now(source_of(options.before, Path(temporary) / "before"), folder, Path(temporary))
        differences = largest_difference(Path(temporary) / "before.nc", Path(temporary) / "now.nc")
        of_this = {
            name: run_process(
                [sys.executable, __file__, f"--{name}", str(folder)],
                {"RMTBASE_CACHE": str(Path(temporary) / "third cache"), **UNPROVED},
            )
            for name in ("steps", "analytic-null", "analytic-scores", "parts")
        }
        printed = {name: json.loads(run.output) for name, run in of_this.items()}
        seconds, by_part = printed["steps"], printed["parts"]
        analytic = {name: printed[name] for name in ("analytic-null", "analytic-scores")}
        ks = {f"{kind}, {name}": p for kind, path in scores.items() for name, p in uniformity(path, stack).items()}
    for name, (wall, processor) in (seconds | analytic | by_part["seconds"]).items():
        print(f"    {name:52}{wall:8.2f} s   processor {processor:8.2f} s")
    rng = np.random.default_rng(1)
    heads = [timed(lambda: dense(stack, rng)) for _ in range(2)]
    extrapolated = statistics.mean(one.seconds for one in heads) * stack.heads
    worst = runs["elements, null simulated"]
    qr, ours, solving = (
        by_part["seconds"][name][1] for name in ("triangles by QR", "triangles", "cores and their singular values")
    )
    reading = by_part["seconds"]["reading"][1]
    times_faster = {
        mode: {clock: best(both["before"], clock) / best(both["now"], clock) for clock in ("seconds", "cpu_seconds")}
        for mode, both in compared.items()
    }
    bound = sum(
        by_part["seconds"][name][1]
        for name in ("bytes alone", "SHA-256 of them", "bare Gram products", "cores and their singular values")
    )
    print(f"  the dense way, extrapolated from two heads: {extrapolated / 3600:.2f} h")
    result = {
        "benchmark": "scoring",
        "command": "python benchmarks/scoring.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "stack": {**asdict(stack), "heads": stack.heads, "dtype": "bfloat16", "gib": size / 2**30},
        "runs": {name: recorded(run) for name, run in runs.items()},
        "elements, null of the atlas, layout proved": recorded(proved),
        "before_and_now": {
            "before": options.before,
            "runs": compared,
            "times_faster": times_faster,
            "largest_relative_difference": differences,
            "bare_processor_seconds": bound,
        },
        "step_by_step": {"wall_and_processor_seconds": seconds, **recorded(of_this["steps"])},
        "analytic_wall_and_processor_seconds": analytic,
        "parts": by_part,
        "times_faster_than_by_qr": {
            "triangles": qr / ours,
            "triangles and singular values": (qr + solving) / (ours + solving),
            "reading, triangles and singular values": (reading + qr + solving) / (reading + ours + solving),
        },
        "dense_heads": [asdict(one) for one in heads],
        "dense_extrapolated_seconds": extrapolated,
        "times_faster_than_dense": extrapolated / worst.seconds,
        "times_faster_than_dense_with_null_cached": extrapolated / runs["elements, null cached"].seconds,
        "times_faster_than_dense_with_the_atlas": extrapolated / runs["elements, null of the atlas"].seconds,
        "uniformity_ks_p_value": ks,
    }
    checks = [
        Check("seconds to score every head and matrix, the null's simulation included", worst.seconds, at_most=120.0),
        Check("seconds to build the analytic null of one shape", analytic["analytic-null"][0], at_most=0.2),
        Check("seconds that analytic scoring adds to reading the heads", analytic["analytic-scores"][0], at_most=1.0),
        *(
            Check(f"times faster than before, --matrices {mode}, in {words} time", ratios[clock], at_least=5.0)
            for mode, ratios in times_faster.items()
            for clock, words in (("cpu_seconds", "processor"), ("seconds", "wall"))
        ),
        Check("times that QR takes of triangles from Gram matrices, in processor time", qr / ours, at_least=5.0),
        Check(
            "relative difference of singular values from those by QR",
            by_part["largest_relative_difference"],
            at_most=1e-13,
        ),
        Check("peak memory in GiB, null of the atlas", runs["elements, null of the atlas"].peak_rss_gib, at_most=1.0),
        Check("peak memory in GiB", max(run.peak_rss_gib for run in runs.values()), at_most=2.0),
        Check("KS p-value of the p-values, the smallest times their number", len(ks) * min(ks.values()), at_least=0.01),
    ]
    finish(result, checks, options.output)


if __name__ == "__main__":
    commands = {
        "--steps": steps,
        "--parts": parts,
        "--analytic-null": analytic_null,
        "--analytic-scores": analytic_scores,
    }
    if len(sys.argv) == 3 and sys.argv[1] in commands:
        commands[sys.argv[1]](sys.argv[2])
    else:
        main()
