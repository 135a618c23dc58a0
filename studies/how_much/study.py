"""Measures of how much a head differs from random heads, compared on planted heads and on a training run.

    python studies/how_much/study.py

writes ``results.json`` and the tables of ``README.md``; four minutes of one core.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

import rmtbase
from rmtbase.linalg import product_singular_values
from rmtbase.results import open_table
from rmtbase.results.scores import share_beyond_noise, summarize_scores

HERE = Path(__file__).parent
SHAPES = ((64, 8), (64, 12), (128, 16), (256, 32), (768, 64), (1024, 128), (64, 64))
RANKS = (1, 1, 2, 4, 8)  # numbers of planted directions, drawn with equal probability, at most half of d_head
NULL_HEADS, PLANTED_HEADS, RANDOM_MODELS = 600, 200, 2000
SEED = 20261125

Spectra = Float[np.ndarray, "head index"]


def _shares(eigenvalues: Spectra) -> Spectra:
    return eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)


def _effective_rank(eigenvalues: Spectra) -> Float[np.ndarray, " head"]:
    p = np.maximum(_shares(eigenvalues), 1e-300)
    return np.exp(-(p * np.log(p)).sum(axis=-1))


def _participation(eigenvalues: Spectra) -> Float[np.ndarray, " head"]:
    return 1.0 / (_shares(eigenvalues) ** 2).sum(axis=-1)


def _above_the_edge(eigenvalues: Spectra, null: Spectra) -> Float[np.ndarray, " head"]:
    p, edge = _shares(eigenvalues), np.quantile(_shares(null)[:, 0], 0.999)
    return np.where(p > edge, p, 0.0).sum(axis=-1)


def _by_median(eigenvalues: Spectra, null: Spectra) -> Float[np.ndarray, " head"]:
    mean = null.mean(axis=0)
    noise = np.median(eigenvalues, axis=-1) / np.median(mean)
    return 1.0 - noise * mean.sum() / eigenvalues.sum(axis=-1)


MEASURES: dict[str, Callable[[Spectra, Spectra], Float[np.ndarray, " head"]]] = {
    "share beyond noise": lambda eigenvalues, null: share_beyond_noise(eigenvalues, null.mean(axis=0)),
    "noise from the median": _by_median,
    "lost effective rank": lambda eigenvalues, null: 1 - _effective_rank(eigenvalues) / _effective_rank(null).mean(),
    "lost participation ratio": lambda eigenvalues, null: 1 - _participation(eigenvalues) / _participation(null).mean(),
    "moved share": lambda eigenvalues, null: np.maximum(_shares(eigenvalues) - _shares(null).mean(axis=0), 0.0).sum(
        axis=-1
    ),
    "share above the edge": _above_the_edge,
}
"""Measures of eigenvalues of heads, given those of random heads of their shape."""


def drawn(rng: np.random.Generator, d_model: int, d_head: int, n: int, law: str = "normal") -> Spectra:
    """Draw the eigenvalues of random heads."""
    shape = (n, d_head, d_model)
    entries = (lambda: rng.standard_normal(shape)) if law == "normal" else lambda: rng.uniform(-1.0, 1.0, shape)
    return np.concatenate(
        [product_singular_values(q[None], k[None]) ** 2 for q, k in zip(entries(), entries(), strict=True)]
    )


def planted(rng: np.random.Generator, d_model: int, d_head: int, n: int) -> tuple[Spectra, Float[np.ndarray, " head"]]:
    """Draw heads with planted directions: their eigenvalues, and the share of ‖W_QK‖²_F that is not noise.

    One to eight directions u_i of the head axes are read by W_Q along v_i and, in seven of ten heads, by W_K along w_i,
    at up to 2.8 times √d_model. The planted share is 1 - ‖N_Qᵀ N_K‖² / ‖W_QK‖² with the noise N_Q and N_K.
    """
    spectra, shares = [], []
    for _ in range(n):
        rank, both = min(int(rng.choice(RANKS)), d_head // 2), rng.random() < 0.7
        noise_q, noise_k = rng.standard_normal((2, d_head, d_model))
        u, v, w = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (d_head, d_model, d_model))
        strengths = 0.7 * rng.uniform(0, 4) * np.sqrt(d_model) * rng.uniform(0.6, 1.0, rank)
        w_q, w_k = noise_q + (u * strengths) @ v.T, noise_k + both * (u * strengths) @ w.T
        spectra.append(product_singular_values(w_q[None], w_k[None])[0] ** 2)
        shares.append(1.0 - np.sum((noise_q.T @ noise_k) ** 2) / spectra[-1].sum())
    return np.array(spectra), np.array(shares)


def study() -> dict[str, dict]:
    """Compute all numbers."""
    rng = np.random.default_rng(SEED)
    found: dict[str, dict] = {"random heads": {}, "planted heads": {}, "training run": {}}
    together: dict[str, list] = {name: [] for name in (*MEASURES, "planted")}
    for d_model, d_head in SHAPES:
        place = f"{d_model}, {d_head}"
        null, fresh = (drawn(rng, d_model, d_head, NULL_HEADS) for _ in range(2))
        uniform = drawn(rng, d_model, d_head, NULL_HEADS, "uniform")
        share = {
            law: share_beyond_noise(one, null.mean(axis=0)) for law, one in (("normal", fresh), ("uniform", uniform))
        }
        found["random heads"][place] = {
            law: {"mean": float(one.mean()), "sd": float(one.std()), "95 %": float(np.quantile(one, 0.95))}
            for law, one in share.items()
        }
        spectra, shares = planted(rng, d_model, d_head, PLANTED_HEADS)
        together["planted"].append(shares)
        found["planted heads"][place] = {}
        for name, measure in MEASURES.items():
            values = measure(spectra, null)
            together[name].append(values)
            found["planted heads"][place][name] = _agreement(shares, values)
    planted_shares = np.concatenate(together.pop("planted"))
    found["planted heads"]["all shapes"] = {
        name: _agreement(planted_shares, np.concatenate(values)) for name, values in together.items()
    }
    found["random models"] = answers_of_random_models(rng)
    heads = open_table(HERE.parent / "training_run" / "trajectory.nc")["heads"].to_dataset()
    for step in heads["step"].values.tolist():
        of = heads["beyond_noise"].sel(step=step).values
        found["training run"][str(step)] = [float(value) for value in np.nanquantile(of, [0.0, 0.5, 1.0])]
    return found


def answers_of_random_models(rng: np.random.Generator) -> dict[str, int]:
    """Count random models of 32 heads whose answer names a head, and whose answer names a kind of difference."""
    counts = {"models": RANDOM_MODELS, "name a head": 0, "name a kind": 0, "heads named": 0}
    for _ in range(RANDOM_MODELS):
        summary = summarize_scores(rmtbase.score_heads(*rng.standard_normal((2, 4, 8, 16, 128))))
        counts["name a head"] += bool(summary.findings)
        counts["name a kind"] += any(summary.kinds.values())
        counts["heads named"] += len(summary.findings)
    return counts


def _agreement(shares: Float[np.ndarray, " head"], values: Float[np.ndarray, " head"]) -> dict[str, float]:
    """Return Spearman's rank correlation with the planted share, and the root mean square difference."""
    error = float(np.sqrt(np.mean((values - shares) ** 2)))
    return {"rank correlation": float(spearmanr(shares, values)[0]), "error": error}


