"""Model whose query and key factors are given as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from rmtbase.errors import ParameterError, RmtbaseError
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.layouts._layouts import ATTENTION_PARTS
from rmtbase.models.layouts._sites import Place, Site
from rmtbase.parameters import require_real_array
from rmtbase.shown import in_one_line
from rmtbase.words import counted


@in_one_line
@dataclass(frozen=True, kw_only=True)
class ArrayModel(WeightMatrices):
    """Query and key factors of all heads, given as arrays: see :meth:`of`.

    One layer at a time is converted to float64, when it is asked for, and is not kept.
    """

    architecture: str = ""
    components: tuple[str, ...] = ATTENTION_PARTS[:2]
    notes: tuple[str, ...] = ()
    _factors: dict[str, _Factors] = field(repr=False, compare=False)
    heads_have_weights = True

    @classmethod
    def from_factors(cls, w_q: Any, w_k: Any, name: str, revision: str | None = None) -> ArrayModel:
        """Make a model of the factors without copying them. All are checked, which reads each layer once.

        Args:
            w_q: query factors, with q = W_Q x: (head, d_head, d_model) for one layer, (layer, head, d_head, d_model),
                or a list or other iterable with one array (head, d_head, d_model) for each layer.
            w_k: key factors, given in the same way; the number of key heads must divide the number of heads.
            name: name of the model.
            revision: its revision, or None.

        Raises:
            ParameterError: the shape is none of these or does not fit the other's, a value is not finite, a head is all
                zeros, or the name or revision is not a string.
        """
        q, k = _Factors.of("w_q", w_q), _Factors.of("w_k", w_k)
        n_heads, d_head, d_model = q.shape
        if len(q.layers) != len(k.layers):
            described, expected = (
                f"{counted(len(factors.layers), 'layer')} of shape {factors.shape}" for factors in (k, q)
            )
            raise ParameterError("w_k", described, f"as many layers as w_q, which is {expected}")
        if k.shape[1:] != q.shape[1:] or n_heads % k.shape[0]:
            expected = f"(key heads, {d_head}, {d_model})"
            raise ParameterError("w_k", k.shape, f"shape {expected}, key heads a divisor of {n_heads}")
        q.require_weights()
        k.require_weights()
        places = tuple(Place("", layer) for layer in range(len(q.layers)))
        site = Site(
            place=places[0], n_heads=n_heads, n_key_heads=k.shape[0], d_head=d_head, d_query=d_model, d_key=d_model
        )
        return cls(
            name=name,
            revision=revision,
            sites=tuple(replace(site, place=place) for place in places),
            layers=places,
            _factors=dict(zip(ATTENTION_PARTS[:2], (q, k), strict=True)),
        )

    def matrix(self, layer: int, component: str) -> Float64[np.ndarray, "d_out d_in"]:
        """Return all factors of a layer, head after head: shape (heads · d_head, d_model)."""
        self.require_matrix(layer, component)
        factors = self._factors[component]
        return factors.read(layer).astype(np.float64).reshape(-1, factors.shape[-1])

    def has(self, layer: int, component: str) -> bool:
        return component in self._factors

    def least_sigma(self, layer: int, component: str) -> float:
        """Return 0: the arrays are taken as exact weights."""
        return 0.0

    def refused(self, site: int, head: int, found: str, expected: str) -> RmtbaseError:
        """Return a :class:`~rmtbase.errors.ParameterError` that names both arrays and the head."""
        queries = self._factors["attention_query"]
        return ParameterError("w_q, w_k", f"{found} in {queries.place(site, head)}", expected)

    def site_digest(self, site: int) -> bytes:
        """Return SHA-256 over dtype, shape and bytes of the factors of a layer."""
        total = hashlib.sha256()
        for factors in self._factors.values():
            array = factors.read(site)
            total.update(f"{array.dtype}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).view(np.uint8).data)
        return total.digest()


@dataclass(frozen=True)
class _Factors:
    name: str  # name of the argument
    layers: Any  # for each layer an array-like of ``shape``
    shape: tuple[int, ...]  # (head, d_head, d_model)
    has_layers: bool  # whether the argument has a layer axis

    @classmethod
    def of(cls, name: str, argument: Any) -> _Factors:
        """Distinguish several layers from one by the number of dimensions; elements of arrays are not read."""
        is_collection = isinstance(argument, Iterable) and not isinstance(argument, str | Mapping)
        if is_collection and not hasattr(argument, "dtype"):
            argument = list(argument)
        if isinstance(argument, list) and argument and all(getattr(array, "ndim", None) == 3 for array in argument):
            layers, shape = argument, tuple(argument[0].shape)
            for index, one in enumerate(argument):
                if tuple(one.shape) != shape:
                    expected = f"the shape of {name}[0], {shape}; score layers of other shapes by themselves"
                    raise ParameterError(f"{name}[{index}]", tuple(one.shape), expected)
            shape_of_all = len(argument), *shape
        else:
            array: Any = argument if getattr(argument, "ndim", None) in (3, 4) else require_real_array(name, argument)
            shape_of_all = tuple(array.shape)
            layers, shape = (array, shape_of_all[1:]) if len(shape_of_all) == 4 else ([array], shape_of_all)
        if len(shape) != 3 or 0 in shape_of_all:
            expected = "an array of shape (head, d_head, d_model) or (layer, head, d_head, d_model)"
            more = "or arrays (head, d_head, d_model) one after the other, one for each layer"
            raise ParameterError(name, shape_of_all, f"{expected}, {more}")
        if shape[1] > shape[2]:
            expected = "shape (head, d_head, d_model) with d_head ≤ d_model; transpose each head"
            raise ParameterError(name, shape_of_all, expected)
        return cls(name, layers, shape, len(shape_of_all) == 4)

    def read(self, layer: int) -> NDArray[Any]:
        return require_real_array(self.name, self.layers[layer])

    def require_weights(self) -> None:
        for layer in range(len(self.layers)):
            array = self.read(layer).astype(np.float64)
            for passes, problem, expected in (
                (np.isfinite(array).all(axis=(1, 2)), "NaN or infinity in {}", "finite weights"),
                (array.any(axis=(1, 2)), "{} is all zeros", "heads with weights in them"),
            ):
                if not passes.all():
                    place = self.place(layer, int(np.argmin(passes)))
                    raise ParameterError(self.name, problem.format(place), expected)

    def place(self, layer: int, head: int) -> str:
        return f"layer {layer} head {head}" if self.has_layers else f"head {head}"
