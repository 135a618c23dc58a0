"""Score freshly initialised transformers models, and look whether their p-values are uniform.

    python studies/calibration/calibrate.py

writes results.json, uniformity.png and flagged.png beside this file (or into ``--out``). Everything is seeded.
"""

import argparse
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from figure import draw_flagged, draw_uniformity
from numpy.typing import NDArray
from scipy import special, stats
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

import rmtbase
from rmtbase.nulls import Gaussian, Table
from rmtbase.statistics import MOMENT_STATISTICS, benjamini_hochberg

HERE = Path(__file__).parent
LEVEL = 0.05  # false discovery rate, and so the share of null models with anything flagged
NULL_DRAWS = 40_000  # of the heads' null; the default of 10 000 is scored beside it
NULL_SEEDS = 8  # the models take turns, so that no one null sample decides for all of them
MATRIX_NULL_DRAWS = 5_000
GRID = np.linspace(0.0, 1.0, 101)

Array = NDArray[np.float64]


class Family(NamedTuple):
    """A kind of model: how one is initialised, how it is stored, how many are drawn and from which seed on."""

    title: str
    build: Callable[[], PreTrainedModel]
    dtype: torch.dtype
    models: int
    first_seed: int


def llama() -> PreTrainedModel:
    """Make a model with grouped queries: 8 query heads read 4 key heads; d_model 128, d_head 16, 4 layers."""
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return LlamaForCausalLM(config)


