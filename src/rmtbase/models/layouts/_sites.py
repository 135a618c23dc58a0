"""Attention sites: where a model multiplies queries with keys, and how its matrices follow from stored tensors.

If x̂ is the output of a norm before its gains g and bias β, and q = W (g ⊙ x̂ + β) + b, the matrix into which biases and
norms are folded is [W diag(g), W β + b], which acts on (x̂, 1). Gains of a norm of queries or keys multiply rows; its
divisor depends on the token, so that W_QK gives q·k up to a factor for each pair of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, ShapeError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts import _expressions as made
from rmtbase.models.layouts._expressions import Expression
from rmtbase.shown import quoted

STACKS = ("", "encoder", "decoder", "cross", "text", "vision", "audio")
"""Names of stacks of layers: ``""`` where a model has only one."""


class Note(str):
    """Note for people to read, with values for code: its kind, and the names that stand for {} in its words."""

    words: str
    kind: str
    names: tuple[str, ...]

    def __new__(cls, words: str, kind: str = "", names: Iterable[str] = ()) -> Note:
        names = tuple(names)
        note = super().__new__(cls, words.format(", ".join(names)) if names else words)
        note.words, note.kind, note.names = words, kind, names
        return note

    def renamed(self, rename: Callable[[str], str]) -> Note:
        return Note(self.words, self.kind, map(rename, self.names))


def kind_of(note: str) -> str:
    return note.kind if isinstance(note, Note) else ""


def common_module(names: Iterable[str]) -> str:
    """Return what all names begin with, up to a dot, without that dot."""
    columns = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return ".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, columns))


def nested_settings(config: Mapping[str, Any], depth: int = 99, inside: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield the settings, including nested ones: the key with those around it, the key alone, and the value."""
    for key, value in config.items():
        if isinstance(value, Mapping) and depth > 1:
            yield from nested_settings(value, depth - 1, f"{inside}{key}.")
        else:
            yield f"{inside}{key}", str(key), value


CONTENT_PART = "rotary: W_QK is the content part at zero relative position"
NORMS = Note("query/key norm present: recorded, not folded in", "norms")
BIASES = Note("biases present: recorded, not folded in", "biases")  # notes that are common to all ways of finding sites


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
    """Learned part of a norm: x̂ · (offset + gain) + bias."""

    gain: str | None  # name of the stored gains, or None
    bias: str | None = None  # name of the stored bias, or None
    offset: float = 0.0  # 1 where the stored values are gain − 1, as in Gemma; otherwise 0

    def tensors(self) -> tuple[str, ...]:
        return tuple(name for name in (self.gain, self.bias) if name is not None)


NORM_FIELDS = ("query_input_norm", "key_input_norm", "query_norm", "key_norm")  # the norms of a site

PLAIN = Norm(None)  # a norm that learns nothing: no norm at all, or one without gains


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
        matrices = (matrix for matrix in (self.query, self.key) if matrix is not None)
        return tuple(dict.fromkeys(name for matrix in matrices for name in matrix.tensors()))

    def expressions(self) -> dict[str, Expression]:
        matrices = {"query": self.query, "key": self.key, "value": self.value, "output": self.output}
        return {f"attention_{name}": matrix for name, matrix in matrices.items() if matrix is not None}

    def norms(self) -> tuple[Norm, ...]:
        return tuple(norm for name in NORM_FIELDS if (norm := getattr(self, name)) is not None)


_SHOWN = 3


class Declared(NamedTuple):
    present: bool  # whether they have a bias
    key: str | None = None  # the key of the configuration that says so; None where it holds for every model of the type
    said: bool = False  # whether the configuration itself has the key, rather than only the defaults of its class

    def in_words(self) -> str:
        return f"{self.key} = {str(self.present).lower()}" if self.key else "the model's class"


def declared(
    biases: Mapping[str, bool | str], config: Mapping[str, Any], of_class: Mapping[str, Any]
) -> dict[str, Declared]:
    biases_declared = {}
    for symbols, key in biases.items():
        value = key if isinstance(key, bool) else config.get(key, of_class.get(key))
        if isinstance(value, bool):
            declaration = Declared(value) if isinstance(key, bool) else Declared(value, key, key in config)
            biases_declared |= dict.fromkeys(symbols.split(), declaration)
    return biases_declared


