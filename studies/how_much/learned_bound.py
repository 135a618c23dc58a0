"""Bounds on the learned share of one matrix, beside the planted share.

    python studies/how_much/learned_bound.py

writes ``learned_bound.json`` and its tables in ``README.md``; some minutes of one core. With ``--tables`` only the
tables.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from jaxtyping import Float

from rmtbase.results.signal._learned_bound import share_bound

HERE = Path(__file__).parent
SHAPES = ((64, 8), (128, 16), (256, 32), (336, 28), (768, 64), (64, 64))
LAWS = (
    "normal", "uniform", "t₃", "row gains", "column gains",
    "t₂", "row gains of noise only", "column gains of noise only", "rounded difference",
)  # fmt: skip
HEADS = {(768, 64): 100}
MOST_HEADS = 200
MARGIN, FEWEST = 0.05, 30
SEED = 20261128

Matrix = Float[np.ndarray, "row column"]


def plantings(h: int) -> Iterator[tuple[str, Float[np.ndarray, " direction"], float, float]]:
    """Yield names, strengths in thresholds of the matrix, and which part of rows and of columns the directions have."""
    yield "none", np.empty(0), 1.0, 1.0
    for name, k in (("1", 1), ("3", 3), ("h/2", h // 2), ("h", h)):
        for strength in (1.5, 2.0, 4.0):
            yield f"{name} at {strength:g}", np.full(k, strength), 1.0, 1.0
        if k > 1:
            yield f"{name} from 3 to 0.5", np.geomspace(3.0, 0.5, k), 1.0, 1.0
            yield f"{name} from 6 to 1", np.geomspace(6.0, 1.0, k), 1.0, 1.0
    yield "3 at 2, in half of the rows", np.full(3, 2.0), 0.5, 1.0
    yield "3 at 2, in a quarter of the columns", np.full(3, 2.0), 1.0, 0.25


def noise(rng: np.random.Generator, law: str, h: int, d: int) -> Matrix:
    """Draw a matrix of noise; gains that the directions have too are not in it."""
    if law == "uniform":
        return rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), (h, d))
    if law in ("t₃", "t₂"):
        drawn = rng.standard_t({"t₃": 3, "t₂": 2}[law], (h, d))
        return drawn / math.sqrt(3.0) if law == "t₃" else drawn
    if law == "rounded difference":  # of weights that change by a fifth of their last digit
        before = (0.02 * rng.standard_normal((h, d))).astype(ml_dtypes.bfloat16).astype(float)
        after = (before + 2e-5 * rng.standard_normal((h, d))).astype(ml_dtypes.bfloat16).astype(float)
        return (after - before) / np.sqrt(np.mean((after - before) ** 2))
    drawn = rng.standard_normal((h, d))
    if law == "row gains of noise only":
        return drawn * np.exp(0.5 * rng.standard_normal((h, 1)))
    if law == "column gains of noise only":
        return drawn * np.exp(0.5 * rng.standard_normal((1, d)))
    return drawn


def directions(
    rng: np.random.Generator, strengths: Float[np.ndarray, " direction"], h: int, d: int, rows: float, columns: float
) -> Matrix:
    """Draw orthogonal directions, in the first part of the rows and columns only."""
    learned = np.zeros((h, d))
    if strengths.size:
        n_rows, n_columns = max(round(rows * h), strengths.size), max(round(columns * d), strengths.size)
        left, right = (np.linalg.qr(rng.standard_normal((n, strengths.size)))[0] for n in (n_rows, n_columns))
        learned[:n_rows, :n_columns] = (left * strengths * (h * d) ** 0.25) @ right.T
    return learned


def gains(rng: np.random.Generator, law: str, h: int, d: int) -> Matrix:
    """Draw gains of the whole matrix, exp(z/2)."""
    if law == "row gains":
        return np.exp(0.5 * rng.standard_normal((h, 1)))
    return np.exp(0.5 * rng.standard_normal((1, d))) if law == "column gains" else np.ones((1, 1))


def case(rng: np.random.Generator, law: str, shape: tuple[int, int], planting: tuple) -> dict:
    """Draw the heads of one case: how many have a bound, by how many points too large, and its mean."""
    (d, h), (name, strengths, rows, columns) = shape, planting
    n = HEADS.get(shape, MOST_HEADS)
    bounds, of_rows, as_stored = np.empty((3, n))
    for k in range(n):
        gain = gains(rng, law, h, d)
        parts = [gain * noise(rng, law, h, d), gain * directions(rng, strengths, h, d, rows, columns)]
        rest, learned = (np.sum(part**2, axis=1) for part in parts)
        bounds[k] = share_bound(sum(parts)).share
        of_rows[k], as_stored[k] = np.mean(learned / (learned + rest)), learned.sum() / (learned + rest).sum()
    there = ~np.isnan(bounds)
    with_bound = bounds[there]
    return {
        "shape": [d, h],
        "law": law,
        "planted": name,
        "heads": n,
        "bounds": int(there.sum()),
        "too large": int((with_bound > of_rows[there] + MARGIN).sum()),
        "too large as stored": int((with_bound > as_stored[there] + MARGIN).sum()),
        "bound": [float(with_bound.mean()), _error(with_bound)] if there.any() else None,
        "share": [float(of_rows.mean()), _error(of_rows)],
        "as stored": float(as_stored.mean()),
    }


def _error(values: Float[np.ndarray, " head"]) -> float | None:
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None


def study() -> list[dict]:
    """Compute all cases."""
    cases = []
    for law_number, law in enumerate(LAWS):
        for shape in SHAPES:
            for number, planting in enumerate(plantings(shape[1])):
                cases.append(case(np.random.default_rng([SEED, law_number, *shape, number]), law, shape, planting))
            print(law, shape, flush=True)
    return cases


def share_of(count: int, total: int) -> str:
    """Format a share in per cent with its standard error; that of none is taken for that of one."""
    if not total:
        return "–"
    share = count / total
    error = math.sqrt(max(share, 1.0 / total) * (1.0 - share) / total)
    return f"{100 * share:.1f} ± {100 * error:.1f}"


def tables(cases: Sequence[dict]) -> str:
    """Write the tables of the README."""
    lines = [
        "| (d_model, d_head) | entries | no structure: heads with a bound | planted: bounds | of these too large | of "
        "the case that has most | larger than the share as stored |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        for law in LAWS:
            own = [entry for entry in cases if (tuple(entry["shape"]), entry["law"]) == (shape, law)]
            (none,), planted = [entry for entry in own if entry["planted"] == "none"], own[1:]
            bounds, large, stored = (
                sum(entry[name] for entry in planted) for name in ("bounds", "too large", "too large as stored")
            )
            worst = max(
                (entry for entry in planted if entry["bounds"] >= FEWEST),
                key=lambda entry: entry["too large"] / entry["bounds"],
            )
            cells = (
                share_of(none["bounds"], none["heads"]), str(bounds), share_of(large, bounds),
                share_of(worst["too large"], worst["bounds"]), share_of(stored, bounds),
            )  # fmt: skip
            lines.append(f"| {shape} | {law} | {' | '.join(cells)} |")
    lines += ["", "| planted | " + " | ".join(map(str, SHAPES)) + " |", "|---" * (1 + len(SHAPES)) + "|"]
    for name in dict.fromkeys(entry["planted"] for entry in cases):
        cells = (
            _cell(
                next(
                    entry
                    for entry in cases
                    if (tuple(entry["shape"]), entry["law"], entry["planted"]) == (shape, "normal", name)
                )
            )
            for shape in SHAPES
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(entry: dict) -> str:
    """Format the mean bound beside the mean share, and the heads that have one."""
    share = f"{100 * entry['share'][0]:.0f}"
    if not entry["bounds"]:
        return f"– of {share}, 0"
    (mean, error), heads = entry["bound"], entry["bounds"] / entry["heads"]
    return f"{100 * mean:.0f}{'' if error is None else f' ± {100 * error:.1f}'} of {share}, {heads:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write only the tables, of the numbers that are there")
    results = HERE / "learned_bound.json"
    if not parser.parse_args().tables:
        lines = [f" {json.dumps(entry, ensure_ascii=False)}" for entry in study()]
        results.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    cases, page = json.loads(results.read_text(encoding="utf-8")), HERE / "README.md"
    begin, rest = page.read_text(encoding="utf-8").split("<!-- begin learned_bound -->\n")
    after = rest.split("<!-- end learned_bound -->")[1]
    marked = f"{begin}<!-- begin learned_bound -->\n{tables(cases)}\n<!-- end learned_bound -->{after}"
    page.write_text(marked, encoding="utf-8")
    print(tables(cases))


if __name__ == "__main__":
    main()
