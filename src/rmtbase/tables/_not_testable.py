"""Places and reasons of tests that cannot be made.

A test has three outcomes: the null is rejected, it is not rejected, or there is no test. The third belongs to neither
of the others. Counts read "k of n" with n the number of tests made, and what could not be tested is reported next to
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmtbase.shown import in_one_line

_NO_REASON = "no reason is recorded in this file"
_REASONS = 4  # largest number of reasons in one sentence


@in_one_line
class NotTestable(NamedTuple):
    """Head, matrix, pair or measure for which there is no test."""

    place: str  # its name, such as ``layer 3 head 2``
    reason: str  # why there is no test


def plural(count: int, noun: str) -> str:
    """Return the singular or plural of a noun by its count: ``heads``, ``spectra``, ``matrices``."""
    if count == 1:
        return noun
    return _PLURALS.get(noun.rsplit(" ", 1)[-1], lambda word: f"{word}s")(noun)


_PLURALS = {
    "subspaces": lambda noun: noun.replace(" of ", "s of ", 1),
    "models": lambda noun: noun.replace("pair ", "pairs ", 1),
    "head": lambda noun: noun.replace("part of a head", "parts of heads") if " of " in noun else f"{noun}s",
    "spectrum": lambda noun: f"{noun[:-2]}a",
    "matrix": lambda noun: f"{noun[:-2]}ices",
    "update": lambda noun: noun.replace("factor of an update", "factors of updates") if " of " in noun else f"{noun}s",
}


def not_testable_words(left_out: Sequence[NotTestable], total: int, noun: str) -> str:
    """Say how many of ``total`` cannot be tested, and why; "" if all can.

    Reasons that differ only in their numbers count as one, with the wording of the first.
    """
    if not left_out:
        return ""
    counts: dict[str, list[str]] = {}
    for one in left_out:
        counts.setdefault(re.sub(r"\d[\d.e+-]*", "#", one.reason), []).append(one.reason)
    reasons = sorted(counts.values(), key=len, reverse=True)
    begin = f"{len(left_out)} of {total} {plural(total, noun)} cannot be tested"
    if len(reasons) == 1:
        return f"{begin}: {reasons[0][0]}"
    told = "; ".join(f"{same[0]} ({len(same)})" for same in reasons[:_REASONS])
    more = sum(map(len, reasons[_REASONS:]))
    return f"{begin}: {told}{f'; other reasons ({more})' if more else ''}"


def headline(found: int, tested: int, left_out: Sequence[NotTestable], noun: str, predicate: str) -> str:
    """State a count of findings: "3 of 18 testable heads <predicate>; 2 of 20 heads cannot be tested: <why>".

    If all can be tested, the word "testable" is left out; if none can, only the reasons are given.
    """
    words = not_testable_words(left_out, tested + len(left_out), noun)
    if not words:
        return f"{found} of {tested} {plural(tested, noun)} {predicate}"
    if not tested:
        return words
    return f"{found} of {tested} testable {plural(tested, noun)} {predicate}; {words}"


def not_testable_json(left_out: Sequence[NotTestable]) -> list[dict[str, str]]:
    """Return the list for ``not_testable`` in JSON."""
    return [one._asdict() for one in left_out]


def recorded(reason: Any) -> str:
    """Return a reason from a file, or a text that says that none is recorded."""
    return str(reason) or _NO_REASON
