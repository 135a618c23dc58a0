"""Open a model: from a folder, from the hub, from memory, or the bundled one at several stages of its training."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast, overload

from rmtbase.errors import (
    CheckpointError,
    MissingCheckpointFileError,
    MissingTensorError,
    OutputError,
    ParameterError,
    near_architectures,
)
from rmtbase.models._difference import Difference, difference
from rmtbase.models._model import Model
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._demo import demo_checkpoint
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._hub import HUB_GGUF, HUB_ID, fetch_checkpoint, fetch_file, hub_id
from rmtbase.models.files._other_formats import ADAPTER_CONFIG, format_of, is_adapter_alone, which_adapter
from rmtbase.models.files._other_programs import advise_in_memory, refusal_of_file
from rmtbase.models.files._state_dict import weights_in_effect
from rmtbase.models.formats._adapters import WAYS, Adapter
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._layout_table import known_types as supported_architectures
from rmtbase.models.layouts._sites import Site
from rmtbase.regular_files import identity

if TYPE_CHECKING:
    import torch

_SUBFOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_HUB_FOLDER = re.compile(rf"(?P<model>{HUB_ID.pattern.removesuffix('?')})//(?P<folder>{_SUBFOLDER.pattern})", re.ASCII)
_SHARD = re.compile(r"-\d+-of-\d+\.")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_NOT_THERE_ON_WINDOWS = (21, 123, 1921)  # device not ready, invalid file name, dangling link


@overload
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
    minus: None = None,
    proof: bool = True,
    cache: Path | None = None,
) -> Model: ...
@overload
def open_model(
    model: Any,
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
    minus: Model | str | Path | Mapping[str, Any] | torch.nn.Module,
    proof: bool = True,
    cache: Path | None = None,
) -> Difference: ...
def open_model(
    model: Any,
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
    minus: Any = None,
    proof: bool = True,
    cache: Path | None = None,
) -> Model | Difference:
    """Open a trained model. The configuration and the headers are read and checked at once, the weights on demand.

    Args:
        model: one of

            * the folder of a checkpoint in Hugging Face format, or one file: ``.gguf``, or ``.safetensors`` or ``.bin``
              with its config.json beside it;
            * ``"demo"``, the bundled model (write ``"./demo"`` for a folder of that name);
            * the name of a model on the hub, such as ``"EleutherAI/pythia-70m"``; a known model without its owner,
              ``"pythia-70m"``; or a GGUF file on the hub, ``"org/name/FILE.gguf"``. A local folder takes precedence
              over a model on the hub with the same name;
            * a model in memory: a ``torch.nn.Module`` of transformers, on any device and with any output head, or a
              state dict of torch, NumPy or JAX arrays;
            * a model that is already open, which is returned.

            A name may end in its revision, ``"pythia-70m@step512"``, and a hub id in a subfolder,
            ``"owner/name//text_encoder"``. A path that exists is not split.
        revision: the checkpoint of the bundled model, or the branch, tag or commit on the hub. For a model in memory,
            any label.
        subfolder: the folder that holds the model within the checkpoint's folder or within the repository on the hub,
            for instance ``"text_encoder"`` of a pipeline.
        family: for a model in memory, how its tensors are named and laid out: one of
            :func:`rmtbase.models.supported_architectures`. A module of transformers states its own.
        config: for a model in memory, its sizes under the keys of the family's config.json, for instance
            ``{"n_head": 12}``, or a configuration of transformers. The tensors show all sizes except the number of
            heads.
        name: name for a model in memory.
        adapter: how to open a low-rank adapter that PEFT saved, from a folder or from the hub: ``"delta"`` for its
            updates by themselves (the default without ``base``; with ``base``, by its heads), ``"merged"`` for its base
            with the updates (the default with ``base``), ``"base"`` for its base without them.
        base: the base of an adapter, a folder or a name. ``revision`` and ``subfolder`` then refer to the base. By
            default it is the model in the adapter's own folder, or else the model on the hub that the adapter's
            settings name.
        inputs: arguments by name for the forward pass of your own module, with two tokens or more, for instance
            ``{"x": tokens}``. The attention is then found by running the module on noise, hooks included; the module
            is left unchanged. A module of transformers whose type is not among ``supported_architectures`` is run in
            the same way without them.
        sites: the location of the attention in a state dict with any other names, in one file that holds it
            (``.safetensors``, ``.bin``), or in the folder of that file: a :class:`rmtbase.models.Site` for each layer,
            whose matrices are expressions over the tensors, such as ``Tensor("layers.0.attn.q.weight")``. Weights
            under names that another program is known to use, such as TransformerLens, are refused with the lines of
            Python that make the sites.
        fold: what to fold into queries, keys and values: some of ``"biases"`` and ``"norms"``; see :meth:`Model.fold`.
        minus: a model of the same architecture and sizes that is subtracted, matrix by matrix: an opened model, or
            whatever this function opens. ``fold`` applies to both.
        proof: whether ``score``, ``signal``, ``composition`` and ``trajectory`` first prove what was read, if torch and
            transformers are installed: q·k in the model's own forward pass, with its weights and fresh noise as input,
            must equal xᵀ W_QK x′ for the weights read, up to rounding. A note says that it was proved, or why not.
            ``RMTBASE_PROOF=0`` in the environment also turns it off.
        cache: the folder for downloads that the hub's own cache does not hold; by default the hub's cache.

    Raises:
        ParameterError: the name is empty; the bundled model has no such revision; a revision was given for a folder or
            for an opened model; a model in memory has no family, or its configuration states another; or the
            subfolder is not within the checkpoint.
        MissingFileError: there is no such folder, or it lacks a file.
        CheckpointError: or one of its subclasses: the checkpoint cannot be fetched or read.
        MissingDependencyError: the weights exist only as ``.bin`` files, and torch 2.10 or later is not installed.
    """
    opened = _opened(model, revision, subfolder, family, config, name, adapter, base, inputs, sites, cache).fold(fold)
    if not proof:
        opened = opened.without_proof()
    if minus is None:
        return opened
    return difference(opened, minus if isinstance(minus, Model) else open_model(minus, fold=fold))


def _opened(
    model: Any,
    revision: str | None,
    subfolder: str | None,
    family: str | None,
    config: Any,
    name: str | None,
    adapter: str | None,
    base: str | Path | None,
    inputs: Mapping[str, Any] | None,
    sites: Sequence[Site] | None,
    cache: Path | None,
) -> Model:
    if isinstance(model, str):
        model, revision, subfolder = split_name(model, revision, subfolder)
    if subfolder is not None:
        _require_subfolder(model, subfolder)
    if _is_in_memory(model):
        return _from_memory(model, revision, family, config, name, inputs, sites)
    if sites is not None and isinstance(model, (str, Path)) and (stored := existing_folder(model)) is not None:
        for keyword, value in {"revision": revision, "adapter": adapter, "base": base}.items():
            if value is not None:
                raise ParameterError(keyword, str(value), "none beside sites")
        stored = stored / (subfolder or "")
        return Model.of_sites(Checkpoint.open(stored), sites, name or stored.resolve().stem, None)
    in_memory = {"family": family, "config": config, "name": name, "inputs": inputs, "sites": sites}
    for keyword, value in in_memory.items():
        if value is not None:
            found = value if isinstance(value, str) else type(value).__name__
            raise ParameterError(keyword, found, "none: it is for a module or a state dict in memory")
    if isinstance(model, Model):
        if revision is not None:
            raise ParameterError("revision", revision, "none beside an opened model, which has its own")
        return model
    if not isinstance(model, (str, Path)) or not str(model).strip():
        # Show only the type: the repr of a list of tensors is long and says nothing.
        found = model if model is None or isinstance(model, (str, int, float)) else type(model).__name__
        raise ParameterError(
            "model", found, "a folder, the name of a model on the hub, or 'demo'; or a module of torch or a state dict"
        )
    if adapter is not None or base is not None or _is_adapter(model):
        return _open_adapter(model, revision, subfolder, adapter, base, cache)
    return _open_stored(model, revision, subfolder, cache)


def split_name(
    name: str, revision: str | None = None, subfolder: str | None = None
) -> tuple[str, str | None, str | None]:
    """Split the name of a model, ``"owner/name//subfolder@revision"``, into its parts; see :func:`open_model`."""
    if ("@" not in name and "//" not in name) or existing_folder(name) is not None:
        return name, revision, subfolder
    model, _, named = name.rpartition("@")
    if not model or existing_folder(model) is None:  # the name of a model holds no @, its revision may
        model, _, named = name.partition("@")
    if not model or ("@" in name and not named):
        return name, revision, subfolder
    inside = None
    if found := _HUB_FOLDER.fullmatch(model):
        model, inside = found["model"], found["folder"]
    stated = {"revision": (named or None, revision), "subfolder": (inside, subfolder)}
    for keyword, (own, given) in stated.items():
        if own is not None and given is not None and own != given:
            raise ParameterError(keyword, given, f"none beside the name {name!r}, which states {own!r}")
    return model, named or revision, inside or subfolder


def _open_stored(
    model: str | Path,
    revision: str | None,
    subfolder: str | None,
    cache: Path | None,
    adapted: Callable[[Checkpoint], Checkpoint] | None = None,
) -> Model:
    """Open the bundled model, a folder, or a model on the hub, with its tensors changed by ``adapted`` where given."""
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
    """Open an adapter's updates, or its base with or without them.

    Revision and subfolder refer to the base if one is given, and otherwise to an adapter on the hub.
    """
    way = way or ("delta" if base is None else "merged")
    if way not in WAYS:
        raise ParameterError("adapter", way, f"one of {', '.join(WAYS)}")
    folder, called = existing_folder(model), Path(model).resolve().name
    is_fetched = folder is None and isinstance(model, str) and model != "demo" and HUB_ID.fullmatch(model) is not None
    if is_fetched:
        own, inside = (revision, subfolder) if base is None else (None, None)
        folder, called = fetch_checkpoint(str(model), own, inside, cache) / (inside or ""), str(model)
    if folder is None or not (folder / ADAPTER_CONFIG).is_file():
        advice = which_adapter(folder) if folder is not None else None
        more = f"; {advice}" if advice else ""
        raise ParameterError("adapter", way, f"the folder of an adapter, with {ADAPTER_CONFIG}, as the model{more}")
    if way == "delta" and base is not None:
        return Model.of_updates(Adapter.open(folder), called, _open_stored(base, revision, subfolder, cache))
    if way == "delta":
        for name, value in {"revision": revision, "subfolder": subfolder}.items():
            if value is not None and not is_fetched:
                raise ParameterError(name, str(value), "none: updates that are opened by themselves have no base")
        return Model.of_updates(Adapter.open(folder), called)
    if base is None and is_adapter_alone(folder):
        base, named = _named_base(folder)
        revision, subfolder = (named, None) if is_fetched else (revision or named, subfolder)
    change = Adapter.open(folder).merged if way == "merged" else lambda checkpoint: checkpoint
    opened = _open_stored(folder if base is None else base, revision, subfolder, cache, change)
    return opened if way == "base" or base is None else replace(opened, name=f"{opened.name} + {called}")


def _named_base(folder: Path) -> tuple[str, str | None]:
    """Read the base model on the hub that an adapter's settings name, and its revision if they name one."""
    settings = read_json_object(folder / ADAPTER_CONFIG)
    base, own = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(base, str) or not HUB_ID.fullmatch(base):
        raise ParameterError("base", None, f"the base model of the adapter, which {folder.name} does not hold")
    return base, own if isinstance(own, str) else None


