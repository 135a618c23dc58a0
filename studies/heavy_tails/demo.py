"""Verdicts on the heads of the bundled model before, during and after its training.

    python studies/heavy_tails/demo.py

writes demo.json into this folder (or --out); a minute of one core, everything seeded. The command
``rmtbase signal demo --heavy-tails`` prints the same of every circuit and matrix.
"""

import argparse
import json
from pathlib import Path

from rmtbase.models import open_model
from rmtbase.results.signal import signal, signal_rows, summarize_tails
from rmtbase.results.signal.schema import VERDICTS

HERE = Path(__file__).resolve().parent
STEPS, LEVEL = ("step-0", "step-200", "final"), 0.05


def main() -> None:
    """Look at W_QK of each revision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    found = {}
    for step in STEPS:
        tree = signal(
            open_model("demo", step, proof=False), circuits=("qk",), matrices="none", level=LEVEL, heavy_tails=True
        )
        (line,) = summarize_tails(signal_rows(tree), LEVEL)
        verdicts = {VERDICTS[code]: count for code, count in line.verdicts.items()}
        found[step] = line._asdict() | {"verdicts": verdicts}
    text = json.dumps({"level": LEVEL, "steps": found}, indent=1)
    (parser.parse_args().out / "demo.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
