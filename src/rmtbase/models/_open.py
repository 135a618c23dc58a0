"""Opening a model: a folder, one of the hub, one in memory, or the bundled one at several stages of its training."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from rmtbase.errors import (
    CheckpointError,
    MissingCheckpointFileError,
    MissingTensorError,
    OutputError,
    ParameterError,
    near_architectures,
)
from rmtbase.models._adapters import WAYS, Adapter
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._demo import demo_checkpoint
from rmtbase.models._files import read_json_object
from rmtbase.models._hub import HUB_GGUF, HUB_ID, fetch_checkpoint, fetch_file, hub_id
from rmtbase.models._layout_table import known_types as supported_architectures
from rmtbase.models._model import Model
from rmtbase.models._other_formats import ADAPTER_CONFIG, format_of, is_adapter_alone, which_adapter
from rmtbase.models._other_programs import advise_in_memory, refusal_of_file
from rmtbase.models._sites import Site
from rmtbase.models._state_dict import weights_in_effect
from rmtbase.models._torch_route import Network
from rmtbase.parameters import require_text
from rmtbase.regular_files import identity

if TYPE_CHECKING:
    import torch

_SUBFOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_SHARD = re.compile(r"-\d+-of-\d+\.")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_NOT_THERE_ON_WINDOWS = (21, 123, 1921)  # no medium, no name of a file, a link to nothing


def open_model(
    model: Model | str | Path | Mapping[str, Any] | torch.nn.Module,
    revision: str | None = None,
    *,
    subfolder: str | None = None,
    family: str | None = None,
    config: Any = None,
    name: str | None = None,
    adapter: str | None = None,
    base: str | Path | None = None,
    inputs: Mapping[str, Any] | None = None,
    sites: Sequence[Site] | None = None,
    fold: Iterable[str] | str = (),
    cache: Path | None = None,
) -> Model:
    """Open a trained model. Configuration and headers are read and checked; weights are read when asked for.

    Args:
        model: the folder of a checkpoint in Hugging Face format; or one file, ``.gguf``, or ``.safetensors`` or
            ``.bin`` with its config.json beside it; or ``"demo"``, the bundled model (write ``"./demo"`` for a folder
            of that name); or the name of a model on the hub, such as ``"EleutherAI/pythia-70m"``, of a known one
            without its owner, ``"pythia-70m"``, or of a GGUF file there, ``"org/name/FILE.gguf"``. A folder comes
            before a model of the hub with the same name. Or a model in memory: a ``torch.nn.Module`` of transformers,
            on any device and of any head, or a state dict, whose tensors may be of torch, NumPy or JAX. An opened model
            is given back.
        revision: the checkpoint of the bundled model, or the branch, tag or commit on the hub; of a model in memory
            whatever it shall be called by.
        subfolder: the folder, within that of the checkpoint or within the repository on the hub, that holds the model:
            ``"text_encoder"`` of a pipeline, say.
        family: of a model in memory, how its tensors are named and laid out: one of
            :func:`rmtbase.models.supported_architectures`. A module of transformers says so itself.
        config: of a model in memory, its sizes by the words of the family's config.json, ``{"n_head": 12}`` say, or a
            configuration of transformers. The tensors show all sizes but the number of heads.
        name: what to call a model in memory.
        adapter: of a low-rank adapter as PEFT saves it, a folder or on the hub: ``"delta"``, its updates by themselves,
            as which one without a model is opened; ``"merged"``, its base with them; ``"base"``, without them.
        base: the base of an adapter, a folder or a name, whose revision and subfolder are then meant; by default the
            model in the adapter's own folder, or else that of the hub that the adapter's settings name.
        inputs: of the forward of a module of one's own, by name, of two tokens or more, ``{"x": tokens}`` say. Its
            attention is then found by running it, hooks included, on noise, and left as it is. A module of
            transformers whose type is none of ``supported_architectures`` is read in this way without any.
        sites: of a state dict of any other names, or of one file of it (``.safetensors``, ``.bin``) or the folder that
            it is in, where its attention is: a :class:`rmtbase.models.Site` for each layer, whose matrices are
            expressions over its tensors, ``Tensor("layers.0.attn.q.weight")``. Weights under names that are known, as
            TransformerLens', are refused with the lines of Python that make the sites.
        fold: what to fold into queries, keys and values: some of ``"biases"`` and ``"norms"``; see :meth:`Model.fold`.
        cache: folder to fetch what is on the hub into, where the hub's own cache does not hold it; by default that.

    Raises:
        ParameterError: the name is empty, no such revision is bundled, a folder or an opened model was given one, a
            model in memory is of no family, or another one is said to be, or a subfolder is none within a checkpoint.
        MissingFileError: there is no such folder, or it lacks a file.
        CheckpointError: or another of its kinds: the checkpoint cannot be fetched, or cannot be read.
        MissingDependencyError: the weights are only there as ``.bin`` files, and torch 2.10 or later is not installed.
    """
    if subfolder is not None:
        _require_subfolder(model, subfolder)
    if _is_in_memory(model):
        return _from_memory(model, revision, family, config, name, inputs, sites).fold(fold)
    if sites is not None and isinstance(model, (str, Path)) and (stored := existing_folder(model)) is not None:
        for keyword, value in {"revision": revision, "adapter": adapter, "base": base}.items():
            if value is not None:
                raise ParameterError(keyword, str(value), "none beside sites")
        stored = stored / (subfolder or "")
        return Model.of_sites(Checkpoint.open(stored), sites, name or stored.resolve().stem, None).fold(fold)
    in_memory = {"family": family, "config": config, "name": name, "inputs": inputs, "sites": sites}
    for keyword, value in in_memory.items():
        if value is not None:
            found = value if isinstance(value, str) else type(value).__name__
            raise ParameterError(keyword, found, "none: it is for a module or a state dict in memory")
    if isinstance(model, Model):
        if revision is not None:
            raise ParameterError("revision", revision, "none beside an opened model, which has its own")
        return model.fold(fold)
    if not isinstance(model, (str, Path)) or not str(model).strip():
        # Of what may be a model its type alone: the repr of tensors is long, and says nothing.
        found = model if model is None or isinstance(model, (str, int, float)) else type(model).__name__
        raise ParameterError(
            "model", found, "a folder, the name of a model on the hub, or 'demo'; or a module of torch or a state dict"
        )
    if adapter is not None or base is not None or _is_adapter(model):
        return _open_adapter(model, revision, subfolder, adapter, base, cache).fold(fold)
    return _open_stored(model, revision, subfolder, cache).fold(fold)


def _open_stored(
    model: str | Path,
    revision: str | None,
    subfolder: str | None,
    cache: Path | None,
    adapted: Callable[[Checkpoint], Checkpoint] | None = None,
) -> Model:
    """The bundled model, one in a folder, or one of the hub; with its tensors as an adapter has them."""
    if model == "demo":
        folder, revision = demo_checkpoint(revision)
        return Model.from_folder(folder, "demo", revision, adapted=adapted)
    folder = existing_folder(model)
    if folder is not None:
        return _open_folder(folder, revision, subfolder, adapted)
    file = None if isinstance(model, Path) else HUB_GGUF.fullmatch(model)
    if file is not None and subfolder is None:
        path = fetch_file(file["model"], file["file"], revision, cache)
        commit = (f"hub commit {path.parent.name}",)
        return Model.from_folder(path, str(model), revision or "main", commit, adapted=adapted)
    if isinstance(model, Path) or not HUB_ID.fullmatch(model):
        raise MissingCheckpointFileError(_expand(Path(model)))
    name = hub_id(model)
    folder = fetch_checkpoint(name, revision, subfolder, cache)
    notes = (f"hub commit {folder.name}",)  # the hub's cache names the folder after the commit
    inside, called = (folder, name) if subfolder is None else (folder / subfolder, f"{name}/{subfolder}")
    if is_adapter_alone(inside):
        opened = Model.of_updates(Adapter.open(inside), called)
        return replace(opened, revision=revision or "main", notes=(*opened.notes, *notes))
    return Model.from_folder(inside, called, revision or "main", notes, adapted)


def _is_adapter(model: str | Path) -> bool:
    folder = None if model == "demo" else existing_folder(model)
    return folder is not None and is_adapter_alone(folder)


def _open_adapter(
    model: str | Path,
    revision: str | None,
    subfolder: str | None,
    way: str | None,
    base: str | Path | None,
    cache: Path | None,
) -> Model:
    """An adapter's updates, or its base with or without them. Revision and subfolder are those of a base that is given.

    Without one they are the adapter's own, where that is on the hub.
    """
    way = way or ("delta" if base is None else "merged")
    if way not in WAYS:
        raise ParameterError("adapter", way, f"one of {', '.join(WAYS)}")
    if way == "delta" and base is not None:
        raise ParameterError("base", str(base), "none beside the updates alone, which have no base")
    folder, called = existing_folder(model), Path(model).resolve().name
    is_fetched = folder is None and isinstance(model, str) and model != "demo" and HUB_ID.fullmatch(model) is not None
    if is_fetched:
        own, inside = (revision, subfolder) if base is None else (None, None)
        folder, called = fetch_checkpoint(str(model), own, inside, cache) / (inside or ""), str(model)
    if folder is None or not (folder / ADAPTER_CONFIG).is_file():
        advice = which_adapter(folder) if folder is not None else None
        more = f"; {advice}" if advice else ""
        raise ParameterError("adapter", way, f"the folder of an adapter, with {ADAPTER_CONFIG}, as the model{more}")
    if way == "delta":
        for name, value in {"revision": revision, "subfolder": subfolder}.items():
            if value is not None and not is_fetched:
                raise ParameterError(name, str(value), "none beside the updates alone, which have no base")
        return Model.of_updates(Adapter.open(folder), called)
    if base is None and is_adapter_alone(folder):
        base, named = _named_base(folder)
        revision, subfolder = (named, None) if is_fetched else (revision or named, subfolder)
    change = Adapter.open(folder).merged if way == "merged" else _unchanged
    opened = _open_stored(folder if base is None else base, revision, subfolder, cache, change)
    return opened if way == "base" or base is None else replace(opened, name=f"{opened.name} + {called}")


def _named_base(folder: Path) -> tuple[str, str | None]:
    """The model of the hub that an adapter's settings name as its base, and the revision, if they name one."""
    settings = read_json_object(folder / ADAPTER_CONFIG)
    base, own = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(base, str) or not HUB_ID.fullmatch(base):
        raise ParameterError("base", None, f"the base model of the adapter, which {folder.name} does not hold")
    return base, own if isinstance(own, str) else None


