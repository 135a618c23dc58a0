"""How many directions were learned, how strong, and which: planted ones looked for by rmtbase.

    python studies/signal/study.py

writes results.json and signal.png into this folder (or --out); six minutes of one core, everything seeded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figure import draw
from planted import aligned_head, chain, head

from rmtbase.laws import RankOneSpike
from rmtbase.scoring import spectral_signal

HERE = Path(__file__).resolve().parent
SHAPES = ((384, 32, 384), (768, 64, 768), (1024, 64, 512), (4096, 128, 4096))
TRIALS, LEVEL = 1000, 0.05
PLANTED: tuple[tuple[float, ...], ...] = (
    (), (1.2,), (1.5,), (2.0,), (2.0, 2.0), (2.0, 1.5), (2.0,) * 4, (3.0, 2.5, 2.0, 1.5), (2.0,) * 8, (3.0,) * 8,
    tuple(np.geomspace(12.0, 1.5, 8).round(2).tolist()),
)  # fmt: skip
OTHER_CHAINS = (
    (64, 8, 64), (128, 16, 128), (16, 16, 16), (64, 64, 64), (30, 10), (64, 64), (200, 64), (60, 30, 20, 50),
    (12, 200, 300), (256, 48, 64, 48, 256), (40, 40, 12, 60, 25),
)  # fmt: skip
ALONG = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


def threshold(dims: Sequence[int]) -> RankOneSpike:
    """A spike on W_Q, whose threshold strengths are told in."""
    return RankOneSpike(dims=dims, factor=0, normalization="none")


def spectra(dims: Sequence[int], multiples: Sequence[float], seed: int) -> np.ndarray:
    """Eigenvalues of so many heads with directions of those multiples of the threshold on W_Q."""
    rng, strengths = np.random.default_rng(seed), threshold(dims).threshold * np.array(multiples)
    drawn = (head(rng, dims, strengths) for _ in range(TRIALS))
    return np.array([np.linalg.svd(noise + signal, compute_uv=False) ** 2 for noise, signal, _ in drawn])


def number_and_strength(dims: Sequence[int], multiples: Sequence[float], seed: int) -> dict[str, object]:
    """How often the number is right or too large, the rest flagged, and a strength within its limits."""
    found = spectral_signal(spectra(dims, multiples, seed), tuple(dims), LEVEL)
    k, spike = len(multiples), threshold(dims)
    true = spike.gain * spike.threshold * np.sort(multiples)[::-1]
    low, high, strength = (
        one[:, :k] for one in (found.strength_low, found.strength_high, found.strength)
    )  # of directions that were found
    width = min(k, low.shape[1])
    inside = ((low <= true[:width]) & (high >= true[:width]))[~np.isnan(low)]
    right = found.n_directions == k
    return {
        "dims": list(dims),
        "planted": list(multiples),
        "too_many": float((found.n_directions > k).mean()),
        "exact": float(right.mean()),
        "rest_flagged": float((found.rest_p_value < LEVEL).mean()),
        "rest_flagged_where_exact": float((found.rest_p_value[right] < LEVEL).mean()) if right.any() else None,
        "no_floor": float((~found.noise_floor).mean()),
        "intervals": int(inside.size),
        "covered": float(inside.mean()) if inside.size else None,
        "strength_over_true": float(np.nanmean(strength / true[:width])) if inside.size else None,
        "scale": float(found.noise_scale[right].mean()) if right.any() else None,
    }


def shrinkage(dims: Sequence[int], multiples: Sequence[float], seed: int, trials: int) -> dict[str, object]:
    """Mean ‖Ŝ - S‖_F²/‖S‖_F² of each way to guess the signal, and what the shrunken one expects."""
    rng, spike, k = np.random.default_rng(seed), threshold(dims), len(multiples)
    errors: dict[str, list[float]] = {}
    for _ in range(trials):
        noise, signal, _ = head(rng, dims, spike.threshold * np.array(multiples))
        left, s, right = np.linalg.svd(noise + signal, full_matrices=False)
        found = spectral_signal(s**2, tuple(dims), LEVEL)
        n = int(found.n_directions)
        best = np.einsum("ij,ik,kj->j", left, signal, right.T)  # û_jᵀ S v̂_j
        energy = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), 0.9)) + 1
        hard = int((s > 4.0 / np.sqrt(3.0) * np.median(s)).sum())
        guesses = {
            "shrunken": found.shrunken[:n],
            "oracle": best[:k],
            "true_rank": s[:k],
            "hard_threshold": s[:hard],
            "energy_90": s[:energy],
        }
        size = (signal**2).sum()
        for name, values in guesses.items():
            guess = (left[:, : len(values)] * values) @ right[: len(values)]
            errors.setdefault(name, []).append(float(((guess - signal) ** 2).sum() / size))
        errors.setdefault("expected", []).append(float(found.expected_error / size))
    return {
        "dims": list(dims),
        "planted": list(multiples),
        "trials": trials,
        **{name: float(np.mean(each)) for name, each in errors.items()},
    }


def one_factor(dims: Sequence[int], multiple: float, seed: int) -> dict[str, object]:
    """A direction on W_Q alone, at a multiple of the product's threshold: found in W_Q's own spectrum, in W_QK's?"""
    rng, strength = np.random.default_rng(seed), multiple * threshold(dims).threshold
    own, product = [], []
    for _ in range(TRIALS):
        noise, signal, w_q = head(rng, dims, [strength])
        own.append(np.linalg.svd(w_q, compute_uv=False) ** 2)
        product.append(np.linalg.svd(noise + signal, compute_uv=False) ** 2)
    found = [
        spectral_signal(np.array(values), shape).n_directions
        for values, shape in ((own, (dims[1], dims[0])), (product, tuple(dims)))
    ]
    return {
        "dims": list(dims),
        "multiple": multiple,
        "found_in_w_q": float((found[0] > 0).mean()),
        "found_in_w_qk": float((found[1] > 0).mean()),
    }


