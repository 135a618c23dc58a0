"""What is meant to differ: names that moved, and numbers that may round otherwise. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

MOVED: dict[str, str] = {}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

REPORTERS: frozenset[str] = frozenset()
"""Parameters that say how a call reports and not what it computes: signatures are compared without them."""

MEANT: dict[str, str] = {
    "names/constants.Constant": "it knows what its function was called with",
    "names/montecarlo.baseline_plan": "it takes the sigmas of both factors, as the table does",
    "names/scoring.HeadFinding": "the null's median, for where there is no standard deviation",
    "names/keys of statistics.ELEMENT_STATISTICS": "all that is asked of elements, not only their moments",
    "names/statistics.ElementSketch*": "signed bins of equal relative width in place of a range given beforehand",
    "names/statistics.MagnitudeCounts*": "part of the element sketch's signed bins",
    "names/statistics.element_sketch": "no range need be known",
    "elements/element_sketch(*": "the same",
    "constant_values/*_moment_?.words/description": "λ² for λ^2",
    "constant_values/*.words/description": "squared singular values of W_QK, not its eigenvalues",
    "names/laws.marchenko_pastur": "one matrix is taken as it is, whatever its rows",
    "laws/laws.*(dims=(?, ?)*": "the same",
    "constant_values/as_json/*": "complex matrices are called complex; tidier LaTeX",
    "constant_values/as_latex": "the same, and rounded to the error",
    "scores/*@long_name": "where there is no mean or standard deviation",
    "scores/score spectra/matrices/*": "the condition number of a square matrix has no mean, and z is that of p; all "
    "statistics of elements, and a closer null of the largest magnitude",
    "names/scoring.score*": "whose elements are scored, and by which law",
    "commands/rmtbase score*": "a line or two on elements, and options for them",
    "commands/rmtbase demo*": "a line or two on elements",
    "commands/* > */matrices/*": "all statistics of elements, and a closer null of the largest magnitude",
    "scores/summarize_scores*": "the null's median, for where there is no standard deviation",
    "draws/*@long_name": "where there is no mean or standard deviation",
    "commands/rmtbase baseline --help*": "the sigmas of both factors",
    "commands/* > *@long_name": "where there is no mean or standard deviation",
    "commands/*spectra* > *": "the condition number of a square matrix has no mean, and z is that of p",
    "commands/* > *@sha256*": "digests over the above",
    "commands/* > *.html": "what the columns mean, and where there is no standard deviation",
    "commands/* --json*": "the null's median, for where there is no standard deviation",
    "scores/*farthest_statistic*": "of statistics that are functions of each other rounding chooses",
    "commands/rmtbase constants*": "complex matrices are called complex; tidier LaTeX; rows rounded to the error",
}
"""Entries that are gone, or differ in whatever way, by pattern, each with the reason."""

BOUNDS: dict[str, float] = {
    # Triangles from Gram matrices: eigenvalues differ by 1e-14, and z and quantiles near zero, which cancel, by more.
    "scores/*": 1e-8,
    # Sums over blocks and about other pivots: the Weibull fit, and what is reckoned from it.
    "elements/statistics.weibull_fit*": 1e-12,
    "elements/WeibullNull.z_scores*": 1e-9,
    "draws/*element*": 1e-12,
    "commands/* > *.nc*": 1e-8,
}
"""Largest relative difference of the numbers of an entry, by pattern; 0 for all others."""

WHITE_SPACE: tuple[str, ...] = ()
"""Pages, in which white space and entities may differ; where they do is told."""


def moved(name: str) -> str:
    """Where a name of before is now: itself, if it did not move."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return name


def bound(name: str) -> float:
    """How far an entry's numbers may differ."""
    return max((size for pattern, size in BOUNDS.items() if fnmatchcase(name, pattern)), default=0.0)


def may_be_spaced_otherwise(name: str) -> bool:
    """Whether white space does not count in a text."""
    return any(fnmatchcase(name, pattern) for pattern in WHITE_SPACE)


def reason(name: str) -> str | None:
    """Why an entry may differ; None if it may not."""
    return next((why for pattern, why in MEANT.items() if fnmatchcase(name, pattern)), None)