def bias_notes(
    expected: Mapping[str, Declared],
    tensors: Mapping[str, Iterable[str]],
    stored: Container[str],
    refuse: Callable[[str, str], Exception] | None = None,
) -> Iterator[str]:
    missing: dict[str, Declared] = {}
    unused: dict[str, Declared] = {}
    for symbol, declaration in expected.items():
        for name in tensors.get(symbol, ()):
            bias = name.removesuffix("weight") + "bias"
            if name.endswith("weight") and name in stored and declaration.present != (bias in stored):
                (missing if declaration.present else unused)[bias] = declaration
    for bias, declaration in missing.items():
        if declaration.said and refuse is not None:
            raise refuse(bias, f"{declaration.in_words()}; correct that, if the model has no such biases")
    for kind, words, biases in (
        ("missing_biases", "biases that the model has and that are not stored", missing),
        ("unused_biases", "biases that are stored and that the model does not have", unused),
    ):
        if biases:
            by = ", ".join(dict.fromkeys(declaration.in_words() for declaration in biases.values()))
            more = f", … ({len(biases)} of them)" if len(biases) > _SHOWN else ""
            yield Note(f"{words} ({by}): {', '.join(map(quoted, list(biases)[:_SHOWN]))}{more}", kind)


@dataclass(frozen=True)
class Part:
    """Matrices beside those of the layers, which are scored only on request."""

    matrices: Mapping[MatrixName, Expression]  # in the order in which they are read
    # what must be known to interpret them, and which matrices of this kind exist but are not read
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # the stored tensors that the notes name


@dataclass(frozen=True, kw_only=True)
class Inventory:
    sites: tuple[Site, ...]  # in order of stack and layer
    # the matrices of the layers outside the sites (MLP, router), by place and component
    others: Mapping[Place, Mapping[str, Expression]]
    notes: tuple[str, ...] = ()  # what must be known about the whole model
    # further matrices: ``"fused"``, ``"embeddings"``, ``"experts"``
    parts: Mapping[str, Part] = field(default_factory=dict)

    @property
    def matrices(self) -> dict[Place, dict[str, Expression]]:
        by_place: dict[Place, dict[str, Expression]] = {}
        for site in self.sites:
            by_place.setdefault(site.place, {}).update(site.expressions())
        for place, components in self.others.items():
            by_place.setdefault(place, {}).update(components)
        order = list(dict.fromkeys(place.stack for place in by_place))
        return dict(sorted(by_place.items(), key=lambda item: (order.index(item[0].stack), item[0].layer)))

    def used_tensors(self) -> frozenset[str]:
        mappings = [*self.matrices.values(), *(part.matrices for part in self.parts.values())]
        return frozenset(name for matrices in mappings for matrix in matrices.values() for name in matrix.tensors())


def require_sites(sites: Sequence[Site], checkpoint: Checkpoint) -> None:
    path, expected = checkpoint.path, "a Site for each layer, each at a place of its own, with queries and keys"
    if not sites or not all(isinstance(site, Site) for site in sites):
        raise ParameterError("sites", f"{len(sites)} of {sorted({type(site).__name__ for site in sites})}", expected)
    for number, site in enumerate(sites):
        if site.place in [site_before.place for site_before in sites[:number]] or site.place.stack not in STACKS:
            raise ParameterError("sites", f"sites[{number}] at {site.place!r}", f"{expected}; stacks: {STACKS}")
        if site.query is None or site.key is None:
            raise ParameterError("sites", f"sites[{number}] without queries or without keys", expected)
        if min(site.n_heads, site.n_key_heads, site.d_head) < 1 or site.n_heads % site.n_key_heads:
            described = f"sites[{number}] with {site.n_heads} heads of {site.d_head} on {site.n_key_heads} key heads"
            raise ParameterError("sites", described, "a number of heads that is a multiple of the key heads")
        d_value = site.d_value or 0
        expected_shapes = {
            "attention_query": (site.n_heads * site.d_head, site.d_query),
            "attention_key": (site.n_key_heads * site.d_head, site.d_key),
            "attention_value": (site.n_key_heads * d_value, site.d_key),
            "attention_output": (site.d_output, site.n_heads * d_value),
        }
        for component, expression in site.expressions().items():
            for name in expression.tensors():
                if name not in checkpoint:
                    raise MissingTensorError(path, name, "given")
                checkpoint.require_supported(name)
            names = ", ".join(dict.fromkeys(expression.tensors()))
            try:
                shape = expression.shape(checkpoint.shape)
            except ValueError as error:
                raise CheckpointError(path, f"{site.place} {component}: {error}; expected a matrix") from error
            if shape != expected_shapes[component]:
                because = f"{component} of {site.place}: heads, head size and widths of its site"
                raise ShapeError(path, names, shape, expected_shapes[component], because)


