"""Measure how often ``compare --published`` calls an untrained component nearer to a published one than chance brings.

    python studies/calibration/nearest_published.py

writes nearest_published.json beside this file (or where ``--out`` says). Everything is seeded; minutes of one core.
Models have Llama's layout, weights N(0, σ²) with σ log-uniform from 0.002 to 0.05, and are scored as any model is.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import rmtbase
from rmtbase.models import open_model
from rmtbase.results.comparison import compare

HERE = Path(__file__).parent
SEED = 91
LAYERS, HEADS = 2, 4
SHAPES = {"(64, 16)": (64, 16), "(128, 32)": (128, 32)}


def untrained(rng: np.random.Generator, d_model: int, d_head: int) -> Any:
    """Make a model of Llama's layout with normal weights of one σ."""
    sigma, width = float(np.exp(rng.uniform(np.log(0.002), np.log(0.05)))), HEADS * d_head
    shapes = {f"self_attn.{name}_proj": (width, d_model) for name in "qkv"} | {"self_attn.o_proj": (d_model, width)}
    shapes |= {f"mlp.{name}_proj": (4 * d_model, d_model) for name in ("gate", "up")}
    shapes |= {"mlp.down_proj": (d_model, 4 * d_model)}
    state = {
        f"model.layers.{layer}.{name}.weight": sigma * rng.standard_normal(shape)
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }
    return open_model(state, family="llama", config={"num_attention_heads": HEADS, "num_key_value_heads": HEADS})


def measure(d_model: int, d_head: int, models: int) -> dict[str, Any]:
    """Count small p-values of components, and models of which a component is named as nearer than chance."""
    p_values, named = [], 0
    for k in range(models):
        model = untrained(np.random.default_rng((SEED, d_model, k)), d_model, d_head)
        scores = rmtbase.score(model, "analytic", matrices="spectra")
        table = compare({"untrained": scores}, published=True, seed=k)["components"].to_dataset()
        p_values += table["nearest_p_value"].values.ravel().tolist()
        named += bool((table["nearest_q_value"] < 0.05).any())
    known = np.array(p_values)[np.isfinite(p_values)]
    return {
        "models": models,
        "components": known.size,
        **{f"share_below_{level:g}": round(float((known < level).mean()), 4) for level in (0.5, 0.1, 0.05, 0.01)},
        "models_named": named,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=60, help="of each shape")
    parser.add_argument("--out", type=Path, default=HERE / "nearest_published.json")
    arguments = parser.parse_args()
    found = {name: measure(*shape, arguments.models) for name, shape in SHAPES.items()}
    record = {
        "study": "nearest_published",
        "seed": SEED,
        "software": {name: version(name) for name in ("rmtbase", "numpy")},
        "shapes": found,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8", newline="\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
