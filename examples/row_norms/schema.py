"""Schema of a file of row norms."""

from rmtbase.tables import EVERY_FILE, Kind, Variable, register
from rmtbase.tables.domain import JSON_LIST, PROBABILITY, TEXT

_DIMS = ("layer", "component", "head")
ROW_NORMS_SCHEMA = {
    "largest_share": Variable(_DIMS, "largest squared norm of a row over the sum of all", PROBABILITY),
    "p_value": Variable(_DIMS, "bound on the probability of a share as large in normal entries", PROBABILITY),
    "q_value": Variable(_DIMS, "Benjamini-Hochberg q-value over all heads and both matrices", PROBABILITY),
}
_MAY_HAVE = dict.fromkeys(("family", "revision"), TEXT) | dict.fromkeys(("notes", "warnings", "folded"), JSON_LIST)
register(Kind("row_norms", {"": ROW_NORMS_SCHEMA}, EVERY_FILE | {"model": TEXT}, _MAY_HAVE))
