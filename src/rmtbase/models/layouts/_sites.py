"""Attention sites: where a model multiplies queries with keys, and how its matrices follow from stored tensors.

A model is a list of sites. At each site the queries, keys, values and outputs of all heads are *expressions*
(:mod:`rmtbase.models.layouts._expressions`), so that shapes and storage may change from one site to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmtbase.errors import CheckpointError
from rmtbase.models.layouts._expressions import Expression

STACKS = ("", "encoder", "decoder", "cross", "text", "vision", "audio")
"""Names of stacks of layers: ``""`` where a model has only one."""


CONTENT_PART = "rotary: W_QK is the content part at zero relative position"
NORMS = "query/key norm present: recorded, not folded in"
BIASES = "biases present: recorded, not folded in"
"""Notes that are common to all ways of finding sites."""


class Disproved(CheckpointError):  # noqa: N818
    """Error: q·k in a model's own forward pass differs from what a site's W_QK gives."""


class Place(NamedTuple):
    """Layer of a model: its stack, one of :data:`STACKS`, and its number there, as in the names of its tensors."""

    stack: str
    layer: int

    def __str__(self) -> str:
        if self.layer < 0:
            return self.stack or "outside the layers"
        return f"{self.stack} layer {self.layer}".lstrip()


class MatrixName(NamedTuple):
    """Location of a matrix in a model: its layer, its component, and the number of the expert that it belongs to."""

    place: Place
    component: str
    expert: int | None = None

    def __str__(self) -> str:
        return f"{self.place} {'' if self.expert is None else f'expert {self.expert} '}{self.component}"


class Norm(NamedTuple):
    """Learned part of a norm: x̂ · (offset + gain) + bias.

    Attributes:
        gain: name of the stored gains, or None.
        bias: name of the stored bias, or None.
        offset: 1 where the stored values are gain − 1, as in Gemma; otherwise 0.
    """

    gain: str | None
    bias: str | None = None
    offset: float = 0.0

    def tensors(self) -> tuple[str, ...]:
        """Return the names of its stored tensors."""
        return tuple(name for name in (self.gain, self.bias) if name is not None)


NORM_FIELDS = ("query_input_norm", "key_input_norm", "query_norm", "key_norm")
"""The norms of a site."""

PLAIN = Norm(None)
"""A norm that learns nothing: no norm at all, or one without gains."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Attention site: one place where a model multiplies queries with keys.

    Query head i uses key head i // (n_heads / n_key_heads). Rows of the matrices run head after head. The matrices
    exclude rotation, norms of queries and keys, and biases unless these were folded in: W_QK is the content part.

    Attributes:
        place: stack and layer.
        module: name of the attention module in the names of tensors, without a trailing dot.
        n_heads: number of query heads.
        n_key_heads: number of key heads; each serves n_heads / n_key_heads query heads.
        d_head: rows of a head's W_Q and W_K.
        d_query: inputs of the queries.
        d_key: inputs of the keys and values.
        d_value: rows of a head's W_V, None where unknown.
        d_output: outputs of W_O, None where unknown.
        query: W_Q of all heads, (n_heads · d_head, d_query); None where the weights are not stored by name.
        key: W_K of all key heads, (n_key_heads · d_head, d_key).
        value: W_V of all key heads, (n_key_heads · d_value, d_key); None where unknown.
        output: W_O of all heads, (d_output, n_heads · d_value); None where unknown.
        logit_scale: factor of q·k before the softmax; None where unknown.
        rotated: how many of a head's dimensions are rotated by position; None where unknown.
        query_input_norm: the norm whose output is the queries' input; :data:`PLAIN` where the input does not come from
            a norm, None where this is unknown.
        key_input_norm: the same for keys and values.
        query_norm: the norm of each head's queries, or of all queries together, if it only divides them and multiplies
            by gains; :data:`PLAIN` where there is none, None where this is unknown.
        key_norm: the same for keys.
        notes: what must be known to interpret W_QK of this site.
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
        """Return the names of the tensors of queries and keys, in the order in which they are read, each once."""
        known = (one for one in (self.query, self.key) if one is not None)
        return tuple(dict.fromkeys(name for one in known for name in one.tensors()))

    def expressions(self) -> dict[str, Expression]:
        """Return the known matrices by component: ``attention_query``, ``_key``, ``_value``, ``_output``."""
        each = {"query": self.query, "key": self.key, "value": self.value, "output": self.output}
        return {f"attention_{name}": one for name, one in each.items() if one is not None}

    def norms(self) -> tuple[Norm, ...]:
        """Return the norms that are known."""
        return tuple(norm for name in NORM_FIELDS if (norm := getattr(self, name)) is not None)


@dataclass(frozen=True)
class Part:
    """Matrices beside those of the layers, which are scored only on request.

    Attributes:
        matrices: in the order in which they are read.
        notes: what must be known to interpret them, and which matrices of this kind exist but are not read.
    """

    matrices: Mapping[MatrixName, Expression]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Attention sites and other weight matrices of a model, by name; no weight is read.

    Attributes:
        sites: in order of stack and layer.
        others: the matrices of the layers outside the sites (MLP, router), by place and component.
        notes: what must be known about the whole model.
        parts: further matrices: ``"fused"``, ``"embeddings"``, ``"experts"``.
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
        """Return the names of the stored tensors that its matrices, and those of its parts, are made of."""
        held = [*self.matrices.values(), *(part.matrices for part in self.parts.values())]
        return frozenset(name for matrices in held for one in matrices.values() for name in one.tensors())