def both_factors(dims: Sequence[int], multiple: float, seed: int) -> dict[str, object]:
    """One direction learned by both: where its eigenvalue is, against one of W_Q with the same image norm."""
    rng, spike = np.random.default_rng(seed), threshold(dims)
    noise = float(dims[0])  # ‖a row of noise‖²
    each = np.sqrt(np.sqrt(noise**2 + noise * (multiple * spike.threshold) ** 2) - noise)
    cores = (aligned_head(rng, dims, float(each)) for _ in range(TRIALS))
    found = spectral_signal(
        np.array([np.linalg.svd(core, compute_uv=False)[: dims[1]] ** 2 for core in cores]), tuple(dims)
    )
    ratio = found.strength[:, 0] / (spike.gain * spike.threshold * multiple)
    return {
        "dims": list(dims),
        "multiple": multiple,
        "exact": float((found.n_directions == 1).mean()),
        "too_many": float((found.n_directions > 1).mean()),
        "strength_over_true": float(np.nanmean(ratio)),
    }


def random_chain(dims: tuple[int, ...], seed: int) -> dict[str, object]:
    """How often noise of another chain has a direction, and a rest that is flagged."""
    rng = np.random.default_rng(seed)
    drawn = (np.linalg.svd(chain(rng, dims), compute_uv=False)[: min(dims)] ** 2 for _ in range(TRIALS))
    found = spectral_signal(np.array(list(drawn)), dims, LEVEL)
    return {
        "dims": list(dims),
        "any": float((found.first_p_value <= LEVEL).mean()),
        "any_at_1_percent": float((found.first_p_value <= 0.01).mean()),
        "rest_flagged": float((found.rest_p_value < LEVEL).mean()),
    }


def other_entries(dims: tuple[int, int, int], entries: str, seed: int) -> dict[str, object]:
    """How often heads of independent entries of another law, of unit variance, have a direction."""
    rng = np.random.default_rng(seed)
    draws = {
        "normal": rng.standard_normal,
        "uniform": lambda size: np.sqrt(3.0) * rng.uniform(-1.0, 1.0, size),
        "Laplace": lambda size: rng.laplace(scale=np.sqrt(0.5), size=size),
        "Student t, 5": lambda size: np.sqrt(0.6) * rng.standard_t(5, size),
    }
    factors = draws[entries](size=(TRIALS, 2, dims[1], dims[0]))
    w_q, w_k = (np.linalg.cholesky(one @ np.swapaxes(one, 1, 2)) for one in np.moveaxis(factors, 1, 0))
    product = np.linalg.svd(np.swapaxes(w_q, 1, 2) @ w_k, compute_uv=False) ** 2
    found = spectral_signal(product, dims, LEVEL)
    own = spectral_signal(np.linalg.svd(w_q, compute_uv=False) ** 2, dims[:2], LEVEL)
    return {
        "dims": list(dims),
        "entries": entries,
        "any_in_w_qk": float((found.n_directions > 0).mean()),
        "any_in_w_q": float((own.n_directions > 0).mean()),
        "rest_flagged": float((found.rest_p_value < LEVEL).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    gpt2 = (768, 64, 768)
    results = {
        "trials": TRIALS,
        "level": LEVEL,
        "number_and_strength": [
            number_and_strength(dims, planted, 100 * row + column)
            for row, dims in enumerate(SHAPES)
            for column, planted in enumerate(PLANTED)
        ],
        "other_chains": [random_chain(dims, 50 + row) for row, dims in enumerate(OTHER_CHAINS)],
        "other_entries": [
            other_entries((width, head, width), entries, 70)
            for width, head in ((256, 32), (384, 64))
            for entries in ("normal", "uniform", "Laplace", "Student t, 5")
        ],
        "along": [
            number_and_strength(gpt2, (multiple,) * k, 1000 * k + round(100 * multiple))
            for k in (1, 2, 4, 8)
            for multiple in ALONG
        ],
        "one_factor": [one_factor((256, 32, 256), multiple, 7) for multiple in (0.8, 1.0, 1.2)],
        "both_factors": [both_factors(gpt2, multiple, 8) for multiple in (1.5, 2.0, 3.0)],
        "shrinkage": [
            shrinkage(dims, planted, 9, 100 if dims[1] > 64 else 400)
            for dims in SHAPES
            for planted in ((2.0,), (2.0,) * 4, (3.0,) * 8, (3.0, 2.5, 2.0, 1.5))
        ],
        "shrinkage_along": [shrinkage(gpt2, (multiple,) * 4, 10, 200) for multiple in ALONG],
    }
    (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results, args.out / "signal.png")


if __name__ == "__main__":
    main()
