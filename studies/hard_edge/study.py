"""Correction of `rmtbase.laws._edge._hard_edge_coordinate` from draws, and its errors on other chains.

    python studies/hard_edge/study.py

writes `src/rmtbase/laws/_edge/hard_edge_rest.json` from the chains "made" of `draws.json`, and `results.json` and the
README's table from those "tried", which had no part in it (half a minute).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from draws import RECORD, SCORES
from scipy.special import ndtr, ndtri

from rmtbase.laws import Distribution, null, smallest_eigenvalue
from rmtbase.laws._edge._hard_edge_coordinate import HardEdgeCoordinate

REST = Path(__file__).parents[2] / "src/rmtbase/laws/_edge/hard_edge_rest.json"
RESULTS, README = Path(__file__).with_name("results.json"), Path(__file__).with_name("README.md")
LEVELS = (1e-1, 1e-2, 1e-3)
REACH = 3.1  # in normal scores: from 0.1 % to 99.9 %
STATISTICS: dict[str, Callable[[tuple[int, ...]], Distribution]] = {
    "smallest": lambda dims: smallest_eigenvalue(dims=dims, normalization="none"),
    "condition": lambda dims: null("condition_number", dims=dims),
}
FEWEST = {"smallest": 4, "condition": 8}


def make(record: dict[str, Any]) -> None:
    """Tabulate the coordinate's scores at quantiles of the draws, less the quantiles' own, by ν and crowd."""
    rests: dict[int, dict[int, list[float]]] = {}
    for name, drawn in record.items():
        coordinate = HardEdgeCoordinate(tuple(sorted(map(int, name.split(",")))), mended=False)
        rest = coordinate.score(np.array(drawn["smallest"]["quantile"])) - SCORES
        rests.setdefault(coordinate.excess, {})[round(coordinate.crowd)] = [round(float(x), 4) for x in rest[::2]]
    content = {
        "score": SCORES[::2].tolist(),
        "excess": sorted(rests),
        "crowd": sorted(rests[0]),
        "rest": [[rests[nu][crowd] for crowd in sorted(rests[nu])] for nu in sorted(rests)],
    }
    REST.write_text(json.dumps(content, separators=(",", ":")).replace("]],", "]],\n") + "\n", encoding="utf-8")


def errors(law: Distribution, drawn: dict[str, Any]) -> dict[str, float]:
    """Errors of the median and the quantiles of the logarithm in its standard deviations, and of tail probabilities."""
    tail = ndtr(-np.abs(SCORES))
    log_law = np.log(np.where(SCORES < 0.0, law.ppf(tail), law.isf(tail)))
    quantile, within = np.array(drawn["quantile"]), np.abs(SCORES) <= REACH
    x = np.exp(quantile)
    lower, upper = np.log(law.cdf(x) / ndtr(SCORES)), np.log(law.sf(x) / ndtr(-SCORES))
    at = ndtri(np.array(LEVELS))
    found = {
        "median": float(np.interp(0.0, SCORES, log_law - quantile)) / drawn["std"],
        "quantiles": float(np.abs(log_law - quantile)[within].max()) / drawn["std"],
    }
    for side, errors_of, places in (("lower", lower, at), ("upper", upper, -at)):
        for level, place in zip(LEVELS, places, strict=True):
            found[f"{side} {level:g}"] = float(np.expm1(np.interp(place, SCORES, errors_of)))
    return {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    """Make the table, then try it."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    make(record["made"])
    results: dict[str, dict[str, Any]] = {statistic: {} for statistic in STATISTICS}
    for name, drawn in record.get("tried", {}).items():
        dims = tuple(map(int, name.split(",")))
        for statistic, law in STATISTICS.items():
            if min(dims) >= FEWEST[statistic]:
                found = errors(law(dims), drawn[statistic])
                results[statistic][name] = found
                print(statistic.ljust(10), name.ljust(20), *(f"{value:+.3f}" for value in found.values()))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_table(results)


def write_table(results: dict[str, dict[str, Any]]) -> None:
    """Write the table of the README."""
    shown = {"median": ".3f", "quantiles": ".2f"} | {
        f"{side} {level:g}": ".0%" for side in ("lower", "upper") for level in LEVELS[1:]
    }
    lines = [
        "| | dims | median | quantiles | lower 1e-2 | 1e-3 | upper 1e-2 | 1e-3 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for statistic, symbol in (("smallest", "λ_min"), ("condition", "κ")):
        for name, found in results[statistic].items():
            cells = (format(found[key], how) for key, how in shown.items())
            lines.append(f"| {symbol} | {name.replace(',', ', ')} | {' | '.join(cells)} |")
    begin, end = "<!-- begin table -->", "<!-- end table -->"
    before, after = README.read_text(encoding="utf-8").split(begin)
    text = "\n".join([before + begin, *lines, end + after.split(end)[1]])
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