def _unchanged(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def _is_in_memory(model: object) -> TypeGuard[Mapping[Any, Any] | torch.nn.Module]:
    torch = sys.modules.get("torch")  # who has a module has imported it
    return isinstance(model, Mapping) or (torch is not None and isinstance(model, torch.nn.Module))


def _from_memory(
    model: Mapping[Any, Any] | torch.nn.Module,
    revision: str | None,
    family: str | None,
    config: Any,
    name: str | None,
    inputs: Mapping[str, Any] | None,
    sites: Sequence[Site] | None,
) -> Model:
    """A module, or a state dict, of the family that is named, here or by its configuration; or a module that is run."""
    network, given, wrapped, of_transformers = None, None, cast(Any, None), None
    if isinstance(model, Mapping):
        what, own_name, tensors = "state dict", None, model
    else:
        what, own_name = type(model).__name__, getattr(model, "name_or_path", None)
        wrapped = getattr(model, "module", model)  # by torch.nn.DataParallel, or its distributed kin
        tensors = weights_in_effect(wrapped)
        given = Network(wrapped, Path(type(wrapped).__name__), inputs, model)
        own_config = getattr(model, "config", getattr(wrapped, "config", None))
        if config is None and hasattr(own_config, "to_dict"):  # any other is not one of transformers
            config = own_config
        of_transformers = getattr(config, "model_type", None)
        if family is None and (inputs is not None or of_transformers not in (None, *supported_architectures())):
            network = Network.of_module(wrapped, inputs, model)
            config = config or {"model_type": what}
    try:
        settings = {} if sites is not None else _settings(config, what, family)
    except ParameterError as error:
        if error.name == "family" and family is None:
            advise_in_memory(error, model, tensors, config)
        raise
    for argument, text in (("name", name), ("revision", revision)):
        if text is not None:
            require_text(argument, text)
    called = name or (own_name if isinstance(own_name, str) else None) or what
    if sites is not None:
        return Model.of_sites(Checkpoint.of_tensors(tensors, called), sites, called, revision, given)
    try:
        return Model.from_state_dict(tensors, settings, called, revision, network, network or given)
    except MissingTensorError:
        if network is not None or isinstance(model, Mapping) or of_transformers is None:
            raise
    # Some types are stored under other names than those of their modules, and it is these that the table knows.
    network = Network.of_module(wrapped, given=model)
    return Model.from_state_dict(tensors, settings, called, revision, network)


def _settings(config: Any, what: str, family: str | None) -> dict[str, Any]:
    """The configuration as a dictionary that names its family."""
    found = config.to_dict() if hasattr(config, "to_dict") else config
    if found is not None and not isinstance(found, Mapping):
        raise ParameterError(
            "config", type(config).__name__, "a mapping, such as {'n_head': 12}, or a configuration of transformers"
        )
    settings, known = dict(found or {}), supported_architectures()
    said = settings.get("model_type")
    if family is None and said is None and not settings.get("architectures"):
        raise ParameterError(
            "family",
            None,
            f"the family of the {what}, such as {near_architectures('', known)}, with the number of heads, as "
            "family='gpt2', config={'n_head': 12}; or sites=[Site(…)], where its queries and keys are; or of a module "
            "inputs={…}, those of its forward. Heads as arrays go into rmtbase.score_heads(w_q, w_k); "
            "rmtbase.models.split_qkv cuts them out of fused weights",
        )
    if family is not None and family not in known:
        raise ParameterError(
            "family",
            family,
            f"one of the {len(known)} that are known, such as {near_architectures(str(family), known)}",
        )
    if family is not None and said is not None and said != family:
        raise ParameterError("family", family, f"{said!r}, as the configuration says")
    return settings if family is None else settings | {"model_type": family}


def existing_folder(model: str | Path) -> Path | None:
    """What stands there in the file system, or None where nothing does.

    Raises:
        CheckpointError: the path cannot be looked up.
    """
    folder = _expand(Path(model))
    try:
        folder.stat()  # Path.exists says no, from Python 3.14 on, where it is not allowed to look
    except ValueError:  # a null character
        return None
    except OSError as error:
        if error.errno in _NOT_THERE or getattr(error, "winerror", None) in _NOT_THERE_ON_WINDOWS:
            return None
        raise CheckpointError(folder, f"cannot be read: {error.strerror}") from error
    return folder


def require_checkpoint(folder: Path, revision: str | None) -> None:
    """Raise unless it is a folder, or a file that holds a whole model, of which there are no revisions.

    Raises:
        CheckpointError: it is another file, with what it is by its name.
        ParameterError: a revision is asked for.
    """
    if not folder.is_dir() and _is_whole_model(folder):
        if revision is not None:
            raise ParameterError("revision", revision, "none for a file: pass the file of that revision")
        return
    if not folder.is_dir():
        kind = format_of(folder.name)
        advice = "pass the folder that holds it and its config.json" if kind is None else kind.advice
        if _SHARD.search(folder.name):
            raise CheckpointError(folder, f"is one of several files of a checkpoint; {advice}")
        raise refusal_of_file(folder, "" if kind is None else kind.found, advice)
    if revision is not None:
        raise ParameterError("revision", revision, "none for a folder: pass the folder of that revision")


def _require_subfolder(model: object, subfolder: str) -> None:
    """Raise ParameterError unless it is the name of a folder within another, which the model can have."""
    if not isinstance(model, (str, Path)) or model == "demo":
        raise ParameterError("subfolder", subfolder, "none: it is for a folder, or for a model on the hub")
    if not _SUBFOLDER.fullmatch(subfolder) or not {".", ".."}.isdisjoint(subfolder.split("/")):
        raise ParameterError("subfolder", subfolder, "the name of a folder within the checkpoint's, as 'text_encoder'")


def _open_folder(
    path: Path, revision: str | None, subfolder: str | None, adapted: Callable[[Checkpoint], Checkpoint] | None
) -> Model:
    if subfolder is not None:
        path = path / subfolder
        if not path.is_dir():
            raise MissingCheckpointFileError(path, advice="pass the name of a folder within that of the checkpoint")
    require_checkpoint(path, revision)
    return Model.from_folder(path, path.resolve().name, adapted=adapted)


def _is_whole_model(path: Path) -> bool:
    """Whether a file, by its name, holds all the weights of a model, and their configuration is there."""
    if path.suffix == ".safetensors" or (path.suffix == ".bin" and _is_model(path)):
        return _SHARD.search(path.name) is None and (path.parent / "config.json").exists()
    return path.suffix.lower() == ".gguf"


def _is_model(path: Path) -> bool:
    """True where a ``.bin`` file is a model's weights by its name, and no training state."""
    return path.name.startswith(("pytorch_model", "model")) or format_of(path.name) is None


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~name, where there is no such user: then it is the name itself
        return path


def require_other_files(paths: Iterable[Path], model: Model) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if a path leads to a file of the model.

    Files are compared, not names: the hub's cache keeps a model's files as links to where they are, and a link, or the
    file that it points to, may be the path.
    """
    beside = model.path.iterdir() if model.files else ()  # of a model in memory there are none
    own = {identity(file) for file in (*beside, *model.files)} - {None}
    for path in paths:
        if identity(path) in own:
            raise OutputError(path, "it is a file of the model that is read; expected another name")
