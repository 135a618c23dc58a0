"""Tables: schema, units, provenance and atomic netCDF. The only writer of files that last."""

from rmtbase.tables._files import (
    check_writable,
    open_baseline,
    open_scores,
    open_table,
    write_bytes,
    write_table,
)
from rmtbase.tables._provenance import provenance, software_version
from rmtbase.tables._schema import (
    BASELINE_SCHEMA,
    SCHEMA_VERSION,
    SCORES_SCHEMA,
    baseline_shapes,
    describe,
    null_method,
    validate_baseline,
)

__all__ = [
    "BASELINE_SCHEMA",
    "SCHEMA_VERSION",
    "SCORES_SCHEMA",
    "baseline_shapes",
    "check_writable",
    "describe",
    "null_method",
    "open_baseline",
    "open_scores",
    "open_table",
    "provenance",
    "software_version",
    "validate_baseline",
    "write_bytes",
    "write_table",
]
