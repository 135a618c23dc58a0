"""Schema of a file of compositions: every earlier head against every later one."""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from rmtbase.tables import COORDINATES, EVERY_FILE, Fault, Kind, Variable, register
from rmtbase.tables.domain import ANY, COUNT, JSON_LIST, NON_NEGATIVE_OR_NAN, PROBABILITY, TEXT, Domain

KINDS_OF_COMPOSITION: Mapping[str, str] = {"q": "W_QK^T W_OV", "k": "W_QK W_OV", "v": "W_OV W_OV"}
"""Product of each kind: a matrix of the later head times W_OV of the earlier head."""

NOT_TESTABLE_PAIRS = ("", "writes_nothing", "reads_nothing", "all_rotations_equal")
"""Codes of the reasons why a pair has no test, if it shares a stream; the file has their places in this tuple."""

_PAIR = ("kind", "earlier", "later")
_SHARE = Domain("numbers from 0 to 1, or NaN", least=0, most=1 + 1e-9, missing=True)
_CODE = Domain("a code from 0 to 3", kinds="iu", least=0, most=len(NOT_TESTABLE_PAIRS) - 1)
_CODES = "; ".join(f"{number} {code}" for number, code in enumerate(NOT_TESTABLE_PAIRS) if code)

_WORDS = f"kinds of composition, {', '.join(KINDS_OF_COMPOSITION)}"
_KINDS = Domain(_WORDS, kinds="OUT", unique=True, choices=tuple(KINDS_OF_COMPOSITION))

COMPOSITION_SCHEMA: dict[str, Variable] = {
    "score": Variable(
        _PAIR, "composition score, norm of the product over the product of norms; NaN where no stream is shared", _SHARE
    ),
    "expected_score": Variable(_PAIR, "root mean square of the score under random rotations", _SHARE),
    "z_score": Variable(_PAIR, "squared score less its exact mean, over its exact standard deviation", ANY),
    "p_value": Variable(_PAIR, "probability under random rotations of a score at least as large", PROBABILITY),
    "p_value_below": Variable(_PAIR, "probability under random rotations of a score at most as large", PROBABILITY),
    "q_value": Variable(_PAIR, "Benjamini-Yekutieli q-value of p_value over all pairs and kinds", PROBABILITY),
    "q_value_independent": Variable(
        _PAIR, "Benjamini-Hochberg q-value, were pairs independent or positively dependent", PROBABILITY
    ),
    "holm_p_value": Variable(_PAIR, "Holm's family-wise p-value over all pairs and kinds", PROBABILITY),
    "q_value_below": Variable(_PAIR, "Benjamini-Yekutieli q-value of p_value_below", PROBABILITY),
    "overlap": Variable(
        _PAIR, "mean squared cosine between the subspaces that one head writes and the other reads", _SHARE
    ),
    "expected_overlap": Variable(_PAIR, "mean of the overlap under random rotations", _SHARE),
    "overlap_z_score": Variable(_PAIR, "overlap less its mean, over its exact standard deviation", ANY),
    "overlap_p_value": Variable(_PAIR, "probability under random rotations of an overlap as large", PROBABILITY),
    "overlap_q_value": Variable(_PAIR, "Benjamini-Yekutieli q-value of overlap_p_value", PROBABILITY),
    "not_testable": Variable(_PAIR, f"why the score has no test: 0 it has one; {_CODES}", _CODE),
    "overlap_not_testable": Variable(_PAIR, f"why the overlap has no test: 0 it has one; {_CODES}", _CODE),
    **{
        f"{dim}_{of}": Variable((dim,), f"{words} of the {dim} head", COUNT)
        for dim in ("earlier", "later")
        for of, words in (("layer", "layer"), ("head", "number in its layer"))
    },
    "effective_rank_read": Variable(
        ("kind", "later"), "participation ratio of the spectrum by which the later head reads", NON_NEGATIVE_OR_NAN
    ),
    "effective_rank_written": Variable(
        ("earlier",), "participation ratio of the spectrum by which the earlier head writes", NON_NEGATIVE_OR_NAN
    ),
}
"""Variables of a file of compositions, with one entry for each kind and each two heads."""


def _same_heads(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that both dimensions of pairs are over the same heads."""
    table = groups[""]
    for name in ("", "_layer", "_head", "_stack"):
        names = [f"{dim}{name}" for dim in ("earlier", "later") if f"{dim}{name}" in table.coords]
        sides = [table[side].values.tolist() for side in names]
        if sides[0] != sides[1] if len(sides) == 2 else name != "_stack":
            return f"other heads along later than along earlier ({name or 'names'})", "the same, in the same order"
    return None


register(
    Kind(
        "composition",
        {"": {**COMPOSITION_SCHEMA, "kind": replace(COORDINATES["kind"], domain=_KINDS)}},
        EVERY_FILE | {"model": TEXT, "null": TEXT},
        {"revision": TEXT, "family": TEXT} | dict.fromkeys(("notes", "warnings", "folded"), JSON_LIST),
        relations=(_same_heads,),
    )
)
