"""Words for what heads were compared with: in a heading, in the opening of a page, and as a noun."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import xarray as xr

from rmtbase.reasons import packaged_texts
from rmtbase.tables import circuit_of, heads_present, shapes_of
from rmtbase.words import counted, listing


@cache
def templates() -> dict[str, dict[str, dict[str, str]]]:
    """Return the words of nulls, of laws of their entries, and of tests of causes, by name."""
    return packaged_texts("rmtbase.results.scores", "words.toml")


def _words_of(attrs: Mapping[Any, Any], form: str, **values: str) -> str:
    nulls, entries = templates()["nulls"], templates()["entries"].get(attrs["null_entries"], {})
    null = nulls.get(attrs["null_entries"]) or nulls[attrs["null_method"]]
    return null[form].format(entries=entries.get(form, "").format(**values), **values)


def draws_in_words(tree: xr.DataTree, thousands: str = "") -> str:
    """Format the smallest and the largest number of null draws over all shapes, or their common number."""
    null = tree["null"].to_dataset()
    draws = null["null_draws"].values.tolist() if "null_draws" in null else [int(tree.attrs["null_draws"])]
    return " to ".join(f"{number:,}".replace(",", thousands) for number in sorted({min(draws), max(draws)}))


def null_noun(entries: str, noun: str = "head") -> str:
    """Name what heads are compared with under a null of these entries: random heads, or copies of themselves."""
    nulls = templates()["nulls"]
    return nulls.get(entries, nulls["simulated"])["noun"].format(noun=noun)


def compared(tree: xr.DataTree) -> str:
    """Say in one line which heads were compared with what; of an adapter, that these are its updates."""
    attrs, shapes, updates = tree.attrs, shapes_of(tree), updates_of(tree.attrs)
    factors, noun = ("s Bᵀ and A", circuit_of(attrs).noun) if updates else ("W_Q and W_K", "head")
    sizes = "of several shapes" if len(shapes) > 1 else f"{factors} {factor_shapes(shapes[0])}"
    against = _words_of(attrs, "heading", draws=draws_in_words(tree, ","), noun=noun)
    update = f"the update ΔW = s B A, without its base, of {updates}: " if updates else ""
    n_heads = int(heads_present(tree["heads"].to_dataset()).sum())
    return f"{update}{counted(n_heads, noun)} ({sizes}) against {against}"


def updates_of(attrs: Mapping[Any, Any]) -> str:
    """List the modules whose updates by an adapter were scored; "" for weights."""
    return ", ".join(json.loads(attrs.get("updates", "[]")))


def compared_plainly(tree: xr.DataTree, name: str) -> str:
    """Say in one sentence what each head of the named model was compared with, to a reader without statistics."""
    attrs, (dims, *others), updates = tree.attrs, shapes_of(tree), updates_of(tree.attrs)
    noun = circuit_of(attrs).noun if updates else "head"
    heads = f"{'The' if heads_present(tree['heads'].to_dataset()).sum() == 1 else 'Each'} attention head of {name}"
    widths = f"d_model {attrs['d_model']}" if "d_model" in attrs else f"d_query {dims[0]}, d_key {dims[2]}"
    widths += f", d_head {dims[1]}"
    if updates:
        heads = f"The update ΔW = s B A of each {'module' if noun == 'update' else 'head'} by {name}, without its base,"
        widths = f"{dims[0]} × {dims[2]}, of rank {dims[1]}"
    shape = "of its own shape" if others else f"of the same shape ({widths})"
    against = _words_of(attrs, "plain", draws=draws_in_words(tree, " "), shape=shape, noun=noun)
    return f"{heads} was compared with {against}."


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
