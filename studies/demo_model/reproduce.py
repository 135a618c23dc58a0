"""Train, evaluate and lay out the bundled model: everything of this study, in one command.

    python studies/demo_model/reproduce.py --work build/demo_model

leaves under the work folder the checkpoints as they are shipped (demo/) and the study's files (study/).
With --publish they replace those of the repository.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from evaluate import HERE, SHIPPED, evaluate

LICENCE = (
    "The weights were trained on the source text of the Python standard library, which is distributed "
    "under the Python Software Foundation License Version 2 (https://docs.python.org/3/license.html). "
    "No source text is part of these files, only weights."
)


def index(results: dict[str, Any], models: Path) -> dict[str, Any]:
    """Contents of index.json: the revisions and their origin."""
    training = results["training"]
    per_step = training["tokens_seen"] // training["steps"]
    bits = {f"{n}_gram": results["ngram"]["held_out_bits_per_byte"][str(n)] for n in range(1, 7)}
    return {
        "default": "final",
        "tokenizer": "bytes",
        "tokenizer_note": "token id = byte value, 0 to 255; no special tokens",
        "revisions": [
            {
                "name": name,
                "step": score["step"],
                "tokens_seen": score["step"] * per_step,
                "held_out_bits_per_byte": score["held_out_bits_per_byte"],
                "sha256": hashlib.sha256((models / name / "model.safetensors").read_bytes()).hexdigest(),
            }
            for name, score in results["revisions"].items()
        ],
        "baseline_held_out_bits_per_byte": bits,
        "seed": training["seed"],
        "training": {key: value for key, value in training.items() if key not in ("seed", "revisions")},
        "study": "studies/demo_model",
        "licence_of_training_data": LICENCE,
    }


def copy_over(source: Path, target: Path) -> None:
    """Copy a folder's contents, replacing files of the same name; permissions are the usual ones."""
    shutil.copytree(source, target, copy_function=shutil.copyfile, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--publish", action="store_true", help="replace the repository's files by the new ones")
    args, training_options = parser.parse_known_args()  # anything else goes to train.py

    run, models, study = (args.work / name for name in ("run", "demo", "study"))
    command = [sys.executable, str(HERE / "train.py"), "--out", str(run), *training_options]
    subprocess.run(command, check=True)
    study.mkdir(parents=True, exist_ok=True)
    for name in ("training.json", "loss_curve.csv"):
        shutil.copy(run / name, study / name)
    revisions = json.loads((run / "training.json").read_text(encoding="utf-8"))["revisions"]
    for name in revisions:
        copy_over(run / name, models / name)
    results = evaluate(models, study, study)
    (models / "index.json").write_text(json.dumps(index(results, models), indent=2) + "\n", encoding="utf-8")
    if args.publish:
        copy_over(models, SHIPPED)
        copy_over(study, HERE)


if __name__ == "__main__":
    main()
