"""Two seeds of one recipe, and the singular values of their matrices along training.

    python -m studies.sources.two_seeds --work build/two_seeds

trains the bundled demo model's recipe, 400 steps long, with two seeds, one thread each, and writes two_seeds.npz into
this folder (or --out). The seeds stand for the follow-up's deduplicated and non-deduplicated models. Interrupted, it
goes on.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from rmtbase.models import open_model
from studies.sources.spectra import all_spectra

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parent / "demo_model" / "train.py"
HELD = HERE / "two_seeds.npz"
SEEDS = (1, 2)
STEPS = (0, 4, 11, 22, 32, 45, 64, 90, 105, 128, 150, 181, 215, 256, 300, 350, 400)
SETTINGS = {"steps": STEPS[-1], "warm-up": 50, "every": 200, "threads": 1}


def train(seed: int, run: Path) -> None:
    """Train by the recipe of studies/demo_model with a shorter schedule, and a checkpoint at each of the steps."""
    options = [text for name, value in SETTINGS.items() for text in (f"--{name}", str(value))]
    command = [
        sys.executable,
        str(RECIPE),
        "--out",
        str(run),
        "--seed",
        str(seed),
        *options,
        "--keep",
        *map(str, STEPS),
    ]
    subprocess.run([*command, "--keep", *map(str, STEPS)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--out", type=Path, default=HELD)
    args = parser.parse_args()
    held: dict[str, np.ndarray] = {"steps": np.array(STEPS), "seeds": np.array(SEEDS)}
    for seed in SEEDS:
        run = args.work / f"seed-{seed}"
        train(seed, run)
        for step in STEPS:
            found = all_spectra(open_model(run / f"step-{step}"))
            held |= {f"{seed} {step} {name}": values.astype(np.float16) for name, values in found.items()}
    np.savez_compressed(args.out, allow_pickle=False, **held)


if __name__ == "__main__":
    main()
