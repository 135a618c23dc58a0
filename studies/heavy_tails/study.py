"""Noise, spikes, a power law or effective depth? Matrices of each, told apart by rmtbase.

    python studies/heavy_tails/study.py

writes results.json and confusion.png into this folder (or --out), everything seeded; some ten minutes of one core.
Cases that results.json holds already are not drawn again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from figure import CALLED, draw, shares

from rmtbase.errors import ParameterError
from rmtbase.laws import RankOneSpike
from rmtbase.results.signal import heavy_tails
from rmtbase.results.signal.schema import VERDICTS

HERE = Path(__file__).resolve().parent
SHAPES = ((90, 60), (128, 128), (256, 48, 256))
PLANTED = SHAPES[::2]
NOISE_TRIALS, TRIALS, DRAWS, LEVEL = 100, 10, 99, 0.05


def cases() -> Iterator[dict[str, Any]]:
    """Yield the cases to be drawn."""
    for dims in SHAPES:
        yield {"truth": "noise", "of": "normal entries", "dims": dims}
    for number in (1, 2, 4):
        for strength in (2.0, 4.0):
            for dims in PLANTED:
                of = f"{number} at {strength:g} thresholds"
                yield {"truth": "spikes", "of": of, "dims": dims, "number": number, "strength": strength}
    for exponent in (1.5, 2.0, 3.0):
        for dims in PLANTED:
            of = f"Pareto singular values, exponent {exponent:g}"
            yield {"truth": "power law", "of": of, "dims": dims, "exponent": exponent}
    for index in (1.0, 2.0, 3.0):
        for dims in PLANTED:
            yield {"truth": "power law", "of": f"Pareto entries, index {index:g}", "dims": dims, "index": index}
    for depth in (4, 8, 12, 16):
        for dims in PLANTED:
            of = f"residual path of depth {depth}"
            yield {"truth": "effective depth", "of": of, "dims": dims, "depth": depth}


def singular_values(case: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Singular values of one matrix of the case."""
    dims, rank = case["dims"], min(case["dims"])
    if "depth" in case:
        product = np.eye(rank)
        for _ in range(case["depth"]):
            product = product @ (np.eye(rank) + rng.standard_normal((rank, rank)) / np.sqrt(rank))
        return np.linalg.svd(product, compute_uv=False)
    if "exponent" in case:  # eigenvalues s² of density ~ λ^-α; singular vectors, Haar or not, do not matter
        return np.sqrt(rng.random(rank) ** (-1.0 / (case["exponent"] - 1.0)))
    factors = [_entries(case, rng, shape) for shape in pairwise(dims)]
    if "strength" in case:
        size = case["strength"] * RankOneSpike(dims=dims, factor=0, normalization="none").threshold
        k = case["number"]
        left, right = (np.linalg.qr(rng.standard_normal((n, k)))[0] for n in factors[0].shape)
        factors[0] = factors[0] + size * left @ right.T
    product = factors[0] if len(factors) == 1 else factors[0] @ factors[1]
    return np.linalg.svd(product, compute_uv=False)[:rank]


def _entries(case: dict[str, Any], rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    if "index" not in case:
        return rng.standard_normal(shape)
    return (1.0 + rng.pareto(case["index"], shape)) * rng.choice((-1.0, 1.0), shape)


def run(case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Count how often each verdict is given for matrices of the case, and how often each candidate is left standing."""
    rng, trials = np.random.default_rng(seed), NOISE_TRIALS if case["truth"] == "noise" else TRIALS
    verdicts, standing, refused = Counter(), Counter(), 0
    exponents, heavy, fits = [], 0, 0
    for trial in range(trials):
        try:
            found = heavy_tails(singular_values(case, rng), DRAWS, LEVEL, seed=trial % 10, dims=case["dims"])
        except ParameterError:  # singular values that are rounding
            refused += 1
            continue
        verdicts[VERDICTS[found.comparison.verdict]] += 1
        standing.update(VERDICTS[name] for name in found.comparison.standing)
        exponents.append(found.fit.exponent)
        heavy += found.p_value <= LEVEL
        fits += found.is_power_law
    return case | {
        "trials": trials,
        "refused": refused,
        "verdicts": dict(verdicts),
        "standing": dict(standing),
        "median_exponent": float(np.median(exponents)) if exponents else None,
        "exponent_below_null": heavy,
        "by_exponent_alone": fits,
    }


def main() -> None:
    """Draw what is missing, and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    out = parser.parse_args().out
    path = out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {"level": LEVEL, "draws": DRAWS, "cases": []}
    held = {(row["of"], tuple(row["dims"])) for row in results["cases"]}
    for seed, case in enumerate(cases()):
        if (case["of"], case["dims"]) not in held:
            results["cases"].append(run(case, seed))
            path.write_text(json.dumps(results, indent=1) + "\n")
            print(results["cases"][-1], flush=True)
    results["confusion"] = {
        truth: dict(zip(CALLED, shares([row for row in results["cases"] if row["truth"] == truth]), strict=True))
        for truth in CALLED[:4]
    }
    path.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, out / "confusion.png")


if __name__ == "__main__":
    main()