def tables(found: dict[str, dict]) -> str:
    """Write the tables of the README."""
    lines = ["| (d_model, d_head) | normal entries: mean ± sd, 95 % below | uniform entries |", "|---|---|---|"]
    for place, laws in found["random heads"].items():
        cells = (
            f"{100 * one['mean']:.1f} ± {100 * one['sd']:.1f} %, {100 * one['95 %']:.1f} %" for one in laws.values()
        )
        lines.append(f"| ({place}) | {' | '.join(cells)} |")
    places = list(found["planted heads"])
    lines += ["", "| measure | " + " | ".join(places) + " |", "|---" * (1 + len(places)) + "|"]
    for name in MEASURES:
        cells = (
            f"{one[name]['rank correlation']:.2f}, {one[name]['error']:.2f}" for one in found["planted heads"].values()
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    models = found["random models"]
    lines += [
        "",
        "| random models | " + " | ".join(name for name in models if name != "models") + " |",
        "|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(map(str, models.values())) + " |"]
    lines += ["", "| step | smallest | median | largest |", "|---|---|---|---|"]
    steps = list(found["training run"].items())
    for step, three in steps[:: max(1, len(steps) // 12)]:
        lines.append(f"| {step} | " + " | ".join(f"{100 * one:.0f} %" for one in three) + " |")
    return "\n".join(lines)


def main() -> None:
    found = study()
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    page = HERE / "README.md"
    begin, rest = page.read_text().split("<!-- begin table -->\n")
    page.write_text(
        f"{begin}<!-- begin table -->\n{tables(found)}\n<!-- end table -->{rest.split('<!-- end table -->')[1]}"
    )
    print(tables(found))


if __name__ == "__main__":
    main()
