"""Intended differences from commit eb7e9c91: names, words and parameters, and no number. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from fnmatch import fnmatchcase

MOVED: dict[str, str] = {}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

REPORTERS: frozenset[str] = frozenset()
"""Parameters that say how a call reports and not what it computes: signatures are compared without them."""

MEANT: dict[str, str] = {
    "laws/*/given": "a field with a name of its own",
    "laws/linear_statistics*_response": "it has no caller",
    "scores/*.description": "described(factors) makes the sentence",
    "scores/summarize_scores/moved/noun": "a code of the null's entries",
    "draws/*/checksum": "a digest of the table, its words included",
    "laws/*.entropy*": "of laws of elements alone",
    "names/laws.*.entropy": "of laws of elements alone",
    "*/*.upper_response": "it has no caller",
    "*/*.lower_response": "it has no caller",
    "*/*.scaling_std": "it has no caller",
    "*/*.kl_to_normal_leading": "it has no caller",
    "*/*weibull_maximum_likelihood*divergence": "it has no caller",
    "*/*DimensionPolynomial.coefficients": "it has no caller",
    "laws/*_polynomial*coefficients*": "it has no caller",
    "names/laws.HaarTrace.cumulant": "it has no caller",
    "names/laws.LinearStatistics*": "no responses of the edges, which had no caller",
    "names/laws.PathLength.second_moment": "it has no caller",
    "names/laws.PathLength.term": "it has no caller",
    "names/laws.WeibullNull.z_scores": "it has no caller",
    "names/laws.WeibullScore*": "it has no caller",
    "commands/* > *@sha256_of_variables": "digests of the variables, of words too",
    "commands/* > *.nc//@dims": "the width of the longest text",
}
"""Entries that are gone, or differ in whatever way, by pattern, each with the reason."""

REWORDED: tuple[str, ...] = (
    "laws/*.accuracy",
    "laws/*.method",
    "scores/*@long_name",
    "draws/*@long_name",
    "scores/*@notes",
    "scores/*@provenance",
    "scores/model/notes/*",
    "scores/sentences/*",
    "scores/overview/*",
    "commands/* ?stdout?",
    "commands/* ?stderr?",
    "commands/*@notes",
    "commands/*@provenance",
    "commands/* > *.html",
)
"""Sentences and messages, by pattern, that may say the same in other words, with the same numbers in them."""

BOUNDS: dict[str, float] = {}
"""Largest relative difference of the numbers of an entry, by pattern; 0 for all others."""

WHITE_SPACE: tuple[str, ...] = ()
"""Pages, in which white space and entities may differ; where they do is told."""


def moved(name: str) -> str:
    """Return the current name of an earlier one; the same name if it did not move."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return name


def bound(name: str) -> float:
    """Largest relative difference allowed for an entry's numbers."""
    return max((size for pattern, size in BOUNDS.items() if fnmatchcase(name, pattern)), default=0.0)


def may_be_spaced_otherwise(name: str) -> bool:
    """Return True if white space does not count in a text."""
    return any(fnmatchcase(name, pattern) for pattern in WHITE_SPACE)


def may_be_reworded(name: str) -> bool:
    """Return whether a text may say the same in other words."""
    return any(fnmatchcase(name, pattern) for pattern in REWORDED)


def reason(name: str) -> str | None:
    """Reason why an entry may differ; None if it may not."""
    return next((why for pattern, why in MEANT.items() if fnmatchcase(name, pattern)), None)