def gpt2() -> PreTrainedModel:
    """Make a model with one key head per query head; d_model 256, d_head 32, 4 layers."""
    config = GPT2Config(vocab_size=32, n_positions=32, n_embd=256, n_layer=4, n_head=8, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


FAMILIES = {
    "llama_f32": Family("Llama (128, 16)", llama, torch.float32, 128, 1_000),
    "llama_f16": Family("Llama (128, 16), float16", llama, torch.float16, 128, 2_000),
    "gpt2_f32": Family("GPT-2 (256, 32)", gpt2, torch.float32, 100, 3_000),
}


@dataclass
class Scores:
    """Scores of one family's models; each list holds one array per model."""

    statistics: list[str] = field(default_factory=list)
    matrix_statistics: list[str] = field(default_factory=list)
    head_p: list[Array] = field(default_factory=list)  # (head, statistic + omnibus), one head per key group
    head_q: list[Array] = field(default_factory=list)  # the same heads, corrected over them alone
    all_head_q: list[Array] = field(default_factory=list)  # every head, as the file has it
    default_head_q: list[Array] = field(default_factory=list)  # every head, with the default number of null draws
    matrix_p: list[Array] = field(default_factory=list)
    matrix_q: list[Array] = field(default_factory=list)
    outliers: list[Array] = field(default_factory=list)  # (head, side): whether any eigenvalue lies outside

    def add(self, tree: Any, default: Any) -> None:
        """Append one model: its scores file, and the one made with the default null."""
        heads, matrices = tree["heads"], tree["matrices"]
        self.statistics = [*heads["statistic"].values.tolist(), "omnibus"]
        self.matrix_statistics = matrices["statistic"].values.tolist()
        n_layers, _ = heads["key_head"].shape
        first = np.unique(heads["key_head"].values[0], return_index=True)[1]
        p = _with_omnibus(heads, "p_value")[:, first].reshape(n_layers * first.size, -1)
        self.head_p.append(p)
        self.head_q.append(np.stack([benjamini_hochberg(column) for column in p.T], axis=-1))
        self.all_head_q.append(_with_omnibus(heads, "q_value").reshape(-1, p.shape[1]))
        self.default_head_q.append(_with_omnibus(default["heads"], "q_value").reshape(-1, p.shape[1]))
        for kept, name in ((self.matrix_p, "p_value"), (self.matrix_q, "q_value")):
            kept.append(matrices[name].values.reshape(-1, len(self.matrix_statistics)))
        sides = [heads[name].values[:, first].ravel() > 0 for name in ("outliers_above", "outliers_below")]
        self.outliers.append(np.stack(sides, axis=-1))


def _with_omnibus(heads: Any, name: str) -> Array:
    return np.concatenate([heads[name].values, heads[f"omnibus_{name}"].values[..., None]], axis=-1)


def score_family(family: Family, work: Path) -> Scores:
    """Initialise, save, score, one model after the other."""
    scores = Scores()
    table = None
    for number in range(family.models):
        torch.manual_seed(family.first_seed + number)
        model = family.build()
        torch.nn.Module.to(model, family.dtype)  # in place
        model.save_pretrained(work)
        if table is None:
            d_model = model.config.hidden_size
            table = rmtbase.baseline(d_model, d_model // model.config.num_attention_heads, draws=NULL_DRAWS, seed=99)
        seed = number % NULL_SEEDS
        scores.add(
            rmtbase.score(work, Table(table, seed=seed), matrices="spectra"),
            rmtbase.score(work, Gaussian(seed=seed), matrices="none"),
        )
        if number % 16 == 15:
            print(f"{family.title}: {number + 1} of {family.models}", flush=True)
    return scores


def uniformity(p: Array, null_draws: int | None) -> dict[str, float | list[float]]:
    """Kolmogorov–Smirnov against the uniform law.

    A Monte Carlo p-value is read off a finite null sample, the same for many heads: the sample's own error is in the
    distance, which is then that of two samples, of sizes n and m. Folding p = 2 min(u, 1 - u) leaves it so: the
    folded Brownian bridge B(s) - B(1 - s) is a Brownian bridge in 2 s.
    """
    n = p.size
    ordered = np.sort(p)
    distance = float(np.maximum(ordered - np.arange(n) / n, np.arange(1, n + 1) / n - ordered).max())
    effective = n if null_draws is None else n * null_draws / (n + null_draws)
    ecdf = np.searchsorted(ordered, GRID, side="right") / n
    return {
        "count": n,
        "distance": distance,
        "ks_p_value": float(special.kolmogorov(np.sqrt(effective) * distance)),
        "below_0.05": float((p < 0.05).mean()),
        "ecdf_minus_uniform": [round(float(x), 4) for x in ecdf - GRID],
    }


def flagged(q_values: list[Array], column: int) -> dict[str, float | list[float]]:
    """Count the models with any q < LEVEL in that column, with Clopper–Pearson's 95 % interval."""
    count = sum(bool((q[:, column] < LEVEL).any()) for q in q_values)
    test = stats.binomtest(count, len(q_values), LEVEL)
    low, high = test.proportion_ci(0.95, method="exact")
    return {
        "models": len(q_values),
        "flagged": count,
        "share": count / len(q_values),
        "interval": [float(low), float(high)],
        "p_value_of_0.05": float(test.pvalue),
    }


def summary(scores: Scores) -> dict[str, Any]:
    """Summarize one family."""
    head_p, matrix_p = np.concatenate(scores.head_p), np.concatenate(scores.matrix_p)
    outside = np.concatenate(scores.outliers)
    heads = {
        name: {
            **uniformity(head_p[:, k], NULL_DRAWS),
            "one_head_per_key_group": flagged(scores.head_q, k),
            "all_heads": flagged(scores.all_head_q, k),
            "all_heads_default_draws": flagged(scores.default_head_q, k),
        }
        for k, name in enumerate(scores.statistics)
    }
    matrices = {
        name: {
            **uniformity(matrix_p[:, k], None if name in MOMENT_STATISTICS else MATRIX_NULL_DRAWS * NULL_SEEDS),
            "all_matrices": flagged(scores.matrix_q, k),
        }
        for k, name in enumerate(scores.matrix_statistics)
    }
    outliers = {
        side: {"expected": 0.001, "heads": int(outside[:, k].sum()), "share": float(outside[:, k].mean())}
        for k, side in enumerate(("above", "below"))
    }
    return {"heads": heads, "matrices": matrices, "heads_with_outliers": outliers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder for results.json and the figures")
    parser.add_argument("--models", type=int, help="models per family, fewer than the study's own for a quick look")
    args = parser.parse_args()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RMTBASE_CACHE"] = str(Path(folder) / "cache")  # the nulls are made here and now
        for name, family in FAMILIES.items():
            family = family._replace(models=args.models or family.models)
            results[name] = {"title": family.title, **summary(score_family(family, Path(folder) / name))}
    record = {
        "versions": {name: version(name) for name in ("numpy", "scipy", "jax", "torch", "transformers")},
        "false_discovery_rate": LEVEL,
        "null_draws": NULL_DRAWS,
        "null_seeds": NULL_SEEDS,
        "matrix_null_draws": MATRIX_NULL_DRAWS,
        "grid": [round(float(u), 2) for u in GRID],
        "families": results,
    }
    publish(record, args.out)


def publish(record: dict[str, Any], out: Path) -> None:
    """Write results.json and the figures."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1)
    text = re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers.group().split()), text)  # a list on a line
    (out / "results.json").write_text(text + "\n", encoding="utf-8")
    draw_uniformity(record, out / "uniformity.png")
    draw_flagged(record, out / "flagged.png")


if __name__ == "__main__":
    main()
