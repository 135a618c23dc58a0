"""Attention sites: where a model's queries and keys meet, and what each of its matrices is of the stored tensors.

A model is a list of sites. At each of them the queries, keys, values and outputs of all heads are *expressions*
(:mod:`rmtbase.models._expressions`), so that shapes and ways of storing may change from one to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmtbase.errors import CheckpointError
from rmtbase.models._expressions import Expression

STACKS = ("", "encoder", "decoder", "cross", "text", "vision", "audio")
"""What a stack of layers can be called: ``""`` where a model has one alone."""


CONTENT_PART = "rotary: W_QK is the content part at zero relative position"
NORMS = "query/key norm present: recorded, not folded in"
BIASES = "biases present: recorded, not folded in"
"""Notes that sites have whichever way they were found."""


class Disproved(CheckpointError):  # noqa: N818
    """The q·k of a model's own forward pass is not what a site's W_QK gives."""


class Place(NamedTuple):
    """A layer of a model: its stack, one of :data:`STACKS`, and its number there, as its tensors are numbered."""

    stack: str
    layer: int

    def __str__(self) -> str:
        if self.layer < 0:
            return self.stack or "outside the layers"
        return f"{self.stack} layer {self.layer}".lstrip()


class MatrixName(NamedTuple):
    """Which matrix of a model: where it is, what it is, and of experts whose it is."""

    place: Place
    component: str
    expert: int | None = None

    def __str__(self) -> str:
        return f"{self.place} {'' if self.expert is None else f'expert {self.expert} '}{self.component}"


class Norm(NamedTuple):
    """The learned part of a norm: x̂ · (offset + gain) + bias.

    Attributes:
        gain: the stored gains, or None where it has none.
        bias: the stored bias, or None.
        offset: 1 where what is stored is the gain's distance from 1, as Gemma does.
    """

    gain: str | None
    bias: str | None = None
    offset: float = 0.0

    def tensors(self) -> tuple[str, ...]:
        """The names of what is stored of it."""
        return tuple(name for name in (self.gain, self.bias) if name is not None)


NORM_FIELDS = ("query_input_norm", "key_input_norm", "query_norm", "key_norm")
"""The norms of a site."""

PLAIN = Norm(None)
"""Where nothing is learned: no norm, or one without gains."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One place where the queries and keys of a model meet.

    Query head i reads key head i // (n_heads / n_key_heads). Rows of the matrices run head after head. Rotation, norms
    of queries and keys, and biases are not in them unless they were folded in: W_QK is the content part.

    Attributes:
        place: its stack and layer.
        module: what the attention module is called in the names of tensors, without a dot at its end.
        n_heads: query heads.
        n_key_heads: key heads; each serves n_heads / n_key_heads query heads.
        d_head: rows of a head's W_Q and W_K.
        d_query: inputs of the queries.
        d_key: inputs of the keys and values.
        d_value: rows of a head's W_V, None where it is not known.
        d_output: outputs of W_O, None where it is not known.
        query: W_Q of all heads, (n_heads · d_head, d_query); None where the weights are not stored by name.
        key: W_K of all key heads, (n_key_heads · d_head, d_key).
        value: W_V of all key heads, (n_key_heads · d_value, d_key), where it is known.
        output: W_O of all heads, (d_output, n_heads · d_value), where it is known.
        logit_scale: what q·k is multiplied by before the softmax, where it is known.
        rotated: how many of a head's dimensions are rotated by position, where it is known.
        query_input_norm: the norm whose output is the queries' input; :data:`PLAIN` where it is no norm's, None where
            that is not known.
        key_input_norm: the same of keys and values.
        query_norm: the norm of each head's queries, or of all of them together, which does no more than divide them
            and multiply by gains; :data:`PLAIN` where there is none, None where that is not known.
        key_norm: the same of keys.
        notes: what must be known to read W_QK of this site rightly.
    """

    place: Place
    module: str = ""
    n_heads: int
    n_key_heads: int
    d_head: int
    d_query: int
    d_key: int
    d_value: int | None = None
    d_output: int | None = None
    query: Expression | None = None
    key: Expression | None = None
    value: Expression | None = None
    output: Expression | None = None
    logit_scale: float | None = None
    rotated: int | None = None
    query_input_norm: Norm | None = None
    key_input_norm: Norm | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    notes: tuple[str, ...] = ()

    def query_key_tensors(self) -> tuple[str, ...]:
        """The names of the tensors of queries and keys, in the order of their reading, each once."""
        known = (one for one in (self.query, self.key) if one is not None)
        return tuple(dict.fromkeys(name for one in known for name in one.tensors()))

    def expressions(self) -> dict[str, Expression]:
        """Those that are known, by component: ``attention_query``, ``_key``, ``_value``, ``_output``."""
        each = {"query": self.query, "key": self.key, "value": self.value, "output": self.output}
        return {f"attention_{name}": one for name, one in each.items() if one is not None}

    def norms(self) -> tuple[Norm, ...]:
        """Those that are known."""
        return tuple(norm for name in NORM_FIELDS if (norm := getattr(self, name)) is not None)


@dataclass(frozen=True)
class Part:
    """Matrices beside those of the layers, which are looked at where they are asked for.

    Attributes:
        matrices: in the order in which they are read.
        notes: what is to be known of them, and what of the kind is there and not read.
    """

    matrices: Mapping[MatrixName, Expression]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What a model has, by name alone: its attention sites, and its other weight matrices.

    Attributes:
        sites: in order of stack and layer.
        others: the matrices of the layers that are no site's (MLP, router), by place and component.
        notes: what must be known of the whole model.
        parts: its further matrices: ``"embeddings"``, ``"experts"``.
    """

    sites: tuple[Site, ...]
    others: Mapping[Place, Mapping[str, Expression]]
    notes: tuple[str, ...] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)

    @property
    def matrices(self) -> dict[Place, dict[str, Expression]]:
        """All matrices by place and component, those of the sites first."""
        found: dict[Place, dict[str, Expression]] = {}
        for site in self.sites:
            found.setdefault(site.place, {}).update(site.expressions())
        for place, components in self.others.items():
            found.setdefault(place, {}).update(components)
        order = list(dict.fromkeys(place.stack for place in found))
        return dict(sorted(found.items(), key=lambda item: (order.index(item[0].stack), item[0].layer)))

    def used_tensors(self) -> frozenset[str]:
        """The names of the stored tensors that its matrices, and those of its parts, are made of."""
        held = [*self.matrices.values(), *(part.matrices for part in self.parts.values())]
        return frozenset(name for matrices in held for one in matrices.values() for name in one.tensors())
