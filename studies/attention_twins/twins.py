"""Does the kind of attention decide how far queries and keys are from the half-normal law? Four architectures, seeds.

    python studies/attention_twins/twins.py --work build/attention_twins

trains 17 small models of 1000 steps, as many at a time as there are cores (an hour on two free ones), follows each
along 14 steps, compares the groups of seeds, and writes comparison.nc, losses.json and twins.png into this folder (or
--out). Interrupted, it goes on.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from figure import draw

import rmtbase
from rmtbase.models import find_series
from rmtbase.results.comparison import Training, compare
from rmtbase.tables import write_table

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parent / "demo_model" / "train.py"
STEPS = (0, 4, 11, 22, 45, 64, 90, 128, 181, 256, 362, 512, 724, 1000)
PEAK_RATE, LAST = 3e-3, STEPS[-1]


class Group(NamedTuple):
    """Models of one architecture and weight decay. No two models share a seed, of weights or of batches."""

    model: str
    weight_decay: float
    seeds: range


GROUPS = {
    "gqa": Group("demo", 3.0, range(16, 20)),
    "mha": Group("mha", 3.0, range(4, 8)),
    "qk-norm": Group("qk-norm", 3.0, range(8, 11)),
    "neox": Group("neox", 3.0, range(12, 15)),
    "gqa, little decay": Group("demo", 0.1, range(3)),
}


def train(group: Group, seed: int, run: Path) -> None:
    """Train by the recipe of studies/demo_model with a shorter schedule, one thread, and a checkpoint at each step."""
    settings = {
        "out": run, "model": group.model, "seed": seed, "weight-decay": group.weight_decay, "peak": PEAK_RATE,
        "steps": LAST, "warm-up": 100, "threads": 1, "every": 250,
    }  # fmt: skip
    options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, str(RECIPE), *options, "--keep", *map(str, STEPS)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def held_out_loss(run: Path) -> float:
    """Bits per held-out byte at the last step."""
    with (run / "loss_curve.csv").open(encoding="utf-8") as file:
        return float(list(csv.DictReader(file))[-1]["held_out_bits_per_byte"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    runs = {
        f"{name} {seed}": (group, seed, args.work / f"{group.model}-{group.weight_decay:g}-{seed}")
        for name, group in GROUPS.items()
        for seed in group.seeds
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: train(*one), runs.values()))
    trajectories = {
        name: rmtbase.trajectory(
            find_series(run, [f"step-{step}" for step in STEPS], proof=False), output=run.with_name(f"{run.name}.nc")
        )
        for name, (_, _, run) in runs.items()
    }
    compared = compare(
        trajectories,
        {name: [f"{name} {seed}" for seed in group.seeds] for name, group in GROUPS.items()},
        {name: Training(PEAK_RATE, group.weight_decay, LAST) for name, (group, _, _) in runs.items()},
    )
    write_table(compared, args.out / "comparison.nc")
    losses = {name: held_out_loss(run) for name, (_, _, run) in runs.items()}
    (args.out / "losses.json").write_text(json.dumps(losses, indent=1) + "\n", encoding="utf-8")
    draw(compared, args.out / "twins.png")


if __name__ == "__main__":
    main()
