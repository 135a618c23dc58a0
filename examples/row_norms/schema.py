"""Schema of a file of row norms."""

from rmtbase.tables import EVERY_FILE, Kind, Variable, register
from rmtbase.tables.domain import JSON_LIST, PROBABILITY, TEXT, Domain

_SHARE = Domain("numbers from 0 to 1, or NaN", least=0, most=1, missing=True)
_DIMS = ("layer", "component", "head")

ROW_NORMS_SCHEMA = {
    "largest_share": Variable(_DIMS, "largest squared norm of a row over the sum of all", _SHARE),
    "p_value": Variable(_DIMS, "bound on the probability of a share as large in normal entries", PROBABILITY),
    "q_value": Variable(_DIMS, "Benjamini-Hochberg q-value over all heads and both matrices", PROBABILITY),
}
ROW_NORMS = register(
    Kind(
        "row_norms",
        {"": ROW_NORMS_SCHEMA},
        EVERY_FILE | {"model": TEXT},
        {"family": TEXT, "notes": JSON_LIST, "warnings": JSON_LIST, "revision": TEXT, "folded": JSON_LIST},
    )
)
