"""Sizes of the tests that `element_null` and `product_element_null` give, on samples drawn from the null itself.

    python studies/element_nulls/study.py

makes `results.json` and the tables of `README.md` (5 minutes of one core; everything is seeded).
"""

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
SAMPLES = {100: 4000, 137: 3000, 300: 3000, 777: 2000, 1000: 2000, 3000: 1000, 10_000: 1000, 100_000: 300}
SHAPES = {(64, 8, 64): 1000, (96, 16, 48): 1000, (128, 16, 32): 1000, (128, 16, 128): 600, (256, 32, 256): 200}
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
    """Measure how far a law is from a sample of its statistic."""
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


def independent(parent: str, n: int) -> Iterator[dict[str, Any]]:
    """Simulate samples of n independent weights."""
    rng = np.random.default_rng([SEED, list(PARENTS).index(parent), n])
    found = np.array([observed(PARENTS[parent](rng, n)) for _ in range(SAMPLES[n])])
    for name, sample in zip(ELEMENT_STATISTICS, found.T, strict=True):
        yield {"statistic": name, "parent": parent, "n": n, **measured(element_null(name, n, parent), sample)}


def products(parent: str, shape: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """All elements of one W_QK of factors with such entries."""
    d_query, d_head, d_key = shape
    rng = np.random.default_rng([SEED, list(PARENTS).index(parent), *shape])

    def factor(columns: int) -> np.ndarray:
        return PARENTS[parent](rng, d_head * columns).reshape(d_head, columns)

    found = np.array([observed(factor(d_query).T @ factor(d_key)) for _ in range(SHAPES[shape])])
    for name, sample in zip(ELEMENT_STATISTICS, found.T, strict=True):
        law = product_element_null(name, *shape, parent)
        yield {"statistic": name, "parent": parent, "shape": shape, **measured(law, sample)}


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
    tables = {}
    for parent in PARENTS:
        own, of_products = ([row for row in rows if row["parent"] == parent] for rows in record.values())
        tables[parent] = table(own, list(SAMPLES), lambda row: row["n"])
        tables[f"{parent} products"] = table(of_products, list(SHAPES), lambda row: tuple(row["shape"]))
    for name, new in tables.items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        before, rest = text.split(begin)
        text = before + begin + new + end + rest.split(end, 1)[1]
    readme.write_text(text, encoding="utf-8")


def main() -> None:
    """Simulate, record, and write the tables."""
    record: dict[str, list[dict]] = {"independent": [], "products": []}
    for parent in PARENTS:
        for n in SAMPLES:
            record["independent"].extend(independent(parent, n))
        for shape in SHAPES:
            record["products"].extend(products(parent, shape))
        print(parent, f"{os.times().user:.0f} s", flush=True)
    assert all(math.isfinite(row["shift"]) for rows in record.values() for row in rows)
    (FOLDER / "results.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_tables(record)


if __name__ == "__main__":
    main()
