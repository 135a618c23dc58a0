"""Trained models, as collections of weight matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, ShapeError
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.files._checkpoint import Checkpoint, WeightReader
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._other_programs import advise_on_names, refuse_other_formats, refuse_other_programs
from rmtbase.models.files._tensor_file import DIGITS, least_sigma, widened
from rmtbase.models.formats._adapters import Adapter
from rmtbase.models.formats._gguf import find_gguf, open_gguf
from rmtbase.models.formats._quantised import dequantised, require_readable_quantisation
from rmtbase.models.forward._proof import Proof, kept_proof, not_proved, proof_is_wanted, proof_of, subject
from rmtbase.models.forward._torch_route import Network, find_architecture, inventory_by_route
from rmtbase.models.layouts import _other_matrices as leftovers
from rmtbase.models.layouts._expressions import Expression, Tensor
from rmtbase.models.layouts._other_matrices import find_fused, with_other_matrices
from rmtbase.models.layouts._sites import (
    NORMS,
    Inventory,
    MatrixName,
    Note,
    Part,
    Place,
    Site,
    fold_site,
    has_biases,
    kind_of,
    require_folds,
    require_sites,
)
from rmtbase.models.layouts._sizes import with_sizes
from rmtbase.shown import in_one_line


class Named(NamedTuple):
    name: str
    revision: str | None = None
    notes: tuple[str, ...] = ()


@in_one_line
@dataclass(frozen=True, kw_only=True)
class Model(WeightMatrices):
    """Weight matrices of one trained model, each read from its checkpoint on demand.

    The arrays are read-only, checked to be finite, and float32 unless stated otherwise. At most one stored tensor is
    kept in memory.

    Attributes:
        path: the checkpoint's folder; for a model in memory, its name in messages.
        config: the configuration, whose ``model_type`` is ``architecture``.
        folded: what was folded into the matrices of queries, keys and values: see :meth:`fold`.
    """

    path: Path
    config: dict[str, Any] = field(repr=False, compare=False)
    folded: tuple[str, ...] = ()
    _raw: tuple[Site, ...] = field(repr=False, compare=False)
    _network: Network | None = field(repr=False, compare=False)
    _not_run: str | None = field(default=None, repr=False, compare=False)
    _to_prove: bool = field(default=True, repr=False, compare=False)
    _adapter: Adapter | None = field(default=None, repr=False, compare=False)
    _matrices: Mapping[Place, Mapping[str, Expression]] = field(repr=False, compare=False)
    _parts: Mapping[str, Part] = field(repr=False, compare=False)
    _checkpoint: Checkpoint = field(repr=False, compare=False)
    _tensors: WeightReader = field(repr=False, compare=False)

    @classmethod
    def from_folder(
        cls, folder: Path, named: Named, adapted: Callable[[Checkpoint], Checkpoint] | None = None
    ) -> Model:
        """Read and check a folder or one of its files; ``adapted`` applies an adapter to the checkpoint."""
        gguf = find_gguf(folder)
        if gguf is not None:
            config, stored = open_gguf(gguf)
            checkpoint = stored if adapted is None else adapted(stored)
            return cls._checked(lambda: checkpoint, config, gguf, named)
        config_path = (folder if folder.is_dir() else folder.parent) / "config.json"
        refuse_other_formats(config_path.parent, beside_adapter=adapted is not None)
        config = read_json_object(config_path)
        refuse_other_programs(config, config_path)

        def open_checkpoint() -> Checkpoint:
            stored = leftovers.without_draft_layers(dequantised(Checkpoint.open(folder), config, config_path), config)
            return stored if adapted is None else adapted(stored)

        return cls._checked(open_checkpoint, config, config_path, named)

    @classmethod
    def of_updates(cls, adapter: Adapter, named: Named, base: Model | None = None) -> Model:
        """Open the low-rank updates of an adapter, by the heads of its base if given: see :meth:`Adapter.delta`."""
        sites, notes = adapter.delta() if base is None else adapter.delta(base._checkpoint, base.sites)
        opened = cls._of_inventory(Inventory(sites=sites, others={}, notes=notes), adapter.checkpoint, named)
        opened = replace(opened, _adapter=adapter)
        return opened.without_proof("updates of weights have no forward pass by themselves")

    @classmethod
    def from_state_dict(
        cls,
        tensors: Mapping[Any, Any],
        config: Mapping[str, Any],
        named: Named,
        network: Network | None = None,
        is_complete: bool = False,
    ) -> Model:
        """Check the tensors of a state dict, by name, against a configuration. The tensors are not copied.

        Sizes that the configuration leaves out, unless it is complete, are taken from the tensors, except the number of
        heads, which no tensor shows. With ``network``, the sites are found by running that network.
        """
        stored = Checkpoint.of_tensors(tensors, named.name)
        leftovers.require_plain_tensors(stored)  # before any tensor is looked up by name
        checkpoint = leftovers.without_draft_layers(dequantised(stored, config, stored.config_path), config)
        sized = dict(config) if is_complete or network is not None else with_sizes(config, checkpoint)
        return cls._checked(lambda: checkpoint, sized, checkpoint.config_path, named, network)

    @classmethod
    def of_sites(cls, checkpoint: Checkpoint, sites: Iterable[Site], named: Named) -> Model:
        """Open a checkpoint whose tensors have any names, with the sites that express their queries and keys."""
        given_sites = tuple(sites)
        require_sites(given_sites, checkpoint)
        parts = {"fused": find_fused(given_sites, checkpoint.shape)}
        return cls._of_inventory(Inventory(sites=given_sites, others={}, parts=parts), checkpoint, named)

    @classmethod
    def _checked(
        cls,
        open_checkpoint: Callable[[], Checkpoint],
        config: dict[str, Any],
        config_path: Path,
        named: Named,
        network: Network | None = None,
    ) -> Model:
        require_readable_quantisation(config, config_path)
        leftovers.require_all_heads(config, config_path)
        architecture, network = find_architecture(config, config_path, network)
        checkpoint = open_checkpoint()
        leftovers.require_plain_tensors(checkpoint)
        try:
            inventory, network = inventory_by_route(config, config_path, architecture, checkpoint, network)
        except (MissingTensorError, ShapeError) as error:
            advise_on_names(error, checkpoint.shapes(), architecture)
            raise
        inventory = with_other_matrices(inventory, checkpoint, config)
        notes = (*leftovers.leftover_notes(config, checkpoint, inventory), *named.notes)
        opened = cls._of_inventory(inventory, checkpoint, named._replace(notes=notes))
        return replace(opened, config=config, architecture=architecture, _network=network)

    @classmethod
    def _of_inventory(cls, inventory: Inventory, checkpoint: Checkpoint, named: Named) -> Model:
        matrices = inventory.matrices
        return cls(
            name=named.name,
            revision=named.revision,
            path=checkpoint.path,
            architecture="",
            config={},
            sites=inventory.sites,
            layers=tuple(matrices),
            components=tuple(dict.fromkeys(name for components in matrices.values() for name in components)),
            parts={name: tuple(part.matrices) for name, part in inventory.parts.items() if part.matrices},
            notes=(*inventory.notes, *checkpoint.notes, *named.notes),
            _raw=inventory.sites,
            _network=None,
            _matrices=matrices,
            _parts=inventory.parts,
            _checkpoint=checkpoint,
            _tensors=WeightReader(checkpoint),
        )

    @property
    def is_of_updates(self) -> bool:
        return self._adapter is not None

    @property
    def updates(self) -> tuple[str, ...]:
        """Modules, named without their layer, whose updates by an adapter these are; empty for weights."""
        return tuple(dict.fromkeys(site.place.stack for site in self.sites)) if self.is_of_updates else ()

    def with_updates(self, updates: Model) -> Model:
        """Return this model with the updates of an adapter merged in: see :meth:`Adapter.merged`."""
        assert updates._adapter is not None
        merged = updates._adapter.merged(self._checkpoint)
        notes = (*self.notes, merged.notes[-1])
        opened = replace(
            self, name=f"{self.name} + {updates.name}", notes=notes, _checkpoint=merged, _tensors=WeightReader(merged)
        )
        return opened.without_proof("the updates of an adapter were merged into it")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the weights; empty for a model in memory."""
        return self._checkpoint.files

    def prove(self) -> Model:
        """Return the model with a note that its sites were proved, or why they were not: see ``proof_of``.

        A model that was proved before, or was opened with ``proof=False``, is returned unchanged. Raises an error if
        q·k in the model's own forward pass differs from what a site's W_QK gives.
        """
        if not (self._to_prove and proof_is_wanted()):
            return self
        if self._not_run is not None:
            proof = not_proved(self._not_run)
        elif self._network is None and self.files:
            proof = kept_proof(self.proof_subject(), self.proved_now)
        else:
            proof = self.proved_now()
        note = Note(proof.note, "proved_before" if proof.before else "proof")
        proved = replace(self, notes=(*self.notes, note), _to_prove=False)
        proved.take_digests(self)
        return proved

    def proved_now(self) -> Proof:
        """Prove the sites anew, and return the note about it; raises as :meth:`prove`."""
        noted = (*self.notes, *((NORMS,) if "norms" in self.folded else ()))
        stored = self._checkpoint.shapes()
        return proof_of(self._raw, self.config, self.path, stored, self.stored, self._network, noted)

    def proof_subject(self) -> str:
        return subject(self.fingerprint(), self._raw, self.config, self._checkpoint.shapes())

    @property
    def commit(self) -> str:
        """The commit on the hub; "" for a model from elsewhere."""
        return next((note.names[0] for note in self.notes if isinstance(note, Note) and note.kind == "commit"), "")

    def without_commit(self) -> Model:
        """Return the model without the note that names its commit."""
        return replace(self, notes=tuple(note for note in self.notes if kind_of(note) != "commit"))

    def require_finite(self, components: Iterable[str] | None = None, parts: Iterable[str] = ()) -> None:
        """Raise the error of :meth:`stored` if a stored weight is NaN or infinite; weights are checked only once."""
        of_parts = (matrix for part in parts if part in self._parts for matrix in self._parts[part].matrices.values())
        matrices = (*self._of_layers(components), *of_parts)
        names = dict.fromkeys(name for matrix in matrices for name in matrix.tensors())
        self._checkpoint.require_finite(name for name in names if name not in self._finite)
        self._finite.update(names)

    def layer_shapes(self, components: Iterable[str] | None = None) -> list[tuple[int, int]]:
        """List the shapes (d_out, d_in) of the matrices of the layers, by their headers; of all components if None."""
        return [matrix.shape(self._checkpoint.shape) for matrix in self._of_layers(components)]

    def _of_layers(self, components: Iterable[str] | None) -> Iterator[Expression]:
        names = frozenset(self.components if components is None else components)
        for matrices in self._matrices.values():
            yield from (matrix for name, matrix in matrices.items() if name in names)

    @cached_property
    def _finite(self) -> set[str]:
        return set()

    def without_proof(self, reason: str | None = None) -> Model:
        """Return a copy that :meth:`prove` leaves unchanged; if a reason is given, it notes that reason instead."""
        return replace(self, _to_prove=False) if reason is None else replace(self, _not_run=reason)

    def fold(self, what: Iterable[str] | str) -> Model:
        """Return the model with ``"biases"``, or gains of ``"norms"``, folded into its queries, keys and values.

        Raises ParameterError if ``what`` names anything else, the biases cannot be folded in, or a norm of queries or
        keys or of their inputs is not known.
        """
        folds = require_folds(what)
        if not folds:
            return self
        unused = [note for note in self.notes if kind_of(note) == "unused_biases"]
        if "biases" in folds and unused:
            raise ParameterError("fold", "biases", f"none here: {unused[0]}")
        sites = tuple(fold_site(site, folds, self._checkpoint) for site in self._raw)
        folded = Inventory(sites=sites, others={}).matrices
        matrices = {place: {**components, **folded.get(place, {})} for place, components in self._matrices.items()}
        biased = all(has_biases(site, self._checkpoint) for site in self._raw)  # judged by the names of the tensors
        settled = {"norms": "norms" in folds, "biases": "biases" in folds and biased}
        notes = (note for note in self.notes if not settled.get(kind_of(note)))
        words = f"folded into queries, keys and values: {', '.join(folds)}"
        parts = {name: names for name, names in self.parts.items() if name != "fused"}
        of_parts = {name: part for name, part in self._parts.items() if name != "fused"}
        return replace(
            self, sites=sites, folded=folds, notes=(*notes, words), parts=parts, _matrices=matrices, _parts=of_parts
        )

    def has(self, layer: int, component: str) -> bool:
        return component in self._matrices[self.layers[layer]]

    def matrix(self, layer: int, component: str) -> Float[np.ndarray, "d_out d_in"]:
        """Return one weight matrix, shape (d_out, d_in): rows are outputs, whatever the stored orientation.

        The matrix is float32, or float64 where it is computed from several tensors. Raises ParameterError if there is
        no such layer or component, and CheckpointError if a tensor cannot be read or is not finite.
        """
        matrix = widened(self.stored_matrix(layer, component))
        matrix.flags.writeable = False
        return matrix

    def stored_matrix(self, layer: int, component: str) -> Shaped[np.ndarray, "d_out d_in"]:
        """Return the same as :meth:`matrix`, but leave rows of a half-precision tensor in half precision."""
        self.require_matrix(layer, component)
        expression = self._expression(layer, component)
        read = self._tensors.read if len(self._types(expression)) == 1 else self.stored
        matrix = np.ascontiguousarray(expression.evaluate(read))
        matrix.flags.writeable = False
        return matrix

    def _types(self, expression: Expression) -> set[str]:
        return {self._checkpoint.dtype(name) for name in expression.tensors()}

    def part_notes(self, part: str) -> tuple[str, ...]:
        """Return notes on a part, or on ``"layers"``, including those on matrices that exist but are not read."""
        if part == "layers":
            noted = frozenset(name for part in self._parts.values() for name in part.unread)
            return leftovers.unread_matrices(self._checkpoint, self.used_tensors(), noted)
        return self._parts[part].notes if part in self._parts else ()

    def shape(self, name: MatrixName) -> tuple[int, int]:
        return self._of_part(name).shape(self._checkpoint.shape)

    def blocks(self, name: MatrixName) -> Iterator[Shaped[np.ndarray, "row column"]]:
        """Yield a matrix of a part: an expert whole, others in blocks of stored rows. Raises as :meth:`matrix`."""
        expression = self._of_part(name)
        if name.expert is None:
            (stored,) = expression.tensors()
            yield from self._tensors.blocks(stored)
        else:
            yield expression.evaluate(self._tensors.read_one_of if len(self._types(expression)) == 1 else self.stored)

    def is_transposed(self, name: MatrixName) -> bool:
        expression = self._of_part(name)
        return name.expert is None and isinstance(expression, Tensor) and expression.transposed

    def is_stored_as(self, name: MatrixName, model: Model) -> bool:
        """Return True if another model stores a matrix of a part under the same name and in the same orientation."""
        return self._of_part(name) == model._of_part(name)

    def digest(self, name: MatrixName) -> bytes:
        return self._checkpoint.digest(self._of_part(name).tensors())

    def _of_part(self, name: MatrixName) -> Expression:
        for part in self._parts.values():
            if name in part.matrices:
                return part.matrices[name]
        raise ParameterError("name", str(name), f"a matrix of {', '.join(self.parts) or 'no part'}")

    def stored_shape(self, name: str) -> tuple[int, ...]:
        return self._checkpoint.shape(name)

    def stored(self, name: str) -> Float[np.ndarray, "..."]:
        """Read a stored tensor in float32. Raises CheckpointError if it cannot be read, or is not finite."""
        return widened(self._tensors.read(name))

    def least_sigma(self, layer: int, component: str) -> float:
        return max(map(least_sigma, self._types(self._expression(layer, component))))

    def digits(self, layer: int, component: str) -> int:
        """Return the binary digits of the coarsest stored type: 8 for bfloat16, 11 for float16, 24 for float32."""
        return min(DIGITS.get(dtype, 24) for dtype in self._types(self._expression(layer, component)))

    def refused(self, site: int, head: int, found: str, expected: str) -> CheckpointError:
        return CheckpointError(self.path, f"{self.sites[site].place} head {head} has {found}; expected {expected}")

    def site_digest(self, site: int) -> bytes:
        """Return SHA-256 over the stored query and key tensors of a site, including values in the same tensor."""
        return self._checkpoint.digest(self.sites[site].query_key_tensors())

    def weights_digest(self) -> str:
        """Return SHA-256, in hexadecimal, over :meth:`used_tensors` in the order of their names; reads each once."""
        return self._checkpoint.digest(sorted(self.used_tensors())).hex()

    def used_tensors(self) -> frozenset[str]:
        """Return the names of the stored tensors that its matrices are made of."""
        mappings = [*self._matrices.values(), *(part.matrices for part in self._parts.values())]
        return frozenset(name for matrices in mappings for matrix in matrices.values() for name in matrix.tensors())

    def tensors(self, layer: int, component: str) -> tuple[str, ...]:
        """Return the names of the stored tensors that a weight matrix of a layer is made of, each once."""
        self.require_matrix(layer, component)
        return tuple(dict.fromkeys(self._expression(layer, component).tensors()))

    def _expression(self, layer: int, component: str) -> Expression:
        return self._matrices[self.layers[layer]][component]
