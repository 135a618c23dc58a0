"""Schema of a file of changes: every matrix, and every head's part of it, compared between two checkpoints."""

from __future__ import annotations

from rmtbase.tables import CIRCUITS, EVERY_FILE, Kind, Schema, Variable, register
from rmtbase.tables.domain import (
    ANY,
    COUNT_OR_NAN,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    PROBABILITY,
    SIZE_OR_NAN,
    TEXT,
    Domain,
)

UNCHANGED = "the same in both, so there is no change to test"
"""Reason of a missing test of a matrix that did not change."""

_SHARE = Domain("numbers from 0 to 1, or NaN", least=0, most=1 + 1e-9, missing=True)
_COSINE = Domain("numbers from -1 to 1, or NaN", least=-1 - 1e-9, most=1 + 1e-9, missing=True)
_SIDES = {"in": "inputs", "out": "outputs"}


def _schema(dims: tuple[str, ...]) -> Schema:
    return {
        "n_rows": Variable(dims, "rows (outputs)", SIZE_OR_NAN),
        "n_columns": Variable(dims, "columns (inputs)", SIZE_OR_NAN),
        "relative_change": Variable(dims, "norm of the change over the norm before", NON_NEGATIVE_OR_NAN),
        "cosine": Variable(dims, "cosine between the change and the matrix before", _COSINE),
        "rounding_share": Variable(
            dims, "share of the squared change due to the rounding of both stored matrices", NON_NEGATIVE_OR_NAN
        ),
        "effective_rank": Variable(dims, "participation ratio of the change's squared singular values", ANY),
        "n_directions": Variable(
            dims,
            "number of directions of the change beyond noise, by random sign flips; NaN where unknown",
            COUNT_OR_NAN,
        ),
        "first_p_value": Variable(dims, "p-value of no direction of the change at all", PROBABILITY),
        "reason": Variable(dims, "why the directions of the change cannot be tested; empty where they were", TEXT),
        "n_old_directions": Variable(dims, "effective rank before, up to the next integer: its old directions", ANY),
        **{
            f"{name}_{side}": Variable(dims, words.format(what), domain)
            for side, what in _SIDES.items()
            for name, words, domain in (
                ("old_share", "share of the squared change along the old directions of the {}", _SHARE),
                ("expected_share", "mean of the old share of the {} under random rotations", _SHARE),
                ("z_score", "old share of the {} less its mean, over its exact standard deviation", ANY),
                ("p_value", "probability under random rotations of an old share of the {} as large", PROBABILITY),
                ("q_value", "Benjamini-Yekutieli q-value of that p-value over all entries of this group", PROBABILITY),
                ("nearest_cosine", "largest |cosine| of the change's first direction of {} with one before", _SHARE),
                ("nearest", "number of that direction of the matrix before, counted from the strongest", COUNT_OR_NAN),
                ("nearest_p_value", "probability of so large a cosine for a random direction of {}", PROBABILITY),
            )
        },
        **{
            f"reason_{side}": Variable(
                dims, f"why the old share of the {what} cannot be tested; empty where it was", TEXT
            )
            for side, what in _SIDES.items()
        },
    }


_OF_HEADS = ("layer", "head", "component")
PRODUCTS = (CIRCUITS["qk"], CIRCUITS["ov"])
"""Products of matrices whose change is given for every head."""

CHANGES_SCHEMA: dict[str, Schema] = {
    "/matrices": _schema(("layer", "component")),
    "/heads": {
        **_schema(_OF_HEADS),
        "share_head": Variable(
            _OF_HEADS, "share of the matrix's squared change that is in this head's part", _SHARE, part="shares"
        ),
        "expected_share_head": Variable(
            _OF_HEADS, "the same for every head: one over their number", _SHARE, part="shares"
        ),
        "p_value_head": Variable(
            _OF_HEADS,
            "probability of as large a share of the head if each of its rows is that of a head drawn at random",
            PROBABILITY,
            part="shares",
        ),
        "q_value_head": Variable(
            _OF_HEADS,
            "Benjamini-Yekutieli q-value of that p-value over all entries of this group",
            PROBABILITY,
            part="shares",
        ),
        "reason_head": Variable(
            _OF_HEADS, "why the share of the head cannot be tested; empty where it was", TEXT, part="shares"
        ),
        **{
            f"{name}_{one.name}": Variable(_OF_HEADS[:2], words.format(one.symbol), domain, part=one.name)
            for one in PRODUCTS
            for name, words, domain in (
                ("relative_change", "norm of the change of {} over its norm before", NON_NEGATIVE_OR_NAN),
                ("similarity", "cosine between {} after and before; 1 if only its size changed", _COSINE),
            )
        },
    },
}
"""Variables of each group of a file of changes: whole matrices, and the parts of each head."""


CHANGES = register(
    Kind(
        "changes",
        {"": {}, **CHANGES_SCHEMA},
        EVERY_FILE | {"model": TEXT, "level": PROBABILITY},
        {"family": TEXT, "notes": JSON_LIST},
        frozenset({"/heads"}),
    )
)
