"""Description of a model in words: its sites, the tensors that each matrix is made of, and the unused tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import singledispatch
from typing import Any

from rmtbase.models._model import Model
from rmtbase.models.layouts._expressions import (
    Biased,
    Column,
    Expression,
    Gained,
    Product,
    Rows,
    Scaled,
    Stacked,
    Sum,
    Tensor,
    to_json,
)
from rmtbase.models.layouts._leftovers import left_out
from rmtbase.models.layouts._sites import Place, Site
from rmtbase.shown import in_one_line

_RUNS = 3  # runs of rows that are listed individually
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a tensor's name


@in_one_line
@dataclass(frozen=True)
class Alike:
    """Layers of one stack with the same heads, shapes and tensors, apart from the layer's own number."""

    stack: str  # "" where a model has only one
    layers: tuple[int, ...]  # their numbers; -1 for matrices outside the layers
    # sizes of the heads, by the names of :class:`rmtbase.models.Site`; empty without attention
    sizes: Mapping[str, int | float]
    # how each component is made of stored tensors, in words, with {} for the layer's number
    matrices: Mapping[str, str]
    shapes: Mapping[str, tuple[int, int]] = field(hash=False)  # (outputs, inputs) of each component
    notes: tuple[str, ...]  # what must be known to interpret W_QK of these layers

    def sentence(self) -> str:
        """Describe the layers and their heads: ``layers 0-31: 32 heads on 8 key heads of 128, width 4096``."""
        names = f"{self.stack} {_in_words(self.layers)}".lstrip()
        if not self.sizes:
            return names if self.layers == (-1,) else f"{names}: no attention"
        heads, key_heads, size = (self.sizes[name] for name in ("n_heads", "n_key_heads", "d_head"))
        on = "" if key_heads == heads else f" on {key_heads} key head{'s' * (key_heads != 1)}"
        wide, read = self.sizes["d_query"], self.sizes["d_key"]
        width = f"width {wide}" if wide == read else f"width {wide} of queries, {read} of keys"
        said = f"{names}: {heads} head{'s' * (heads != 1)}{on} of {size}, {width}"
        value = self.sizes.get("d_value", size)
        said += f", values of {value}" if value != size else ""
        said += f", {self.sizes['rotated']} dimensions rotated" if "rotated" in self.sizes else ""
        return said + (f", logits times {self.sizes['logit_scale']:.6g}" if "logit_scale" in self.sizes else "")


@in_one_line
@dataclass(frozen=True)
class Inspection:
    """Description of a model; see :func:`inspect_model`."""

    # model, revision, architecture: identification of the model
    model: str
    revision: str | None
    architecture: str
    # n_sites, n_layers: how many places have attention, and how many have any weight matrix
    n_sites: int
    n_layers: int
    layers: tuple[Alike, ...]  # groups of layers that are alike, in order
    read: int  # how many stored tensors the matrices are made of
    # the unused tensors: how many have each name, with {} for numbers in the name
    left_out: Mapping[str, int] = field(hash=False)
    notes: tuple[str, ...]  # what must be known to interpret the model: what was folded in, left out and proved

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain data, for JSON."""
        return asdict(self)


def inspect_model(model: Model) -> Inspection:
    """Describe a model's sites, matrices and notes from its configuration and headers; no weight is read."""
    sites = {site.place: site for site in model.sites}
    groups: dict[tuple[Any, ...], list[Place]] = {}
    beside: dict[Place, dict[str, Expression]] = {}
    experts: dict[Place, dict[str, list[Expression]]] = {}
    for name, expression in (item for part in model._parts.values() for item in part.matrices.items()):
        if name.expert is None:
            beside.setdefault(name.place, {})[name.component] = expression
        else:
            experts.setdefault(name.place, {}).setdefault(name.component, []).append(expression)
    for place in model.layers:
        held = {**model._matrices[place], **beside.pop(place, {})}
        look = _looks(model, place, held, sites.get(place), experts.get(place, {}))
        groups.setdefault(look, []).append(place)
    for place, matrices in beside.items():
        groups.setdefault(_looks(model, place, matrices, None, {}), []).append(place)
    used = model.used_tensors()
    return Inspection(
        model=model.name,
        revision=model.revision,
        architecture=model.architecture,
        n_sites=len(model.sites),
        n_layers=model.n_layers,
        layers=tuple(_alike(look, places) for look, places in groups.items()),
        read=len(used),
        left_out={pattern: len(names) for pattern, names in left_out(model._checkpoint, used).items()},
        notes=(*model.notes, *(note for part in model._parts.values() for note in part.notes)),
    )


