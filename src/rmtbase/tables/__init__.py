"""Tables: schema, units, provenance and atomic netCDF files. Only this package writes permanent files."""

from rmtbase.arguments import check_public
from rmtbase.systems import software_version
from rmtbase.tables._circuits import CIRCUITS, QK, Circuit, Factor, circuit_of
from rmtbase.tables._digest import with_checksums
from rmtbase.tables._draws_schema import (
    ATLAS_SCHEMA,
    BASELINE_SCHEMA,
    ELEMENT_FORMULAS,
    ELEMENTS_SCHEMA,
    SPECTRA_SCHEMA,
)
from rmtbase.tables._export import EXPORT_FORMATS, export, matching
from rmtbase.tables._folder_lock import LOCK, locked_folder
from rmtbase.tables._frame import frame_groups, rows_of, to_pandas, without_foreign_coordinates
from rmtbase.tables._kinds import EVERY_FILE, KINDS, NORMALIZATION, Fault, Kind, groups_of, register, tree_of, validate
from rmtbase.tables._layers import heads_present, layer_names, layer_numbers, layer_stacks, matrices_present, shapes_of
from rmtbase.tables._provenance import provenance, software_versions
from rmtbase.tables._reading import baseline_shapes, open_atlas_case, open_table
from rmtbase.tables._schema import COORDINATES, SCHEMA_VERSION, Outline, Schema, Variable, describe
from rmtbase.tables._writing import (
    digest_of,
    is_temporary,
    require_replaceable,
    require_writable,
    sweep,
    write_bytes,
    write_table,
)

__all__ = [
    "EVERY_FILE", "KINDS", "SCHEMA_VERSION", "Kind", "Schema", "Variable", "describe", "export", "heads_present",
    "open_table", "provenance", "register", "software_version", "software_versions", "to_pandas", "write_bytes",
    "write_table",
]  # fmt: skip

check_public(globals())
