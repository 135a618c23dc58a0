"""Causes that ``--why`` names for heads with a known cause.

    python studies/causes/study.py

writes results.json beside this file, case by case, and goes on where it stopped; about an hour of one core. Everything
is seeded. ``--tables`` only writes the tables of README.md and of the guide from it.
"""

import argparse
import json
import re
import zlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import rmtbase
from rmtbase.nulls import Analytic
from rmtbase.results.scores._why import TESTS

if __package__:
    from studies.causes.planted import CAUSES, KEY, KEY_ELEMENTS, QUERY, QUERY_ELEMENTS, RELATION
else:
    from planted import CAUSES, KEY, KEY_ELEMENTS, QUERY, QUERY_ELEMENTS, RELATION

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "guide" / "why.md")
SHAPES = {(64, 12): 999, (64, 32): 299, (256, 32): 299}  # and the draws of each head
HEADS, LAYERS, SEED = 100, 5, 31
NAMED = (QUERY, KEY, RELATION, QUERY_ELEMENTS, KEY_ELEMENTS)


CAUSE_OF = {
    "query_signs": QUERY,
    "key_signs": KEY,
    "axes": RELATION,
    "subspaces": RELATION,
    "query_entries": QUERY_ELEMENTS,
    "key_entries": KEY_ELEMENTS,
}


def named_causes(tests: Sequence[str], named: Sequence[bool]) -> set[str]:
    """Causes of one head, by the tests that name one."""
    return {CAUSE_OF[test] for test, names in zip(tests, named, strict=True) if names}


def case(cause: str, d_model: int, d_head: int) -> dict[str, Any]:
    """Verdicts of :data:`HEADS` heads with a cause, all in one model."""
    rng = np.random.default_rng([SEED, zlib.crc32(cause.encode()), d_model, d_head])
    w_q, w_k = CAUSES[cause].make(rng, *rng.standard_normal((2, HEADS, d_head, d_model)))
    w_q, w_k = (w.reshape(LAYERS, -1, *w.shape[1:]) for w in (w_q, w_k))
    tree = rmtbase.score_heads(w_q, w_k, Analytic(draws=SHAPES[d_model, d_head]), why="all")
    why = tree["why"].to_dataset()
    tests = why["test"].values.tolist()
    by_head = {name: why[name].values.reshape(HEADS, len(tests)) for name in ("p_value", "rejected", "named")}
    causes = [named_causes(tests, head) for head in by_head["named"]]
    rejects = (by_head["rejected"] == 1.0).any(axis=1)
    p_value = by_head["p_value"]
    return {
        "named": {name: sum(name in one for one in causes) for name in NAMED},
        "wrong": sum(bool(one - CAUSES[cause].right) for one in causes),
        "unresolved": sum(bool(differs and not one) for differs, one in zip(rejects, causes, strict=True)),
        "nothing": int((~rejects).sum()),
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
    write_table("confusion", confusion(results))
    write_table("sizes", sizes(results))


def write_table(name: str, table: str) -> None:
    """Write a table between its marks, where a page has them."""
    marks = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(marks.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
