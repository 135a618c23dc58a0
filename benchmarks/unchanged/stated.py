"""What is meant to differ: names that moved, and numbers that may round otherwise. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_TO_NULLS = {
    "montecarlo": ("PROBABILITIES", "atlas_case", "atlas_path", "count_bound", "kept_ranks", "open_atlas",
                   "self_normalized_sample"),
    "scoring": ("SMALLEST_P_VALUE", "AnalyticNull", "AtlasNull", "GaussianNull", "HeadNull"),
}  # fmt: skip
MOVED: dict[str, str] = {
    **{f"{room}.{name}": f"nulls.{name}" for room, names in _TO_NULLS.items() for name in names},
    "plots.farthest_z": "scoring.farthest_z",
    "laws.weibull_fit": "statistics.weibull_fit",
    "laws.WeibullFit": "statistics.WeibullFit",
    "statistics.WeibullEstimate": "statistics.WeibullFit",
    "constants.Constant.check_digits": "constants.Constant.require_digits",
    "constants.ConstantFunction.check_digits": "constants.ConstantFunction.require_digits",
}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

REPORTERS = frozenset({"progress", "bar", "note", "layer_done", "matrix_done"})
"""Parameters that one ``progress`` replaces: signatures are compared without them."""

MEANT: dict[str, str] = {
    "names/models.Model": "its fields from d_head on are private, and fewer",
    "names/laws.PathLength.*": "x is the argument of every distribution",
    "names/laws.TracyWidom.*": "x is the argument of every distribution",
    "names/models.check_outputs": "one verb for checks: require_other_files",
    "names/tables.check_writable": "one verb for checks: require_writable",
    "names/montecarlo.require_seed": "a check of parameters: rmtbase.parameters.require_seed",
    "names/montecarlo.Plan*": "the fields are listed once, in the order of a plan's file",
    "names/montecarlo.make_plan": "its options are the fields of Plan",
    "names/montecarlo.Store.settle": "record_settings",
    "names/montecarlo.Store.take_back": "discard_if_removed",
    "names/montecarlo.atlas_case": "nulls.atlas_case takes the path of an atlas, too",
    "names/montecarlo.atlas_shapes": "nobody used it",
    "names/montecarlo.divisor": "nobody used it outside its room",
    "names/montecarlo.compact_baseline": "the atlas is made in sims/",
    "names/montecarlo.merge_atlases": "the atlas is made in sims/",
    "names/montecarlo.datacite": "the atlas is made in sims/",
    "names/montecarlo.compute_chunk": "a chunk advances the bar of its run",
    "names/montecarlo.element_statistics_chunk": "draw_elements with its chunk",
    "names/montecarlo.draw_elements": "the block is a parameter",
    "names/scoring.AnalyticNull.dims": "private: a null has d_model and d_head",
    "names/scoring.GaussianNull.unit": "nobody used it",
    "names/scoring.HeadNull.*": "a null shared by heads is a SharedNull",
    "names/scoring.*Null.score": "a null makes the statistics itself",
    "names/montecarlo.element_table": "a plan that measures elements makes the table",
    "names/constants.ConstantFunction": "keyword-only fields in another order",
    "names/tables.Variable": "the domain stands before the units",
    "names/scoring.DepthFitter.*": "laws travel as laws, not as depth, sigma and part",
    "laws/laws.LogDeterminant(*).moment(0)*": "1, where it was refused",
    "laws/laws.TracyWidom(*).log?df": "infinite at the infinities",
    "laws/laws.TracyWidom(*).logsf": "infinite at the infinities",
    "elements/laws.gaussian_sample_statistic(*).p_value": "0 for what no sample of that size can give",
    "commands/rmtbase ?std*": "every command takes --quiet and --verbose, and the shell completes",
    "commands/rmtbase --help*": "every command takes --quiet and --verbose, and the shell completes",
    "commands/rmtbase * --help*": "every command takes --quiet and --verbose",
    "commands/rmtbase depth demo --*": "which matrices are meant, and an interval where no depth fits",
    "commands/rmtbase scores demo ?stderr]": "a wrong command line points to the help of its command",
    "commands/rmtbase --wat ?stderr]": "a wrong command line points to the help of its command",
    "commands/rmtbase baseline ?stderr]": "a wrong command line points to the help of its command",
    "commands/rmtbase baseline --d-model 32 ?stderr]": "a wrong command line points to the help of its command",
    "commands/rmtbase score ?stderr]": "a wrong command line points to the help of its command",
    "commands/rmtbase law --d-model 64 ?stderr]": "a wrong command line points to the help of its command",
    "commands/* --draws 1e3*": "it is a count",
    "draws/atlas_shapes*": "nobody used it",
    "draws/divisor*": "nobody used it outside its room",
    "commands/*--keep-chunks* > kept.nc.chunks/*": "digests over the digest of the code",
    "commands/*plan.toml* > *@sha256_of_variables": "of density_law, whose rounding is stated",
    "commands/rmtbase doctor*": "two more packages are listed",
    "constant_values/*.bibtex": "rmtbase beside the literature",
    "constant_values/*.words/*": "LaTeX without packages, σ in the definitions, descriptions that stand in a sentence",
    "constant_values/*.uncertainty": "of what 1/d_head is the error",
    "constant_values/as_json/*": "the words again",
    "constant_values/as_latex": "the words again, and the conditions",
    "constant_values/groups/Functions of the shape*": "σ and the normalization can be chosen",
    "constant_values/bibliography/tarnowski_2019/*": "an accent that LaTeX has with the package fontenc alone",
    "commands/*rmtbase constants*": "conditions, sentences, and rmtbase in the BibTeX",
    "draws/plan.titles/*": "the repr of a plan, whose fields have another order",
    "commands/* > *@units": "absent where there is none",
    "commands/* > *@long_name": "of coordinates too, and of what may be NaN",
    "commands/* > *@schema_version": "1.3",
    "commands/* > *@sha256*": "digests over the above",
    "commands/* > */bin": "the centres of the bins, where every case has the same",
    "commands/* > */bin@*": "the centres of the bins, where every case has the same",
    "commands/* > *bin_center*": "the centres of the bins of each case",
    "commands/* > *moment_order*": "which moments are finite",
    "commands/rmtbase baseline * --json*": "which moments are finite, and three quantiles",
    "names/statistics.Statistic*": "it knows how it grows as the smallest eigenvalue falls",
}
"""Entries that are gone, or differ in whatever way, by pattern, each with the reason."""

BOUNDS: dict[str, float] = {
    "laws/*.entropy": 2e-14,  # one quadrature for all spectral laws
    "laws/*.expect(*": 5e-16,
    "commands/*plan.toml* > *//density_law": 2e-14,  # of a residual path with a hard edge
    "laws/*ResidualPath(10, 1.0)*cdf*": 5e-16,
}
"""Largest relative difference of the numbers of an entry, by pattern; 0 for all others."""

WHITE_SPACE = ("commands/* > *.html",)
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
