"""Causes that ``--why`` names for heads with a known cause.

    python studies/causes/study.py

writes results.json beside this file, case by case, and goes on where it stopped; about an hour of one core. Everything
is seeded. ``--tables`` only writes the tables of README.md and of the guide from it.
"""

from __future__ import annotations

import argparse
import json
import re
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import rmtbase
from rmtbase.nulls import Analytic
from rmtbase.results.scores._why import TESTS

if __name__ == "__main__":
    from planted import CAUSES, KEY, KEY_ELEMENTS, QUERY, QUERY_ELEMENTS, RELATION
else:
    from studies.causes.planted import CAUSES, KEY, KEY_ELEMENTS, QUERY, QUERY_ELEMENTS, RELATION

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "guide" / "why.md")
SHAPES = {(64, 12): 999, (64, 32): 299, (256, 32): 299}  # and the draws of each head
HEADS, LAYERS, SEED = 200, 10, 31
NAMED = (QUERY, KEY, RELATION, QUERY_ELEMENTS, KEY_ELEMENTS)


def named(verdict: str) -> set[str]:
    """Causes that a verdict names."""
    found = {each for each in (RELATION,) if each in verdict}
    for opening, each in (("directions in", (QUERY, KEY)), ("elements of", (QUERY_ELEMENTS, KEY_ELEMENTS))):
        part = next((part for part in verdict.split("; ") if part.startswith(opening)), "")
        found |= {name for name in each if name[-3:] in part}
    return found


def case(cause: str, d_model: int, d_head: int) -> dict[str, Any]:
    """Verdicts of :data:`HEADS` heads with a cause, all in one model."""
    rng = np.random.default_rng([SEED, zlib.crc32(cause.encode()), d_model, d_head])
    w_q, w_k = CAUSES[cause].make(rng, *rng.standard_normal((2, HEADS, d_head, d_model)))
    w_q, w_k = (w.reshape(LAYERS, -1, *w.shape[1:]) for w in (w_q, w_k))
    tree = rmtbase.score_heads(w_q, w_k, Analytic(draws=SHAPES[d_model, d_head]), why="all")
    why = tree["why"].to_dataset()
    verdicts = [str(words) for words in why["verdict"].values.ravel()]
    sets = [named(words) for words in verdicts]
    p_value = why["p_value"].values.reshape(-1, why.sizes["test"])
    tests = why["test"].values.tolist()
    return {
        "named": {name: sum(name in one for one in sets) for name in NAMED},
        "wrong": sum(bool(one - CAUSES[cause].right) for one in sets),
        "unresolved": sum("unresolved" in words and not one for words, one in zip(verdicts, sets, strict=True)),
        "nothing": sum(words.startswith("no difference") for words in verdicts),
        "below_0.05": {name: int((p_value[:, k] <= 0.05).sum()) for k, name in enumerate(tests)},
        "testable": {name: int(np.isfinite(p_value[:, k]).sum()) for k, name in enumerate(tests)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write the tables only")
    if not parser.parse_args().tables:
        record = {"heads": HEADS, "draws": list(SHAPES.values()), "seed": SEED, "rmtbase": version("rmtbase")}
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {**record, "cases": {}}
        for d_model, d_head in SHAPES:
            for cause in CAUSES:
                cases = results["cases"].setdefault(cause, {})
                if f"{d_model}x{d_head}" not in cases:
                    cases[f"{d_model}x{d_head}"] = case(cause, d_model, d_head)
                    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
                    print(f"{d_model}x{d_head} {cause}", flush=True)
    write_tables(json.loads(RESULTS.read_text()))


def confusion(results: dict[str, Any]) -> str:
    """Format the confusion matrix in per cent of heads, the shapes beside each other."""
    head = ("planted", QUERY, KEY, "related", QUERY_ELEMENTS, KEY_ELEMENTS, "unresolved", "nothing found", "wrong")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cause, cases in results["cases"].items():
        columns = [[each["named"][name] for each in cases.values()] for name in NAMED]
        columns += [[each[name] for each in cases.values()] for name in ("unresolved", "nothing", "wrong")]
        cells = [", ".join(f"{100 * n / results['heads']:.3g}" for n in column) for column in columns]
        lines.append(
            f"| {cause} | "
            + " | ".join("–" if not any(column) else cell for cell, column in zip(cells, columns, strict=True))
            + " |"
        )
    return "\n".join(lines)


def sizes(results: dict[str, Any]) -> str:
    """Share of heads, in per cent, that each test rejects at 0.05 by itself."""
    lines = [
        "| planted | " + " | ".join(name.replace("_", " ") for name in TESTS) + " |",
        "|" + " --- |" * (len(TESTS) + 1),
    ]
    for cause, cases in results["cases"].items():
        cells = []
        for test in TESTS:
            each = [(one["below_0.05"][test], one["testable"][test]) for one in cases.values()]
            cells.append(", ".join("?" if not n else f"{100 * b / n:.3g}" for b, n in each))
        lines.append(f"| {cause} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_tables(results: dict[str, Any]) -> None:
    """Write each table between its marks, where a page has them."""
    for page in PAGES:
        text = page.read_text()
        for name, table in (("confusion", confusion(results)), ("sizes", sizes(results))):
            marks = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
            text = marks.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
        page.write_text(text)


if __name__ == "__main__":
    main()
