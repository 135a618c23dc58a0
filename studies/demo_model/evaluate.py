"""Score the shipped checkpoints and the n-gram models on the same held-out bytes, and test the heads.

    python studies/demo_model/evaluate.py

Writes results.json and loss_curve.png into this folder (or --out) from the checkpoints of the package.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import Corpus, load
from figure import draw, read_curve
from heads import compare, null_npr
from held_out import CONTEXT, STRIDE, bits_per_byte
from ngram import fit, join, mean_bits, probabilities, tune
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "src" / "rmtbase" / "models" / "demo"
ORDERS = 6
CONVENTION = (
    "every byte of every held-out file but the file's first, each scored once and each file on its own; "
    f"the transformer sees windows of at most {CONTEXT} bytes moved by {STRIDE}, so at least "
    f"{CONTEXT - STRIDE} preceding bytes (all of them near a file's start); "
    "an n-gram sees the n - 1 preceding bytes (fewer near a file's start)"
)


def score_revisions(models: Path, revisions: dict[str, int], corpus: Corpus) -> dict[str, dict[str, float]]:
    """Held-out bits per byte of each checkpoint; weights as stored in float16, arithmetic in float32."""
    result = {}
    for name, step in revisions.items():
        model = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32).eval()
        bits, count = bits_per_byte(model, corpus.held_out.values())
        result[name] = {"step": step, "held_out_bits_per_byte": round(bits, 4), "bytes_scored": count}
        print(name, result[name], flush=True)
    return result


def score_ngrams(corpus: Corpus) -> dict[str, Any]:
    """Held-out bits per byte of the n-gram models of order 1 … ORDERS."""
    rest = join([text for path, text in corpus.train.items() if path not in corpus.tuning])
    kappa = tune(rest, join(list(corpus.tuning.values())), ORDERS)
    held_out = join(list(corpus.held_out.values()))
    model = fit(join(list(corpus.train.values())), ORDERS, kappa)
    bits = [round(mean_bits(p, held_out), 4) for p in probabilities(model, held_out)]
    print("n-grams", bits, flush=True)
    return {
        "smoothing": "interpolated Witten-Bell with a tuned constant per order",
        "kappa": kappa,
        "bytes_scored": int((held_out.position >= 1).sum()),
        "held_out_bits_per_byte": {str(n): value for n, value in enumerate(bits, start=1)},
    }


def score_heads(models: Path, revisions: dict[str, int]) -> dict[str, object]:
    """Every head's NPR in every checkpoint, beside the null of the same shape."""
    config = json.loads((models / "final" / "config.json").read_text(encoding="utf-8"))
    null = null_npr(config["hidden_size"], config["head_dim"])
    quantiles = np.quantile(null, [0.0005, 0.025, 0.5, 0.975, 0.9995])
    return {
        "statistic": "normalized_participation_ratio of the eigenvalues of W_QK^T W_QK",
        "null": {
            "draws": null.size,
            "mean": round(float(null.mean()), 5),
            "standard_error": float(f"{null.std(ddof=1) / null.size**0.5:.2g}"),
            "std": round(float(null.std(ddof=1)), 5),
            "quantile_0.0005_0.025_0.5_0.975_0.9995": np.round(quantiles, 5).tolist(),
        },
        "revisions": {name: compare(models / name, null) for name in revisions},
    }


def evaluate(models: Path, record: Path, out: Path) -> dict[str, Any]:
    """Evaluate the checkpoints under `models`; `record` holds training.json and loss_curve.csv."""
    training = json.loads((record / "training.json").read_text(encoding="utf-8"))
    corpus = load()
    for line in (differences := corpus.differences(training["corpus"])):
        print(f"NOTE: {line}", flush=True)
    if differences:
        print("NOTE: held-out numbers will differ, and files held out here may have been trained on", flush=True)
    ngrams = score_ngrams(corpus)
    results = {
        "corpus": corpus.describe(),
        "corpus_is_that_of_training": not differences,
        "scored_bytes": CONVENTION,
        "revisions": score_revisions(models, training["revisions"], corpus),
        "ngram": ngrams,
        "heads": score_heads(models, training["revisions"]),
        "training": training,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    curve = read_curve(record / "loss_curve.csv")
    draw(curve, ngrams["held_out_bits_per_byte"], training["revisions"], out / "loss_curve.png")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=SHIPPED, help="folder that holds one folder per revision")
    parser.add_argument("--record", type=Path, default=HERE, help="folder of training.json and loss_curve.csv")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    evaluate(args.models, args.record, args.out)


if __name__ == "__main__":
    main()
