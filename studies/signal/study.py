"""Number, strength and identity of learned directions: planted directions, estimated by rmtbase.

    python studies/signal/study.py

writes results.json and signal.png into this folder (or --out); ten minutes of one core, everything seeded.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from figure import draw
from planted import aligned_head, bartlett, chain, head
from scipy.stats import truncnorm

from rmtbase.laws import RankOneSpike, marchenko_pastur
from rmtbase.nulls import LARGEST_KURTOSIS
from rmtbase.results.signal import spectral_signal

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
ENTRIES = ("normal", "uniform", "normal truncated at 2", "logistic", "Laplace", "Student t, 5")
GROUPS = ((256, 32, 4), (768, 64, 4), (768, 64, 8))
ALONG = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


def threshold(dims: Sequence[int]) -> RankOneSpike:
    """Spike on W_Q, whose threshold is the unit of strengths."""
    return RankOneSpike(dims=dims, factor=0, normalization="none")


def spectra(dims: Sequence[int], multiples: Sequence[float], seed: int) -> np.ndarray:
    """Draw the eigenvalues of heads with directions on W_Q at these multiples of the threshold."""
    rng, strengths = np.random.default_rng(seed), threshold(dims).threshold * np.array(multiples)
    drawn = (head(rng, dims, strengths) for _ in range(TRIALS))
    return np.array([np.linalg.svd(noise + signal, compute_uv=False) ** 2 for noise, signal, _ in drawn])


def number_and_strength(dims: Sequence[int], multiples: Sequence[float], seed: int) -> dict[str, object]:
    """Measure how often the number is right or too large, the rest flagged, and a strength within its limits."""
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
    """Mean ‖Ŝ - S‖_F²/‖S‖_F² of each estimate Ŝ of the signal, and the expected error of the shrunken one."""
    rng, spike, k = np.random.default_rng(seed), threshold(dims), len(multiples)
    errors: dict[str, list[float]] = {}
    for _ in range(trials):
        noise, signal, _ = head(rng, dims, spike.threshold * np.array(multiples))
        left, s, right = np.linalg.svd(noise + signal, full_matrices=False)
        found = spectral_signal(s**2, tuple(dims), LEVEL)
        n = int(found.n_directions)
        best = np.einsum("ij,ik,kj->j", left, signal, right.T)  # û_jᵀ S v̂_j
        energy = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), 0.9)) + 1
        known, unknown = ((s > cut).sum() for cut in hard_thresholds(dims, float(np.median(s))))
        guesses = {
            "shrunken": found.shrunken[:n],
            "oracle": best[:k],
            "true_rank": s[:k],
            "hard_threshold": s[:known],
            "hard_threshold_unknown": s[:unknown],
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


def hard_thresholds(dims: Sequence[int], median: float) -> tuple[float, float]:
    """Hard thresholds of Gavish and Donoho (2014) for noise of known (square matrix: 4/√3 √n σ) and of unknown scale.

    σ = √h is that of the elements of W_QK; the median is that of the singular values that are not zero by structure.
    """
    d_query, d_head, d_key = dims
    short, long = sorted((d_query, d_key))
    beta = short / long
    known = np.sqrt(2.0 * (beta + 1.0) + 8.0 * beta / (beta + 1.0 + np.sqrt(beta**2 + 14.0 * beta + 1.0)))
    middle = float(marchenko_pastur(short, long).ppf(0.5))
    return known * np.sqrt(long * d_head), known * np.sqrt(long / middle) * median


def one_factor(dims: Sequence[int], multiple: float, seed: int) -> dict[str, object]:
    """Plant a direction only on W_Q, at a multiple of the product's threshold, and look for it in W_Q and in W_QK."""
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
    """Plant one direction learned by both factors, and compare its strength with one on W_Q of the same image norm."""
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
    """Measure how often noise of another chain has a direction, and a rest that is flagged."""
    rng = np.random.default_rng(seed)
    drawn = (np.linalg.svd(chain(rng, dims), compute_uv=False)[: min(dims)] ** 2 for _ in range(TRIALS))
    found = spectral_signal(np.array(list(drawn)), dims, LEVEL)
    return {
        "dims": list(dims),
        "any": float((found.first_p_value <= LEVEL).mean()),
        "any_at_1_percent": float((found.first_p_value <= 0.01).mean()),
        "rest_flagged": float((found.rest_p_value < LEVEL).mean()),
    }


