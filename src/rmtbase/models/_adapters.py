"""Low-rank adapters as PEFT saves them: their updates as a model, or merged into their base.

An adapter changes the weight W of a module by ΔW = s B A, with A (r, d_in), B (d_out, r) and s = α/r, or α/√r if it is
rank-stabilised (rsLoRA). An embedding, which is stored as (vocabulary, d), changes by the transpose. DoRA then rescales
each row of W + ΔW to a learned norm: m_i (W + ΔW)_i / ‖(W + ΔW)_i‖.

Source: E. J. Hu et al., arXiv:2106.09685; D. Kalajdzievski, arXiv:2312.03732 (rsLoRA); S.-Y. Liu et al.,
    arXiv:2402.09353 (DoRA); names and settings are those of PEFT, ``peft/tuners/lora``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from rmtbase.errors import CheckpointError, ParameterError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._expressions import Expression, Rows, Scaled, Tensor, Turned
from rmtbase.models._files import read_json_object
from rmtbase.models._module_patterns import first_match, is_targeted
from rmtbase.models._other_formats import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MERGED, adapter_in_words, adapters_within
from rmtbase.models._sites import Place, Site
from rmtbase.models._stored_tensor import CheckpointTensor, DerivedTensor
from rmtbase.models._tensor_file import TensorEntry
from rmtbase.shown import quoted, shown

WAYS = ("delta", "merged", "base")
"""Ways to open an adapter: only its updates, its base with the updates, its base without them."""

_PREFIX = "base_model.model."
_PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_embedding_[AB]|lora_[AB](?=\.)|lora_magnitude_vector)(\.weight)?", re.DOTALL
)
_LAYER = re.compile(r"(?P<before>.*?)(?P<layer>\d{1,9})\.(?P<name>.+)", re.DOTALL)
# Settings that are read, or that do not affect the formula; all others must be unset.
_KNOWN = {
    *("peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out"),
    *("init_lora_weights", "modules_to_save", "bias", "target_modules", "exclude_modules", "layers_to_transform"),
    *("layers_pattern", "task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode"),
    *("peft_version", "lora_dropout", "megatron_core", "qalora_group_size", "runtime_config", "eva_config"),
    *("ensure_weight_tying",),
}
_INITIALISED = (True, False, None, "gaussian", "eva")  # initializations that do not change the base
_WHOLE = "updates of an adapter, without its base: W_QK is ΔW = s B A of a module, W_Q = s Bᵀ and W_K = A"
_BY_HEADS = (
    "updates of an adapter, by the heads of its base: W_QK is ΔW_i = s B_i A of head i of queries, keys or values, "
    "W_Q = s B_iᵀ and W_K = A; other modules are whole"
)
_SHARES = "which heads the updates prefer is tested by rmtbase diff BASE ADAPTER, at every rank"
_EMBEDDINGS = ("embed_tokens", "lm_head")  # PEFT saves the whole weight of these where it is changed
_SHOWN = 3


class Update(NamedTuple):
    """Update of one module by an adapter.

    Attributes:
        a, b: the names of A (r, d_in) and B (d_out, r) in the adapter's file.
        scale: s.
        magnitude: for DoRA, the name of m (d_out); otherwise None.
        of_embedding: whether the module is an embedding, whose inputs are the tokens of a vocabulary.
    """

    a: str
    b: str
    scale: float
    magnitude: str | None
    of_embedding: bool = False


class _Rows(NamedTuple):
    """Rows of B that are those of heads: their matrix, and its name, number of heads and rows of each."""

    name: str
    n_heads: int
    d_head: int
    of: Expression


@dataclass(frozen=True)
class Adapter:
    """Low-rank adapter whose headers have been read.

    Attributes:
        folder: its folder.
        checkpoint: its tensors.
        updates: the update of each module, in the order of the modules' names.
        saved: tensors that replace tensors of the base (``modules_to_save``, biases, embeddings), by the base's name.
        transposed: whether its settings say that modules store (d_in, d_out).
        untargeted: modules with an update that the settings do not target; PEFT does not load these updates.
        beside: names of subfolders that hold further adapters.
    """

    folder: Path
    checkpoint: Checkpoint = field(repr=False)
    updates: Mapping[str, Update] = field(repr=False)
    saved: Mapping[str, str] = field(repr=False)
    transposed: bool
    untargeted: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: Path) -> Adapter:
        """Read the settings, and check them and the tensors against each other.

        Raises:
            CheckpointError: or one of its subclasses: the adapter is of another kind, a setting is not supported, a
                tensor belongs to no update, or shapes do not fit each other or the settings.
        """
        path = folder / ADAPTER_CONFIG
        config = read_json_object(path)
        _require_plain(config, path)
        weights = next((folder / name for name in ADAPTER_WEIGHTS if os.path.lexists(folder / name)), None)
        if weights is None:
            raise CheckpointError(
                folder,
                f"holds {adapter_in_words(config)} without its weights; expected {' or '.join(ADAPTER_WEIGHTS)} beside "
                f"{ADAPTER_CONFIG}, {MERGED}, or the base model alone",
            )
        checkpoint = Checkpoint.open(weights)
        modules: dict[str, dict[str, str]] = {}
        saved = {}
        for name in checkpoint.names:
            checkpoint.require_supported(name)
            found = _PART.fullmatch(name.removeprefix(_PREFIX))
            of_base = re.sub(r"\.(modules_to_save|base_layer)\.", ".", name.removeprefix(_PREFIX))
            if found:
                modules.setdefault(found["module"], {})[found["part"]] = name
            elif _is_saved(name, config) or of_base.split(".")[-2:] in [[one, "weight"] for one in _EMBEDDINGS]:
                saved[of_base] = name
            else:
                raise CheckpointError(
                    weights,
                    f"tensor {quoted(name)} is not supported in an adapter; expected lora_A and lora_B of modules "
                    f"with a weight (d_out, d_in), and what modules_to_save and bias name, or {MERGED}",
                )
        if not modules:
            raise CheckpointError(weights, f"holds no tensor lora_A.weight; expected some, or {MERGED}")
        updates = {module: _update(module, parts, checkpoint, config, path) for module, parts in modules.items()}
        try:
            untargeted = tuple(module for module in updates if not is_targeted(config, module))
        except ParameterError as error:
            raise CheckpointError(path, f"target_modules, or what restricts them: {error}, or {MERGED}") from error
        turned = config.get("fan_in_fan_out") is True
        return cls(folder, checkpoint, updates, saved, turned, untargeted, tuple(adapters_within(folder)))

    @property
    def is_dora(self) -> bool:
        """True if some rows are rescaled to a learned norm."""
        return any(update.magnitude is not None for update in self.updates.values())

    def delta(
        self, base: Checkpoint | None = None, of_base: Sequence[Site] = ()
    ) -> tuple[tuple[Site, ...], tuple[str, ...]]:
        """Represent the update of each module as one head, with W_Q = s Bᵀ and W_K = A, so that W_QK = ΔW.

        With the base and its sites, queries, keys and values have the heads of the base instead: W_Q = s B_iᵀ for the
        rows of head i, and the common W_K = A, so that W_QK = ΔW_i.

        Returns:
            The sites, and notes on how to interpret them. The name of a module is its stack, the number in the name its
            layer.

        Raises:
            CheckpointError: it is a DoRA adapter, whose change of the weights is not of low rank; or it changes only
                embeddings.
        """
        if self.is_dora:
            raise CheckpointError(
                self.folder,
                "is a DoRA adapter, which rescales whole rows of its base: its change is not a product B A; "
                "expected adapter = merged, with its base",
            )
        sites: list[Site] = []
        wide: list[str] = []
        embeddings = {module: update for module, update in self.updates.items() if update.of_embedding}
        maps = {module: update for module, update in self.updates.items() if not update.of_embedding}
        if not maps:
            raise CheckpointError(
                self.folder, f"changes only embeddings, {_some(embeddings)}; expected updates of matrices, or {MERGED}"
            )
        for place, module in sorted(_places(maps).items()):
            update = self.updates[module]
            (rank, d_in), (d_out, _) = self.checkpoint.shape(update.a), self.checkpoint.shape(update.b)
            whole = _Rows("", 1, d_out, Tensor(update.b))
            rows = [] if base is None else self._rows_of_heads(base, of_base, module)
            if rows and rank > min(one.d_head for one in rows):
                wide.append(module)
                rows = []
            sites += [
                Site(
                    place=place._replace(stack=f"{place.stack} {one.name}" if len(rows) > 1 else place.stack),
                    module=module,
                    n_heads=one.n_heads,
                    n_key_heads=1,
                    d_head=rank,
                    d_query=one.d_head,
                    d_key=d_in,
                    query=Scaled(Turned(one.of, one.n_heads), update.scale),
                    key=Tensor(update.a),
                )
                for one in rows or [whole]
            ]
        notes = [_WHOLE if base is None else _BY_HEADS]
        if wide:
            notes.append(f"of a rank above the rows of a head, so left whole: {_some(wide)}")
        if embeddings:
            notes.append(f"updates of embeddings, which are not linear maps: {_some(embeddings)}")
        if self.saved:
            notes.append(f"also trained, but not as low-rank updates: {_some(self.saved)}")
        if self.untargeted:
            notes.append(f"read, though the settings do not target it and PEFT leaves it out: {_some(self.untargeted)}")
        notes += [*self._notes_beside(), _SHARES]
        return tuple(sorted(sites, key=lambda site: site.place)), tuple(notes)

    def merged(self, base: Checkpoint) -> Checkpoint:
        """Merge every update into the base, as peft's ``merge_and_unload`` does, in float64 rounded to float32.

        Raises:
            CheckpointError: the base lacks such a tensor, or it has another shape.
        """
        if self.untargeted:
            raise CheckpointError(
                self.folder / ADAPTER_CONFIG,
                f"target_modules, with what restricts them, leave out {_some(self.untargeted)}, of which the weights "
                f"hold updates: PEFT does not load these; expected settings that target them, or {MERGED}",
            )
        saved: dict[str, CheckpointTensor] = {}
        left = {one for one in (*self.saved, *self.updates) if self._is_tied(base, one)}
        for name, own in self.saved.items():
            if name in left:
                continue
            of_base, shape = self._in_base(base, name), self.checkpoint.shape(own)
            is_resized = _is_outside(name) and base.shape(of_base)[1:] == shape[1:]  # a vocabulary that has grown
            if base.shape(of_base) != shape and not is_resized:
                raise ShapeError(self.folder, own, shape, base.shape(of_base), f"of {base.path}")
            saved[of_base] = self.checkpoint.tensor(own)
        before = base.replaced((), saved, "")
        updates = {module: update for module, update in self.updates.items() if module not in left}
        turned = {module: self._is_turned(before, module) for module in updates}
        of_maps = [turned[module] for module, update in updates.items() if not update.of_embedding]
        changed: dict[str, CheckpointTensor] = {}
        for module, update in updates.items():
            name = self._in_base(before, f"{module}.weight")
            if turned[module] is None and any(one == (not self.transposed) for one in of_maps):
                raise CheckpointError(
                    self.folder,
                    f"fan_in_fan_out is {self.transposed}, but other modules are stored the other way, so that the "
                    f"square {quoted(module)} may be either; expected {MERGED}",
                )
            is_turned = self.transposed if turned[module] is None else turned[module]
            changed[name] = _merged(before, name, self.checkpoint, update, bool(is_turned))
        note = f"adapter {self.folder.resolve().name} merged in: {len(updates)} updates" + (
            f", and in place of the base's {_some(saved)}" if saved else ""
        )
        if left:
            note += f"; not {_some(sorted(left))}, which the base does not store: queries and keys do not depend on it"
        return base.replaced((), {**saved, **changed}, "; ".join([note, *self._notes_beside()]))

    def _rows_of_heads(self, base: Checkpoint, of_base: Iterable[Site], module: str) -> list[_Rows]:
        """Find the rows of B that are those of heads of the base, whose matrices are rows of the module's weight.

        Raises:
            CheckpointError: the base lacks that weight, or it has another shape.
        """
        if self._is_tied(base, module):
            return []
        self._is_turned(base, module)  # checks the shape
        weight, b = self._in_base(base, f"{module}.weight"), Tensor(self.updates[module].b)
        found = []
        for site in of_base:
            for name, n_heads in (("query", site.n_heads), ("key", site.n_key_heads), ("value", site.n_key_heads)):
                of, size = getattr(site, name), site.d_value if name == "value" else site.d_head
                inner = of.of if isinstance(of, Rows) else of
                if size is not None and isinstance(inner, Tensor) and inner.name == weight and inner.index is None:
                    found.append(_Rows(name, n_heads, size, Rows(b, of.runs) if isinstance(of, Rows) else b))
        return found

    def _notes_beside(self) -> list[str]:
        """Return a note that names the adapters in subfolders, which are not read."""
        if not self.beside:
            return []
        each = ", ".join(quoted(name) for name in self.beside[:_SHOWN])
        more = f" and {len(self.beside) - _SHOWN} more" if len(self.beside) > _SHOWN else ""
        return [f"not read: other adapters within the folder, each opened by its own path: {each}{more}"]

    def _is_tied(self, base: Checkpoint, name: str) -> bool:
        """Return True if it is an output embedding that the base does not store because it is tied to the input."""
        module = name.removesuffix(".weight").rpartition(".")[2]
        return module == "lm_head" and not any(f".{one}".endswith(".lm_head.weight") for one in base.names)

    def _in_base(self, base: Checkpoint, name: str) -> str:
        """Find the base's name for a tensor: the base or the adapter may have been saved without the model's head."""
        parts = name.split(".")
        shorter = (".".join(parts[start:]) for start in range(len(parts) - 1))
        found = next((one for one in shorter if one in base), None)
        longer = [] if found else [one for one in base.names if one.endswith(f".{name}")]
        if found is None and len(longer) != 1:
            raise CheckpointError(
                base.path,
                f"no tensor {quoted(name)}, which the adapter {self.folder.name} changes; expected the model that it "
                "was made for",
            )
        return found or longer[0]

    def _is_turned(self, base: Checkpoint, module: str) -> bool | None:
        """Return whether the base stores (d_in, d_out), judged by the shape; None for a square weight."""
        update, name = self.updates[module], self._in_base(base, f"{module}.weight")
        expected = self.checkpoint.shape(update.b)[0], self.checkpoint.shape(update.a)[1]
        found = base.shape(name)
        if found not in (expected, expected[::-1]):
            raise ShapeError(base.file(name), name, found, expected, f"of the adapter {self.folder.name}")
        if update.of_embedding:
            return True
        return None if expected[0] == expected[1] else found != expected


def _is_outside(name: str) -> bool:
    """Return True if a tensor, by its name, belongs to no layer."""
    return _LAYER.fullmatch(name) is None


def _merged(base: Checkpoint, name: str, adapter: Checkpoint, update: Update, turned: bool) -> DerivedTensor:
    def make(*_: int) -> Float32[np.ndarray, "d_out d_in"]:
        a, b = (adapter.read(one).astype(np.float64) for one in (update.a, update.b))
        stored = base.read(name).astype(np.float64)
        total = (stored.T if turned else stored) + update.scale * (b @ a)
        if update.magnitude is not None:
            norms = np.linalg.norm(total, axis=1)
            total *= (adapter.read(update.magnitude).astype(np.float64).ravel() / norms)[:, None]
        return np.ascontiguousarray(total.T if turned else total).astype(np.float32)

    used = [adapter.tensor(one) for one in (update.a, update.b, update.magnitude) if one is not None]
    stored = tuple(one for tensor in (base.tensor(name), *used) for one in tensor.stored)
    return DerivedTensor(TensorEntry("F32", base.shape(name)), stored, make)


def _require_plain(config: Mapping[str, Any], path: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            path.parent,
            f"holds {adapter_in_words(config)}; only adapters of peft_type LORA are read; expected one, {MERGED}, "
            "or the base model alone",
        )
    for key, value in config.items():
        if value and key not in _KNOWN:
            raise CheckpointError(
                path,
                f"{shown(key, 60)} is set, which is not supported here; expected {MERGED}, or the base model alone",
            )
    start = config.get("init_lora_weights", True)
    if not any(start is one or (isinstance(one, str) and start == one) for one in _INITIALISED):
        raise CheckpointError(
            path,
            f"init_lora_weights is {shown(start, 60)}, which changes the base as well; expected an adapter that was "
            f"saved with path_initial_model_for_weight_conversion, or {MERGED}",
        )


def _is_saved(name: str, config: Mapping[str, Any]) -> bool:
    """Return True if a tensor replaces one of the base according to the settings."""
    module, _, kind = name.removeprefix(_PREFIX).rpartition(".")
    if kind == "bias" and config.get("bias") in ("all", "lora_only"):
        return ".lora_" not in name
    listed = config.get("modules_to_save")
    modules = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return any(f".{one}." in f".{module}." for one in modules)


def _update(
    module: str, parts: Mapping[str, str], checkpoint: Checkpoint, config: Mapping[str, Any], path: Path
) -> Update:
    of_embedding = any(part.startswith("lora_embedding") for part in parts)
    if of_embedding and config.get("use_dora"):
        raise CheckpointError(path, f"use_dora is set, and {quoted(module)} is an embedding; expected {MERGED}")
    name_a, name_b = ("lora_embedding_A", "lora_embedding_B") if of_embedding else ("lora_A", "lora_B")
    missing = {name_a, name_b, *(["lora_magnitude_vector"] if config.get("use_dora") else [])} - parts.keys()
    if missing or ("lora_magnitude_vector" in parts) != bool(config.get("use_dora")):
        found = ", ".join(sorted(parts))
        raise CheckpointError(
            path,
            f"module {quoted(module)} has only {found}; expected lora_A and lora_B, and a "
            "lora_magnitude_vector where use_dora is set",
        )
    a, b, magnitude = parts[name_a], parts[name_b], parts.get("lora_magnitude_vector")
    rank = _of_pattern(config, "rank_pattern", "r", module, path)
    alpha = _of_pattern(config, "alpha_pattern", "lora_alpha", module, path)
    shape_a, shape_b = checkpoint.shape(a), checkpoint.shape(b)
    if len(shape_a) != 2 or shape_a[0] != rank:
        raise ShapeError(checkpoint.file(a), a, shape_a, (int(rank), *shape_a[1:2]), f"{path.name}: r = {rank:g}")
    if len(shape_b) != 2 or shape_b[1] != rank:
        raise ShapeError(checkpoint.file(b), b, shape_b, (*shape_b[:1], int(rank)), f"{path.name}: r = {rank:g}")
    if magnitude is not None and np.prod(checkpoint.shape(magnitude)) != shape_b[0]:
        found = checkpoint.shape(magnitude)
        raise ShapeError(checkpoint.file(magnitude), magnitude, found, shape_b[:1], "one for each output")
    return Update(a, b, alpha / (sqrt(rank) if config.get("use_rslora") else rank), magnitude, of_embedding)


def _of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, module: str, path: Path) -> float:
    """Return the value of the first pattern that matches the end of the module's name, or else the common setting."""
    patterns = config.get(pattern) or {}
    if not isinstance(patterns, Mapping):
        raise CheckpointError(path, f"{pattern} is no table of names of modules; expected one, or {MERGED}")
    try:
        key = first_match(patterns, module)
    except ParameterError as error:
        raise CheckpointError(path, f"{pattern}: {error}, or {MERGED}") from error
    value = config.get(otherwise) if key is None else patterns[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise CheckpointError(path, f"{otherwise} is {shown(value, 60)}; expected a positive number")
    return value


def _places(modules: Mapping[str, Update]) -> dict[Place, str]:
    """Return a place for each module: the part of its name after the layer's number, or all of it to tell two apart."""
    found: dict[Place, str] = {}
    parts = {module: _LAYER.fullmatch(module) for module in modules}
    short = [(match["name"], match["layer"]) for match in parts.values() if match]
    for module, match in parts.items():
        if match is None:
            found[Place(module, -1)] = module
        else:
            stack = match["name"] if len(set(short)) == len(short) else f"{match['before']}{match['name']}"
            found[Place(stack, int(match["layer"]))] = module
    return found


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(map(quoted, listed[:_SHOWN])) + (f", … ({len(listed)} of them)" if len(listed) > _SHOWN else "")
