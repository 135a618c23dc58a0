"""How often each test of ``--why`` sees what was planted in random heads, by strength.

    python studies/calibration/power.py

writes power.json beside this file (or where ``--out`` says). Everything is seeded; a quarter of an hour of one core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rmtbase
from rmtbase.laws import RankOneSpike

HERE = Path(__file__).parent
SEED = 18
D_MODEL, D_HEAD = 256, 32
HEADS = 400
BATCH = 100
LEVEL = 0.05
TESTS = ("gaussian", "query", "key", "angles", "joint")
DRAWS, OWN_DRAWS = 10_000, 1_000  # of a null that all heads share, and of each head's own
STRENGTHS = (0.8, 1.0, 1.2, 1.5, 2.0)
OVERLAPS = (1, 2, 4)

Array = NDArray[np.float64]


def units(rng: np.random.Generator, size: int) -> Array:
    """A random unit vector for each head of a batch."""
    vectors = rng.standard_normal((BATCH, size))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def spike_on_queries(rng: np.random.Generator, w_q: Array, w_k: Array, theta: float) -> tuple[Array, Array]:
    """θ a uᵀ added to W_Q."""
    return w_q + theta * np.einsum("ba,bu->bau", units(rng, D_HEAD), units(rng, D_MODEL)), w_k


def aligned(rng: np.random.Generator, w_q: Array, w_k: Array, theta: float) -> tuple[Array, Array]:
    """θ/√2 a uᵀ added to W_Q and θ/√2 a vᵀ to W_K, with the same a: the weights' squares grow as by θ a uᵀ."""
    a, u, v, share = units(rng, D_HEAD), units(rng, D_MODEL), units(rng, D_MODEL), theta / np.sqrt(2.0)
    return w_q + share * np.einsum("ba,bu->bau", a, u), w_k + share * np.einsum("ba,bv->bav", a, v)


def shared_subspace(rng: np.random.Generator, w_q: Array, w_k: Array, n: float) -> tuple[Array, Array]:
    """The row space of W_K has n directions of that of W_Q; both keep their singular values."""
    basis_q = np.linalg.qr(np.swapaxes(w_q, 1, 2))[0]
    basis_k, lengths = np.linalg.qr(np.swapaxes(w_k, 1, 2))
    basis_k[..., : int(n)] = basis_q[..., : int(n)]
    return w_q, np.swapaxes(np.linalg.qr(basis_k)[0] @ lengths, 1, 2)


Plant = Callable[[np.random.Generator, Array, Array, float], tuple[Array, Array]]
CASES: dict[str, tuple[Plant, tuple[float, ...]]] = {
    "nothing": (lambda rng, w_q, w_k, strength: (w_q, w_k), (0.0,)),
    "a direction of W_Q": (spike_on_queries, STRENGTHS),
    "one direction, of W_Q and of W_K": (aligned, STRENGTHS),
    "directions of the residual stream that both read": (shared_subspace, OVERLAPS),
}


def power(plant: Plant, strength: float, heads: int, seed: list[int]) -> dict[str, float]:
    """The share of heads with p < 0.05, by test."""
    rng = np.random.default_rng(seed)
    below = dict.fromkeys((*TESTS, "haar"), 0)
    for _ in range(heads // BATCH):
        w_q, w_k = plant(rng, *rng.standard_normal((2, BATCH, D_HEAD, D_MODEL)), strength)
        for tests, draws in ((TESTS, DRAWS), (("haar",), OWN_DRAWS)):
            scores = rmtbase.score_heads(w_q, w_k, baseline="analytic", why=tests, draws=draws)
            found = scores["why"]["p_value"]
            for test in tests:
                below[test] += int((found.sel(test=test) < LEVEL).sum())
    return {test: count / heads for test, count in below.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "power.json")
    parser.add_argument("--heads", type=int, default=HEADS, help="of each case, fewer for a quick look")
    args = parser.parse_args()
    threshold = RankOneSpike((D_MODEL, D_HEAD, D_MODEL), factor=0, normalization="none").threshold
    cases: list[dict[str, Any]] = []
    for place, (name, (plant, strengths)) in enumerate(CASES.items()):
        for strength in strengths:
            unit = threshold if strengths is STRENGTHS else 1.0
            below = power(plant, strength * unit, args.heads, [SEED, place, int(100 * strength)])
            cases.append({"planted": name, "strength": strength, f"below_{LEVEL}": below})
            print(name, strength, below, flush=True)
    record = {
        "versions": {name: version(name) for name in ("numpy", "scipy")},
        "level": LEVEL,
        "heads": args.heads,
        "d_model": D_MODEL,
        "d_head": D_HEAD,
        "threshold": threshold,
        "cases": cases,
    }
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
