"""Tables: schema, units, provenance and atomic netCDF. The only writer of files that last."""

from rmtbase.tables._circuits import CIRCUITS, Circuit, Factor, circuit_of
from rmtbase.tables._digest import with_checksums
from rmtbase.tables._frame import to_pandas
from rmtbase.tables._kinds import KINDS, Kind, validate
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
    TableWarning,
    open_atlas_case,
    open_atlas_file,
    open_baseline,
    open_scores,
    open_table,
)
from rmtbase.tables._schema import (
    ATLAS_SCHEMA,
    BASELINE_SCHEMA,
    EFFECTIVE_DEPTH_SCHEMA,
    ELEMENT_FORMULAS,
    ELEMENTS_SCHEMA,
    SCHEMA_VERSION,
    SPECTRA_SCHEMA,
    Variable,
    baseline_shapes,
    describe,
)
from rmtbase.tables._scores_schema import (
    SCORES_SCHEMA,
    experts_schema,
    heads_schema,
    null_method,
    null_schema,
    own_null_schema,
)
from rmtbase.tables._writing import is_temporary, require_same_kind, require_writable, sweep, write_bytes, write_table

__all__ = [
    "ATLAS_SCHEMA",
    "BASELINE_SCHEMA",
    "CIRCUITS",
    "EFFECTIVE_DEPTH_SCHEMA",
    "ELEMENTS_SCHEMA",
    "ELEMENT_FORMULAS",
    "KINDS",
    "SCHEMA_VERSION",
    "SCORES_SCHEMA",
    "SPECTRA_SCHEMA",
    "Circuit",
    "Factor",
    "Kind",
    "TableWarning",
    "Variable",
    "baseline_shapes",
    "circuit_of",
    "describe",
    "experts_schema",
    "heads_present",
    "heads_schema",
    "is_temporary",
    "layer_names",
    "layer_numbers",
    "layer_stacks",
    "matrices_present",
    "null_method",
    "null_schema",
    "open_atlas_case",
    "open_atlas_file",
    "open_baseline",
    "open_scores",
    "open_table",
    "own_null_schema",
    "provenance",
    "require_same_kind",
    "require_writable",
    "shapes_of",
    "software_version",
    "software_versions",
    "sweep",
    "to_pandas",
    "validate",
    "with_checksums",
    "write_bytes",
    "write_table",
]
