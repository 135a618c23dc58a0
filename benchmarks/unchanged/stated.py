"""Intended differences from commit 9a2bad0: names, words and parameters, and no number. All else must be the same.

Patterns are those of ``fnmatch`` on ``section/entry``, as the comparison prints them; for a ``[`` write ``?``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_FOLDERS: dict[tuple[str, str], str] = {
    ("", "results"): ("open_scores open_trajectory"),
    ("comparison", "results.comparison._groups"): ("BetweenGroups TwoGroups between_groups compare_groups"),
    ("comparison", "results.comparison._common_origin"): ("CommonOrigin common_origin fingerprint"),
    ("comparison", "results.comparison"): (
        "InitialSigmas PairedGrowth SELECTION ScaleLaw ShapeBand TRANSMISSION Training attention_classes "
        "budget_state built_in_correlation compare comparison_csv initial_sigmas paired_growth scale_law "
        "shape_band shape_drift weibull_scales"
    ),
    ("comparison", "results.comparison._two_models"): ("TwoModels compare_two"),
    ("comparison", "results.comparison._classes"): (
        "FUSED READS WRITES attention_class published_class significant_class"
    ),
    ("comparison", "results.comparison._diagnose"): ("RECIPES WEIBULL diagnose"),
    ("comparison", "results.comparison.summary"): ("not_testable_of summarize_comparison"),
    ("plots", "drawing.axes"): ("statistic_label statistic_words"),
    ("plots", "drawing.color_scales"): ("Q_LEVELS Z_LEVELS q_colorbar z_colorbar"),
    ("plots", "drawing.null_curves"): ("null_spectrum"),
    ("plots", "drawing.figure"): ("FORMATS content save"),
    ("plots", "drawing.theme"): ("DARK LIGHT PRINT THEMES Theme as_theme"),
    ("plots", "results.baseline.figures._baseline_panels"): ("eigenvalues_by_rank element_laws spectral_densities"),
    ("plots", "results.baseline.figures._element_tables"): ("element_density element_property"),
    ("plots", "results.baseline.figures._baseline"): ("ensemble_spectrum"),
    ("plots", "results.comparison.figures"): (
        "component_shapes group_measure group_measure_by_step pair_heatmap scale_law shape_drifts"
    ),
    ("plots", "results.composition.figures"): ("composition_graph composition_heatmap"),
    ("plots", "results.depth.figures"): ("depth_profile depth_spectrum"),
    ("plots", "results.diff.figures"): ("change_heatmap"),
    ("plots", "results.figures"): ("figure_names figures"),
    ("plots", "results.scores.figures._scores"): ("MAIN_ELEMENT_STATISTICS MAIN_STATISTICS"),
    ("plots", "results.scores.figures._statistic_by_layer"): (
        "PUBLISHED_BAND matrix_statistic_by_layer statistic_by_layer"
    ),
    ("plots", "results.scores.figures._weibull_plane"): ("body_and_tail weibull_plane"),
    ("plots", "results.scores.figures._side_by_side"): ("compare overlay"),
    ("plots", "results.scores.figures._eigenvalues"): (
        "eigenvalue_density_heatmap eigenvalue_heatmap ordered_eigenvalues"
    ),
    ("plots", "results.scores.figures._heatmaps"): ("expert_z_heatmap matrix_z_heatmap omnibus_heatmap z_heatmap"),
    ("plots", "results.scores.figures._flagged_by_statistic"): ("flagged_by_statistic"),
    ("plots", "results.scores.figures._element_histograms"): (
        "head_density head_density_heatmap magnitude_heatmap magnitudes_along_steps"
    ),
    ("plots", "results.scores.figures._head_spectra"): ("head_eigenvalue_density head_eigenvalues head_spectra"),
    ("plots", "results.scores.figures._statistic_scatter"): ("moment_corner statistic_scatter"),
    ("plots", "results.scores.figures._p_value_qq"): ("p_value_qq"),
    ("plots", "results.scores.figures._spectrum_and_width"): ("spectrum_and_width"),
    ("plots", "results.scores.figures._weibull_plot"): ("tail_counts trim_noise weibull_plot weibull_residuals"),
    ("plots", "results.scores.figures._width_by_layer"): ("width_by_layer"),
    ("plots", "results.signal.figures"): ("learned_directions tail_exponents"),
    ("plots", "results.trajectory.figures._animation"): (
        "ANIMATION_FORMATS Animation animation animation_of save_animation"
    ),
    ("plots", "results.trajectory.figures._along_steps"): ("departures spectra_along_steps statistic_along_steps"),
    ("report", "results.scores"): ("render"),
    ("scoring", "heads.factors"): ("head_dims head_sigmas"),
    ("scoring", "nulls"): ("ANALYTIC LatentNull NULLS OF_A_TABLE Wanted draws_for find_null"),
    ("scoring", "results.composition.summary"): ("ComposedPair CompositionSummary KindSummary summarize_composition"),
    ("scoring", "results.composition"): ("composition"),
    ("scoring", "results.depth"): ("EffectiveDepth effective_depth effective_depths"),
    ("scoring", "results.diff"): ("changes"),
    ("scoring", "results.scores._head_elements"): ("ElementMode"),
    ("scoring", "results.scores._element_summary"): ("ElementsSummary summarize_elements"),
    ("scoring", "results.scores"): (
        "HeadFinding Summary circuit_scores farthest_z heads_csv matrices_csv score score_heads summarize_scores"
    ),
    ("scoring", "results.scores._read_matrices"): ("LAYERS"),
    ("scoring", "results.scores.measure"): ("MatrixMode"),
    ("scoring", "results.scores._why"): ("LEVEL QUESTIONS TESTS WhySummary summarize_why verdict"),
    ("scoring", "results.scores._distance"): (
        "at_p_value_floor farthest_distance layer_p_value_floors p_value_floors signed_distance"
    ),
    ("scoring", "results.scores._scores_tree"): ("attention_class"),
    ("scoring", "results.scores._heads"): ("circuits_of require_scores"),
    ("scoring", "heads.direction_tokens"): (
        "DirectionReading TokenScores direction_tokens embedding_of nearer_than_chance readings_headline "
        "sides_in_stream"
    ),
    ("scoring", "results.signal._read_directions"): ("read_directions"),
    ("scoring", "results.signal"): (
        "HeavyTails LearnedPart SignalRow SpectralSignal TailSummary heavy_tails learned_part signal "
        "signal_csv signal_rows spectral_signal summarize_tails"
    ),
    ("scoring", "results.signal._decisions"): ("FORMATS Module decisions_text learned_modules left_out_of"),
    ("scoring", "results.signal.rows"): (
        "GroupRow SignalSummary discoveries groups_headline groups_not_testable signal_groups signal_headline "
        "signal_not_testable summarize_signal"
    ),
    ("scoring", "results.signal._spectral_comparison"): ("SpectralComparison"),
    ("scoring", "results.signal._learned_part"): ("learned_part_of"),
    ("scoring", "tables"): ("NotTestable headline not_testable_json not_testable_words plural recorded"),
    ("montecarlo", "laws"): ("histogram_edges"),
    ("nulls", "laws"): ("PROBABILITIES histogram_edges"),
    ("nulls", "statistics"): ("LatentShape"),
    ("tables", "results"): ("open_comparison open_composition open_scores open_signal open_trajectory"),
    ("tables", "results.comparison.schema"): ("COMPARISON_SCHEMA"),
    ("tables", "results.composition.schema"): ("COMPOSITION_SCHEMA KINDS_OF_COMPOSITION NOT_TESTABLE_PAIRS"),
    ("tables", "results.depth.schema"): ("EFFECTIVE_DEPTH_SCHEMA"),
    ("tables", "results.diff.schema"): ("CHANGES_SCHEMA"),
    ("tables", "results.scores.schema"): (
        "SCORES_SCHEMA SUPER_WEIGHTS_SCHEMA WHY_SCHEMA experts_schema head_elements_schema heads_schema "
        "null_schema own_null_schema"
    ),
    ("tables", "results.signal.schema"): ("NEED_A_LAW SIGNAL_SCHEMA TAIL_VERDICTS"),
    ("tables", "results.trajectory.schema"): (
        "ALARM_VARIABLES DEPARTURES_SCHEMA FOR_GOOD KEPT_PROBABILITIES STEP STEP_COORDINATES STEP_OF_ENTRY "
        "departure_steps has_step scores_at"
    ),
    ("trajectories", "results.trajectory._alarm"): (
        "ALARM_LEVEL Spending evidence raised spending_of with_alarm without_alarm"
    ),
    ("trajectories", "results.trajectory.summary"): ("Departure StepSummary"),
    ("trajectories", "results.trajectory._checkpoint_scores"): ("Scoring"),
    ("trajectories", "results.trajectory._attributes"): ("StepName failures"),
    ("trajectories", "results.trajectory"): ("TrajectorySummary summarize_trajectory trajectory"),
    ("trajectories", "results.trajectory.measure"): ("earlier_file"),
    ("trajectories", "results.trajectory._along_steps"): ("joined one_step until"),
    ("comparison", "results.comparison._measures"): ("HEADLINES measures_of"),
    ("scoring", "results.depth._depth_fitter"): ("DepthFitter"),
    ("scoring", "results.scores._matrices"): ("matrix_p_value_floors"),
}
"""Names that went from a package of before to a folder of results, or below it."""

MOVED: dict[str, str] = {
    f"{old}.{name}".lstrip("."): f"{new}.{name}" for (old, new), names in _FOLDERS.items() for name in names.split()
}
MOVED |= {
    "open_baseline": "open_table",
    "scoring.changes": "results.diff.diff",
    "laws.DimensionPolynomial.of": "laws.DimensionPolynomial.from_coefficients",
    "laws.LargeSampleLaw.of": "laws.LargeSampleLaw.from_expansion",
    "models.ArrayModel.of": "models.ArrayModel.from_factors",
    "scoring.effective_depths": "results.depth.depth",
}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

REPORTERS: frozenset[str] = frozenset()
"""Parameters that say how a call reports and not what it computes: signatures are compared without them."""

NOT_PUBLIC: dict[str, str] = {
    "laws": (
        "BINS BesselEdge PROBABILITIES SampleStatisticLaw WeibullProductNull WeibullProjection describe "
        "eigenvalue_response element_average gaussian_sample_statistic histogram_edges logarithmic_edges "
        "pearson_distance residual_trace_moment self_normalization spiked_tracy_widom_cdf trace_covariance "
        "trace_cumulant_polynomial trace_cumulants unimodal_bound weibull_maximum_likelihood "
        "weibull_moment_match weibull_plot_noise weibull_product_null weibull_quantile_noise"
    ),
    "statistics": (
        "CentralSums ElementMoments ExtremeMoments FEWEST_ELEMENTS LatentShape MAGNITUDE_BINS NormalFit "
        "PowerLawFit SampleSummary SignedBins drawn_moments eigenvalue_moment_orders element_moments "
        "element_sums entropy_of_counts fit_normal from_distance_scale get_element_statistic get_statistic "
        "hill_exponent inverse_moment_order kl_of_counts magnitude_bins missing_moment normal_score "
        "on_distance_scale p_value_among_sorted power_law_fit power_law_p_value quantiles_of_stream "
        "reason_against summarize summarize_stream upper_p_value_among_sorted weibull_fit_of_bins"
    ),
    "linalg": (
        "DEVICE_SOLVERS DEVICE_SVD_CONDITION DTYPE GRAM_CONDITION HOST_SOLVERS MATMUL_PRECISION MICROSECONDS "
        "PRECISIONS PRNG_IMPLEMENTATION SOLVERS SolverChoice SpectrumSolver Triangles appended_rows "
        "blas_threads core_of_triangles core_singular_values device_singular_values extreme_eigenvalues "
        "fastest_solver gram_singular_values is_measured loses_digits matrix_singular_values measured_solver "
        "product_core reproducible_jax require_precision require_solver single_threaded_blas "
        "symmetric_singular_values triangle triangles without_noise"
    ),
    "ensembles": (
        "BidiagonalDraw IndependentMatrix Initializer LatentAttention LatentParts SignFlippedMatrix flipped "
        "latent_attention make_ensemble sign_flipped_matrix signed_permutation"
    ),
    "constants": (
        "KINDS_OF_ERROR Release as_identified as_latex as_latex_sentence citation_file current_set encloses "
        "set_named shown_digits shown_enclosure"
    ),
    "montecarlo": (
        "BatchPlan CachedTable Chunk Chunks CompiledSampler ELEMENT_FORMULAS ElementChunk ElementEnsemble "
        "GaussianMatrixSample GroupedQuerySample HeadCorrelation HeadSample LatentAttentionSample MAX_DRAWS "
        "Store baseline_file baseline_plan cache_folder cached_baseline cached_latent_attention "
        "cached_orthogonal_null cached_spectra case_key choose_solver compute_chunk dask_workers "
        "draw_elements draw_keys element_edges entry_statistics flip_statistics in_order open_store "
        "permutation_statistics plan_status run_in_memory simulate_gaussian_matrix simulate_grouped_query "
        "simulate_heads_with_factors simulate_latent_attention simulated_entry_statistics spectra_file "
        "tile_size time_solver"
    ),
    "nulls": (
        "ANGLE_STATISTICS AnalyticNull AtlasNull BINS EDGE_LEVEL ENTRIES_IN_WORDS FLAT FixedSpectrum "
        "GaussianNull HeadNull HeadParts HeadScores HeadShape Heads JointNull KurtosisNull LatentNull NULLS "
        "OrthogonalNull RATIO ResampledNull SMALLEST_P_VALUE STEP ScoredHeads SharedNull angle_statistics "
        "atlas_case atlas_path chain_scale count_bound distance_from_moments draws_for edge_rank head_shape "
        "kept_ranks logarithmic_edges mean_kurtosis null_of_file rank_name self_normalized_sample "
        "unscored_head without_kurtosis"
    ),
    "models": (
        "Alike COMPONENTS Checkpoint EXPERT_COMPONENTS FUSED_COMPONENTS Gained HeadShape Inspection "
        "MatrixName ONE_WAY Product Revision Rows Scaled Stacked difference head_shape inspect_model "
        "require_other_files token_names"
    ),
    "tables": (
        "ATLAS_SCHEMA BASELINE_SCHEMA CIRCUITS COORDINATES Circuit ELEMENTS_SCHEMA ELEMENT_FORMULAS "
        "EXPORT_FORMATS Factor Fault LOCK NORMALIZATION NotTestable Outline QK SPECTRA_SCHEMA baseline_shapes "
        "circuit_of csv_text digest_of frame_groups groups_of headline is_temporary layer_names layer_numbers "
        "layer_stacks locked_folder matrices_present not_testable_json not_testable_words open_atlas_case "
        "open_atlas_file open_baseline plural recorded require_replaceable require_writable shapes_of sweep "
        "tree_of validate with_checksums without_foreign_coordinates"
    ),
    "report": ("UNTESTED Verbatim number_text print_report"),
    "plots": ("DEPTHS_SHOWN MOST_EDGES"),
    "scoring": ("MatrixSpectra"),
}
"""Names that only other packages, tests and benchmarks used: no longer in the ``__all__`` of their package."""

_NULLS = "nulls are objects, which hold draws, seed, initialization and baseline"
_OPENING = "open_model alone takes the options of opening: revision, fold, proof"

MEANT: dict[str, str] = {
    "draws/*/density@long_name": "histogram_edges is one of the laws",
    "draws/*/checksum": "a digest of the table, its words included",
    "scores/effective_depths@provenance": "the name of the function",
    # Commands.
    "commands/* --help ?stdout?": "options that went, and plain English",
    "commands/* > *.csv": "rmtbase export writes it",
    "commands/* > *@sha256_of_variables": "digests of the variables, of words too",
    "commands/* > *.nc//@dims": "the width of the longest text",
    "commands/* > *analytic_method@dims": "the same",
    "commands/* > *analytic_method@stored": "the same",
    "commands/* > *omnibus-map.png/*": "the title in plain English",
    "commands/* --null signs * ?stderr?": "1/k in place of words",
    "commands/* --null axes * ?stderr?": "the same",
    "commands/* --csv * ?files?": "without the CSV",
    "commands/rmtbase demo --out demo ?files?": "without the CSV",
    "commands/rmtbase demo --out demo ?stderr?": "without the CSV",
    "commands/* --precision half *": "a plan states the precision",
    "commands/* --processes 2 *": "jobs of an array draw chunks",
    "commands/* --null axes --baseline null.nc *": "one option names the null, or its table",
    "commands/rmtbase score demo --baseline notes.txt ?stderr?": "neither the name of a null nor of a table",
    "commands/rmtbase depth demo --distance ks *": "only the Wasserstein distance",
    "commands/rmtbase constants --format bibtex *": "rmtbase cite prints references",
    "commands/rmtbase cite product_upper_edge *": "it names the constants and cites rmtbase; as text with --json",
    "commands/rmtbase law --d-model 20 *": "1/rank in place of words",
    "commands/rmtbase doctor*": "the packages that rmtbase asks for",
    "names/montecarlo.cached_null": "in nulls, which alone uses it",
    "names/open_baseline": "open_table opens every kind",
    "names/score": f"{_NULLS}; {_OPENING}",
    "names/score_heads": _NULLS,
    "names/trajectory": f"{_NULLS}; {_OPENING}",
    "names/trajectories.trajectory": f"{_NULLS}; {_OPENING}",
    "names/trajectories.Scoring*": f"{_NULLS}; {_OPENING}",
    "names/scoring.score": f"{_NULLS}; {_OPENING}",
    "names/scoring.score_heads": _NULLS,
    "names/scoring.signal": f"{_NULLS}; {_OPENING}",
    "names/scoring.composition": _OPENING,
    "names/scoring.changes": _OPENING,
    "names/scoring.effective_depths": _OPENING,
    "names/scoring.find_null": _NULLS,
    "names/scoring.learned_part_of": _NULLS,
    "names/scoring.read_directions": _NULLS,
    "names/scoring.Wanted*": f"{_NULLS}; what a null needs of a head is its argument",
    "names/scoring.ANALYTIC": _NULLS,
    "names/scoring.OF_A_TABLE": _NULLS,
    "names/comparison.comparison_csv": "rmtbase.export writes every table",
    "names/scoring.*_csv": "rmtbase.export writes every table",
    "names/statistics.ElementSketch.unsuitable": "only statistics of elements ask for it",
    "scores/heads_csv*": "rmtbase.export writes every table",
    "names/scoring.NULLS": "classes by name",
    "names/nulls.Heads*": "a null prepares what it needs of a head",
    "names/models.Model*": _OPENING,
    "names/models.Series*": _OPENING,
    "names/models.find_series": _OPENING,
    "names/models.open_model": f"{_OPENING}, minus",
    "names/trajectories.Spending.of": "for_heads",
    "names/plots.Animation": "style, the field's word",
    "names/keys of tables.KINDS/*": "each kind is registered by its folder, in the order of the folders",
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
    "names/nulls.open_atlas": "tables.open_atlas_file opens any atlas",
    "names/nulls.smallest_kept": "in sims/compact_atlas.py, which alone uses it",
    "names/constants.released_digits": "in sims/release_constants.py, which alone uses it",
    "names/constants.citation_fields": "sims/make_metadata.py reads the file as YAML",
    "names/montecarlo.run_on_hosts": "Dask draws on other machines",
    "names/montecarlo.Chunks.in_turn": "Dask draws on other machines",
    "names/montecarlo.draw_chunks": "Dask and dask-jobqueue draw on other machines",
    "names/montecarlo.Store.*": "the same",
    "names/montecarlo.open_store": "the same",
    "names/tables.locked_folder": "each job holds its own range",
    "scores/sentences/*": "the answer comes first: which heads differ most and by how much",
    "scores/overview/*": "Summary.answer",
    "scores/*@table": "the null draws shipped with rmtbase, not the atlas",
    "constant_values/*.bibtex": "arXiv numbers are notes, which every style prints",
    "constant_values/bibliography/*": "the same",
    "constant_values/as_json/*/references/*": "edges have the references of the largest eigenvalue, too",
    "constant_values/as_latex": "the same, in the order of the references",
    **{f"names/{package}.{name}*": "not public" for package, names in NOT_PUBLIC.items() for name in names.split()},
}
"""Entries that are gone, or differ in whatever way, by pattern, each with the reason."""

REWORDED: tuple[str, ...] = (
    "laws/*.accuracy",
    "laws/*.method",
    "laws/*ResidualUpdate(16, 1.4)*/raises",
    "elements/laws.*/method",
    "draws/*/analytic_method",
    "draws/elements of */raises",
    "scores/*@notes",
    "scores/*@provenance",
    "scores/model/notes/*",
    "scores/sentences/*",
    "scores/overview/*",
    "scores/AnalyticNull.record/*",
    "scores/GaussianNull.*/raises",
    "commands/* ?stdout?",
    "commands/* ?stderr?",
    "commands/*@notes",
    "commands/*@provenance",
    "commands/* > *analytic_method",
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
