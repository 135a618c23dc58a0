"""Difference of two models with the same architecture and shape, matrix by matrix, as a model of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from rmtbase.errors import CheckpointError, OutputError, ParameterError
from rmtbase.models._model import Model
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.layouts._sites import NORM_FIELDS, MatrixName
from rmtbase.regular_files import identity
from rmtbase.shown import in_one_line

_FACTORS = (
    "differences of the matrices: ΔW_Q = W_Q - W_Q', and likewise for the others; W_QK here is ΔW_QᵀΔW_K, which is not "
    "the difference of the two W_QK"
)
_COUNTS = 0.01  # share of the variance of a difference above which rounding matters
_OF_HALF, _ERRORS = 0.1, 5.0  # units in the last place, standard errors

_WITHOUT_TENSORS = dict.fromkeys(("query", "key", "value", "output", *NORM_FIELDS))
_SIZES = ("place", "n_heads", "n_key_heads", "d_head", "d_query", "d_key", "d_value", "d_output")


@in_one_line
@dataclass(frozen=True, kw_only=True)
class Difference(WeightMatrices):
    """Difference between the weight matrices of two models: made by :func:`difference`.

    Each matrix is W - W' in float64. Between two training steps, or before and after fine-tuning, this is the update
    itself. If the update is noise, each ΔW_Q and each ΔW_K has i.i.d. entries of one scale, which is the null of single
    factors and of ΔW_QᵀΔW_K. The difference of the two products, W_QᵀW_K - W_Q'ᵀW_K' = ΔW_QᵀW_K + W_Q'ᵀΔW_K, is not
    such an object: whatever the update, its spectrum contains that of the weights, for which no null is known.

    Weights in half precision were rounded, each by a step proportional to its size. The scale of this noise, see
    :meth:`rounding`, is part of each head's own σ̂, to which the nulls are scaled. But its entries are not Gaussian:
    large weights carry more of it, and small updates leave most weights unchanged. Warnings therefore name the matrices
    in which rounding matters; for these the null of random sign flips, which keep the size of every entry, includes the
    rounding. It is exact for rounding to nearest, except at weights that are powers of two, where the steps towards
    zero are smaller than those away from it; for rounding in one direction see :meth:`rounds_one_way`.

    Attributes:
        of: the minuend.
        less: the subtrahend.
    """

    of: Model = field(repr=False)
    less: Model = field(repr=False)

    @property
    def path(self) -> Path:
        return self.of.path

    @property
    def folded(self) -> tuple[str, ...]:
        return self.of.folded

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.of.files, *self.less.files)

    def has(self, layer: int, component: str) -> bool:
        return self.of.has(layer, component) and self.less.has(layer, component)

    def matrix(self, layer: int, component: str) -> Float64[np.ndarray, "d_out d_in"]:
        """Return W - W', shape (d_out, d_in), read-only. Raises as :meth:`Model.matrix` of both."""
        self.require_matrix(layer, component)
        matrix = self.of.matrix(layer, component).astype(np.float64)
        matrix -= self.less.matrix(layer, component)
        matrix.flags.writeable = False
        return matrix

    def require_finite(self, components: Iterable[str] | None = None, parts: Iterable[str] = ()) -> None:
        for model in (self.of, self.less):
            model.require_finite(self.components if components is None else components, parts)

    def part_notes(self, part: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.of.part_notes(part), *self.less.part_notes(part))))

    def shape(self, name: MatrixName) -> tuple[int, int]:
        return self.of.shape(name)

    def blocks(self, name: MatrixName) -> Iterator[Float64[np.ndarray, "row column"]]:
        """Yield W - W' of a matrix of a part, in blocks of rows. Raises as :meth:`Model.blocks` of both."""
        for minuend, subtrahend in zip(self.of.blocks(name), self.less.blocks(name), strict=True):
            yield minuend.astype(np.float64) - subtrahend.astype(np.float64)

    def is_transposed(self, name: MatrixName) -> bool:
        return self.of.is_transposed(name)

    def digest(self, name: MatrixName) -> bytes:
        return hashlib.sha256(self.of.digest(name) + self.less.digest(name)).digest()

    def rounding(self, layer: int, component: str) -> float:
        """Return the standard deviation of a difference's entries that comes from rounding of both stored weights.

        A weight with the unit u in the last place was off by up to u/2, so that the standard deviation is
        √(Σ (u² + u'²) / 12 n) over the n entries of a matrix. For weights stored in float32, u is that of float32.
        """
        squares = 0.0
        for model in (self.of, self.less):
            magnitudes = np.abs(model.matrix(layer, component)).astype(np.float64)
            _, exponents = np.frexp(magnitudes)  # for 2^(e - 1) ≤ |w| < 2^e the unit is 2^(e - digits)
            units = np.ldexp(1.0, exponents - model.digits(layer, component))
            squares += float(np.mean(np.where(magnitudes > 0, units, 0.0) ** 2)) / 12.0
        return float(np.sqrt(squares))

    def rounds_one_way(self, layer: int, component: str) -> bool:
        """Return True if the weights of a matrix moved on average by half a unit in the last place in one direction.

        The direction is up, down, towards zero or away from it. Rounding in such a direction has this effect when
        stored weights change a little: it adds to the difference a matrix of constant sign, or one with the signs of
        the weights. The mean is taken over the larger half of the weights, whose units have one scale, and must be
        within a tenth of a unit of one half and more than five standard errors from zero.
        """
        if (layer, component) not in self._one_way:
            before = self.less.matrix(layer, component).astype(np.float64)
            magnitudes = np.abs(before)
            large = magnitudes >= max(float(np.median(magnitudes)), np.finfo(np.float64).tiny)
            _, exponents = np.frexp(magnitudes[large])
            steps = self.matrix(layer, component)[large] / np.ldexp(1.0, exponents - self.less.digits(layer, component))
            error = float(steps.std()) / max(steps.size, 1) ** 0.5 if steps.size else 0.0
            means = (float(moves.mean()) if moves.size else 0.0 for moves in (steps, steps * np.sign(before[large])))
            self._one_way[layer, component] = any(
                abs(abs(mean) - 0.5) < _OF_HALF and abs(mean) > _ERRORS * error for mean in means
            )
        return self._one_way[layer, component]

    @cached_property
    def _one_way(self) -> dict[tuple[int, str], bool]:
        return {}

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings as for any model, and the queries and keys whose difference has a substantial part of rounding.

        Reads all query and key tensors twice, when first asked for.
        """
        lines = []
        for component in ("attention_query", "attention_key"):
            parts = {}
            for site in self.sites:
                layer = self.layers.index(site.place)
                difference = self.matrix(layer, component)
                square = float(np.mean(difference * difference))
                part = self.rounding(layer, component) ** 2 / square if square > 0 else 0.0
                if part > _COUNTS:
                    parts[str(site.place)] = part
            if parts:
                share = f"{min(max(parts.values()), 1.0):.0%} of the difference's variance"
                source = f"{component} of {', '.join(parts)}: the rounding of the stored weights"
                lines.append(f"{source} makes up to {share}; null = signs includes it")
        return (*super().warnings, *lines)

    def least_sigma(self, layer: int, component: str) -> float:
        return max(model.least_sigma(layer, component) for model in (self.of, self.less))

    def refused(self, site: int, head: int, found: str, expected: str) -> CheckpointError:
        return self.of.refused(site, head, f"a difference with {found}", expected)

    def site_digest(self, site: int) -> bytes:
        return hashlib.sha256(self.of.site_digest(site) + self.less.site_digest(site)).digest()


def difference(minuend: Model, less: Model) -> Difference:
    """Subtract the matrices of one model from those of another. Nothing is read yet."""
    if minuend.architecture != less.architecture:
        expected = f"a {minuend.architecture} model as {minuend.name}"
        raise ParameterError("minus", f"{less.name}, a {less.architecture} model", expected)
    if minuend.layers != less.layers or len(minuend.sites) != len(less.sites):
        expected = f"the {minuend.n_layers} layers of {minuend.name}"
        raise ParameterError("minus", f"{less.name}, of {less.n_layers} layers", expected)
    for site, subtracted in zip(minuend.sites, less.sites, strict=True):
        for size in _SIZES:
            folded, expected = getattr(subtracted, size), getattr(site, size)
            if folded != expected:
                described = f"{less.name}, with {size} = {folded} in {subtracted.place}"
                raise ParameterError("minus", described, f"{expected}, as of {minuend.name}")
    if minuend.folded != less.folded:
        folded, expected = (", ".join(model.folded) or "nothing" for model in (less, minuend))
        raise ParameterError("minus", f"{less.name}, with {folded} folded in", f"{expected}, as in {minuend.name}")
    parts = {
        part: tuple(
            name
            for name in matrices
            if name in less.parts.get(part, ())
            and minuend.shape(name) == less.shape(name)
            and (part != "fused" or minuend.is_stored_as(name, less))  # fused ones need the same order of rows
        )
        for part, matrices in minuend.parts.items()
    }
    return Difference(
        name=f"{_called(minuend)} - {_called(less)}",
        revision=None,
        architecture=minuend.architecture,
        sites=tuple(replace(site, **_WITHOUT_TENSORS) for site in minuend.sites),
        layers=minuend.layers,
        components=tuple(name for name in minuend.components if name in less.components),
        parts={part: matrices for part, matrices in parts.items() if matrices},
        notes=(_FACTORS, *dict.fromkeys((*minuend.notes, *less.notes))),
        of=minuend,
        less=less,
    )


def _called(model: Model) -> str:
    return model.name if model.revision is None else f"{model.name} ({model.revision})"


def require_other_files(paths: Iterable[Path], model: WeightMatrices) -> None:
    """Raise OutputError if a path, or the target of its link, is a file of the model, or of one of a difference."""
    sources = [source for source in opened_from(model) if source.files]
    files = {identity(file) for source in sources for file in (*source.path.iterdir(), *source.files)} - {None}
    for path in paths:
        if identity(path) in files:
            raise OutputError(path, "it is a file of the model that is read; expected another name")


def opened_from(model: WeightMatrices) -> tuple[Model, ...]:
    """Return the stored models that weight matrices come from: the model itself, or both models of a difference."""
    if isinstance(model, Difference):
        return model.of, model.less
    return (model,) if isinstance(model, Model) else ()
