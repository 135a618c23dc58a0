"""Words for what heads were compared with: in a heading, in the opening of a page, and as a noun."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.tables import circuit_of, heads_present, shapes_of
from rmtbase.words import counted, listing


class _Words(NamedTuple):
    """Templates for one null: a noun, one for a heading, and one for readers without statistics."""

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

_ENTRIES = {
    "normal": ("normal", "independent, normally distributed numbers as large as its own"),
    "uniform": ("uniform", "independent, uniformly distributed numbers as large as its own"),
    "truncated_normal": (
        "truncated normal",
        "independent, normally distributed numbers as large as its own, none beyond two standard deviations",
    ),
    "kurtosis": ("the kurtosis of each {noun}'s own", "independent numbers as large as its own, with tails as heavy"),
    "orthogonal": ("orthogonal", "rows of a matrix of random orthonormal rows or columns, as large as its own"),
}
"""Law of a null's entries, in a heading and for readers without statistics."""


def _words(attrs: Mapping[Any, Any]) -> _Words:
    return _WORDS.get(attrs["null_entries"]) or _WORDS[attrs["null_method"]]


def draws_in_words(tree: xr.DataTree, thousands: str = "") -> str:
    """Format the smallest and the largest number of null draws over all shapes, or their common number."""
    null = tree["null"].to_dataset()
    draws = null["null_draws"].values.tolist() if "null_draws" in null else [int(tree.attrs["null_draws"])]
    return " to ".join(f"{number:,}".replace(",", thousands) for number in sorted({min(draws), max(draws)}))


def null_noun(entries: str, noun: str = "head") -> str:
    """Name what heads are compared with under a null of these entries: random heads, or copies of themselves."""
    return _WORDS.get(entries, _WORDS["simulated"]).noun.format(noun=noun)


def compared(tree: xr.DataTree) -> str:
    """Say in one line which heads were compared with what; of an adapter, that these are its updates."""
    attrs, shapes, updates = tree.attrs, shapes_of(tree), updates_of(tree.attrs)
    factors, noun = ("s Bᵀ and A", circuit_of(attrs).noun) if updates else ("W_Q and W_K", "head")
    sizes = "of several shapes" if len(shapes) > 1 else f"{factors} {factor_shapes(shapes[0])}"
    entries, _ = _ENTRIES.get(attrs["null_entries"], ("", ""))
    words = {"draws": draws_in_words(tree, ","), "entries": entries.format(noun=noun), "noun": noun}
    update = f"the update ΔW = s B A, without its base, of {updates}: " if updates else ""
    return f"{update}{counted(_n_heads(tree), noun)} ({sizes}) against {_words(attrs).heading.format(**words)}"


def updates_of(attrs: Mapping[Any, Any]) -> str:
    """List the modules whose updates by an adapter were scored; "" for weights."""
    return ", ".join(json.loads(attrs.get("updates", "[]")))


def compared_plainly(tree: xr.DataTree, name: str) -> str:
    """Say in one sentence what each head of the named model was compared with, to a reader without statistics."""
    attrs, (dims, *others), updates = tree.attrs, shapes_of(tree), updates_of(tree.attrs)
    noun = circuit_of(attrs).noun if updates else "head"
    heads = f"{'The' if _n_heads(tree) == 1 else 'Each'} attention head of {name}"
    widths = f"d_model {attrs['d_model']}" if "d_model" in attrs else f"d_query {dims[0]}, d_key {dims[2]}"
    widths = f"{widths}, d_head {dims[1]}"
    if updates:
        heads = f"The update ΔW = s B A of each {'module' if noun == 'update' else 'head'} by {name}, without its base,"
        widths = f"{dims[0]} × {dims[2]}, of rank {dims[1]}"
    _, weights = _ENTRIES.get(attrs["null_entries"], ("", ""))
    shape = "of its own shape" if others else f"of the same shape ({widths})"
    words = {"draws": draws_in_words(tree, " "), "shape": shape, "weights": weights, "noun": noun}
    return f"{heads} was compared with {_words(attrs).plain.format(**words)}."


def factor_shapes(dims: tuple[int, ...]) -> str:
    """Format the shapes of W_Q and W_K, or the one that they share."""
    left, rank, right = dims
    return f"{rank} × {left}" + (f" and {rank} × {right}" if left != right else "")


def heavy_tails(names: Sequence[str], searched: int) -> str:
    """Say in which matrices probability cannot identify super-weights; "" if in none."""
    if not names:
        return ""
    return (
        f"cannot tell by probability in {len(names)} of {searched} matrices, whose tails are heavier than a normal "
        f"law's ({listing(names, 3)}): there, only elements above a gap are listed"
    )


def _n_heads(tree: xr.DataTree) -> int:
    return int(heads_present(tree["heads"].to_dataset()).sum())
