"""Words for what heads were compared with: in a heading, in the opening of a page, and as a noun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.nulls import ENTRIES_IN_WORDS
from rmtbase.tables import heads_present, plural, shapes_of


class _Words(NamedTuple):
    """Templates of the words for one null: a noun, one for a heading, and one for readers without statistics."""

    noun: str
    heading: str
    plain: str


_WORDS = {
    "analytic": _Words(
        "random {noun}s",
        "the law of random heads with {entries} entries",
        "what is known by theory of random heads {shape}, whose weights are {weights}: of heads that have learned "
        "nothing",
    ),
    "simulated": _Words(
        "random {noun}s",
        "{draws} random heads with {entries} entries",
        "{draws} random heads {shape}, whose weights are {weights}: heads that have learned nothing",
    ),
    "signs": _Words(
        "copies of themselves with random signs",
        "{draws} copies of each head with random signs",
        "{draws} copies of itself whose weights were given random signs: each as large as it was, without any "
        "direction that training gave them",
    ),
    "axes": _Words(
        "copies of themselves with axes in random order",
        "{draws} copies of each head whose query axes meet its key axes at random",
        "{draws} copies of itself whose query axes meet the key axes in random order and sign: the same two matrices, "
        "without any relation that training gave them",
    ),
}
RESAMPLINGS = ("signs", "axes")
"""Nulls made from each head's own matrices."""

_WEIGHTS = {
    "normal": "independent, normally distributed numbers as large as its own",
    "uniform": "independent, uniformly distributed numbers as large as its own",
    "truncated_normal": "independent, normally distributed numbers as large as its own, none beyond two standard "
    "deviations",
    "kurtosis": "independent numbers as large as its own, with tails as heavy",
    "orthogonal": "rows of a matrix of random orthonormal rows or columns, as large as its own",
}


def resampling_of(attrs: Mapping[Any, Any]) -> str:
    """Return the first word of a file's null, which is one of :data:`RESAMPLINGS` if the null is resampled."""
    return str(attrs["null"]).partition(":")[0]


def null_entries(attrs: Mapping[Any, Any]) -> str:
    """Return the law of elements under a file's null, as in ``parameters.INITIALIZATIONS``, or ``kurtosis``."""
    said, first = str(attrs["null"]), resampling_of(attrs)
    if first in ("kurtosis", "orthogonal"):
        return first
    return next((name for name, words in ENTRIES_IN_WORDS.items() if f"i.i.d. {words} " in said), "normal")


def draws_in_words(tree: xr.DataTree, thousands: str = "") -> str:
    """Format the smallest and the largest number of null draws over all shapes, or their common number."""
    null = tree["null"].to_dataset()
    each = null["null_draws"].values.tolist() if "null_draws" in null else [int(tree.attrs["null_draws"])]
    return " to ".join(f"{number:,}".replace(",", thousands) for number in sorted({min(each), max(each)}))


def null_noun(attrs: Mapping[Any, Any], noun: str) -> str:
    """Name what heads were compared with: random ones, or copies of themselves."""
    return _words(attrs).noun.format(noun=noun)


def compared(tree: xr.DataTree) -> str:
    """Say in one line which heads were compared with what."""
    shape, *more = shapes_of(tree)
    sizes = "of several shapes" if more else f"W_Q and W_K {factor_shapes(shape)}"
    entries = null_entries(tree.attrs)
    entries = "the kurtosis of each head's own" if entries == "kurtosis" else entries.replace("_", " ")
    against = _words(tree.attrs).heading.format(draws=draws_in_words(tree, ","), entries=entries)
    n_heads = _n_heads(tree)
    return f"{n_heads} {plural(n_heads, 'head')} ({sizes}) against {against}"


def compared_plainly(tree: xr.DataTree, name: str) -> str:
    """Say in one sentence what each head of the named model was compared with, to a reader without statistics."""
    attrs, (dims, *more) = tree.attrs, shapes_of(tree)
    shape = "of its own shape"
    if not more:
        named = f"d_model {attrs['d_model']}" if "d_model" in attrs else f"d_query {dims[0]}, d_key {dims[2]}"
        shape = f"of the same shape ({named}, d_head {dims[1]})"
    against = _words(attrs).plain.format(
        draws=draws_in_words(tree, " "), shape=shape, weights=_WEIGHTS[null_entries(attrs)]
    )
    return f"{'The' if _n_heads(tree) == 1 else 'Each'} attention head of {name} was compared with {against}."


def factor_shapes(dims: tuple[int, ...]) -> str:
    """Format the shapes of W_Q and W_K, or the one that they share."""
    left, rank, right = dims
    return f"{rank} × {left}" + (f" and {rank} × {right}" if left != right else "")


def _words(attrs: Mapping[Any, Any]) -> _Words:
    method = str(attrs.get("null_method"))
    return _WORDS.get(resampling_of(attrs) if method == "resampled" else method, _WORDS["simulated"])


def _n_heads(tree: xr.DataTree) -> int:
    return int(heads_present(tree["heads"].to_dataset()).sum())