def drawn(rng: np.random.Generator, entries: str, size: tuple[int, ...]) -> np.ndarray:
    """Draw independent entries of a law, with unit variance."""
    if entries == "normal truncated at 2":
        values = rng.standard_normal(size)
        while (beyond := np.abs(values) > 2.0).any():
            values[beyond] = rng.standard_normal(int(beyond.sum()))
        return values / truncnorm.std(-2.0, 2.0)
    draw: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: rng.standard_normal(size),
        "uniform": lambda: np.sqrt(3.0) * rng.uniform(-1.0, 1.0, size),
        "logistic": lambda: rng.logistic(scale=np.sqrt(3.0) / np.pi, size=size),
        "Laplace": lambda: rng.laplace(scale=np.sqrt(0.5), size=size),
        "Student t, 5": lambda: np.sqrt(0.6) * rng.standard_t(5, size),
    }
    return draw[entries]()


def other_entries(dims: tuple[int, int, int], entries: str, multiple: float, seed: int) -> dict[str, object]:
    """Count directions in excess in heads of independent entries of another law, with and without their kurtosis.

    One is planted on W_Q, a random one, at ``multiple`` thresholds. Heads of κ̂ beyond what is covered are left out.
    """
    rng, (d, h, _) = np.random.default_rng(seed), dims
    product, own, kurtoses = [], [], []
    strength = multiple * threshold(dims).threshold
    for _ in range(TRIALS):
        factors = drawn(rng, entries, (2, h, d))
        left, right = rng.standard_normal(h), rng.standard_normal(d)
        factors[0] += strength * np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
        w_q, w_k = (np.linalg.cholesky(one @ one.T) for one in factors)
        product.append(np.linalg.svd(w_q.T @ w_k, compute_uv=False) ** 2)
        own.append(np.linalg.svd(w_q, compute_uv=False) ** 2)
        kurtoses.append([np.mean(one**4) / np.mean(one**2) ** 2 - 3.0 for one in factors])
    kurtosis = np.array(kurtoses)
    covered = (kurtosis <= LARGEST_KURTOSIS).all(axis=1)
    planted = int(multiple > 0.0)
    result: dict[str, object] = {
        "dims": list(dims),
        "entries": entries,
        "planted": multiple,
        "excess_kurtosis": float(kurtosis.mean()),
        "covered": float(covered.mean()),
    }
    for name, values, shape, each in (
        ("w_qk", product, dims, kurtosis.mean(axis=1)),
        ("w_q", own, dims[:2], kurtosis[:, 0]),
    ):
        for suffix, rows, of in (("", slice(None), np.zeros(TRIALS)), ("_with_kurtosis", covered, each)):
            eigenvalues = np.array(values)[rows]
            if not len(eigenvalues):
                continue
            found = spectral_signal(eigenvalues, shape, LEVEL, of[rows])
            result[f"too_many_in_{name}{suffix}"] = float((found.n_directions > planted).mean())
            result[f"exact_in_{name}{suffix}"] = float((found.n_directions == planted).mean())
            result[f"rest_flagged_in_{name}{suffix}"] = float((found.rest_p_value < LEVEL).mean())
            if planted and name == "w_qk":
                true = strength * threshold(dims).gain
                low, high = found.strength_low[:, 0], found.strength_high[:, 0]
                inside = ((low <= true) & (true <= high))[~np.isnan(low)]
                result[f"limits_hold{suffix}"] = float(inside.mean())
    return result