def require_model(
    model: Any, reads: Callable[[WeightMatrices], tuple[Iterable[str] | None, Iterable[str]]] | None = None
) -> WeightMatrices:
    """Return a model to read heads from: finite, and proved unless it was opened with ``proof=False``.

    Args:
        model: an opened model, a difference of two, or whatever :func:`open_model` opens without options.
        reads: judges all options for the opened model, before its weights are read and proved, and returns the
            arguments of :meth:`WeightMatrices.require_finite`; all matrices of the layers are read if None.

    Raises:
        ParameterError, CheckpointError: as :func:`open_model`, ``reads`` and :meth:`Model.prove`.
    """
    opened = model if isinstance(model, WeightMatrices) else open_model(model)
    opened.require_finite(*((None, ()) if reads is None else reads(opened)))
    return opened.prove()


def _is_in_memory(model: object) -> TypeGuard[Mapping[Any, Any] | torch.nn.Module]:
    torch = sys.modules.get("torch")  # a caller that holds a module has imported torch
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
    """Open a module or a state dict by its family, named here or in its configuration, or by running the module."""
    network, given, wrapped, of_transformers = None, None, cast(Any, None), None
    if isinstance(model, Mapping):
        what, own_name, tensors = "state dict", None, model
    else:
        what, own_name = type(model).__name__, getattr(model, "name_or_path", None)
        wrapped = getattr(model, "module", model)  # torch.nn.DataParallel and its distributed variant wrap a module
        tensors = weights_in_effect(wrapped)
        given = Network(wrapped, Path(type(wrapped).__name__), inputs, model)
        own_config = getattr(model, "config", getattr(wrapped, "config", None))
        if config is None and hasattr(own_config, "to_dict"):  # otherwise it is not a configuration of transformers
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
    called = name or (own_name if isinstance(own_name, str) else None) or what
    if sites is not None:
        return Model.of_sites(Checkpoint.of_tensors(tensors, called), sites, called, revision, given)
    if given is not None and "transformers" in sys.modules:
        from rmtbase.models.forward._stored_names import as_saved

        tensors = as_saved(wrapped, tensors)  # the table has the names of files
    try:
        complete = of_transformers is not None
        return Model.from_state_dict(tensors, settings, called, revision, network, network or given, complete)
    except MissingTensorError:
        if network is not None or of_transformers is None or isinstance(model, Mapping):
            raise
    network = Network.of_module(wrapped, given=model)
    return Model.from_state_dict(tensors, settings, called, revision, network)


