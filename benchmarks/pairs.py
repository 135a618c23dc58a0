"""Composition of all pairs of heads of GPT-2's shape, beside the dense way and beside the bare products of matrices.

12 layers of 12 heads, d_model = 768, d_head = 64, independent normal weights: 9 504 pairs by each of three kinds. The
``dense`` way multiplies the d × d matrices of both heads, of a few pairs; ``factored`` is that of TransformerLens'
``composition_scores``: singular vectors of each circuit, then products of (d, d_head). ``bare`` multiplies matrices as
large as ours does, with nothing before or after: no way through the singular directions of both heads is faster.

    python benchmarks/pairs.py [--quick] [--output FILE]
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from _machine import Check, arguments, describe_machine, finish, limit_on_time, timed
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import Model, Place, Site, Tensor, open_model
from rmtbase.results.composition import composition
from rmtbase.results.composition.report import summarize_composition

LAYERS, HEADS, D_MODEL, D_HEAD = 12, 12, 768, 64
QUICK_LAYERS = 3
DENSE_PAIRS = 12
SEED = 5
LIMIT = 60.0  # seconds


def opened(layers: Sequence[Mapping[str, np.ndarray]], n_heads: int) -> Model:
    """Open a model from each layer's weights: query, key and value (heads · d_head, d), output (d, heads · d_head)."""
    tensors, sites = {}, []
    for layer, weights in enumerate(layers):
        names = {part: f"{layer}.{part}" for part in weights}
        tensors |= {names[part]: values for part, values in weights.items()}
        d_model, width = weights["output"].shape
        d_head = width // n_heads
        sizes = {"n_heads": n_heads, "n_key_heads": n_heads, "d_head": d_head, "d_value": d_head}
        widths = dict.fromkeys(("d_query", "d_key", "d_output"), d_model)
        read = {part: Tensor(name) for part, name in names.items()}
        sites.append(Site(place=Place("", layer), **sizes, **widths, **read))
    return open_model(tensors, sites=sites, name="random")


def model(layers: int) -> Model:
    """Independent normal weights."""
    rng = np.random.default_rng(SEED)
    shape = HEADS * D_HEAD, D_MODEL
    shapes = {"query": shape, "key": shape, "value": shape, "output": shape[::-1]}
    return opened(
        [{part: rng.standard_normal(size, dtype=np.float32) for part, size in shapes.items()} for _ in range(layers)],
        HEADS,
    )


def dense_score(of: Model, kind: str, earlier: tuple[int, int], later: tuple[int, int]) -> float:
    """Score of a pair from the d × d matrices, in float64."""
    (site, head), (writer, other) = later, earlier

    def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return first.astype(np.float64).T @ second.astype(np.float64)

    written = product(of.outputs(writer)[other], of.values(writer)[other])
    read = {
        "q": lambda: product(of.queries(site)[head], of.keys(site)[head]).T,
        "k": lambda: product(of.queries(site)[head], of.keys(site)[head]),
        "v": lambda: product(of.outputs(site)[head], of.values(site)[head]),
    }[kind]()
    return float(np.linalg.norm(read @ written) / np.linalg.norm(read) / np.linalg.norm(written))


def factored_score(of: Model, kind: str, earlier: tuple[int, int], later: tuple[int, int]) -> float:
    """Score of a pair as TransformerLens' FactoredMatrix computes it: full decompositions, then the small product."""
    (site, head), (writer, other) = later, earlier

    def side(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u1, s1, v1 = np.linalg.svd(left.astype(np.float64).T, full_matrices=False)
        u2, s2, v2 = np.linalg.svd(right.astype(np.float64), full_matrices=False)
        u, s, v = np.linalg.svd((s1[:, None] * v1) @ (u2 * s2))
        return (u1 @ u) * s, s[:, None] * (v @ v2)

    written = side(of.outputs(writer)[other], of.values(writer)[other])[0]
    circuit = side(of.outputs(site)[head], of.values(site)[head]) if kind == "v" else None
    queries, keys = circuit or side(of.queries(site)[head], of.keys(site)[head])
    read = queries.T if kind == "q" else keys
    return float(np.linalg.norm(read @ written) / np.linalg.norm(read) / np.linalg.norm(written))


def bare(layers: int) -> None:
    """Run the same number of matrix products of that size and nothing else."""
    left, right = np.ones((2, HEADS * D_HEAD, D_MODEL))
    for _ in range(3 * layers * (layers - 1) // 2):
        left @ right.T


def main() -> None:
    options = arguments("Composition of all pairs of heads.", "pairs.json")
    layers = QUICK_LAYERS if options.quick else LAYERS
    of = model(layers)
    rng = np.random.default_rng(SEED + 1)
    chosen = []
    for _ in range(DENSE_PAIRS):
        first, last = sorted(rng.choice(layers, 2, replace=False).tolist())
        chosen.append(
            (str(rng.choice(list("qkv"))), (first, int(rng.integers(HEADS))), (last, int(rng.integers(HEADS))))
        )
    found: dict[str, Any] = {}
    timings = {"composition": timed(lambda: found.update(table=composition(of)))}
    with single_threaded_blas():  # as ours, which uses a core for each product
        timings |= {
            "bare": timed(lambda: bare(layers)),
            "dense": timed(lambda: found.update(dense=[dense_score(of, *one) for one in chosen])),
            "factored": timed(lambda: found.update(factored=[factored_score(of, *one) for one in chosen])),
        }
    table = found["table"]
    ours = [
        float(table["score"].sel(kind=kind, earlier=f"L{a}H{b}", later=f"L{c}H{d}")) for kind, (a, b), (c, d) in chosen
    ]
    pairs = int(table["score"].notnull().sum())
    summary = summarize_composition(table)
    own, lower = timings["composition"], timings["bare"]
    per_pair = {
        "composition": own.cpu_seconds / pairs,
        "bare": lower.cpu_seconds / pairs,
        **{name: timings[name].cpu_seconds / len(chosen) for name in ("dense", "factored")},
    }
    small = table["p_value"].values[table["p_value"].notnull().values]
    results = {
        "benchmark": "pairs",
        "command": "python benchmarks/pairs.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "layers": layers,
        "heads": HEADS,
        "d_model": D_MODEL,
        "d_head": D_HEAD,
        "pairs": pairs,
        "timings": {name: asdict(one) for name, one in timings.items()},
        "processor_seconds_per_pair": per_pair,
        "p_values_below": {f"{level:g}": float((small < level).mean()) for level in (0.1, 0.05, 0.01, 1e-3, 1e-4)},
        "smallest_p_value": float(small.min()),
    }
    for name, seconds in per_pair.items():
        print(f"{name:12s} {1e6 * seconds:12.1f} µs of a processor per pair")
    checks = [
        limit_on_time("all pairs of three kinds, seconds", own.seconds, own.cpu_seconds, own.other_cores, LIMIT),
        Check("processor time beside bare products", own.cpu_seconds / lower.cpu_seconds, at_most=3.0),
        Check(
            "processor time per pair of the dense way beside ours", per_pair["dense"] / per_pair["composition"], 10.0
        ),
        Check("largest relative difference from the dense way", _apart(ours, found["dense"]), at_most=1e-12),
        Check(
            "largest relative difference of the factored way", _apart(found["factored"], found["dense"]), at_most=1e-12
        ),
        Check("pairs that survive in a random model", len(summary.surviving), at_most=0),
    ]
    finish(results, checks, options.output)


def _apart(one: list[float], other: list[float]) -> float:
    return float(np.abs(np.array(one) / np.array(other) - 1.0).max())


if __name__ == "__main__":
    main()
