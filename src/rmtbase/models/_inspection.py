"""Description of a model in words: its sites, the tensors that each matrix is made of, and the unused tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rmtbase.models._model import Model
from rmtbase.models.layouts import _expressions as made
from rmtbase.models.layouts._expressions import Expression, renamed, to_json
from rmtbase.models.layouts._layouts import EXPERT_COMPONENTS
from rmtbase.models.layouts._other_matrices import by_pattern
from rmtbase.models.layouts._sites import Note, Place, Site
from rmtbase.shown import in_one_line

_RUNS = 3  # runs of rows that are listed individually
_SIZES = ("n_heads", "n_key_heads", "d_head", "d_query", "d_key", "d_value", "d_output", "logit_scale", "rotated")


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
        outside = self.layers == (-1,)
        layers = "outside the layers" if outside else f"layer{'s' * (len(self.layers) != 1)} {_ranges(self.layers)}"
        names = f"{self.stack} {layers}".lstrip()
        if not self.sizes:
            return names if outside else f"{names}: no attention"
        heads, key_heads, size, width, key_width = (self.sizes[name] for name in _SIZES[:5])
        parts = [f"{names}: {heads} head{'s' * (heads != 1)}"]
        parts[0] += "" if key_heads == heads else f" on {key_heads} key head{'s' * (key_heads != 1)}"
        parts[0] += f" of {size}"
        parts.append(f"width {width}" if width == key_width else f"width {width} of queries, {key_width} of keys")
        if (d_value := self.sizes.get("d_value", size)) != size:
            parts.append(f"values of {d_value}")
        if "rotated" in self.sizes:
            parts.append(f"{self.sizes['rotated']} dimensions rotated")
        if "logit_scale" in self.sizes:
            parts.append(f"logits times {self.sizes['logit_scale']:.6g}")
        return ", ".join(parts)


@in_one_line
@dataclass(frozen=True)
class Inspection:
    model: str
    revision: str | None
    architecture: str
    n_sites: int  # places with attention
    n_layers: int  # places with any weight matrix
    layers: tuple[Alike, ...]  # groups of layers that are alike, in order
    read: int  # how many stored tensors the matrices are made of
    # the unused tensors: how many have each name, with {} for numbers in the name
    left_out: Mapping[str, int] = field(hash=False)
    notes: tuple[str, ...]  # what must be known to interpret the model: what was folded in, left out and proved


def inspect_model(model: Model) -> Inspection:
    """Describe a model's sites, matrices and notes from its configuration and headers; no weight is read."""
    sites = {site.place: site for site in model.sites}
    matrices: dict[Place, dict[str, Sequence[Expression]]] = {place: {} for place in model.layers}
    for place in model.layers:
        matrices[place] |= {name: (matrix,) for name, matrix in model._matrices[place].items()}
    parts = [item for part in model._parts.values() for item in part.matrices.items()]
    for name, matrix in sorted(parts, key=lambda item: item[0].expert is not None):
        of_place = matrices.setdefault(name.place, {})
        of_place[name.component] = (*of_place.get(name.component, ()), matrix)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, expressions in matrices.items():
        groups.setdefault(_looks(model, place, expressions, sites.get(place)), []).append(place.layer)
    used = model.used_tensors()
    left_out = (name for name in model._checkpoint.names if name not in used)
    return Inspection(
        model=model.name,
        revision=model.revision,
        architecture=model.architecture,
        n_sites=len(model.sites),
        n_layers=model.n_layers,
        layers=tuple(
            Alike(stack, tuple(layers), dict(sizes), dict(words), dict(shapes), notes)
            for (stack, sizes, words, shapes, notes), layers in groups.items()
        ),
        read=len(used),
        left_out={pattern: len(names) for pattern, names in by_pattern(left_out).items()},
        notes=(*model.notes, *(note for part in model._parts.values() for note in part.notes)),
    )


def _looks(
    model: Model, place: Place, expressions: Mapping[str, Sequence[Expression]], site: Site | None
) -> tuple[Any, ...]:
    """Return the description of a layer without its number; its first expert, with {} as number, stands for all."""
    sizes = () if site is None else tuple((name, getattr(site, name)) for name in _SIZES)
    without = partial(_without, place.layer)
    words, shapes = [], []
    for name, (first, *next_experts) in expressions.items():
        if next_experts or name in EXPERT_COMPONENTS:
            any_expert = partial(re.sub, r"(?<=experts\.)(expert_)?0(?=\.)", r"\1{}")
            matrix = renamed(renamed(first, without), any_expert, "{}")
            text = f"{len(next_experts) + 1} experts: {in_words(matrix)}"
        else:
            text = in_words(renamed(first, without))
        words.append((name, text))
        shapes.append((name, first.shape(model._checkpoint.shape)))
    return (
        place.stack,
        tuple((name, value) for name, value in sizes if value is not None),
        tuple(words),
        tuple(shapes),
        tuple(note.renamed(without) if isinstance(note, Note) else note for note in site.notes) if site else (),
    )


def _without(layer: int, name: str) -> str:
    """Replace the layer's number in a tensor's name by {}: the first part between dots that is this number."""
    return re.sub(rf"^(.*?\.){layer}(?=\.)", r"\1{}", name)


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _run(start: int, stop: int, step: int) -> str:
    by = f" by {step}" if step != 1 else ""
    return str(start) if stop - start == 1 else f"{start}-{stop - 1}{by}"


def in_words(matrix: Expression) -> str:
    """Describe how a matrix is made of stored tensors: ``rows 0-63, 192-255 of h.0.attn.weight``."""
    match matrix:
        case made.Tensor(name, transposed, index):
            return name + ("" if index is None else f"[{index}]") + (" transposed" if transposed else "")
        case made.Column(name):
            return name
        case made.Rows(inner, runs):
            listed = ", ".join(_run(*run) for run in runs[:_RUNS])
            n_more = len(runs) - _RUNS
            return f"rows {listed}{f' and {n_more} more runs' if n_more > 0 else ''} of {_inner(inner)}"
        case made.Scaled(inner, factor):
            return f"{factor:.6g} × {_inner(inner)}"
        case made.Gained(inner, gain, offset, rows):
            diagonal = f"diag({f'{offset:g} + ' if offset else ''}{gain})"
            return f"{diagonal} · {_inner(inner)}" if rows else f"{_inner(inner)} · {diagonal}"
        case made.Biased(inner, bias):
            return f"[{in_words(inner)}, {in_words(bias)}]"
        case made.Sum(terms):
            return " + ".join(map(_inner, terms))
        case made.Product(factors):
            return " · ".join(map(_inner, factors))
        case made.Stacked(parts):
            words = list(map(in_words, parts))
            return " above ".join(words) if len(words) <= _RUNS else f"{words[0]} above {len(words) - 1} more like it"
    return str(to_json(matrix))


def _inner(matrix: Expression) -> str:
    words = in_words(matrix)
    return words if isinstance(matrix, made.Tensor | made.Column | made.Biased) else f"({words})"
