"""Queries, keys and values of one stored tensor, as they are stored: one matrix beside its parts."""

from __future__ import annotations

from collections.abc import Iterable

from rmtbase.models._expressions import Expression, Rows, Shapes, Tensor
from rmtbase.models._sites import MatrixName, Part, Site

_PARTS = ("query", "key", "value")


def find_fused(sites: Iterable[Site], shapes: Shapes) -> Part:
    """The tensors that are the queries, keys and values of a site, or two of these, and nothing else.

    By what they hold: ``attention_query_key_value``, ``attention_query_key`` or ``attention_key_value``. Each of their
    rows is a row of one part; a tensor that holds more than these is not one of them.

    Args:
        sites: whose matrices are expressions over stored tensors.
        shapes: of these.
    """
    found: dict[MatrixName, Expression] = {}
    for site in sites:
        held: dict[Expression, list[str]] = {}
        rows: dict[Expression, list[int]] = {}
        for name in _PARTS:
            expression = getattr(site, name)
            if isinstance(expression, Rows) and isinstance(expression.of, Tensor):
                held.setdefault(expression.of, []).append(name)
                taken = (row for run in expression.runs for row in range(*run))
                rows.setdefault(expression.of, []).extend(taken)
        for tensor, names in held.items():
            if len(names) > 1 and sorted(rows[tensor]) == list(range(tensor.shape(shapes)[0])):
                found[MatrixName(site.place, f"attention_{'_'.join(names)}")] = tensor
    return Part(found)
