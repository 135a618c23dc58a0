"""Measure how often ``compare --published`` calls an untrained component nearer to a published one than chance brings.

    python studies/calibration/nearest_published.py

writes nearest_published.json beside this file (or where ``--out`` says). Everything is seeded; a minute of one core.
Components have weights N(0, σ²), σ of a model log-uniform from 0.002 to 0.05, and are fitted and compared as a model's.
"""

import argparse
import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from rmtbase.results.comparison._matrices import ComparedModel, FitsOfMatrices
from rmtbase.results.comparison._published import nearest_table, published_models
from rmtbase.statistics import weibull_fit

HERE = Path(__file__).parent
SEED = 91
LAYERS = 2
WIDTHS = (64, 128)
NAMES = ("attention_query", "attention_key", "attention_value", "attention_output", "mlp_gate", "mlp_in", "mlp_out")
LEVELS = (0.5, 0.1, 0.05, 0.01)


@dataclass(frozen=True)
class Untrained:
    """Fits of a model whose weights are drawn, as a :class:`ComparedModel` has them."""

    name: str
    drawn: dict[str, FitsOfMatrices]

    @property
    def components(self) -> tuple[str, ...]:
        """Components that were drawn."""
        return tuple(self.drawn)

    def fits(self, component: str) -> FitsOfMatrices:
        """Return the fits of a component."""
        return self.drawn[component]


def untrained(width: int, number: int) -> Untrained:
    """Draw and fit the matrices of a model: width × width in attention, four times as many in the MLP."""
    rng = np.random.default_rng((SEED, width, number))
    sigma, drawn = math.exp(rng.uniform(math.log(0.002), math.log(0.05))), {}
    for name in NAMES:
        n = width**2 * (4 if name.startswith("mlp") else 1)
        weights = sigma * rng.standard_normal((LAYERS, n))
        fits = [weibull_fit(layer) for layer in weights]
        shapes, scales = ([getattr(fit, field) for fit in fits] for field in ("shape", "scale"))
        unknown = [math.nan] * LAYERS
        columns = (shapes, [float(n)] * LAYERS, unknown, scales, weights.std(axis=1).tolist(), unknown)
        drawn[name] = FitsOfMatrices(*map(np.array, columns))
    return Untrained(f"untrained-{number}", drawn)


def measure(width: int, models: int) -> dict[str, Any]:
    """Count small p-values of components, and models of which a component is named as nearer than chance."""
    published, p_values, named = published_models(), [], 0
    for number in range(models):
        table = nearest_table([cast("ComparedModel", untrained(width, number))], published, seed=number)
        p_values += table["nearest_p_value"].values.ravel().tolist()
        named += bool((table["nearest_q_value"] < 0.05).any())
    return {
        "models": models,
        "components": len(p_values),
        **{f"share_below_{level:g}": round(float(np.mean(np.array(p_values) <= level)), 4) for level in LEVELS},
        "models_named": named,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200, help="of each width")
    parser.add_argument("--out", type=Path, default=HERE / "nearest_published.json")
    arguments = parser.parse_args()
    record = {
        "study": "nearest_published",
        "seed": SEED,
        "layers": LAYERS,
        "software": {name: version(name) for name in ("rmtbase", "numpy")},
        "widths": {str(width): measure(width, arguments.models) for width in WIDTHS},
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8", newline="\n")
    print(json.dumps(record["widths"]))


if __name__ == "__main__":
    main()
