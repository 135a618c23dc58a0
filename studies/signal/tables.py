"""The tables of README.md, from results.json.

python studies/signal/tables.py
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GUESSES = {
    "oracle": "oracle",
    "shrunken": "shrunken",
    "expected": "expected by it",
    "true_rank": "cut at the true rank",
    "hard_threshold": "4/√3, σ known",
    "hard_threshold_unknown": "4/√3, σ unknown",
    "energy_90": "90 % of the energy",
}


def per_cent(*shares: float | None) -> str:
    """Format shares in per cent; a dash where there is none."""
    return ", ".join("–" if share is None else f"{100 * share:.1f}" for share in shares)


def error(value: float) -> str:
    """Three decimals, of what is well above one two."""
    return f"{value:.{2 if value >= 1.5 else 3}f}"


def shape(dims: Sequence[int]) -> str:
    """(d, h), with the width of the keys where it is another; of one matrix and of longer chains all dims."""
    square = len(dims) == 3 and dims[0] == dims[2]
    return f"({', '.join(map(str, dims[:2] if square else dims))})"


def planted(multiples: Sequence[float]) -> str:
    """Format the number of planted directions and their multiples of the threshold."""
    if len(set(multiples)) < 2:
        return f"{len(multiples)} at {multiples[0]:g}" if multiples else "none"
    return f"{len(multiples)}: {', '.join(f'{one:g}' for one in multiples)}"


def number_and_strength(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Tabulate a row for each planted case, and a column for each shape."""
    of: dict[str, dict[str, dict]] = {}
    for one in results:
        of.setdefault(planted(one["planted"]), {})[shape(one["dims"])] = one
    yield "planted", *of["none"]
    for multiples, by_shape in of.items():
        cells = (
            per_cent(*(one[name] for name in ("too_many", "exact", "rest_flagged_where_exact", "covered")))
            for one in by_shape.values()
        )
        yield multiples, *(cell.removesuffix(", –") for cell in cells)


def other_chains(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Noise of chains of other lengths."""
    yield "chain", "at 0.05", "at 0.01", "rest flagged"
    for one in results:
        cells = (per_cent(one[name]) for name in ("any", "any_at_1_percent", "rest_flagged"))
        yield f"({', '.join(map(str, one['dims']))})", *cells


def other_entries(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Untrained heads and single matrices, as if of normal entries and with their kurtosis."""
    yield "entries", "κ̂", "(d, h)", "W_QK", "with κ̂", "W_Q", "with κ̂", "rest flagged", "with κ̂"
    for one in results:
        if not one["planted"]:
            cells = [
                per_cent(one.get(f"{what}_{of}{suffix}"))
                for what, of in (("too_many_in", "w_qk"), ("too_many_in", "w_q"), ("rest_flagged_in", "w_qk"))
                for suffix in ("", "_with_kurtosis")
            ]
            if one["covered"] < 1.0:
                cells = [f"{cell} of {100 * one['covered']:.0f}" if k % 2 else cell for k, cell in enumerate(cells)]
            d, h, _ = one["dims"]
            yield one["entries"], f"{one['excess_kurtosis']:.2f}", f"({d}, {h})", *cells


def planted_entries(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Tabulate heads with one direction at two thresholds."""
    yield "entries", "(d, h)", "too many, right, limits hold", "with κ̂"
    for one in results:
        if one["planted"]:
            cells = [
                per_cent(one[f"too_many_in_w_qk{of}"], one[f"exact_in_w_qk{of}"], one[f"limits_hold{of}"])
                for of in ("", "_with_kurtosis")
            ]
            yield one["entries"], f"({one['dims'][0]}, {one['dims'][1]})", *cells


def key_groups(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Heads that share keys, as one and each by itself."""
    yield "(d, h), heads", "each at", "as one", "too many", "limits hold", "a head", "any of them, at 5 % together"
    for one in results:
        yield (
            f"({one['dims'][0]}, {one['dims'][1]}), {one['members']}",
            f"{one['multiple']:g}",
            per_cent(one["found_in_the_group"]),
            per_cent(one["too_many_in_the_group"]),
            per_cent(one.get("limits_hold")),
            per_cent(one["found_in_a_head"]),
            per_cent(one["found_in_any_head"]),
        )


def one_factor(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Tabulate a direction of one factor, in its own spectrum and in the product's."""
    yield "strength", "found in W_Q", "found in W_QK"
    for one in results:
        yield f"{one['multiple']:g}", f"{one['found_in_w_q']:.3f}", f"{one['found_in_w_qk']:.3f}"


def shrinkage(results: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    """Errors of each way to guess the signal."""
    yield "(d, h)", "planted", *GUESSES.values()
    for one in results:
        cells = (error(one[name]) for name in GUESSES)
        yield shape(one["dims"]), planted(one["planted"]), *cells


TABLES: dict[str, Callable[[Sequence[dict]], Iterator[tuple[str, ...]]]] = {
    one.__name__: one
    for one in (number_and_strength, other_chains, other_entries, planted_entries, key_groups, one_factor, shrinkage)
}


def filled(page: str, results: dict[str, Any]) -> str:
    """Fill every table between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` of the page anew."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        title, *rows = TABLES[name](results["other_entries" if name == "planted_entries" else name])
        lines = ("| " + " | ".join(row) + " |" for row in (title, ["---"] * len(title), *rows))
        return "\n".join([f"<!-- begin {name} -->", *lines, f"<!-- end {name} -->"])

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", table, page, flags=re.DOTALL)


def main() -> None:
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    page = HERE / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
