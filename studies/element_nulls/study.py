"""Sizes of the tests that `element_null` and `product_element_null` give, on samples drawn from the null itself.

    python studies/element_nulls/study.py

makes `results.json` and the tables of `README.md` (2 minutes of one core; everything is seeded).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from rmtbase.laws import element_null, product_element_null
from rmtbase.statistics import ELEMENT_STATISTICS, element_sketch

FOLDER = Path(__file__).parent
SEED = 20_261_123
SAMPLES = {100: 4000, 1000: 2000, 10_000: 1000, 100_000: 300}
SHAPES = {(64, 8, 64): 600, (96, 16, 96): 600, (128, 16, 32): 600, (128, 16, 128): 600}
LEVELS = (0.05, 0.01, 0.001)

Sampler = Callable[[np.random.Generator, int], np.ndarray]
PARENTS: dict[str, Sampler] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.uniform(-1.0, 1.0, n),
    "truncated_normal": lambda rng, n: ndtri(rng.uniform(ndtr(-2.0), ndtr(2.0), n)),
}


def observed(numbers: np.ndarray) -> list[float]:
    """All element statistics of a sample, those of small samples too that a file leaves out."""
    sketch = element_sketch([numbers])
    return [statistic.function(sketch) for statistic in ELEMENT_STATISTICS.values()]


def measured(law, sample: np.ndarray) -> dict[str, Any]:
    """How far a law is from a sample of its statistic."""
    below, above = law.cdf(sample), law.sf(sample)
    p = law.p_value(sample)
    return {
        "samples": sample.size,
        "shift": (float(sample.mean()) - law.mean()) / law.std(),
        "spread": float(sample.std()) / law.std(),
        "size": [float((p < level).mean()) for level in LEVELS],
        "lower": [float((below < level / 2).mean()) for level in LEVELS],
        "upper": [float((above < level / 2).mean()) for level in LEVELS],
        "ks_p_value": float(stats.kstest(p, "uniform").pvalue),
    }


def independent() -> Iterator[dict[str, Any]]:
    """Samples of independent weights."""
    for index, (parent, draw) in enumerate(PARENTS.items()):
        for n, count in SAMPLES.items():
            rng = np.random.default_rng([SEED, index, n])
            found = np.array([observed(draw(rng, n)) for _ in range(count)])
            for name, sample in zip(ELEMENT_STATISTICS, found.T, strict=True):
                yield {"statistic": name, "parent": parent, "n": n, **measured(element_null(name, n, parent), sample)}
            print(parent, n, f"{os.times().user:.0f} s", flush=True)


def products() -> Iterator[dict[str, Any]]:
    """All elements of one W_QK."""
    for shape, count in SHAPES.items():
        d_query, d_head, d_key = shape
        rng = np.random.default_rng([SEED, *shape])
        found = np.array(
            [
                observed(rng.standard_normal((d_query, d_head)) @ rng.standard_normal((d_head, d_key)))
                for _ in range(count)
            ]
        )
        for name, sample in zip(ELEMENT_STATISTICS, found.T, strict=True):
            yield {"statistic": name, "shape": shape, **measured(product_element_null(name, *shape), sample)}
        print(shape, f"{os.times().user:.0f} s", flush=True)


def table(rows: list[dict], columns: list, of: Callable[[dict], object]) -> str:
    """Sizes at 0.05/0.01/0.001 in per cent, one statistic a line."""
    head = "| statistic | " + " | ".join(str(column).replace("(", "").replace(")", "") for column in columns) + " |"
    lines = [head, "|---" * (len(columns) + 1) + "|"]
    for name in ELEMENT_STATISTICS:
        cells = []
        for column in columns:
            size = next(row["size"] for row in rows if row["statistic"] == name and of(row) == column)
            cells.append(" / ".join(f"{100 * one:.2f}" if one < 0.01 else f"{100 * one:.1f}" for one in size))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_tables(record: dict[str, list[dict]]) -> None:
    """Fill in what is between the marks of README.md."""
    readme = FOLDER / "README.md"
    text = readme.read_text(encoding="utf-8")
    tables = {
        parent: table(
            [row for row in record["independent"] if row["parent"] == parent], list(SAMPLES), lambda r: r["n"]
        )
        for parent in PARENTS
    }
    tables["products"] = table(record["products"], list(SHAPES), lambda row: tuple(row["shape"]))
    for name, new in tables.items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        before, rest = text.split(begin)
        text = before + begin + new + end + rest.split(end, 1)[1]
    readme.write_text(text, encoding="utf-8")


def main() -> None:
    """Simulate, record, and write the tables."""
    record = {"independent": list(independent()), "products": list(products())}
    assert all(math.isfinite(row["shift"]) for rows in record.values() for row in rows)
    (FOLDER / "results.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_tables(record)


if __name__ == "__main__":
    main()
