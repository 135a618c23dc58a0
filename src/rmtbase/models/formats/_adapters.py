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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmtbase.errors import CheckpointError, MissingDependencyError, ShapeError
from rmtbase.models.files import _other_formats as other_formats
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._other_formats import MERGED
from rmtbase.models.files._tensor_file import CheckpointTensor, DerivedTensor, TensorEntry
from rmtbase.models.formats import _adapter_settings as adapter_settings
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import Expression, Rows, Scaled, Tensor, Turned
from rmtbase.models.layouts._sites import Place, Site
from rmtbase.shown import quoted
from rmtbase.words import listing

WAYS = ("delta", "merged", "base")
"""Ways to open an adapter: only its updates, its base with the updates, its base without them."""

_PREFIX = "base_model.model."
_PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_embedding_[AB]|lora_A|lora_B(\.bias)?|lora_magnitude_vector)(\.weight)?", re.DOTALL
)
_OF_TRAINING = re.compile(r"\.lora_(velora_embed|monteclora_sampler)(\.|$)")  # not used after training
_LAYER = re.compile(r"(?P<before>.*?)(?P<layer>\d{1,9})\.(?P<name>.+)", re.DOTALL)
_WHOLE = "updates of an adapter, without its base: W_QK is ΔW = s B A of a module, W_Q = s Bᵀ and W_K = A"
_BY_HEADS = (
    "updates of an adapter, by the heads of its base: W_QK is ΔW_i = s B_i A of head i of queries, keys or values, "
    "W_Q = s B_iᵀ and W_K = A; other modules are whole"
)
_SHARES = "which heads the updates prefer is tested by rmtbase diff BASE ADAPTER, at every rank"
_SHOWN = 3


class _Rows(NamedTuple):
    name: str
    n_heads: int
    d_head: int
    of: Expression


