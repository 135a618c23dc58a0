"""The alarm of a watched run: how often runs that learn nothing raise it, and after how many looks a departure does.

A run is 100 looks at 32 heads of d_head = 16 in a stream of width 128, every two of which share a key head. Their
entries are Gaussian at every look, in one of three ways: the weights do not move (``still``); at each look they are
√(1 − ρ²) of what they were and ρ of fresh ones, ρ = 0.2 (``walk``); or all fresh (``fresh``). Every look is scored
against the atlas's null of that shape, and its omnibus p-values go into ``evidence``, with 100 looks planned and with
none planned.

Departures are planted: from some look on so many heads have the smallest p-value that the null can give, the others
those of ``walk``. The smallest effect is the largest p-value at which a head that stays there is named at all.

    python benchmarks/alarm.py [--quick] [--output FILE]
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from _machine import Check, arguments, describe_machine, finish
from rmtbase.linalg import single_threaded_blas
from rmtbase.nulls import AtlasNull, atlas_case
from rmtbase.results.trajectory._alarm import ALARM_LEVEL, Spending, evidence, raised

D_MODEL, D_HEAD, HEADS, KEY_HEADS = 128, 16, 32, 16
LOOKS, RUNS, QUICK_RUNS = 100, 200, 4
STEP = 0.2  # ρ
SEED = 77
PLANS = {"100 planned": LOOKS, "none planned": None}
DEPARTURES = [(begin, heads) for begin in (1, 10, 50) for heads in (1, 4, 32)]


def null() -> AtlasNull:
    """Return the atlas's null of the shape."""
    case = atlas_case(D_MODEL, D_HEAD)
    assert case is not None
    return AtlasNull(D_MODEL, D_HEAD, case)


def weights(way: str, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """W_Q and W_K of all heads at each look."""

    def fresh() -> list[np.ndarray]:
        return [rng.standard_normal((heads, D_HEAD, D_MODEL)) for heads in (HEADS, KEY_HEADS)]

    held = fresh()
    for _ in range(LOOKS):
        yield held[0], np.repeat(held[1], HEADS // KEY_HEADS, axis=0)
        share = {"still": 0.0, "walk": STEP, "fresh": 1.0}[way]
        if share:
            held = [np.sqrt(1.0 - share**2) * one + share * new for one, new in zip(held, fresh(), strict=True)]


def p_values(way: str, rng: np.random.Generator, of: AtlasNull) -> np.ndarray:
    """Compute the omnibus p-values of a run, (look, head)."""
    spectra, scales = [], []
    for query, key in weights(way, rng):
        grams = [one @ np.swapaxes(one, 1, 2) for one in (query, key)]
        left, right = (np.linalg.cholesky(gram) for gram in grams)
        spectra.append(np.linalg.svd(np.swapaxes(left, 1, 2) @ right, compute_uv=False))
        scales.append(np.prod([np.trace(gram, axis1=1, axis2=2) / (D_HEAD * D_MODEL) for gram in grams], axis=0))
        if way == "still":
            break
    found = of.score(np.stack(spectra), np.stack(scales)).omnibus_p_value
    return np.broadcast_to(found, (LOOKS, HEADS)) if way == "still" else found


def alarms(p_value: np.ndarray, floor: float, planned: int | None) -> np.ndarray:
    """Return for which heads the alarm is raised, after each look."""
    return np.array([raised(one, ALARM_LEVEL) for one in evidence(p_value, _spending(floor, planned))])


def _spending(floor: float, planned: int | None) -> Spending:
    return Spending.for_heads(HEADS, floor, planned)


def looks_until(p_value: np.ndarray, begin: int, planted: list[int], floor: float, planned: int | None) -> int | None:
    """Count the looks at the departure until it is named for all planted heads; None if 100 looks do not suffice."""
    named = alarms(p_value, floor, planned)[:, planted].all(axis=1)
    return int(np.argmax(named)) + 2 - begin if named.any() else None


def main() -> None:
    options = arguments("The alarm of a watched run, at its level and beyond the null.", "alarm.json")
    runs = QUICK_RUNS if options.quick else RUNS
    of = null()
    floor = 1.0 / (of.draws + 1)
    results: dict[str, Any] = {
        "benchmark": "alarm",
        "command": "python benchmarks/alarm.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "runs": runs,
        "looks": LOOKS,
        "heads": HEADS,
        "level": ALARM_LEVEL,
        "p_value_floor": floor,
        "alarms": {},
        "smallest_effect": {
            words: {"p_value": least, "looks": _spending(floor, planned).looks_to_name(least or 0.0)}
            for words, planned in PLANS.items()
            for least in [_spending(floor, planned).largest_p_value_named()]
        },
        "power": [],
    }
    checks = []
    limit = ALARM_LEVEL + 2.0 * math.sqrt(ALARM_LEVEL * (1.0 - ALARM_LEVEL) / RUNS)
    walks = []
    with single_threaded_blas():
        for way in ("still", "walk", "fresh"):
            seeds = np.random.SeedSequence([SEED, len(way)]).spawn(runs)
            each = [p_values(way, np.random.default_rng(seed), of) for seed in seeds]
            walks = each if way == "walk" else walks
            naive = float(np.mean([(one.min(axis=1) * HEADS <= ALARM_LEVEL).any() for one in each]))
            for words, planned in PLANS.items():
                ever = float(np.mean([alarms(one, floor, planned)[-1].any() for one in each]))
                mean = float(np.mean([evidence(one, _spending(floor, planned))[-1].mean() for one in each]))
                found = {"share_of_runs": ever, "mean_evidence": mean, "bonferroni_at_each_look": naive}
                results["alarms"][f"{way}, {words}"] = found
                checks.append(Check(f"{way}, {words}: share of {runs} null runs with an alarm", ever, at_most=limit))
    for begin, count in DEPARTURES:
        planted = list(range(count))
        for words, planned in PLANS.items():
            took = []
            for p_value in walks[:20]:
                departed = p_value.copy()
                departed[begin - 1 :, planted] = floor
                took.append(looks_until(departed, begin, planted, floor, planned))
            results["power"].append(
                {"from_look": begin, "heads": count, "plan": words, "median_looks_until_named": _median(took)}
            )
    finish(results, checks, options.output)


def _median(took: list[int | None]) -> int | None:
    ordered = sorted(took, key=lambda one: LOOKS if one is None else one)
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    main()