FOLDS = ("biases", "norms")  # what can be folded in


def require_folds(fold: object) -> tuple[str, ...]:
    if isinstance(fold, str):
        fold = [part.strip() for part in fold.split(",")]
    if not isinstance(fold, Collection) or not all(name in FOLDS for name in fold):
        raise ParameterError("fold", fold, f"some of {', '.join(map(repr, FOLDS))}")
    return tuple(name for name in FOLDS if name in fold)


def fold_site(site: Site, fold: Collection[str], stored: Container[str]) -> Site:
    norms = {"inputs of queries": site.query_input_norm, "inputs of keys": site.key_input_norm}
    norms |= {"queries": site.query_norm, "keys": site.key_norm}
    unknown = [input_ for input_, norm in norms.items() if norm is None]
    if "norms" in fold and unknown:
        described = [f"{input_}: {norm.gain or 'no gains'}" for input_, norm in norms.items() if norm is not None]
        raise ParameterError(
            "fold",
            "norms",
            f"none: in {site.place} ({quoted(site.module)}) no norm is known that fits a matrix for "
            f"{', '.join(unknown)}" + (f"; known for {', '.join(described)}" if described else ""),
        )
    sides = {
        "query": (site.query, site.query_input_norm, site.query_norm),
        "key": (site.key, site.key_input_norm, site.key_norm),
        "value": (site.value, site.key_input_norm, None),
    }
    folded: dict[str, Expression] = {}
    for side, (matrix, before, behind) in sides.items():
        if matrix is None:
            continue
        column = _bias(matrix, stored) if "biases" in fold else None
        if before is not None and "norms" in fold:
            if before.bias is not None and "biases" in fold:
                moved = made.Product((matrix, made.Column(before.bias)))
                column = moved if column is None else made.Sum((moved, column))
            matrix = _gained(matrix, before, rows=False)
        if column is not None:
            matrix = made.Biased(matrix, column)
        folded[side] = _gained(matrix, behind, rows=True) if behind is not None and "norms" in fold else matrix
    return replace(
        site,
        **folded,
        d_query=site.d_query + _is_wider(folded.get("query")),
        d_key=site.d_key + _is_wider(folded.get("key")),
    )


def has_biases(site: Site, stored: Container[str]) -> bool:
    return any(matrix is not None and _bias(matrix, stored) is not None for matrix in (site.query, site.key))


def _is_wider(matrix: Expression | None) -> bool:
    return isinstance(matrix.of if isinstance(matrix, made.Gained) else matrix, made.Biased)


def _gained(matrix: Expression, norm: Norm, rows: bool) -> Expression:
    return matrix if norm.gain is None else made.Gained(matrix, norm.gain, norm.offset, rows)


def _bias(matrix: Expression, stored: Container[str]) -> Expression | None:
    """Return the bias of a linear map as one column, or None if it has none."""
    match matrix:
        case made.Tensor(weight, index=None) if weight.endswith("weight"):
            name = weight.removesuffix("weight") + "bias"
            return made.Column(name) if name in stored else None
        case made.Rows() | made.Scaled():
            column = _bias(matrix.of, stored)
            return None if column is None else replace(matrix, of=column)
        case made.Product((first, *others)):
            inner = _bias(others[0] if len(others) == 1 else made.Product(tuple(others)), stored)
            parts = [_bias(first, stored), None if inner is None else made.Product((first, inner))]
        case made.Sum() | made.Stacked():
            parts = [_bias(part, stored) for part in matrix.of]
            if isinstance(matrix, made.Stacked) and any(parts):
                if not all(parts):
                    raise ParameterError("fold", "biases", "none: only a part of the outputs has a bias here")
                return made.Stacked(tuple(part for part in parts if part is not None))
        case _:
            return None
    present = tuple(part for part in parts if part is not None)
    return made.Sum(present) if len(present) > 1 else next(iter(present), None)
