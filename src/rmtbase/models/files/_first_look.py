"""Names and shapes of the tensors in files of any program, read without loading them.

They come from a header, the directory of an archive, the outline of a pickle, or the metadata of a folder, all with
limits on their size. A file that cannot be inspected gives None, whatever is wrong with it: the result is only used in
messages.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import RmtbaseError
from rmtbase.models.files._attention_names import Attention, Shape, find_attention, own_names
from rmtbase.models.files._described_pickle import DescribedTensor, Made, described, flat, pickle_of
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._safetensors import SafetensorsFile

_MOST_DICTIONARIES, _DEEPEST = 256, 4  # searched for tensors
_MOST_ENTRIES, _MOST_LOOKED = 2000, 4  # names in a folder, and files that are inspected
_LONGEST_WORDS = 1 << 16  # bytes of settings in YAML
_LARGEST_METADATA = 1 << 26  # bytes of the names of a distributed checkpoint
SLICED = "a part of each tensor; the other files beside it hold the rest"
_SHARD = re.compile(r"(?P<stem>[\w.-]+)-\d+-of-(?P<count>\d{1,9})\.safetensors", re.ASCII)
_MOST_SHARDS = 300
_STATES = re.compile(r"optim|sched|scaler|rng|loops|callbacks|exp_avg")  # states of training, not of the model
_WEIGHTS = re.compile(r".+\.(safetensors|bin|pt|pth|ckpt)", re.IGNORECASE)
_FIRST = re.compile(
    r"(.*model_states|model_optim_rng|consolidated.*|lit_model|(pytorch_)?model|diffusion_pytorch_model)\.\w+"
)
# Keys at the top level of a file, and the kind of file that has them.
_CONTAINERS = (
    ({"pytorch-lightning_version"}, "a checkpoint of PyTorch Lightning"),
    ({"model_args", "iter_num"}, "a checkpoint of nanoGPT's training"),
    ({"module", "ds_version"}, "a file of model states (DeepSpeed)"),
    ({"optimizer_state_dict", "ds_version"}, "a file of optimiser states (DeepSpeed ZeRO)"),
    ({"model", "checkpoint_version"}, "a checkpoint of Megatron"),
    ({"arch", "state_dict", "epoch"}, "a checkpoint of timm's training"),
)


class Look(NamedTuple):
    """Content of a file or folder of weights, as far as it was inspected."""

    found: str  # what it is, in words
    shapes: Mapping[str, Shape]  # the shapes of its tensors, by name
    # lines of Python that load them as ``state``, or ``PATH`` and the path if open_model accepts the path
    load: tuple[str, ...]
    settings: Mapping[str, Any]  # whole numbers in the settings beside them, such as the number of heads
    # function that returns the number of heads of a module by its name, where modules differ
    heads_of: Callable[[str], int | None] | None = None

    def attention(self) -> Attention | None:
        """Find the attention modules among the tensors, by their names without wrappers; None if unknown."""
        own = own_names(self.shapes)
        return find_attention({own[name]: s for name, s in self.shapes.items()}, self.settings, self.heads_of)


def look_into_folder(folder: Path, settings: Mapping[str, Any] | None = None) -> Look | None:
    """Inspect the first weights in a folder or its subfolders with known attention, or else the first weights."""
    first = None
    for path in islice(_candidates(folder), _MOST_LOOKED):
        look = look_into(path, settings)
        if look is not None and look.attention() is not None:
            return look
        first = first or look
    return first


def look_into(path: Path, settings: Mapping[str, Any] | None = None) -> Look | None:
    """Read names and shapes of tensors from a file, ``.metadata`` of torch or ``_METADATA`` of Orbax; else None."""
    beside = _settings_beside(path.parent) if settings is None else settings
    heads_of = _heads_of_unet(beside) if beside.get("_class_name") == "UNet2DConditionModel" else None
    # The file may contain anything, and the result is only a hint.
    with suppress(RmtbaseError, ValueError, OSError, MemoryError, RecursionError):
        if path.name == "_METADATA":
            return _orbax(path, _numbers(beside))
        if path.name == ".metadata":
            return _distributed(path, _numbers(beside))
        if _is_sliced(path):
            return Look(SLICED, {}, (), {})
        if (shard := _SHARD.fullmatch(path.name)) is not None:
            return _shards(path, shard, _numbers(beside), heads_of)
        with reading(path) as stream:
            first = stream.read(16)
        if first[8:9] == b"{":
            shapes = {name: entry.shape for name, entry in SafetensorsFile.open(path).entries.items()}
            return Look("a safetensors file", shapes, ("PATH", str(path)), _numbers(beside), heads_of)
        if first.startswith((b"PK\x03\x04", b"\x80")):
            return _torch(path, _numbers(beside), heads_of, first.startswith(b"PK"))
    return None


def look_at(shapes: Mapping[str, Shape], settings: Mapping[str, Any]) -> Look:
    """Inspect the tensors of a state dict in memory, with its configuration."""
    return Look("a state dict", shapes, (), _numbers(settings))


def _candidates(folder: Path) -> Iterable[Path]:
    """List the files of weights in a folder and its subfolders; names that suggest a model come first."""
    found: list[Path] = []
    folders, count = deque([(folder, 0)]), 0
    while folders and count < _MOST_ENTRIES:
        inside, depth = folders.popleft()
        with suppress(OSError), os.scandir(inside) as entries:
            for entry in islice(entries, _MOST_ENTRIES - count):
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    if depth < 2:
                        folders.append((Path(entry.path), depth + 1))
                elif entry.name in ("_METADATA", ".metadata") or _WEIGHTS.fullmatch(entry.name):
                    found.append(Path(entry.path))
    return sorted(found, key=lambda path: (not _FIRST.fullmatch(path.name), len(path.parts), path.name))


def _settings_beside(folder: Path) -> dict[str, Any]:
    """Read the settings in files beside the weights: JSON of transformers, Meta and others, YAML of litgpt."""
    settings: dict[str, Any] = {}
    for name in ("config.json", "params.json", "lit_config.json"):
        with suppress(RmtbaseError):
            settings |= read_json_object(folder / name)
    with suppress(RmtbaseError, UnicodeDecodeError), reading(folder / "model_config.yaml") as stream:
        words = re.findall(r"^(\w+): (\d{1,9})\s*$", stream.read(_LONGEST_WORDS).decode(), re.MULTILINE)
        settings |= {word: int(number) for word, number in words}
    return settings


def _is_sliced(path: Path) -> bool:
    """Return True if a file holds slices of tensors whose other slices are in files beside it."""
    if re.fullmatch(r"consolidated\.\d+\.pth", path.name):
        return (path.parent / "consolidated.01.pth").exists()
    ranks = (path.name, path.parent.name)
    names = [re.sub(r"(mp_rank_)\d+", r"\g<1>01", name) for name in ranks]
    others = (path.parent / names[0], path.parent.parent / names[1])
    return any(name.find("mp_rank_") >= 0 and other.exists() for name, other in zip(ranks, others, strict=True))


def _shards(
    path: Path, shard: re.Match[str], settings: Mapping[str, int], heads_of: Callable[[str], int | None] | None
) -> Look | None:
    """Inspect all safetensors files of a checkpoint, given one of them. Returns None if one is missing."""
    count, digits = int(shard["count"]), len(shard["count"])
    names = [f"{shard['stem']}-{index:0{digits}d}-of-{shard['count']}.safetensors" for index in range(1, count + 1)]
    if count > _MOST_SHARDS or not all((path.parent / name).exists() for name in names):
        return None
    files = [SafetensorsFile.open(path.parent / name) for name in names]
    shapes = {name: entry.shape for file in files for name, entry in file.entries.items()}
    load = (
        "from pathlib import Path",
        "import safetensors.torch",
        "state = {}",
        f"for file in Path({str(path.parent)!r}).glob({shard['stem'] + '-*-of-' + shard['count'] + '.safetensors'!r}):",
        "    state |= safetensors.torch.load_file(file)",
    )
    return Look("safetensors files", shapes, load, settings, heads_of)


def _numbers(settings: Any) -> dict[str, int]:
    """Return the whole numbers in nested settings, by their keys; outer settings take precedence."""
    numbers: dict[str, int] = {}
    left, seen = deque([(settings, 0)]), 0
    while left and seen < _MOST_DICTIONARIES:
        held, depth = left.popleft()
        seen += 1
        for word, value in flat(dict(held) if isinstance(held, Mapping) else held).items():
            if type(value) is int:
                numbers.setdefault(word, value)
            elif depth < _DEEPEST and isinstance(value, (Mapping, Made)):
                left.append((value, depth + 1))
    return numbers


def _torch(
    path: Path, beside: Mapping[str, int], heads_of: Callable[[str], int | None] | None, is_archive: bool
) -> Look:
    """Inspect the dictionary of weights in a file of torch.save."""
    made = described(pickle_of(path))
    top = set(flat(made))
    found = next((words for keys, words in _CONTAINERS if keys <= top), "a file of torch.save")
    tensors = _tensors_in(made, _numbers(made))
    if tensors is None:
        return Look(found, {}, (), {})
    keys, shapes = tensors
    inner = "".join(f"[{key!r}]" for key in keys)
    others = sorted(_classes(made))
    if not keys and not others and path.suffix == ".bin" and is_archive:
        return Look(found, shapes, ("PATH", str(path)), beside, heads_of)
    load = ("import torch", f'state = torch.load({str(path)!r}, map_location="cpu", weights_only=True){inner}')
    if others:
        # If torch refuses a class, its error says how to load a file that is trusted.
        load = (
            *load,
            f"# it also names {', '.join(others[:3])}: if torch refuses, and you trust the file, see its error",
        )
    return Look(found, shapes, load, {**_numbers(made), **beside}, heads_of)


def _tensors_in(made: Any, settings: Mapping[str, int]) -> tuple[tuple[str, ...], dict[str, Shape]] | None:
    """Find the first dictionary with attention, or else with matrices, and the keys that lead to it."""
    first, seen = None, 0
    left: deque[tuple[tuple[str, ...], Any]] = deque([((), made)])
    while left and seen < _MOST_DICTIONARIES:
        keys, held = left.popleft()
        seen += 1
        values = flat(held)
        shapes = {name: one.shape for name, one in values.items() if isinstance(one, DescribedTensor)}
        if isinstance(held, dict) and sum(len(shape) > 1 for shape in shapes.values()) > 1:
            if Look("", shapes, (), settings).attention() is not None:
                return keys, shapes
            first = first or (keys, shapes)
        if len(keys) < _DEEPEST:
            left.extend(
                ((*keys, name), one)
                for name, one in values.items()
                if isinstance(one, dict) and name.isprintable() and not _STATES.search(name)
            )
    return first


def _classes(made: Any) -> set[str]:
    """Return the classes, outside torch, of objects in the dictionaries of a file that were inspected."""
    names: set[str] = set()
    left, seen = deque([made]), 0
    while left and seen < _MOST_DICTIONARIES:
        held = left.popleft()
        seen += 1
        for one in islice(flat(held).values(), _MOST_ENTRIES):
            if isinstance(one, Made):
                names.add(one.name.replace(" ", "."))
            elif isinstance(one, dict):
                left.append(one)
    return {name for name in names if re.fullmatch(r"[\w.]{1,80}", name) and not name.startswith("torch.")}


def _distributed(path: Path, settings: Mapping[str, int]) -> Look:
    """Inspect a distributed checkpoint of torch; to read it, it is converted to one file."""
    with reading(path) as stream:
        if os.fstat(stream.fileno()).st_size > _LARGEST_METADATA:
            raise ValueError("too large")
        held = flat(described(stream))
    keys_of = flat(held.get("planner_data"))
    held_by: dict[tuple[str, ...], dict[str, Shape]] = {}  # by the keys of each dictionary, such as model or ema
    for name, stored in flat(held.get("state_dict_metadata")).items():
        size, keys = flat(stored).get("size"), keys_of.get(name)
        if not isinstance(keys, tuple) or not keys or not all(isinstance(one, str) for one in keys):
            keys = (name,)
        if not isinstance(size, tuple) or not all(type(one) is int for one in size):
            continue
        if not any(_STATES.search(one) for one in keys[:-1]):
            held_by.setdefault(keys[:-1], {})[keys[-1]] = size
    front = max(held_by, key=lambda keys: len(held_by[keys]), default=())  # the largest; the first of equals
    shapes, inner = held_by.get(front, {}), "".join(f"[{key!r}]" for key in front)
    folder = str(path.parent)
    load = (
        "import torch",
        "from torch.distributed.checkpoint.format_utils import dcp_to_torch_save",
        f"dcp_to_torch_save({folder!r}, 'weights.pt')  # it unpickles .metadata: only where you trust the folder",
        f"state = torch.load('weights.pt', map_location=\"cpu\", weights_only=True){inner}",
    )
    return Look("a distributed checkpoint of torch (FSDP)", shapes, load, settings)


def _orbax(path: Path, settings: Mapping[str, int]) -> Look:
    """Inspect a checkpoint of Orbax (Flax, JAX) by the names and shapes in its metadata."""
    shapes: dict[str, Shape] = {}
    tree = read_json_object(path, _LARGEST_METADATA).get("tree_metadata")
    for leaf in flat(tree).values():
        each = flat(leaf).get("key_metadata")
        keys = [flat(key).get("key") for key in each] if isinstance(each, list) else []
        size = flat(flat(leaf).get("value_metadata")).get("write_shape")
        if keys and isinstance(size, list) and all(type(one) is int for one in size):
            shapes["/".join(map(str, keys))] = tuple(size)
    load = (
        "import jax",
        "import orbax.checkpoint",
        f"tree = orbax.checkpoint.PyTreeCheckpointer().restore({str(path.parent.resolve())!r})",
        'names = lambda keys: jax.tree_util.keystr(keys, simple=True, separator="/")',
        "state = {names(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)}",
    )
    return Look("a checkpoint of Orbax (JAX)", shapes, load, settings)


def _heads_of_unet(config: Mapping[str, Any]) -> Callable[[str], int | None]:
    """Look up the number of heads by a module's block; diffusers calls it attention_head_dim in such configurations."""
    given = config.get("num_attention_heads") or config.get("attention_head_dim")
    by_block = given if isinstance(given, list) else None

    def heads_of(module: str) -> int | None:
        block = re.match(r"(down|up|mid)_blocks?(?:\.(\d+))?\.", module)
        if by_block is None or block is None:
            return given if type(given) is int else None
        index = {"mid": -1, "down": int(block[2] or 0), "up": -1 - int(block[2] or 0)}[block[1]]
        one = by_block[index] if -len(by_block) <= index < len(by_block) else None
        return one if type(one) is int else None

    return heads_of
