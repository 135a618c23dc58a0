"""Train the demo model again by its own recipe, early steps dense, and follow every head and matrix along the way.

    python studies/training_run/follow.py --work build/training_run

writes trajectory.nc, results.json and the pictures into this folder (or --out); the checkpoints stay under the work
folder. Interrupted, in training or in scoring, the same command goes on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from safetensors.numpy import load_file

import rmtbase
from rmtbase.drawing.figure import save
from rmtbase.results.trajectory import summarize_trajectory
from rmtbase.results.trajectory.figures._along_steps import departures as draw_departures
from rmtbase.results.trajectory.figures._animation import animation, save_animation

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parent / "demo_model" / "train.py"
SHIPPED = HERE.parents[1] / "src" / "rmtbase" / "models" / "demo"
STEPS = (
    *(0, 1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 76, 90, 105, 128, 150, 181, 200, 228, 256, 300, 362),
    *(430, 512, 600, 724, 860, 1000, 1150, 1300, 1448, 1600, 1800, 2048, 2300, 2600, 2896, 3200, 3500),
)


def train(run: Path) -> None:
    """Train by the recipe of studies/demo_model, with a checkpoint at each of the steps."""
    command = [sys.executable, str(RECIPE), "--out", str(run), "--keep", *map(str, STEPS)]
    subprocess.run(command, check=True)


def same_as_shipped(run: Path) -> dict[str, bool]:
    """Test for each shipped revision whether the checkpoint of its step holds the same weights to the bit."""
    revisions = json.loads((SHIPPED / "index.json").read_text(encoding="utf-8"))["revisions"]
    same = {}
    for revision in revisions:
        tensors = load_file(SHIPPED / revision["name"] / "model.safetensors")
        again = load_file(run / f"step-{revision['step']}" / "model.safetensors")
        same[revision["name"]] = all(np.array_equal(tensors[name], again[name]) for name in tensors)
    return same


def departures(trajectory: xr.DataTree) -> dict[str, Any]:
    """Find the steps by which the first head, half of the heads and all heads differ from each null for good."""
    found = summarize_trajectory(trajectory).departures
    return {one.null: {name: value for name, value in one._asdict().items() if name != "null"} for one in found}


def report(trajectory: xr.DataTree, run: Path, out: Path) -> None:
    """Write results.json, departures.png and spectra.gif."""
    save(draw_departures(trajectory), out / "departures.png", dpi=150)
    save_animation(animation(trajectory, "spectra"), out / "spectra.gif")
    results = {"steps": len(STEPS), "same_as_shipped": same_as_shipped(run), "departures": departures(trajectory)}
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    run = args.work / "demo"
    train(run)
    revisions, output = [f"step-{step}" for step in STEPS], args.out / "trajectory.nc"
    trajectory = rmtbase.trajectory(run, revisions, output, overwrite=True)
    report(trajectory, run, args.out)


if __name__ == "__main__":
    main()
