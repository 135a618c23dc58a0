"""Intended differences: names that moved, and numbers that may round differently. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_FOLDERS: dict[tuple[str, str], str] = {
    ("comparison", "results.comparison"): (
        "BetweenGroups CommonOrigin FUSED HEADLINES InitialSigmas PairedGrowth "
        "READS RECIPES SELECTION ScaleLaw ShapeBand TRANSMISSION Training "
        "TwoGroups TwoModels WEIBULL WRITES attention_class attention_classes between_groups budget_state "
        "built_in_correlation common_origin compare compare_groups compare_two comparison_csv "
        "diagnose fingerprint initial_sigmas measures_of not_testable_of paired_growth "
        "published_class scale_law shape_band shape_drift significant_class summarize_comparison weibull_scales"
    ),
    ("plots", "drawing.axes"): ("statistic_label statistic_words"),
    ("plots", "drawing.color_scales"): ("Q_LEVELS Z_LEVELS q_colorbar z_colorbar"),
    ("plots", "drawing.null_curves"): ("null_spectrum"),
    ("plots", "drawing.figure"): ("FORMATS content save"),
    ("plots", "drawing.theme"): ("DARK LIGHT PRINT THEMES Theme as_theme"),
    ("plots", "results.baseline.figures"): (
        "eigenvalues_by_rank element_density element_laws element_property ensemble_spectrum spectral_densities"
    ),
    ("plots", "results.comparison.figures"): (
        "component_shapes group_measure group_measure_by_step pair_heatmap scale_law shape_drifts"
    ),
    ("plots", "results.composition.figures"): ("MOST_EDGES composition_graph composition_heatmap"),
    ("plots", "results.depth.figures"): ("DEPTHS_SHOWN depth_profile depth_spectrum"),
    ("plots", "results.diff.figures"): ("change_heatmap"),
    ("plots", "results.figures"): ("figure_names figures"),
    ("plots", "results.scores.figures"): (
        "MAIN_ELEMENT_STATISTICS MAIN_STATISTICS PUBLISHED_BAND body_and_tail compare "
        "eigenvalue_density_heatmap eigenvalue_heatmap expert_z_heatmap flagged_by_statistic head_density "
        "head_density_heatmap head_eigenvalue_density head_eigenvalues head_spectra magnitude_heatmap "
        "magnitudes_along_steps matrix_statistic_by_layer matrix_z_heatmap moment_corner omnibus_heatmap "
        "ordered_eigenvalues overlay p_value_qq spectrum_and_width statistic_by_layer statistic_scatter "
        "tail_counts trim_noise weibull_plane weibull_plot weibull_residuals width_by_layer z_heatmap"
    ),
    ("plots", "results.signal.figures"): ("learned_directions tail_exponents"),
    ("plots", "results.trajectory.figures"): (
        "ANIMATION_FORMATS Animation animation animation_of departures save_animation spectra_along_steps "
        "statistic_along_steps"
    ),
    ("report", "results.scores"): ("render"),
    ("scoring", "heads.factors"): ("head_dims head_sigmas"),
    ("scoring", "nulls"): ("ANALYTIC LatentNull NULLS OF_A_TABLE Wanted draws_for find_null"),
    ("scoring", "results.composition"): (
        "ComposedPair CompositionSummary KindSummary composition summarize_composition"
    ),
    ("scoring", "results.depth"): ("DepthFitter EffectiveDepth depth_fitter effective_depth effective_depths"),
    ("scoring", "results.diff"): ("changes"),
    ("scoring", "results.scores"): (
        "ElementMode ElementsSummary HeadFinding LAYERS LEVEL MatrixMode QUESTIONS Summary TESTS "
        "WhySummary at_p_value_floor attention_class circuit_scores circuits_of farthest_distance "
        "farthest_z heads_csv layer_p_value_floors matrices_csv matrix_p_value_floors p_value_floors "
        "require_scores score score_heads signed_distance summarize_elements summarize_scores "
        "summarize_why verdict"
    ),
    ("scoring", "results.signal"): (
        "DirectionReading FORMATS GroupRow HeavyTails LearnedPart MatrixSpectra Module SignalRow "
        "SignalSummary SpectralComparison SpectralSignal TailSummary TokenScores decisions_text "
        "direction_tokens discoveries embedding_of groups_headline groups_not_testable heavy_tails "
        "learned_modules learned_part learned_part_of left_out_of nearer_than_chance read_directions "
        "readings_headline sides_in_stream signal signal_csv signal_groups signal_headline "
        "signal_not_testable signal_rows spectral_signal summarize_signal summarize_tails"
    ),
    ("scoring", "tables"): ("NotTestable headline not_testable_json not_testable_words plural reasons_of recorded"),
    ("trajectories", "results.trajectory"): (
        "ALARM_LEVEL Departure Scoring Spending StepName StepSummary TrajectorySummary earlier_file "
        "evidence failures joined one_step raised spending_of summarize_trajectory trajectory until "
        "with_alarm without_alarm"
    ),
}
"""Names that went from a package of before to a folder of results, or below it."""

MOVED: dict[str, str] = {
    f"{old}.{name}": f"{new}.{name}" for (old, new), names in _FOLDERS.items() for name in names.split()
}
MOVED |= {"scoring.changes": "results.diff.diff", "scoring.effective_depths": "results.depth.depth"}
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
    **{
        f"names/comparison.{name}*": "studies/sources reproduces the paper: published.py and first_principles.py there"
        for name in (
            "Expected",
            "Interval",
            "PublishedCheck",
            "PublishedTable",
            "checks",
            "our_name",
            "printed_interval",
            "published_csv",
            "published_table",
        )
    },
    "names/tables.Kind*": "one tuple of relations, of sizes and names: a digest shows that values are as written",
    "commands/rmtbase published*": "pages of studies/sources have the tables",
    "commands/rmtbase --help*": "without the command published",
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


def reason(name: str) -> str | None:
    """Reason why an entry may differ; None if it may not."""
    return next((why for pattern, why in MEANT.items() if fnmatchcase(name, pattern)), None)
