"""Wrong causes that ``--why`` names in models of which some heads are untouched and others have a known cause.

    python studies/causes/mixture.py

writes mixture.json beside this file, shape by shape, and goes on where it stopped; about an hour of one core.
Everything is seeded. ``--tables`` only writes the table of README.md from it.

The p-values of a head do not depend on the other heads, so that the heads of each kind are tested once and models are
put together from them: in each of many partitions of the heads every head is in one model at most. The standard error
is the bootstrap's, over the heads of each kind.
"""

import argparse
import json
import zlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rmtbase
from rmtbase.nulls import Analytic
from rmtbase.results.scores._head_tests import ENTRY_TESTS, NAMING, PValues, _direction_gate, decide
from rmtbase.statistics import benjamini_hochberg

if __package__:
    from studies.causes import planted
    from studies.causes.study import named_causes, write_table
else:
    import planted
    from study import named_causes, write_table

HERE = Path(__file__).parent
RESULTS = HERE / "mixture.json"
DRAWS, SEED, PARTITIONS, GROUP = 999, 47, 30, 4
SIZES = (32, 144)
SHAPES = {(64, 12): (432, 144), (128, 16): (432, 72), (336, 28): (216, 72)}  # heads untouched, and of each other kind


def gained_directions(rng: planted.Rng, q: planted.Array, k: planted.Array) -> planted.Heads:
    """Directions at twice the threshold in both factors, and then gains of the rows of both."""
    return planted.row_gains(rng, *planted.in_both(2.0).make(rng, q, k))


def weak_relation(rng: planted.Rng, q: planted.Array, k: planted.Array) -> planted.Heads:
    return q, np.sqrt(0.8) * (0.5 * q + k)


KINDS: dict[str, planted.Cause] = {
    "untouched": planted.CAUSES["nothing"],
    "direction in W_Q": planted.in_queries(2.0),
    "directions in both": planted.in_both(2.0),
    "directions under row gains": planted.Cause(gained_directions, frozenset({planted.QUERY, planted.KEY})),
    "relation": planted.Cause(weak_relation, frozenset({planted.RELATION})),
    "row gains": planted.CAUSES["row gains"],
    "t₃ elements": planted.CAUSES["t₃ elements"],
    "Laplace elements": planted.CAUSES["Laplace elements"],
    "uniform elements": planted.CAUSES["uniform elements"],
    "untouched, grouped": planted.CAUSES["grouped queries"],
    "direction in W_K, grouped": planted.CAUSES["grouped queries, direction in W_K, 2 thresholds"],
}

MIXTURES: dict[str, dict[str, float]] = {
    "½ untouched, ¼ directions in both, ¼ t₃ elements": {
        "untouched": 0.5, "directions in both": 0.25, "t₃ elements": 0.25},
    "½ untouched, ¼ direction in W_Q, ¼ row gains": {
        "untouched": 0.5, "direction in W_Q": 0.25, "row gains": 0.25},
    "½ untouched, ¼ relation, ¼ uniform elements": {
        "untouched": 0.5, "relation": 0.25, "uniform elements": 0.25},
    "¾ untouched, ⅛ directions in both, ⅛ Laplace elements": {
        "untouched": 0.75, "directions in both": 0.125, "Laplace elements": 0.125},
    "½ direction in W_Q, ½ Laplace elements": {"direction in W_Q": 0.5, "Laplace elements": 0.5},
    "½ untouched, ½ directions under row gains": {"untouched": 0.5, "directions under row gains": 0.5},
    "four query heads share a key head: ½ untouched, ½ direction in W_K": {
        "untouched, grouped": 0.5, "direction in W_K, grouped": 0.5},
}  # fmt: skip


class Tested(NamedTuple):
    """Tests of the heads of one kind."""

    tests: tuple[str, ...]
    p_value: np.ndarray  # (head, test)
    floor: np.ndarray


def tested(kind: str, d_model: int, d_head: int, heads: int) -> Tested:
    rng = np.random.default_rng([SEED, zlib.crc32(kind.encode()), d_model, d_head])
    w_q, w_k = KINDS[kind].make(rng, *rng.standard_normal((2, heads, d_head, d_model)))
    why = rmtbase.score_heads(w_q[None], w_k[None], Analytic(draws=DRAWS), why="all")["why"].to_dataset()
    return Tested(tuple(why["test"].values.tolist()), why["p_value"].values[0], why["p_value_floor"].values[0])


def model_of(parts: list[tuple[str, Tested]], gate: float) -> dict[str, float]:
    """Decide on the causes of the heads of one model, and count."""
    tests = parts[0][1].tests
    p_value, floor = (np.concatenate([getattr(part, name) for _, part in parts]) for name in ("p_value", "floor"))
    by_test = {name: PValues(p_value[None, :, k], floor[None, :, k]) for k, name in enumerate(tests)}
    decisions = decide(by_test, {"query_entries": gate, "key_entries": gate})
    right = [KINDS[kind].right for kind, part in parts for _ in part.p_value]
    one_family = counts(tests, decisions.named[0], (decisions.rejected[0] == 1.0).any(axis=-1), right)
    separate = named_by_each_test(tests, p_value)
    return one_family | {f"{name}_separately": value for name, value in counts(tests, *separate, right).items()}