def _settings(config: Any, what: str, family: str | None) -> dict[str, Any]:
    """Return the configuration as a dictionary that names its family."""
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
            "family='gpt2', config={'n_head': 12}; or sites=[Site(…)], which locate its queries and keys; or, for a "
            "module, inputs={…}, the arguments of its forward pass. Heads as arrays go into "
            "rmtbase.score_heads(w_q, w_k); rmtbase.models.split_qkv cuts them out of fused weights",
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
    """Return the path of an existing folder or file, or None if there is nothing at that path."""
    folder = _expand(Path(model))
    try:
        folder.stat()  # from Python 3.14 on, Path.exists returns False where permission is denied
    except ValueError:  # a null character
        return None
    except OSError as error:
        if error.errno in _NOT_THERE or getattr(error, "winerror", None) in _NOT_THERE_ON_WINDOWS:
            return None
        raise CheckpointError(folder, f"cannot be read: {error.strerror}") from error
    return folder


def require_checkpoint(folder: Path, revision: str | None) -> None:
    """Raise unless the path is a folder, or a file that holds a whole model. Neither has revisions."""
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
    """Raise ParameterError unless the model can have subfolders and the name is that of a folder within another."""
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
    """Return True if a file, by its name, holds all weights of a model and its configuration is available."""
    of_model = path.name.startswith(("pytorch_model", "model")) or format_of(path.name) is None  # no training state
    if path.suffix == ".safetensors" or (path.suffix == ".bin" and of_model):
        return _SHARD.search(path.name) is None and (path.parent / "config.json").exists()
    return path.suffix.lower() == ".gguf"


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~name with no such user: a file may have that name
        return path


def require_other_files(paths: Iterable[Path], model: WeightMatrices) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if a path leads to a file of the model, or of one of a difference.

    Files are compared rather than names: the hub's cache keeps a model's files as symbolic links, and the path may be
    a link or its target.
    """
    files = [file for one in opened_from(model) if one.files for file in (*one.path.iterdir(), *one.files)]
    own = {identity(file) for file in files} - {None}
    for path in paths:
        if identity(path) in own:
            raise OutputError(path, "it is a file of the model that is read; expected another name")


def opened_from(model: WeightMatrices) -> tuple[Model, ...]:
    """Return the stored models that weight matrices come from: the model itself, or both models of a difference."""
    if isinstance(model, Difference):
        return model.of, model.less
    return (model,) if isinstance(model, Model) else ()