def key_groups(dims: tuple[int, int, int], members: int, multiple: float, seed: int) -> dict[str, object]:
    """Test heads that share W_K together and separately, every W_Q at ``multiple`` of a head's own threshold.

    All have learned to read the same direction of the keys, each with a different direction of its queries:
    θ a u_iᵀ in W_Qi with a common a. A separate head is tested at the level divided by the number of heads.
    """
    rng, (d, h, _), strength = np.random.default_rng(seed), dims, multiple * threshold(dims).threshold
    together, alone = [], []
    for _ in range(TRIALS):
        a, w_k = np.linalg.qr(rng.standard_normal((h, 1)))[0], bartlett(rng, h, dims[2])
        w_q = [np.hstack([rng.standard_normal((h, 1)) + strength * a, bartlett(rng, h, d - 1)]) for _ in range(members)]
        sizes = np.array([np.linalg.norm(one) for one in w_q])
        each = zip(w_q, np.sqrt(np.mean(sizes**2)) / sizes, strict=True)
        together.append(np.linalg.svd(np.hstack([one * scale for one, scale in each]).T @ w_k, compute_uv=False)[:h])
        alone.append([np.linalg.svd(one.T @ w_k, compute_uv=False)[:h] for one in w_q])
    whole = (members * d, h, dims[2])
    found = spectral_signal(np.array(together) ** 2, whole, LEVEL)
    own = spectral_signal(np.array(alone) ** 2, dims, LEVEL)
    planted, spike = int(multiple > 0.0), threshold(whole)
    result: dict[str, object] = {
        "dims": list(dims),
        "members": members,
        "multiple": multiple,
        "multiple_of_the_group": float(np.sqrt(members) * strength / spike.threshold),
        "found_in_the_group": float((found.n_directions > 0).mean()),
        "too_many_in_the_group": float((found.n_directions > planted).mean()),
        "rest_flagged": float((found.rest_p_value < LEVEL).mean()),
        "found_in_a_head": float((own.first_p_value <= LEVEL).mean()),
        "found_in_any_head": float((own.first_p_value <= LEVEL / members).any(axis=1).mean()),
    }
    if planted:
        true = spike.gain * np.sqrt(members) * strength
        low, high = found.strength_low[:, 0], found.strength_high[:, 0]
        seen = ~np.isnan(low)
        result["limits_hold"] = float(((low <= true) & (true <= high))[seen].mean()) if seen.any() else None
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--part", help="make this part of the results alone, and leave the others as they are")
    args = parser.parse_args()
    gpt2 = (768, 64, 768)
    parts: dict[str, Callable[[], list[dict[str, object]]]] = {
        "number_and_strength": lambda: [
            number_and_strength(dims, planted, 100 * row + column)
            for row, dims in enumerate(SHAPES)
            for column, planted in enumerate(PLANTED)
        ],
        "other_chains": lambda: [random_chain(dims, 50 + row) for row, dims in enumerate(OTHER_CHAINS)],
        "other_entries": lambda: [
            *(
                other_entries((width, head, width), entries, 0.0, 70)
                for width, head in ((128, 16), (256, 32), (384, 64), (768, 64))
                for entries in ENTRIES
            ),
            *(
                other_entries((width, head, width), entries, 2.0, 71)
                for width, head in ((256, 32), (384, 64))
                for entries in ("uniform", "logistic", "Laplace")
            ),
        ],
        "key_groups": lambda: [
            key_groups((width, head, width), members, multiple, 60)
            for width, head, members in GROUPS
            for multiple in (0.0, 0.6, 0.7, 0.8, 1.0, 1.2)
        ],
        "along": lambda: [
            number_and_strength(gpt2, (multiple,) * k, 1000 * k + round(100 * multiple))
            for k in (1, 2, 4, 8)
            for multiple in ALONG
        ],
        "one_factor": lambda: [one_factor((256, 32, 256), multiple, 7) for multiple in (0.8, 1.0, 1.2)],
        "both_factors": lambda: [both_factors(gpt2, multiple, 8) for multiple in (1.5, 2.0, 3.0)],
        "shrinkage": lambda: [
            shrinkage(dims, planted, 9, 100 if dims[1] > 64 else 400)
            for dims in SHAPES
            for planted in ((2.0,), (2.0,) * 4, (3.0,) * 8, (3.0, 2.5, 2.0, 1.5))
        ],
        "shrinkage_along": lambda: [shrinkage(gpt2, (multiple,) * 4, 10, 200) for multiple in ALONG],
    }
    file = args.out / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if args.part else {"trials": TRIALS, "level": LEVEL}
    results |= {name: make() for name, make in parts.items() if args.part in (None, name)}
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results, args.out / "signal.png")


if __name__ == "__main__":
    main()
