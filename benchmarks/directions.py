"""Time that the analysis of signal and noise adds to scoring a model.

Writes models of two shapes under Llama's names, in float32, in a temporary folder that is removed: 12 layers of 12
heads of (768, 64), GPT-2's, and 4 layers of 32 heads of (2048, 128). Each is written once with weights that are only
noise, and once with up to eleven directions planted in the queries of every head, at 0.8 to 4 times √d_model. Times are
processor time of one thread in fresh processes; the shortest of three counts:

* ``score``: the command ``rmtbase score MODEL --matrices none``, without the proof of the layout;
* ``signal``: the command ``rmtbase signal MODEL --matrices none --circuits qk``, which reads the model and takes its
  singular values once more;
* ``singular values``: the reading and the singular values of all heads, which either needs;
* ``directions``: everything that follows in the second command, from the first law on; a process begins with no law.

``score and signal`` is ``score`` followed by ``directions``.

    python benchmarks/directions.py [--quick] [--output FILE]
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from _checkpoints import SIGMA, Stack, write_config
from _machine import RMTBASE, Check, arguments, describe_machine, finish, recorded, run_process

ROUNDS = 3  # of which the best counts
LIMIT = 0.3
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RMTBASE_PROOF": "0"}


STACKS = {"(768, 64)": Stack(12, 12, 12, 768, 64), "(2048, 128)": Stack(4, 32, 32, 2048, 128)}
QUICK = {"(128, 16)": Stack(2, 4, 4, 128, 16)}


def write_planted(stack: Stack, planted: bool, folder: Path) -> None:
    """Write the checkpoint in float32, of noise alone or with directions planted in the queries."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    write_config(stack, folder, "float32")
    tensors = {}
    for layer in range(stack.n_layers):
        for part, (name, shape) in zip("qk", stack.tensors(layer).items(), strict=True):
            weights = rng.standard_normal((stack.n_heads, stack.d_head, stack.d_model), dtype=np.float32)
            for number in range(stack.n_heads if planted and part == "q" else 0):
                count = (layer * stack.n_heads + number) % 12
                left, right = (np.linalg.qr(rng.standard_normal((n, count)))[0] for n in (stack.d_head, stack.d_model))
                weights[number] += np.sqrt(stack.d_model) * (left * np.linspace(0.8, 4.0, count)) @ right.T
            tensors[name] = SIGMA * weights.reshape(shape)
    save_file(tensors, folder / "model.safetensors")


class Ticks:
    """A progress reporter that keeps when each bar began, by the processor's clock."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}

    def bar(self, label: str, total: int) -> Any:
        """Note the time."""
        self.begun[label] = time.process_time()
        return lambda count: None

    def note(self, line: str) -> None:
        """Ignore the note."""

    detail = note


def steps(folder: str) -> None:
    """Look for directions, and print the processor seconds of reading, and of the rest, as JSON."""
    import xarray as xr

    from rmtbase.models import open_model
    from rmtbase.results.signal import signal

    xr.Dataset({"one": ("x", [1.0])})  # the first dataset of a process imports Dask, if that is installed
    model, ticks = open_model(folder), Ticks()
    tree = signal(model, circuits=["qk"], matrices="none", progress=ticks)
    end = time.process_time()
    number = tree["circuits/qk/heads"].to_dataset()["n_directions"].values
    found = {
        "singular values": ticks.begun["finding directions"] - ticks.begun["reading layers"],
        "directions": end - ticks.begun["finding directions"],
        "numbers of directions that occur": int(np.unique(number).size),
    }
    print(json.dumps(found))


def main() -> None:
    options = arguments("Signal and noise beside scoring.", "directions.json")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for shape, stack in (QUICK if options.quick else STACKS).items():
            for planted in (False, True):
                folder = Path(temporary) / f"{shape}, {planted}"
                write_planted(stack, planted, folder)
                rows.append({"shape": shape, "heads": stack.heads, "planted": planted, **measured(folder)})
                print(json.dumps({name: one for name, one in rows[-1].items() if name != "runs"}))
    checks = [
        Check(
            f"what looking for directions adds to scoring, {one['shape']}, "
            + ("planted" if one["planted"] else "noise alone"),
            one["directions"] / one["score"],
            at_most=LIMIT,
        )
        for one in rows
    ]
    result = {
        "benchmark": "directions",
        "command": "python benchmarks/directions.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "stacks": {name: asdict(one) for name, one in STACKS.items()},
        "processor_seconds": rows,
    }
    finish(result, checks, options.output)


def measured(folder: Path) -> dict[str, Any]:
    """Measure the shortest processor time of each, in seconds, and keep all runs."""
    commands = {
        "score": [*RMTBASE, "score", str(folder), "--matrices", "none"],
        "signal": [*RMTBASE, "signal", str(folder), "--matrices", "none", "--circuits", "qk"],
        "steps": [sys.executable, __file__, "--steps", str(folder)],
    }
    runs: dict[str, list[Any]] = {name: [] for name in commands}
    printed: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        for name, command in commands.items():
            run = run_process(command, ONE_THREAD | {"RMTBASE_CACHE": str(folder.parent / "cache")})
            runs[name].append(recorded(run))
            if name == "steps":
                printed.append(json.loads(run.output))
    best = {name: min(run["cpu_seconds"] for run in runs[name]) for name in ("score", "signal")}
    best |= {name: min(one[name] for one in printed) for name in printed[0]}
    return best | {"score and signal": best["score"] + best["directions"], "runs": runs}


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--steps":
        steps(sys.argv[2])
    else:
        main()
