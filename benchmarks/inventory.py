"""Scoring every element of a Llama-7B-shaped checkpoint: matrices, heads, and the products of heads.

Writes one and four layers of the shape (width 4096, 32 heads of 128, MLPs of 11008) with embedding and unembedding of
32000 tokens, in bfloat16, into a temporary folder that is removed (2.1 GB). Then, each in a fresh process and without
the proof of the layout:

* ``rmtbase score --elements heads --components layers,embeddings``: all statistics of the elements of every matrix, of
  W_Q, W_K, W_V and W_O of every head, and of the 16.8 million elements of each head's W_QK. What four layers take more
  than one is what three layers take: 32 are extrapolated from it. The limit is on processor time, half of it for each
  of two cores: nearly all of it is spent in threads, one for each core.
* ``rmtbase score``, without the elements of heads, in turn with the same command of the commit ``--before``, which
  scored four statistics of a matrix's elements where there are all of them now, three times each. The shortest counts.

And in this process, what float32 does to the statistics of one W_QK: their differences from those of the product in
float64, in standard errors of the null.

    python benchmarks/inventory.py [--quick] [--before COMMIT] [--output FILE]
"""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _checkpoints import SIGMA, Stack, write_config, write_safetensors
from _machine import RMTBASE, Check, Process, arguments, describe_machine, finish, limit_on_time, recorded, run_process
from rmtbase.laws import element_null
from rmtbase.statistics import ELEMENT_STATISTICS, element_sketch, element_statistics
from scoring import ROUNDS, UNPROVED, best, source_of

BEFORE = "955c9c3"  # the last commit with four statistics of a matrix's elements
MEASURED = (1, 4)  # layers


@dataclass(frozen=True)
class Shape:
    """The checkpoint's sizes."""

    n_layers: int = 32
    n_heads: int = 32
    d_model: int = 4096
    d_head: int = 128
    d_mlp: int = 11008
    tokens: int = 32000

    def tensors(self, layers: int) -> dict[str, tuple[int, int]]:
        """Names and shapes of the first layers, and of what lies outside of them."""
        d, rows = self.d_model, self.n_heads * self.d_head
        of_layer = {
            **{f"self_attn.{name}_proj": (rows, d) for name in "qkv"},
            "self_attn.o_proj": (d, rows),
            **{f"mlp.{name}_proj": (self.d_mlp, d) for name in ("gate", "up")},
            "mlp.down_proj": (d, self.d_mlp),
        }
        return {
            "model.embed_tokens.weight": (self.tokens, d),
            **{f"model.layers.{k}.{name}.weight": shape for k in range(layers) for name, shape in of_layer.items()},
            "lm_head.weight": (self.tokens, d),
        }

    def elements(self, layers: int) -> int:
        """Count the stored elements."""
        return sum(rows * columns for rows, columns in self.tensors(layers).values())


QUICK = Shape(n_layers=6, n_heads=4, d_model=256, d_head=64, d_mlp=512, tokens=1000)


def write_checkpoint(shape: Shape, layers: int, folder: Path) -> Path:
    """Write some layers of the shape as a checkpoint."""
    folder.mkdir()
    stack = Stack(layers, shape.n_heads, shape.n_heads, shape.d_model, shape.d_head)
    more = {"intermediate_size": shape.d_mlp, "vocab_size": shape.tokens, "tie_word_embeddings": False}
    write_config(stack, folder, "bfloat16", **more)
    write_safetensors(folder / "model.safetensors", shape.tensors(layers), np.random.default_rng(layers))
    return folder


def of_rounding(shape: Shape) -> float:
    """Largest difference that float32 makes to a statistic of one W_QK, in standard errors of the null."""
    rng = np.random.default_rng(0)
    w_q, w_k = SIGMA * rng.standard_normal((2, shape.d_head, shape.d_model), dtype=np.float32)
    single, double = (element_statistics(element_sketch([q.T @ k])) for q, k in ((w_q, w_k), (w_q.astype(float), w_k)))
    errors = [element_null(name, shape.d_model**2).std() for name in ELEMENT_STATISTICS]
    return float(np.nanmax(np.abs(single - double) / errors))


def extrapolated(runs: dict[int, Process], layers: int, clock: str) -> float:
    """Extrapolate the time to all layers from the difference between the two measured numbers of layers."""
    few, many = (getattr(runs[count], clock) for count in MEASURED)
    return few + (layers - MEASURED[0]) * (many - few) / (MEASURED[1] - MEASURED[0])


def say(what: str, seconds: float, cpu_seconds: float) -> None:
    """Print a line of progress."""
    print(f"  {what:24}{seconds:8.1f} s   processor {cpu_seconds:8.1f} s", flush=True)


def main() -> None:
    options = arguments("Scoring every element of a Llama-7B-shaped checkpoint.", "inventory.json", before=BEFORE)
    shape = QUICK if options.quick else Shape()
    runs: dict[int, Process] = {}
    usual: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cache = {"RMTBASE_CACHE": str(folder / "cache"), **UNPROVED}
        models = {layers: write_checkpoint(shape, layers, folder / f"layers-{layers}") for layers in MEASURED}
        options_of_all = ["--elements", "heads", "--components", "layers,embeddings"]
        for layers, model in models.items():
            command = [*RMTBASE, "score", str(model), *options_of_all, "-o", str(folder / f"{layers}.nc")]
            runs[layers] = run_process(command, cache)
            say(f"everything, {layers} layers", runs[layers].seconds, runs[layers].cpu_seconds)
        file_bytes = (folder / f"{MEASURED[1]}.nc").stat().st_size
        sources = {"before": source_of(options.before, folder / "before"), "now": Path(__file__).parents[1] / "src"}
        for _ in range(ROUNDS):
            for name, source in sources.items():
                command = [*RMTBASE, "score", str(models[MEASURED[1]]), "-o", str(folder / f"{name}.nc")]
                run = run_process(command, {"PYTHONPATH": str(source), **cache})
                usual[name].append(recorded(run))
                say(f"matrices, {name}", run.seconds, run.cpu_seconds)
    total = {clock: extrapolated(runs, shape.n_layers, clock) for clock in ("seconds", "cpu_seconds")}
    ratio = {clock: best(usual["now"], clock) / best(usual["before"], clock) for clock in total}
    rounding = of_rounding(shape)
    result = {
        "benchmark": "inventory",
        "command": "python benchmarks/inventory.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "shape": asdict(shape),
        "elements": {
            "stored": shape.elements(shape.n_layers),
            "of_products": shape.n_layers * shape.n_heads * shape.d_model**2,
        },
        "everything": {f"{layers} layers": recorded(run) for layers, run in runs.items()},
        "scores_file_bytes": file_bytes,
        "extrapolated_seconds": total,
        "without_elements_of_heads": {"before": options.before, "runs": usual, "times_as_long": ratio},
        "float32_in_standard_errors": rounding,
    }
    checks = [
        limit_on_time(
            f"minutes for all {shape.n_layers} layers",
            total["seconds"] / 60,
            total["cpu_seconds"] / 60,
            max(run.other_cores for run in runs.values()),
            12.0,
        ),
        Check("peak memory in GiB", max(run.peak_rss_gib for run in runs.values()), at_most=2.0),
        Check("times as long as with four statistics, processor time", ratio["cpu_seconds"], at_most=1.3),
        Check("what float32 does to a statistic of W_QK, in standard errors", rounding, at_most=0.05),
    ]
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
