"""The tables of README.md on other entries and on heads that share keys, from results.json.

python studies/signal/tables.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent


def per_cent(*shares: float | None) -> str:
    """Of shares; a dash where there is none."""
    return ", ".join("–" if share is None else f"{100 * share:.1f}" for share in shares)


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
    """One direction at two thresholds."""
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


def main() -> None:
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    for part, of in (("other_entries", other_entries), ("other_entries", planted_entries), ("key_groups", key_groups)):
        title, *rows = of(results[part])
        for row in (title, ["---"] * len(title), *rows):
            print("| " + " | ".join(row) + " |")
        print()


if __name__ == "__main__":
    main()
