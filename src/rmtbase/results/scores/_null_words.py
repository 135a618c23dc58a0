"""Words for what heads were compared with: in a heading, in the opening of a page, and as a noun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.nulls import ENTRIES_IN_WORDS
from rmtbase.tables import circuit_of, heads_present, plural, shapes_of


class _Words(NamedTuple):
    """Templates of the words for one null: a noun, one for a heading, and one for readers without statistics."""

    noun: str
    heading: str
    plain: str


_WORDS = {
    "analytic": _Words(
        "random {noun}s",
        "the law of random {noun}s with {entries} entries",
        "what is known by theory of random {noun}s {shape}, whose weights are {weights}: of {noun}s that have learned "
        "nothing",
    ),
    "simulated": _Words(
        "random {noun}s",
        "{draws} random {noun}s with {entries} entries",
        "{draws} random {noun}s {shape}, whose weights are {weights}: {noun}s that have learned nothing",
    ),
    "signs": _Words(
        "copies of themselves with random signs",
        "{draws} copies of each {noun} with random signs",
        "{draws} copies of itself whose weights were given random signs: each as large as it was, without any "
        "direction that training gave them",
    ),
    "axes": _Words(
        "copies of themselves with axes in random order",
        "{draws} copies of each {noun} whose query axes meet its key axes at random",
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
    """Say in one line which heads were compared with what; of an adapter, that these are its updates."""
    (shape, *more), updates = shapes_of(tree), updates_of(tree.attrs)
    factors, noun = ("s Bᵀ and A", circuit_of(tree.attrs).noun) if updates else ("W_Q and W_K", "head")
    sizes = "of several shapes" if more else f"{factors} {factor_shapes(shape)}"
    entries = null_entries(tree.attrs)
    entries = f"the kurtosis of each {noun}'s own" if entries == "kurtosis" else entries.replace("_", " ")
    against = _words(tree.attrs).heading.format(draws=draws_in_words(tree, ","), entries=entries, noun=noun)
    n_heads = _n_heads(tree)
    what = f"the update ΔW = s B A, without its base, of {updates}: " if updates else ""
    return f"{what}{n_heads} {plural(n_heads, noun)} ({sizes}) against {against}"


def updates_of(attrs: Mapping[Any, Any]) -> str:
    """List the modules whose updates by an adapter were scored; "" for weights."""
    return ", ".join(json.loads(attrs.get("updates", "[]")))


def compared_plainly(tree: xr.DataTree, name: str) -> str:
    """Say in one sentence what each head of the named model was compared with, to a reader without statistics."""
    attrs, (dims, *more), updates = tree.attrs, shapes_of(tree), updates_of(tree.attrs)
    shape = "of its own shape"
    if not more:
        named = f"d_model {attrs['d_model']}" if "d_model" in attrs else f"d_query {dims[0]}, d_key {dims[2]}"
        shape = f"of the same shape ({named}, d_head {dims[1]})"
        if updates:
            shape = f"of the same shape ({dims[0]} × {dims[2]}, of rank {dims[1]})"
    noun = circuit_of(attrs).noun if updates else "head"
    against = _words(attrs).plain.format(
        draws=draws_in_words(tree, " "), shape=shape, weights=_WEIGHTS[null_entries(attrs)], noun=noun
    )
    what = f"{'The' if _n_heads(tree) == 1 else 'Each'} attention head of {name}"
    if updates:
        what = f"The update ΔW = s B A of each {'module' if noun == 'update' else 'head'} by {name}, without its base,"
    return f"{what} was compared with {against}."


def factor_shapes(dims: tuple[int, ...]) -> str:
    """Format the shapes of W_Q and W_K, or the one that they share."""
    left, rank, right = dims
    return f"{rank} × {left}" + (f" and {rank} × {right}" if left != right else "")


def _words(attrs: Mapping[Any, Any]) -> _Words:
    method = str(attrs.get("null_method"))
    return _WORDS.get(resampling_of(attrs) if method == "resampled" else method, _WORDS["simulated"])


def _n_heads(tree: xr.DataTree) -> int:
    return int(heads_present(tree["heads"].to_dataset()).sum())
