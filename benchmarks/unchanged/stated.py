"""What is meant to differ: names that moved, and numbers that may round otherwise. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

MOVED: dict[str, str] = {}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

REPORTERS: frozenset[str] = frozenset()
"""Parameters that say how a call reports and not what it computes: signatures are compared without them."""

NOT_PUBLIC: dict[str, str] = {
    "laws": ("eigenvalue_response spiked_tracy_widom_cdf trace_cumulant_polynomial"),
    "statistics": (
        "FEWEST_ELEMENTS MAGNITUDE_BINS drawn_moments eigenvalue_moment_orders element_sums entropy_of_counts "
        "from_distance_scale get_element_statistic hill_exponent inverse_moment_order kl_of_counts "
        "missing_moment normal_score p_value_among_sorted upper_p_value_among_sorted"
    ),
    "linalg": (
        "DEVICE_SVD_CONDITION DTYPE MATMUL_PRECISION PRNG_IMPLEMENTATION SpectrumSolver appended_rows "
        "blas_threads extreme_eigenvalues fastest_solver gram_singular_values is_measured loses_digits "
        "matrix_singular_values measured_solver product_core require_precision require_solver "
        "symmetric_singular_values without_noise"
    ),
    "ensembles": (
        "IndependentMatrix SignFlippedMatrix flipped latent_attention sign_flipped_matrix signed_permutation"
    ),
    "constants": (
        "KINDS_OF_ERROR as_identified as_latex_sentence citation_file current_set shown_digits shown_enclosure"
    ),
    "montecarlo": (
        "BatchPlan CompiledSampler ELEMENT_FORMULAS HeadSample MAX_DRAWS cached_latent_attention "
        "cached_orthogonal_null cached_spectra dask_workers entry_statistics flip_statistics in_order "
        "permutation_statistics simulate_heads_with_factors simulate_latent_attention "
        "simulated_entry_statistics tile_size"
    ),
    "nulls": (
        "ANGLE_STATISTICS BINS EDGE_LEVEL ENTRIES_IN_WORDS FLAT FixedSpectrum HeadParts JointNull "
        "OrthogonalNull RATIO ResampledNull SMALLEST_P_VALUE angle_statistics chain_scale "
        "distance_from_moments edge_rank head_shape logarithmic_edges rank_name unscored_head "
        "without_kurtosis"
    ),
}
"""Names that only other packages and tests used: importable as before, and no longer in their package's ``__all__``."""

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
    "commands/* > *@long_name": "where there is no mean or standard deviation",
    "commands/*spectra* > *": "the condition number of a square matrix has no mean, and z is that of p",
    "commands/* > *@sha256*": "digests over the above",
    "commands/* > *.html": "what the columns mean, and where there is no standard deviation",
    "commands/* --json*": "the null's median, for where there is no standard deviation",
    "scores/*farthest_statistic*": "of statistics that are functions of each other rounding chooses",
    "commands/rmtbase constants*": "complex matrices are called complex; tidier LaTeX; rows rounded to the error",
    **{
        f"names/{name}*": "it has no caller"
        for name in (
            "nulls.change_sigma",
            "nulls.difference_rounding_variance",
            "nulls.spacing",
            "plots.q_colorbar",
            "scoring.farthest_z",
        )
    },
    "names/nulls.open_atlas": "tables.open_atlas_file opens any atlas",
    "names/nulls.smallest_kept": "in sims/compact_atlas.py, which alone uses it",
    "names/constants.released_digits": "in sims/release_constants.py, which alone uses it",
    "names/constants.citation_fields": "sims/make_metadata.py reads the file as YAML",
    "names/montecarlo.run_on_hosts": "draw_chunks draws the range of one job of an array",
    "names/montecarlo.Chunks.in_turn": "jobs draw ranges",
    "names/montecarlo.Store.*": "the same",
    "names/montecarlo.open_store": "the same",
    "names/tables.locked_folder": "each job holds its own range",
    "scores/farthest_z*": "it has no caller",
    "commands/rmtbase baseline --help*": "--chunks in place of --coordinator, --processes and --process",
    **{f"names/{package}.{name}*": "not public" for package, names in NOT_PUBLIC.items() for name in names.split()},
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