_SIZES = ("n_heads", "n_key_heads", "d_head", "d_query", "d_key", "d_value", "d_output", "logit_scale", "rotated")


def _looks(
    model: Model,
    place: Place,
    expressions: Mapping[str, Expression],
    site: Site | None,
    experts: Mapping[str, Sequence[Expression]],
) -> tuple[Any, ...]:
    """Return the description of a layer without its number; its first expert, with {} as number, stands for all."""
    known = () if site is None else tuple((name, getattr(site, name)) for name in _SIZES)
    shape_of = model._checkpoint.shape
    return (
        place.stack,
        tuple((name, value) for name, value in known if value is not None),
        tuple((name, _without(place.layer, in_words(one))) for name, one in expressions.items())
        + tuple((name, _without(place.layer, _each(several))) for name, several in experts.items()),
        tuple((name, one.shape(shape_of)) for name, one in expressions.items())
        + tuple((name, several[0].shape(shape_of)) for name, several in experts.items()),
        () if site is None else tuple(_without(place.layer, note) for note in site.notes),
    )


def _alike(look: tuple[Any, ...], places: Sequence[Place]) -> Alike:
    stack, sizes, matrices, shapes, notes = look
    return Alike(stack, tuple(place.layer for place in places), dict(sizes), dict(matrices), dict(shapes), notes)


def _without(layer: int, words: str) -> str:
    """Replace the layer's number by {}: in each tensor's name, the first part between dots that is this number."""
    return re.sub(rf"((?:^|(?<=[\s(]))[^\s()]*?\.){layer}(?=\.)", r"\1{}", words)


def _each(experts: Sequence[Expression]) -> str:
    """Describe the matrices of all experts by that of the first."""
    first = re.sub(r"\[0\]", "[{}]", re.sub(r"(?<=experts\.)(expert_)?0(?=\.)", r"\1{}", in_words(experts[0])))
    return f"{len(experts)} experts: {first}"


def _in_words(layers: Sequence[int]) -> str:
    """List the numbers of layers, with runs contracted: ``layers 0-3, 7``, or ``outside the layers``."""
    if tuple(layers) == (-1,):
        return "outside the layers"
    return f"layer{'s' * (len(layers) != 1)} {_ranges(layers)}"


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


@singledispatch
def in_words(expression: Expression) -> str:
    """Describe how a matrix is made of stored tensors: ``rows 0-63, 192-255 of h.0.attn.weight``."""
    return str(to_json(expression))


@in_words.register
def _(one: Tensor) -> str:
    return one.name + ("" if one.index is None else f"[{one.index}]") + (" transposed" if one.transposed else "")


@in_words.register
def _(one: Column) -> str:
    return one.name


@in_words.register
def _(one: Rows) -> str:
    told = [_run(*run) for run in one.runs[:_RUNS]]
    more = len(one.runs) - _RUNS
    return f"rows {', '.join(told)}{f' and {more} more runs' if more > 0 else ''} of {_inner(one.of)}"


def _run(start: int, stop: int, step: int) -> str:
    if stop - start == 1:
        return str(start)
    return f"{start}-{stop - 1}" + (f" by {step}" if step != 1 else "")


@in_words.register
def _(one: Scaled) -> str:
    return f"{one.factor:.6g} × {_inner(one.of)}"


@in_words.register
def _(one: Gained) -> str:
    gain = f"diag({f'{one.offset:g} + ' if one.offset else ''}{one.gain})"
    return f"{gain} · {_inner(one.of)}" if one.rows else f"{_inner(one.of)} · {gain}"


@in_words.register
def _(one: Biased) -> str:
    return f"[{in_words(one.of)}, {in_words(one.bias)}]"


@in_words.register
def _(one: Sum) -> str:
    return " + ".join(map(_inner, one.of))


@in_words.register
def _(one: Product) -> str:
    return " · ".join(map(_inner, one.of))


@in_words.register
def _(one: Stacked) -> str:
    parts = list(map(in_words, one.of))
    return " above ".join(parts) if len(parts) <= _RUNS else f"{parts[0]} above {len(parts) - 1} more like it"


def _inner(one: Expression) -> str:
    """Describe a part of a larger expression, in parentheses where they are needed."""
    words = in_words(one)
    return words if isinstance(one, Tensor | Column | Biased) else f"({words})"
