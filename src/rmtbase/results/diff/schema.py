"""Schema of a file of changes: every matrix, and every head's part of it, compared between two checkpoints."""

from rmtbase.tables import CIRCUITS, EVERY_FILE, Kind, Schema, Variable, register
from rmtbase.tables.domain import (
    ANY,
    COUNT_OR_NAN,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    PROBABILITY,
    REASON,
    SIZE_OR_NAN,
    TEXT,
    Domain,
)

_SHARE = Domain("numbers from 0 to 1, or NaN", least=0, most=1 + 1e-9, missing=True)
_COSINE = Domain("numbers from -1 to 1, or NaN", least=-1 - 1e-9, most=1 + 1e-9, missing=True)
SIDES = {"in": "inputs", "out": "outputs"}

_OF_SIDES = (
    ("old_share", "share of the squared change along the old directions of the {}", _SHARE),
    ("expected_share", "mean of the old share of the {} under random rotations", _SHARE),
    ("z_score", "old share of the {} less its mean, over its exact standard deviation", ANY),
    ("p_value", "probability under random rotations of an old share of the {} as large", PROBABILITY),
    ("q_value", "Benjamini-Yekutieli q-value of that p-value over all entries of this group", PROBABILITY),
    ("reason", "why the old share of the {} cannot be tested; empty where it was", REASON),
)
_OF_MATRICES = (
    ("n_rows", "rows (outputs)", SIZE_OR_NAN),
    ("n_columns", "columns (inputs)", SIZE_OR_NAN),
    ("relative_change", "norm of the change over the norm before", NON_NEGATIVE_OR_NAN),
    ("cosine", "cosine between the change and the matrix before", _COSINE),
    ("rounding_share", "share of the squared change due to the rounding of both stored matrices", NON_NEGATIVE_OR_NAN),
    ("effective_rank", "participation ratio of the change's squared singular values", ANY),
    ("n_directions", "directions of the change beyond noise, by random sign flips; NaN where unknown", COUNT_OR_NAN),
    ("first_p_value", "p-value of no direction of the change at all", PROBABILITY),
    ("reason", "why the directions of the change cannot be tested; empty where they were", REASON),
    ("n_old_directions", "effective rank before, up to the next integer: its old directions", ANY),
    *(
        (f"{name}_{side}", words.format(plural), domain)
        for side, plural in SIDES.items()
        for name, words, domain in _OF_SIDES
    ),
)
_OF_SHARES = (
    ("share_head", "share of the matrix's squared change that is in this head's part", _SHARE),
    ("expected_share_head", "the same for every head: one over their number", _SHARE),
    ("p_value_head", "probability of as large a share if each row is that of a head drawn at random", PROBABILITY),
    ("q_value_head", "Benjamini-Yekutieli q-value of that p-value over all entries of this group", PROBABILITY),
    ("reason_head", "why the share of the head cannot be tested; empty where it was", REASON),
)
_OF_PRODUCTS = (
    ("relative_change", "norm of the change of {} over its norm before", NON_NEGATIVE_OR_NAN),
    ("similarity", "cosine between {} after and before; 1 if only its size changed", _COSINE),
)
PRODUCTS = (CIRCUITS["qk"], CIRCUITS["ov"])
"""Products of matrices whose change is given for every head."""

_HEADS = ("layer", "head", "component")
CHANGES_SCHEMA: dict[str, Schema] = {
    "/matrices": {name: Variable(("layer", "component"), words, domain) for name, words, domain in _OF_MATRICES},
    "/heads": {
        **{name: Variable(_HEADS, words, domain) for name, words, domain in (*_OF_MATRICES, *_OF_SHARES)},
        **{
            f"{name}_{product.name}": Variable(
                ("layer", "head"), words.format(product.symbol), domain, part=product.name
            )
            for product in PRODUCTS
            for name, words, domain in _OF_PRODUCTS
        },
    },
}
"""Variables of each group of a file of changes: whole matrices, and the parts of each head."""

register(
    Kind(
        "changes",
        {"": {}, **CHANGES_SCHEMA},
        EVERY_FILE | {"model": TEXT, "level": PROBABILITY},
        {"family": TEXT, "notes": JSON_LIST},
        frozenset({"/heads"}),
    )
)