@dataclass(frozen=True)
class Adapter:
    folder: Path
    checkpoint: Checkpoint = field(repr=False)  # its tensors
    updates: Mapping[str, adapter_settings.Update] = field(repr=False)  # by module, in the order of their names
    # by the model's name, tensors that replace tensors of the base (``modules_to_save``, biases, embeddings)
    saved: Mapping[str, str] = field(repr=False)
    outside: frozenset[str]  # names of those in ``saved`` that belong to no layer
    # by the model's name, tensors that replace rows of embeddings, with the numbers of the rows
    tokens: Mapping[str, tuple[str, list[int]]] = field(repr=False)
    transposed: bool  # whether its settings say that modules store (d_in, d_out)
    unread: tuple[str, ...]  # modules with updates that are not read: of parameters with the weights of several experts
    beside: tuple[str, ...]  # names of subfolders that hold further adapters

    @classmethod
    def open(cls, folder: Path) -> Adapter:
        path = folder / other_formats.ADAPTER_CONFIG
        config = read_json_object(path)
        adapter_settings.require_plain(config, path)
        paths = [folder / name for name in other_formats.ADAPTER_WEIGHTS]
        weights = next((path for path in paths if os.path.lexists(path)), None)
        if weights is None:
            described = f"holds {other_formats.adapter_in_words(config)} without its weights"
            beside = f"{' or '.join(other_formats.ADAPTER_WEIGHTS)} beside {other_formats.ADAPTER_CONFIG}"
            raise CheckpointError(folder, f"{described}; expected {beside}, {MERGED}, or the base model alone")
        checkpoint = Checkpoint.open(weights)
        modules: dict[str, dict[str, str]] = {}
        saved: dict[str, str] = {}
        tokens: dict[str, tuple[str, list[int]]] = {}
        for name in checkpoint.names:
            if _OF_TRAINING.search(name):
                continue
            checkpoint.require_supported(name)
            of_model = name.removeprefix(_PREFIX)
            if match := _PART.fullmatch(of_model):
                modules.setdefault(match["module"], {})[match["part"]] = name
            elif module := re.fullmatch(r"(.+)\.token_adapter\.trainable_tokens_delta", of_model):
                rows = adapter_settings.rows_of_tokens(config, module[1], checkpoint.shape(name), path)
                tokens[f"{module[1]}.weight"] = name, rows
            elif ".lora_" in of_model:
                raise CheckpointError(
                    weights,
                    f"tensor {quoted(name)} is not supported in an adapter; expected lora_A and lora_B of modules "
                    f"with a weight (d_out, d_in), and tensors that replace those of its base, or {MERGED}",
                )
            else:
                saved[re.sub(r"\.(modules_to_save|base_layer|token_adapter)(?=\.)", "", of_model)] = name
        if not modules:
            raise CheckpointError(weights, f"holds no tensor lora_A.weight; expected some, or {MERGED}")
        updates = {
            module: adapter_settings.update_of(module, parts, checkpoint, config, path)
            for module, parts in modules.items()
        }
        return cls(
            folder=folder,
            checkpoint=checkpoint,
            updates={module: update for module, update in updates.items() if update is not None},
            saved=saved,
            outside=frozenset(name for name in saved if adapter_settings.is_saved_outside(config, name)),
            tokens=tokens,
            transposed=config.get("fan_in_fan_out") is True,
            unread=tuple(module for module, update in updates.items() if update is None),
            beside=tuple(other_formats.adapters_within(folder)),
        )

    @property
    def untargeted(self) -> list[str]:
        """Modules with an update that the settings do not target; PEFT does not load these updates."""
        return [module for module, update in self.updates.items() if not update.is_targeted]

    def delta(
        self, base: Checkpoint | None = None, of_base: Sequence[Site] = ()
    ) -> tuple[tuple[Site, ...], tuple[str, ...]]:
        """Represent the update of each module as one head, with W_Q = s Bᵀ and W_K = A, so that W_QK = ΔW."""
        if any(update.magnitude is not None for update in self.updates.values()):
            problem = "is a DoRA adapter, which rescales whole rows of its base: its change is not a product B A"
            raise CheckpointError(self.folder, f"{problem}; expected adapter = merged, with its base")
        sites: list[Site] = []
        wide: list[str] = []
        no_maps = [module for module, update in self.updates.items() if not update.of_map]
        maps = [module for module, update in self.updates.items() if update.of_map]
        if not maps:
            problem = f"changes only embeddings, convolutions or experts, {_some([*no_maps, *self.unread])}"
            raise CheckpointError(self.folder, f"{problem}; expected updates of matrices, or {MERGED}")
        for place, module in sorted(_places(maps).items()):
            update = self.updates[module]
            (rank, d_in), (d_out, _) = self.checkpoint.shape(update.a), self.checkpoint.shape(update.b)
            all_rows = _Rows("", 1, d_out, Tensor(update.b))
            rows = [] if base is None else self._rows_of_heads(base, of_base, module)
            if rows and rank > min(head_rows.d_head for head_rows in rows):
                wide.append(module)
                rows = []
            sites += [
                Site(
                    place=place._replace(stack=f"{place.stack} {head_rows.name}" if len(rows) > 1 else place.stack),
                    module=module,
                    n_heads=head_rows.n_heads,
                    n_key_heads=1,
                    d_head=rank,
                    d_query=head_rows.d_head,
                    d_key=d_in,
                    query=Scaled(Turned(head_rows.of, head_rows.n_heads), update.scale),
                    key=Tensor(update.a),
                )
                for head_rows in rows or [all_rows]
            ]
        notes = [_WHOLE if base is None else _BY_HEADS]
        if wide:
            notes.append(f"of a rank above the rows of a head, so left whole: {_some(wide)}")
        if no_maps:
            notes.append(f"updates of embeddings or convolutions, which are not linear maps: {_some(no_maps)}")
        if self.saved or self.tokens:
            notes.append(f"also trained, but not as low-rank updates: {_some([*self.saved, *self.tokens])}")
        if self.untargeted:
            notes.append(f"read, though the settings do not target it and PEFT leaves it out: {_some(self.untargeted)}")
        notes += [*self._unread_notes(), _SHARES]
        return tuple(sorted(sites, key=lambda site: site.place)), tuple(notes)

    def merged(self, base: Checkpoint) -> Checkpoint:
        """Merge every update into the base, as peft's ``merge_and_unload`` does, in float64 rounded to float32."""
        if self.untargeted:
            raise CheckpointError(
                self.folder / other_formats.ADAPTER_CONFIG,
                f"target_modules, with what restricts them, leave out {_some(self.untargeted)}, of which the weights "
                f"hold updates: PEFT does not load these; expected settings that target them, or {MERGED}",
            )
        saved: dict[str, CheckpointTensor] = {}
        changed: dict[str, CheckpointTensor] = {}
        left: list[str] = []
        for name, stored in self.saved.items():
            of_base, shape = self._in_base(base, name, name in self.outside), self.checkpoint.shape(stored)
            if of_base is None:
                left.append(name)
                continue
            is_resized = name in self.outside and base.shape(of_base)[1:] == shape[1:]  # a vocabulary that has grown
            if base.shape(of_base) != shape and not is_resized:
                raise ShapeError(self.folder, stored, shape, base.shape(of_base), f"of {base.path}")
            saved[of_base] = self.checkpoint.tensor(stored)
        before = base.replaced((), saved, "")
        for name, (stored, rows) in self.tokens.items():
            of_base, least = self._in_base(before, name, True), (max(rows) + 1, *self.checkpoint.shape(stored)[1:])
            if of_base is None:
                left.append(name)
            elif before.shape(of_base)[1:] != least[1:] or before.shape(of_base)[0] < least[0]:
                raise ShapeError(base.file(of_base), of_base, before.shape(of_base), least, "or more rows")
            else:
                changed[of_base] = self._changed(before, of_base, (stored,), partial(_with_rows, rows))
        replaced = [*saved, *changed]
        names = {
            module: self._in_base(before, update.weight, update.may_lack) for module, update in self.updates.items()
        }
        updates = {module: (self.updates[module], name) for module, name in names.items() if name is not None}
        renamed = [module for module in names if module not in updates and self.updates[module].of_parameter]
        left += [module for module in names if module not in updates and module not in renamed]
        if renamed and not updates:
            self._in_base(before, self.updates[renamed[0]].weight, False)  # raises: it is another model
        turned = {module: update.is_turned(self.checkpoint, before, name) for module, (update, name) in updates.items()}
        of_maps = [turned[module] for module, (update, _) in updates.items() if update.of_map]
        for module, (update, name) in updates.items():
            if turned[module] is None and any(is_turned_so == (not self.transposed) for is_turned_so in of_maps):
                problem = f"fan_in_fan_out is {self.transposed}, but other modules are stored the other way"
                more = f"so that the square {quoted(module)} may be either; expected {MERGED}"
                raise CheckpointError(self.folder, f"{problem}, {more}")
            is_turned = self.transposed if turned[module] is None else turned[module]
            parts = tuple(part for part in (update.a, update.b, update.magnitude) if part is not None)
            changed[name] = self._changed(before, name, parts, partial(_merged, update.scale, bool(is_turned)))
            if update.bias is not None and (name := self._in_base(before, f"{module}.bias", False)) is not None:
                scale = update.scale
                changed[name] = self._changed(before, name, (update.bias,), lambda stored, b, s=scale: stored + s * b)
        note = f"adapter {self.folder.resolve().name} merged in: {len(updates)} updates"
        note += f", and in place of the base's {_some(replaced)}" if replaced else ""
        if left:
            note += f"; not {_some(sorted(left))}, which the base does not store: queries and keys do not depend on it"
        return base.replaced((), {**saved, **changed}, "; ".join([note, *self._unread_notes(renamed)]))

    def _rows_of_heads(self, base: Checkpoint, of_base: Iterable[Site], module: str) -> list[_Rows]:
        """Find the rows of B that are those of heads of the base, whose matrices are rows of the module's weight."""
        update = self.updates[module]
        weight, b = self._in_base(base, update.weight, update.may_lack), Tensor(update.b)
        if weight is None:
            return []
        update.is_turned(self.checkpoint, base, weight)  # checks the shape
        rows_of_heads = []
        for site in of_base:
            for name, n_heads in (("query", site.n_heads), ("key", site.n_key_heads), ("value", site.n_key_heads)):
                matrix, size = getattr(site, name), site.d_value if name == "value" else site.d_head
                inner = matrix.of if isinstance(matrix, Rows) else matrix
                if size is not None and isinstance(inner, Tensor) and inner.name == weight and inner.index is None:
                    rows = Rows(b, matrix.runs) if isinstance(matrix, Rows) else b
                    rows_of_heads.append(_Rows(name, n_heads, size, rows))
        return rows_of_heads

    def _unread_notes(self, renamed: Sequence[str] = ()) -> list[str]:
        notes = []
        if unread := [*self.unread, *renamed]:
            notes.append(f"not read, so left as in the base: updates of experts or routers, {_some(unread)}")
        if self.beside:
            adapters = _some(self.beside)
            notes.append(f"not read: other adapters within the folder, each opened by its own path: {adapters}")
        return notes

    def _changed(
        self, base: Checkpoint, name: str, parts: Sequence[str], change: Callable[..., np.ndarray]
    ) -> DerivedTensor:
        tensors = (base.tensor(name), *map(self.checkpoint.tensor, parts))

        def make(*_: int) -> np.ndarray:
            arrays = (base.read(name), *map(self.checkpoint.read, parts))
            return np.ascontiguousarray(change(*(array.astype(np.float64) for array in arrays))).astype(np.float32)

        stored = tuple(file for tensor in tensors for file in tensor.stored)
        return DerivedTensor(TensorEntry("F32", base.shape(name)), stored, make)

    def _in_base(self, base: Checkpoint, name: str, may_lack: bool) -> str | None:
        """Find the base's name for a tensor: the base or the adapter may have been saved without the model's head."""
        both = (name.split("."), re.sub(r"\.weight$", ".in_proj_weight", name).split("."))
        shorter = [".".join(parts[start:]) for parts in both for start in range(len(parts) - 1)]
        if stored := next((candidate for candidate in shorter if candidate in base), None):
            return stored
        matches = [candidate for candidate in base.names if candidate.endswith(f".{name}")]
        if not matches:
            renamed = _by_module(base.config_path, base.names)
            matches = [renamed[candidate] for candidate in shorter if candidate in renamed][:1]
            matches = matches or [stored for candidate, stored in renamed.items() if candidate.endswith(f".{name}")]
        if len(matches) != 1 and (matches or not may_lack):
            problem = f"no tensor {quoted(name)}, which the adapter {self.folder.name} changes"
            raise CheckpointError(base.path, f"{problem}; expected the model that it was made for")
        return matches[0] if matches else None


