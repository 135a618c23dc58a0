"""Corrections of the expansions of scale-free statistics from draws, and their errors on other chains.

    python studies/spectral_tails/study.py

writes `src/rmtbase/laws/_null/expansion_rest.json` from the chains "made" of `draws.json`, and `results.json` and the
README's tables from those "tried", which had no part in it (a minute).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from draws import RECORD, SCORES
from scipy.special import ndtr, ndtri

from rmtbase.laws import Distribution
from rmtbase.laws._null._simulated_law import normal_scores
from rmtbase.laws._null._spectral_laws import expanded_number, expanded_stable_rank, hermite, mended_by_draws

REST = Path(__file__).parents[2] / "src/rmtbase/laws/_null/expansion_rest.json"
RESULTS, README = Path(__file__).with_name("results.json"), Path(__file__).with_name("README.md")
FLOOR = 0.01  # of the score, beside its standard error: what a cubic leaves
SMALL = 16  # rank below which a chain counts less
LEVELS = (1e-2, 1e-3)
LAWS = ("expansion", "mended")
MOST = 6  # factors, of the chains that anything is claimed for
SHOWN = {
    "eigenvalue participation_ratio": "participation ratio",
    "eigenvalue entropy": "spectral entropy",
    "eigenvalue stable_rank": "stable rank",
    "singular participation_ratio": "participation ratio of s",
    "singular entropy": "effective rank, entropy of s",
    "singular stable_rank": "stable rank of s",
}


def expanded(statistic: str, dims: tuple[int, ...]) -> tuple[Distribution, np.ndarray]:
    """Law of a statistic from its expansion only, and the sizes."""
    convention, of = statistic.split()
    return expanded_stable_rank(dims, convention) if of == "stable_rank" else expanded_number(dims, convention, of)


def coefficients(law: Distribution, drawn: dict[str, Any], draws: int) -> np.ndarray:
    """Coefficients of the Hermite polynomials in the difference of the law's scores from those of the draws, (4,)."""
    rest = normal_scores(law, np.array(drawn["quantile"])) - SCORES
    density = np.exp(-0.5 * SCORES**2) / np.sqrt(2.0 * np.pi)
    error = np.hypot(np.sqrt(ndtr(SCORES) * ndtr(-SCORES) / draws) / density, FLOOR)
    return np.linalg.lstsq(hermite(SCORES) / error[:, None], rest / error, rcond=None)[0]


def fitted(statistic: str, record: dict[str, Any]) -> dict[str, Any]:
    """Fit the coefficients of the products of sizes for one statistic, with the range of each product."""
    chains = [tuple(map(int, name.split(","))) for name in record]
    weight = np.minimum(1.0, np.array([min(dims) for dims in chains]) / SMALL)[:, None] ** 2
    given = [expanded(statistic, dims) for dims in chains]
    found = [coefficients(law, of[statistic], of["draws"]) for (law, _), of in zip(given, record.values(), strict=True)]
    sizes = np.array([sizes for _, sizes in given])
    solved = np.linalg.lstsq(weight * sizes, weight * np.array(found), rcond=None)[0]
    return {
        "smallest": [float(f"{x:.6g}") for x in sizes.min(axis=0)],
        "largest": [float(f"{x:.6g}") for x in sizes.max(axis=0)],
        "coefficients": [[float(f"{x:.6g}") for x in row] for row in solved],
    }


def make(record: dict[str, Any]) -> None:
    """Fit every statistic by itself."""
    content = {statistic: fitted(statistic, record) for statistic in SHOWN}
    REST.write_text(json.dumps(content, separators=(",", ":")).replace("]},", "]},\n") + "\n", encoding="utf-8")


def errors(law: Distribution, drawn: dict[str, Any]) -> dict[str, float]:
    """Errors of the mean (in standard deviations) and of the standard deviation; ratios of tails, simulation to law."""
    x = np.array(drawn["quantile"])
    lower, upper = np.log(ndtr(SCORES) / law.cdf(x)), np.log(ndtr(-SCORES) / law.sf(x))
    found = {"mean": (law.mean() - drawn["mean"]) / drawn["std"], "std": law.std() / drawn["std"] - 1.0}
    for side, ratio, sign in (("lower", lower, 1.0), ("upper", upper, -1.0)):
        for level in LEVELS:
            found[f"{side} {level:g}"] = float(np.exp(np.interp(sign * ndtri(level), SCORES, ratio)))
    return {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    """Fit, then try it."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    make(record["made"])
    results: dict[str, dict[str, Any]] = {}
    for name, drawn in record["tried"].items():
        dims = tuple(map(int, name.split(",")))
        results[name] = {}
        for statistic in SHOWN:
            law, sizes = expanded(statistic, dims)
            both = (law, mended_by_draws(statistic, law, sizes))
            plain, mended = (errors(one, drawn[statistic]) for one in both)
            results[name][statistic] = {"expansion": plain, "mended": mended}
            print(name.ljust(24), statistic.ljust(32), *(f"{plain[key]:+.3f} {mended[key]:+.3f}|" for key in mended))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    README.write_text(filled(README.read_text(encoding="utf-8"), results), encoding="utf-8")


def tails_of(results: dict[str, Any]) -> list[str]:
    """Tabulate simulation/law at 1e-3 for each chain, lower and upper tail, of every statistic."""
    lines = [f"| dims | {' | '.join(SHOWN.values())} |", "|---" * (1 + len(SHOWN)) + "|"]
    for name, found in results.items():
        cells = (f"{found[s]['mended']['lower 0.001']:.2f}, {found[s]['mended']['upper 0.001']:.2f}" for s in SHOWN)
        lines.append(f"| {name.replace(',', ', ')} | {' | '.join(cells)} |")
    return lines


def worst_of(results: dict[str, Any]) -> list[str]:
    """Tabulate the largest errors of each statistic up to six factors, without and with what was fitted."""
    few = [found for name, found in results.items() if name.count(",") <= MOST]
    keys = {"mean": "mean, sd", "std": "sd", "lower 0.01": "lower 1e-2", "upper 0.01": "upper 1e-2"} | {
        f"{side} 0.001": f"{side} 1e-3" for side in ("lower", "upper")
    }
    lines = [f"| | {' | '.join(keys.values())} |", "|---" * (1 + len(keys)) + "|"]
    for statistic, shown in SHOWN.items():
        cells = []
        for key in keys:
            size = np.abs if key in ("mean", "std") else (lambda ratio: np.exp(np.abs(np.log(ratio))))
            worst = [float(max(size(one[statistic][law][key]) for one in few)) for law in LAWS]
            cells.append(" → ".join(f"{x:.3f}" if key in ("mean", "std") else f"{x:.2f}" for x in worst))
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return lines


def filled(page: str, results: dict[str, Any]) -> str:
    """Fill the tables of the README anew."""
    for name, lines in (("tails", tails_of(results)), ("worst", worst_of(results))):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, after = page.split(begin)
        page = "\n".join([before + begin, *lines, end + after.split(end)[1]])
    return page


if __name__ == "__main__":
    main()