def counts(
    tests: Sequence[str], named: np.ndarray, differs: np.ndarray, right: Sequence[frozenset[str]]
) -> dict[str, float]:
    """Shares of heads, of one model, with the tests that name a cause of each head and whether it differs at all."""
    causes = [named_causes(tests, head) for head in named]
    wrong = np.array([bool(names - may_name) for names, may_name in zip(causes, right, strict=True)])
    with_cause, untouched = named.any(axis=-1), np.array([not may_name for may_name in right])
    unresolved = differs & ~with_cause
    return {
        "wrong_of_named": wrong.sum() / max(1, with_cause.sum()),
        "untouched_named": (with_cause & untouched).sum() / max(1, untouched.sum()),
        "untouched_with_verdict": ((with_cause | unresolved) & untouched).sum() / max(1, untouched.sum()),
        "untouched_of_unresolved": (unresolved & untouched).sum() / max(1, unresolved.sum()),
        "planted_named_rightly": (with_cause & ~wrong & ~untouched).sum() / max(1, (~untouched).sum()),
        "planted_unresolved": (unresolved & ~untouched).sum() / max(1, (~untouched).sum()),
    }


def named_by_each_test(tests: Sequence[str], p_value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Name causes by each test at its own false discovery rate of 5 %, elements where no direction is named."""
    rejected = benjamini_hochberg(p_value, axis=0) < 0.05
    named = rejected & np.isin(tests, NAMING)
    for name, directions in ENTRY_TESTS.items():
        named[:, tests.index(name)] &= ~named[:, tests.index(directions)]
    return named, rejected.any(axis=-1)


def mixture(kinds: dict[str, Tested], shares: dict[str, float], n_heads: int, gate: float) -> dict[str, Any]:
    """Average over models put together from partitions of the heads, with bootstrap standard errors."""
    rng = np.random.default_rng([SEED, n_heads])
    heads_of = {kind: round(share * n_heads / GROUP) * GROUP for kind, share in shares.items()}
    models = min(len(kinds[kind].p_value) // count for kind, count in heads_of.items())

    def mean_rates(again: bool) -> dict[str, float]:
        orders = {kind: _order(rng, len(kinds[kind].p_value), again) for kind in heads_of}
        rates = []
        for model in range(models):
            parts = []
            for kind, count in heads_of.items():
                heads, pool = orders[kind][model * count : (model + 1) * count], kinds[kind]
                parts.append((kind, Tested(pool.tests, pool.p_value[heads], pool.floor[heads])))
            rates.append(model_of(parts, gate))
        return {name: float(np.mean([rate[name] for rate in rates])) for name in rates[0]}

    partitions, resampled = ([mean_rates(again) for _ in range(PARTITIONS)] for again in (False, True))
    result: dict[str, Any] = {"models": models}
    for name in partitions[0]:
        result[name] = np.mean([rates[name] for rates in partitions])
        result[f"{name}_standard_error"] = np.std([rates[name] for rates in resampled], ddof=1)
    return result


def _order(rng: planted.Rng, heads: int, again: bool) -> np.ndarray:
    """Order the groups of heads at random, or draw them with replacement; groups share a key head in some kinds."""
    n_groups = heads // GROUP
    groups = rng.integers(n_groups, size=n_groups) if again else rng.permutation(n_groups)
    return (groups[:, None] * GROUP + np.arange(GROUP)).ravel()


def table(results: dict[str, Any]) -> str:
    """Format the rates in per cent, with standard errors."""
    columns = {
        "wrong_of_named": "wrong, of the named",
        "untouched_named": "untouched, named",
        "untouched_with_verdict": "untouched, named or unresolved",
        "planted_named_rightly": "planted, named rightly",
        "planted_unresolved": "planted, unresolved",
        "wrong_of_named_separately": "separately: wrong, of the named",
        "untouched_with_verdict_separately": "untouched, named or unresolved",
        "planted_named_rightly_separately": "planted, named rightly",
    }
    head = ("model", "shape", "heads", *columns.values())
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name in MIXTURES:
        for shape, cases in results["shapes"].items():
            for n_heads, case in cases[name].items():
                cells = [f"{100 * case[key]:.1f} ± {100 * case[f'{key}_standard_error']:.1f}" for key in columns]
                lines.append(f"| {name} | ({shape.replace('x', ', ')}) | {n_heads} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write the table only")
    if not parser.parse_args().tables:
        record = {"draws": DRAWS, "seed": SEED, "partitions": PARTITIONS, "rmtbase": version("rmtbase")}
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {**record, "shapes": {}}
        for (d_model, d_head), (untouched, changed) in SHAPES.items():
            if f"{d_model}x{d_head}" in results["shapes"]:
                continue
            kinds = {}
            for kind in KINDS:
                kinds[kind] = tested(kind, d_model, d_head, untouched if kind == "untouched" else changed)
                print(f"{d_model}x{d_head} {kind}", flush=True)
            gate = _direction_gate(d_head, d_model)
            results["shapes"][f"{d_model}x{d_head}"] = {
                name: {str(n): mixture(kinds, shares, n, gate) for n in SIZES} for name, shares in MIXTURES.items()
            }
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_table("mixture", table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
