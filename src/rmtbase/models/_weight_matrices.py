"""Interface between a model and its scores, for weights in a checkpoint and for weights given as arrays."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError, RmtbaseError
from rmtbase.models.layouts._sites import MatrixName, Place, Site, kind_of


class _Digests:
    """Digests of all sites, computed once in another thread, and shared by models with the same weights."""

    def __init__(self, digest: Callable[[int], bytes], n_sites: int) -> None:
        self._digest, self._n_sites = digest, n_sites
        self._future: Future[tuple[bytes, ...]] | None = None
        self._given_up = Event()

    def start(self) -> Future[tuple[bytes, ...]]:
        if self._future is None:
            given_up = self._given_up = Event()

            def digest(site: int) -> bytes:
                if given_up.is_set():
                    raise CancelledError
                return self._digest(site)

            with_one_thread = ThreadPoolExecutor(1, thread_name_prefix="rmtbase-hash")
            self._future = with_one_thread.submit(lambda: tuple(map(digest, range(self._n_sites))))
            with_one_thread.shutdown(wait=False)
        return self._future

    def give_up(self) -> None:
        """Stop after the current site; a later request reads again."""
        self._given_up.set()
        self._future = None

    def result(self) -> tuple[bytes, ...]:
        """Return the digests. Raises what reading a tensor raises; the next request reads again."""
        try:
            return self.start().result()
        except CancelledError:
            return self.result()
        except RmtbaseError:
            self.give_up()
            raise


@dataclass(frozen=True, kw_only=True)
class WeightMatrices(ABC):
    """Weight matrices of one model, layer by layer, each read on demand.

    Attributes:
        name: name of the model.
        revision: the revision, or None where it has none.
        architecture: name of its layout, "" where it has none.
        sites: where queries are multiplied with keys, in order of stack and layer; shapes may differ between sites.
        layers: every place with a weight matrix, with or without attention, in the same order.
        components: the weight matrices that layers have, by the names of ``COMPONENTS``; see :meth:`has`.
        parts: further matrices, which are scored only on request: ``"fused"``, queries, keys and values in one stored
            tensor, as it is stored; ``"embeddings"``, the matrices outside the layers; ``"experts"``, the matrices of
            each expert; see :meth:`blocks`.
        notes: what must be known to interpret W_QK = W_QᵀW_K of this model.
        heads_have_weights: whether it is known that no head is all zeros.
    """

    name: str
    revision: str | None
    architecture: str
    sites: tuple[Site, ...]
    layers: tuple[Place, ...] = field(repr=False)
    components: tuple[str, ...]
    notes: tuple[str, ...]
    parts: Mapping[str, tuple[MatrixName, ...]] = field(default_factory=dict, repr=False)
    heads_have_weights: ClassVar[bool] = False

    def prove(self) -> WeightMatrices:
        """Return the matrices as they are: only a :class:`Model` can be compared with its own forward pass."""
        return self

    def require_finite(  # noqa: B027  # arrays were judged when they were given
        self, components: Iterable[str] | None = None, parts: Iterable[str] = ()
    ) -> None:
        """Raise if a weight of these components (all if None) or :attr:`parts` is NaN or infinite."""

    @property
    def notes_now(self) -> tuple[str, ...]:
        """The notes as they are told while the model is read; results record ``notes``, which are always the same."""
        return tuple(f"proved before: {note}" if kind_of(note) == "proved_before" else note for note in self.notes)

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def n_heads(self) -> int | None:
        """Number of query heads in a layer. This and the next three sizes are None where layers differ."""
        return self._common(lambda site: site.n_heads)

    @property
    def n_key_heads(self) -> int | None:
        """Number of key heads in a layer; each serves n_heads / n_key_heads query heads."""
        return self._common(lambda site: site.n_key_heads)

    @property
    def d_model(self) -> int | None:
        """Width of the input of queries and keys, in most models that of the residual stream."""
        widths = {width for site in self.sites for width in (site.d_query, site.d_key)}
        return widths.pop() if len(widths) == 1 else None

    @property
    def d_head(self) -> int | None:
        """Head dimension."""
        return self._common(lambda site: site.d_head)

    def _common(self, size: Callable[[Site], int]) -> int | None:
        sizes = {size(site) for site in self.sites}
        return sizes.pop() if len(sizes) == 1 else None

    @abstractmethod
    def has(self, layer: int, component: str) -> bool:
        """Return True if a layer, given by its index in ``layers``, has a component."""

    @abstractmethod
    def matrix(self, layer: int, component: str) -> Float[np.ndarray, "d_out d_in"]:
        """Return one weight matrix of a layer, shape (d_out, d_in): rows are outputs, whatever the stored orientation.

        Raises ParameterError if there is no such layer or component.
        """

    def stored_matrix(self, layer: int, component: str) -> Shaped[np.ndarray, "d_out d_in"]:
        """Return the same as :meth:`matrix`, in the precision in which the weights are stored."""
        return self.matrix(layer, component)

    @abstractmethod
    def least_sigma(self, layer: int, component: str) -> float:
        """Return the standard deviation below which a head's weights are mostly rounding error."""

    @abstractmethod
    def refused(self, site: int, head: int, found: str, expected: str) -> RmtbaseError:
        """Return the error for a head, by its site's index, that cannot be scored."""

    @abstractmethod
    def site_digest(self, site: int) -> bytes:
        """Return SHA-256 over the query and key weights of a site, as they are stored."""

    def queries(self, site: int) -> Float[np.ndarray, "n_heads d_head d_query"]:
        """Return the query matrices of a site, by its index, shape (n_heads, d_head, d_query): q = W_Q x.

        This and the next three raise ParameterError if there is no such site, or CheckpointError if a tensor cannot be
        read or is not finite.
        """
        return self._factor(site, "query")

    def keys(self, site: int) -> Float[np.ndarray, "n_key_heads d_head d_key"]:
        """Return the key matrices of a site, shape (n_key_heads, d_head, d_key): k = W_K x."""
        return self._factor(site, "key")

    def values(self, site: int) -> Float[np.ndarray, "n_key_heads d_value d_key"]:
        """Return the value matrices of a site, shape (n_key_heads, d_value, d_key): v = W_V x."""
        return self._factor(site, "value")

    def outputs(self, site: int) -> Float[np.ndarray, "n_heads d_value d_output"]:
        """Return each head's part of W_O, transposed, shape (n_heads, d_value, d_output).

        The head's W_OV is ``outputs[head].T @ values[key_head]``.
        """
        return self._factor(site, "output")

    def by_head(
        self, site: int, factor: str, matrix: Shaped[np.ndarray, "d_out d_in"]
    ) -> Shaped[np.ndarray, "factor_head rank width"]:
        """Cut ``whole``, the matrix of all heads of a site, into those of its heads.

        The factor is ``"query"``, ``"key"``, ``"value"`` or ``"output"``; each head's part of the output is transposed.
        """
        at = self._site(site)
        rows = np.ascontiguousarray(matrix.T) if factor == "output" else matrix
        return rows.reshape(at.n_heads if factor in ("query", "output") else at.n_key_heads, -1, rows.shape[1])

    def stored_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a stored tensor that the sites' expressions use; no weight is read."""
        raise NotImplementedError  # for a model whose sites have no expressions

    def stored(self, name: str) -> Float[np.ndarray, "..."]:
        """Read a stored tensor. Raises CheckpointError if it cannot be read, or is not finite."""
        raise NotImplementedError  # for a model whose sites have no expressions

    def part_notes(self, part: str) -> tuple[str, ...]:
        """Return what must be known to interpret a part."""
        return ()

    def shape(self, name: MatrixName) -> tuple[int, int]:
        raise NotImplementedError  # for a model without parts

    def blocks(self, name: MatrixName) -> Iterator[Shaped[np.ndarray, "row column"]]:
        """Yield a matrix of a part in blocks of its rows, or of its columns if it is stored transposed."""
        raise NotImplementedError  # for a model without parts

    def is_transposed(self, name: MatrixName) -> bool:
        """Return True if the blocks of a matrix of a part are rows of its transpose."""
        raise NotImplementedError  # for a model without parts

    def digest(self, name: MatrixName) -> bytes:
        """Return SHA-256 over the stored tensors of a matrix of a part."""
        raise NotImplementedError  # for a model without parts

    def _site(self, site: int) -> Site:
        _require_index("layer", site, len(self.sites))
        return self.sites[site]

    def _factor(self, site: int, factor: str) -> Float[np.ndarray, "factor_head rank width"]:
        return self.by_head(site, factor, self.matrix(self.layers.index(self._site(site).place), f"attention_{factor}"))

    def key_head(self, head: int, site: int = 0) -> int:
        """Return the key head that a query head of a site is scored with: head // (n_heads / n_key_heads)."""
        at = self._site(site)
        _require_index("head", head, at.n_heads)
        return head // (at.n_heads // at.n_key_heads)

    def fingerprint(self) -> str:
        """Return SHA-256, in hexadecimal, over the stored query and key tensors of all layers, in order.

        Two checkpoints with the same fingerprint hold the same attention weights, whatever their names. Some published
        revisions do (step 0 and step 1 of several Pythia models). Values are included where they share a tensor with
        queries and keys. Reads all these tensors once. Raises CheckpointError if one cannot be read.
        """
        return hashlib.sha256(b"".join(self._digests.result())).hexdigest()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the weights: layers whose queries and keys are the same to the byte.

        Reads all query and key tensors once, when first asked for. Raises CheckpointError if one cannot be read.
        """
        layers = defaultdict(list)
        for site, digest in zip(self.sites, self._digests.result(), strict=True):
            layers[digest].append(" ".join((site.place.stack, str(site.place.layer))).lstrip())
        words = "hold byte-identical query and key weights: they are one observation"
        return tuple(f"layers {', '.join(places)} {words}" for places in layers.values() if len(places) > 1)

    def hash_ahead(self) -> None:
        """Start to hash in another thread, for :meth:`fingerprint` and :attr:`warnings`, which raise its errors."""
        self._digests.start()

    def give_up_hashing(self) -> None:
        """Stop what :meth:`hash_ahead` started after the current tensors; a later request reads them again."""
        self._digests.give_up()

    def take_digests(self, model: WeightMatrices) -> None:
        """Take over the digests, finished or in progress, and the checks of a model with the same weights."""
        vars(self).update({name: vars(model)[name] for name in ("_digests", "_finite") if name in vars(model)})

    @cached_property
    def _digests(self) -> _Digests:
        return _Digests(self.site_digest, len(self.sites))

    def require_matrix(self, layer: int, component: str) -> None:
        """Raise :class:`~rmtbase.errors.ParameterError` unless the model has such a layer and component."""
        _require_index("layer", layer, self.n_layers)
        if component not in self.components:
            raise ParameterError("component", component, f"one of {', '.join(self.components)}")
        if not self.has(layer, component):
            available = ", ".join(name for name in self.components if self.has(layer, name))
            raise ParameterError("component", component, f"one that {self.layers[layer]} has: {available}")


def _require_index(name: str, index: int, count: int) -> None:
    if not isinstance(index, (int, np.integer)) or not 0 <= index < count:
        raise ParameterError(name, index, f"an integer from 0 to {count - 1}")
