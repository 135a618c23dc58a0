"""Notes of a site, and its stack and layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from rmtbase.models.forward._probe_events import CONVOLUTION, Mark, Softmax
from rmtbase.models.layouts._expressions import Expression
from rmtbase.models.layouts._sites import (
    BIASES,
    CONTENT_PART,
    NORM_FIELDS,
    NORMS,
    STACKS,
    Note,
    Place,
    Site,
    common_module,
)

_INNER_NORMS = "norm between the factors of queries or keys: recorded, not folded in"
_GAINS = "gains of queries or keys: recorded, not folded in"
_SOFT_CAP = "soft cap on q·k: not in W_QK"
_POSITIONS = "products with positions are added to q·k: not in W_QK"
_CONVOLVED = "convolutions before queries or keys: not in W_QK, which acts on their outputs"
_OTHER_AXIS = (
    "the softmax runs over another axis than the last: queries are the tokens whose weights sum to 1, whatever the "
    "names of their maps"
)


NORM_KINDS = ("norm", "rsqrt", "linalg_vector_norm", "native_layer_norm", "native_group_norm", "_fused_rms_norm")


class Met(NamedTuple):
    """Site as found in a forward pass, before it is placed in a stack."""

    site: Site  # the site; its place is not yet set
    crossed: bool  # whether its queries and keys have different inputs
    product: str  # key of the product of its queries and keys
    heads: Int[np.ndarray, "n token"]  # number of the head of each query
    queries_left: bool  # whether queries are the left operand
    factor: float  # ratio of the operands' product to that of the matrices

    def again(self, met: Met) -> Met:
        differing = [name for name in NORM_FIELDS if getattr(self.site, name) != getattr(met.site, name)]
        return self._replace(site=replace(self.site, **dict.fromkeys(differing)))


def module_of(queries: Iterable[str], keys: Iterable[str], other_names: Iterable[str]) -> str:
    q_names, k_names = [*queries], [*keys]
    return common_module(q_names if other_layer(q_names, k_names) else [*q_names, *k_names, *other_names])


def other_layer(queries: Iterable[str], keys: Iterable[str]) -> str | None:
    """Return the module of the keys if the names of queries and keys first differ in a layer's number, or None."""
    of_queries, of_keys = common_module(queries), common_module(keys)
    pairs = zip(of_queries.split("."), of_keys.split("."), strict=False)
    parted = next(((query_part, key_part) for query_part, key_part in pairs if query_part != key_part), ("", ""))
    return of_keys if all(part.isdigit() for part in parted) else None


def is_within(name: str, module: str) -> bool:
    return name.startswith(f"{module}." if module else "")


def notes_of(softmax: Softmax, operands: frozenset[Mark], maps: frozenset[Mark], rotated: bool) -> tuple[str, ...]:
    scores, kinds = softmax.origin.marks, {mark.kind for mark in operands}
    added = sorted(mark.name for mark in scores if mark.kind in ("bias", "gain"))
    notes = {
        CONTENT_PART: rotated,
        NORMS: not kinds.isdisjoint(NORM_KINDS),
        BIASES: any(mark.kind == "bias" for mark in operands | maps),
        _INNER_NORMS: any(mark.kind == "inner" for mark in maps),
        _GAINS: "gain" in kinds,
        _SOFT_CAP: any(mark.kind == "tanh" for mark in scores),
        _POSITIONS: len(softmax.origin.products) > 1,
        _CONVOLVED: any(mark.kind == CONVOLUTION for mark in maps),
        _OTHER_AXIS: softmax.axis < softmax.scores.ndim - 1,
        Note("{} in the scores: not in W_QK", names=added): bool(added),
    }
    return tuple(note for note, holds in notes.items() if holds)


_WORDS: Mapping[str, tuple[str, ...]] = {
    "vision": ("vision", "visual", "image", "vit", "vpm", "pixel"),
    "audio": ("audio", "speech", "acoustic"),
    "text": ("text", "language", "lm", "llm"),
    "encoder": ("encoder",),
    "decoder": ("decoder",),
}


def in_places(mets: Iterable[Met]) -> tuple[Site, ...]:
    by_matrices: dict[tuple[Expression | None, Expression | None], Met] = {}
    for met_once in mets:
        matrices = met_once.site.query, met_once.site.key
        by_matrices[matrices] = by_matrices[matrices].again(met_once) if matrices in by_matrices else met_once
    met = [*by_matrices.values()]
    modules = [met_site.site.module for met_site in met]
    shared = len(common_module([f"{module}." for module in modules]))
    names = [[_label(module[start:]) for module in modules] for start in (shared, 0)]
    # The name of the whole model, such as speecht5, says nothing about its parts if each of these has a name itself.
    labelled = zip(met, names[not all(names[0])], strict=True)
    labels = ["cross" if met_site.crossed else label for met_site, label in labelled]
    if len(set(labels)) == 1 and labels[0] != "cross":
        labels = [""] * len(met)
    elif "" in labels:
        default = "text" if {"vision", "audio"} & set(labels) else "decoder"
        labels = [label or default for label in labels]
    placed = []
    for stack in STACKS:
        sites = [met_site.site for met_site, label in zip(met, labels, strict=True) if label == stack]
        numbers = [[int(part) for part in site.module.split(".") if part.isdigit()] for site in sites]
        layers = [module_numbers[0] if module_numbers else 0 for module_numbers in numbers]
        if len(set(layers)) < len(layers):
            layers = list(range(len(sites)))
        placed += [replace(site, place=Place(stack, layer)) for site, layer in zip(sites, layers, strict=True)]
    return tuple(sorted(placed, key=lambda site: (STACKS.index(site.place.stack), site.place.layer)))


def _label(module: str) -> str:
    words = module.lower().replace("_", ".").split(".")
    stacks = (name for name, beginnings in _WORDS.items() if any(word.startswith(beginnings) for word in words))
    return next(stacks, "")
