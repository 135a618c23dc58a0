"""Tables: schema, units, provenance and atomic netCDF. The only writer of files that last."""

from rmtbase.tables._changes_schema import CHANGES_SCHEMA
from rmtbase.tables._circuits import CIRCUITS, Circuit, Factor, circuit_of
from rmtbase.tables._comparison_schema import COMPARISON_SCHEMA
from rmtbase.tables._composition_schema import COMPOSITION_SCHEMA, KINDS_OF_COMPOSITION, NOT_TESTABLE_PAIRS
from rmtbase.tables._csv import csv_text
from rmtbase.tables._digest import with_checksums
from rmtbase.tables._draws_schema import (
    ATLAS_SCHEMA,
    BASELINE_SCHEMA,
    ELEMENT_FORMULAS,
    ELEMENTS_SCHEMA,
    SPECTRA_SCHEMA,
)
from rmtbase.tables._effective_depth_schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.tables._export import EXPORT_FORMATS, export
from rmtbase.tables._folder_lock import LOCK, locked_folder
from rmtbase.tables._frame import frame_groups, to_pandas, without_foreign_coordinates
from rmtbase.tables._kinds import KINDS, Kind, groups_of, tree_of, validate
from rmtbase.tables._layers import (
    heads_present,
    layer_names,
    layer_numbers,
    layer_stacks,
    matrices_present,
    shapes_of,
)
from rmtbase.tables._provenance import provenance, software_version, software_versions
from rmtbase.tables._reading import (
    baseline_shapes,
    open_atlas_case,
    open_atlas_file,
    open_baseline,
    open_comparison,
    open_composition,
    open_scores,
    open_signal,
    open_table,
    open_trajectory,
)
from rmtbase.tables._replacing import require_replaceable
from rmtbase.tables._schema import SCHEMA_VERSION, Variable, describe
from rmtbase.tables._scores_schema import (
    SCORES_SCHEMA,
    SUPER_WEIGHTS_SCHEMA,
    WHY_SCHEMA,
    experts_schema,
    head_elements_schema,
    heads_schema,
    null_schema,
    own_null_schema,
)
from rmtbase.tables._signal_schema import NEED_A_LAW, SIGNAL_SCHEMA, TAIL_VERDICTS
from rmtbase.tables._trajectory_schema import (
    ALARM_VARIABLES,
    DEPARTURES_SCHEMA,
    FOR_GOOD,
    KEPT_PROBABILITIES,
    STEP,
    STEP_COORDINATES,
    STEP_OF_ENTRY,
    departure_steps,
    has_step,
    scores_at,
)
from rmtbase.tables._writing import (
    digest_of,
    is_temporary,
    require_writable,
    sweep,
    write_bytes,
    write_table,
)

__all__ = [
    "ALARM_VARIABLES",
    "ATLAS_SCHEMA",
    "BASELINE_SCHEMA",
    "CHANGES_SCHEMA",
    "CIRCUITS",
    "COMPARISON_SCHEMA",
    "COMPOSITION_SCHEMA",
    "DEPARTURES_SCHEMA",
    "EFFECTIVE_DEPTH_SCHEMA",
    "ELEMENTS_SCHEMA",
    "ELEMENT_FORMULAS",
    "EXPORT_FORMATS",
    "FOR_GOOD",
    "KEPT_PROBABILITIES",
    "KINDS",
    "KINDS_OF_COMPOSITION",
    "LOCK",
    "NEED_A_LAW",
    "NOT_TESTABLE_PAIRS",
    "SCHEMA_VERSION",
    "SCORES_SCHEMA",
    "SIGNAL_SCHEMA",
    "SPECTRA_SCHEMA",
    "STEP",
    "STEP_COORDINATES",
    "STEP_OF_ENTRY",
    "SUPER_WEIGHTS_SCHEMA",
    "TAIL_VERDICTS",
    "WHY_SCHEMA",
    "Circuit",
    "Factor",
    "Kind",
    "Variable",
    "baseline_shapes",
    "circuit_of",
    "csv_text",
    "departure_steps",
    "describe",
    "digest_of",
    "experts_schema",
    "export",
    "frame_groups",
    "groups_of",
    "has_step",
    "head_elements_schema",
    "heads_present",
    "heads_schema",
    "is_temporary",
    "layer_names",
    "layer_numbers",
    "layer_stacks",
    "locked_folder",
    "matrices_present",
    "null_schema",
    "open_atlas_case",
    "open_atlas_file",
    "open_baseline",
    "open_comparison",
    "open_composition",
    "open_scores",
    "open_signal",
    "open_table",
    "open_trajectory",
    "own_null_schema",
    "provenance",
    "require_replaceable",
    "require_writable",
    "scores_at",
    "shapes_of",
    "software_version",
    "software_versions",
    "sweep",
    "to_pandas",
    "tree_of",
    "validate",
    "with_checksums",
    "without_foreign_coordinates",
    "write_bytes",
    "write_table",
]
