"""Tables: schema, units, provenance and atomic netCDF. The only writer of files that last."""

from rmtbase.tables._atlas import ATLAS_SCHEMA, atlas_checksum, validate_atlas
from rmtbase.tables._depth_schema import EFFECTIVE_DEPTH_SCHEMA, validate_effective_depths
from rmtbase.tables._element_schema import ELEMENTS_SCHEMA, validate_elements
from rmtbase.tables._files import (
    check_writable,
    is_temporary,
    open_atlas_case,
    open_atlas_file,
    open_baseline,
    open_netcdf,
    open_scores,
    open_table,
    sweep,
    write_bytes,
    write_table,
)
from rmtbase.tables._provenance import provenance, software_version, software_versions
from rmtbase.tables._schema import (
    BASELINE_SCHEMA,
    SCHEMA_VERSION,
    SCORES_SCHEMA,
    SPECTRA_SCHEMA,
    Variable,
    baseline_shapes,
    describe,
    null_method,
    validate_baseline,
    validate_spectra,
)

__all__ = [
    "ATLAS_SCHEMA",
    "BASELINE_SCHEMA",
    "EFFECTIVE_DEPTH_SCHEMA",
    "ELEMENTS_SCHEMA",
    "SCHEMA_VERSION",
    "SCORES_SCHEMA",
    "SPECTRA_SCHEMA",
    "Variable",
    "atlas_checksum",
    "baseline_shapes",
    "check_writable",
    "describe",
    "is_temporary",
    "null_method",
    "open_atlas_case",
    "open_atlas_file",
    "open_baseline",
    "open_netcdf",
    "open_scores",
    "open_table",
    "provenance",
    "software_version",
    "software_versions",
    "sweep",
    "validate_atlas",
    "validate_baseline",
    "validate_effective_depths",
    "validate_elements",
    "validate_spectra",
    "write_bytes",
    "write_table",
]
