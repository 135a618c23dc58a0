"""Words of counts, lists and places. They are made last: no code reads them back."""

from collections.abc import Sequence

from rmtbase.reasons import NotTestable, listed_reasons

_PLURALS = {
    "factor of an update": "factors of updates",
    "matrix": "matrices",
    "overlap of subspaces": "overlaps of subspaces",
    "pair of models": "pairs of models",
    "part of a head": "parts of heads",
    "spectrum": "spectra",
    "weight matrix": "weight matrices",
}


def plural(count: int, noun: str) -> str:
    """Return a noun in the singular or plural.

    >>> plural(1, "spectrum"), plural(2, "spectrum"), plural(0, "key head")
    ('spectrum', 'spectra', 'key heads')
    """
    return noun if count == 1 else _PLURALS.get(noun, f"{noun}s")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "head"), counted(3, "weight matrix")
    ('1 head', '3 weight matrices')
    """
    return f"{count} {plural(count, noun)}"


def listing(items: Sequence[object], most: int) -> str:
    """List at most so many items, and count the others.

    >>> listing(["a", "b"], 2), listing("abcde", 2)
    ('a, b', 'a, b and 3 more')
    """
    named, more = ", ".join(map(str, items[:most])), len(items) - most
    return named if more <= 0 else f"{named} and {more} more"


def place_name(layer: int, *parts: object, stack: str = "") -> str:
    """Name what a layer has; ``stack`` is "" if a model has only one.

    >>> place_name(3, "qk", "head 2"), place_name(0, "mlp_in", stack="decoder")
    ('layer 3 qk head 2', 'decoder layer 0 mlp_in')
    """
    return " ".join(map(str, (*([stack] if stack else []), f"layer {layer}", *parts)))


def untested_words(untested: Sequence[NotTestable], total: int, noun: str) -> str:
    """Say how many of ``total`` cannot be tested, and why; "" if all can."""
    if not untested:
        return ""
    reasons = listed_reasons([item.reason for item in untested])
    return f"{len(untested)} of {counted(total, noun)} cannot be tested: {reasons}"


def of_tested(count: int, tested: int, untested: Sequence[NotTestable], noun: str, predicate: str) -> str:
    """State a count of findings: "3 of 18 testable heads differ; 2 of 20 heads cannot be tested: all zeros".

    If all can be tested, the word "testable" is left out; if none can, only the reasons are given.

    >>> of_tested(2, 5, [], "head", "differ")
    '2 of 5 heads differ'
    """
    words = untested_words(untested, tested + len(untested), noun)
    if not words:
        return f"{count} of {counted(tested, noun)} {predicate}"
    return f"{count} of {tested} testable {plural(tested, noun)} {predicate}; {words}" if tested else words