@lru_cache(maxsize=2)
def _by_module(config_path: Path, stored: tuple[str, ...]) -> dict[str, str]:
    try:
        network = Network.of_config(read_json_object(config_path), config_path).network
    except (MissingDependencyError, CheckpointError):
        return {}
    from rmtbase.models.forward._stored_names import names_in_modules

    return names_in_modules(network, stored)


def _merged(
    scale: float, turned: bool, stored: np.ndarray, a: np.ndarray, b: np.ndarray, magnitude: np.ndarray | None = None
) -> np.ndarray:
    """Add s B A to a weight, and rescale its rows to the magnitude if there is one."""
    flat = stored.reshape(len(stored), -1)
    total = (flat.T if turned else flat) + scale * (b.reshape(len(b), -1) @ a.reshape(len(a), -1))
    if magnitude is not None:
        total *= (magnitude.ravel() / np.linalg.norm(total, axis=1))[:, None]
    return (total.T if turned else total).reshape(stored.shape)


def _with_rows(rows: list[int], stored: np.ndarray, new: np.ndarray) -> np.ndarray:
    stored[rows] = new
    return stored


def _places(modules: Iterable[str]) -> dict[Place, str]:
    """Return a place for each module: the part of its name after the layer's number, or all of it to tell two apart."""
    places: dict[Place, str] = {}
    parts = {module: _LAYER.fullmatch(module) for module in modules}
    short = [(match["name"], match["layer"]) for match in parts.values() if match]
    for module, match in parts.items():
        if match is None:
            places[Place(module, -1)] = module
        else:
            stack = match["name"] if len(set(short)) == len(short) else f"{match['before']}{match['name']}"
            places[Place(stack, int(match["layer"]))] = module
    return places


def _some(names: Iterable[str]) -> str:
    return listing([*map(quoted, names)], _SHOWN)
