"""Open a model: from a folder, from the hub, from memory, or the bundled one at several stages of its training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from rmtbase.errors import MissingCheckpointFileError, MissingTensorError, ParameterError, near_architectures
from rmtbase.models._difference import Difference, difference
from rmtbase.models._model import Model, Named
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.files import _hub as hub
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._demo import demo_checkpoint
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._other_formats import ADAPTER_CONFIG, is_adapter_alone, which_adapter
from rmtbase.models.files._other_programs import advise_in_memory
from rmtbase.models.files._tensor_file import weights_in_effect
from rmtbase.models.formats._adapters import WAYS, Adapter
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._layout_table import known_types as supported_architectures
from rmtbase.models.layouts._sites import Note, Site

if TYPE_CHECKING:
    import torch


_NO_MODULE = "its sites were given with tensors, and no module to run"


@overload
def open_model(
    model: Model | str | Path | Mapping[str, Any] | torch.nn.Module,
    revision: str | None = None,
    *,
    minus: None = None,
    **options: Any,
) -> Model: ...
@overload
def open_model(model: Any, revision: str | None = None, *, minus: object, **options: Any) -> Difference: ...
def open_model(  # pyright: ignore[reportInconsistentOverload]  # which leaves the options to this one
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
            whose matrices are expressions over the tensors, such as ``Tensor("layers.0.attn.q.weight")``.
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
    where, revision, subfolder = hub.split_name(model, revision, subfolder)
    source = Source(where, revision, subfolder, adapter, base, cache, family, config, name, inputs, sites)
    opened = _opened(source, _OPENERS).fold(fold)
    if not proof:
        opened = opened.without_proof()
    if minus is None:
        return opened
    return difference(opened, minus if isinstance(minus, Model) else open_model(minus, fold=fold))


@dataclass(frozen=True)
class Source:
    """Place of a model, and how it is opened: the arguments of :func:`open_model`."""

    where: Any  # the model itself, a path, or a name
    revision: str | None = None
    subfolder: str | None = None
    adapter: str | None = None
    base: str | Path | None = None
    cache: Path | None = None
    # the arguments for a module or a state dict in memory
    family: str | None = None
    config: Any = None
    name: str | None = None
    inputs: Mapping[str, Any] | None = None
    sites: Sequence[Site] | None = None
    adapted: Callable[[Checkpoint], Checkpoint] | None = None  # changes the tensors of a stored model

    @property
    def folder(self) -> Path | None:
        """The existing folder or file, unless it is the bundled model."""
        return None if self.where == "demo" else hub.existing_folder(self.where)


def _opened(source: Source, openers: Iterable[Callable[[Source], Model | None]]) -> Model:
    return next(opened for opener in openers if (opened := opener(source)) is not None)


def _open_given_sites(source: Source) -> Model | None:
    sites = source.sites
    folder = source.folder if sites is not None and isinstance(source.where, (str, Path)) else None
    if folder is None or sites is None:
        return None
    for keyword in ("revision", "adapter", "base"):
        if (value := getattr(source, keyword)) is not None:
            raise ParameterError(keyword, str(value), "none beside sites")
    folder = folder / (source.subfolder or "")
    opened = Model.of_sites(Checkpoint.open(folder), sites, Named(source.name or folder.resolve().stem))
    return opened.without_proof(_NO_MODULE)


def _open_opened(source: Source) -> Model | None:
    """Return a model that is open already; refuse everything that is no path or name, and arguments for memory."""
    for keyword in ("family", "config", "name", "inputs", "sites"):
        if (value := getattr(source, keyword)) is not None:
            described = value if isinstance(value, str) else type(value).__name__
            raise ParameterError(keyword, described, "none: it is for a module or a state dict in memory")
    model = source.where
    if isinstance(model, Model):
        if source.revision is not None:
            raise ParameterError("revision", source.revision, "none beside an opened model, which has its own")
        return model
    if not isinstance(model, (str, Path)) or not str(model).strip():
        # Show only the type: the repr of a list of tensors is long and says nothing.
        described = model if model is None or isinstance(model, (str, int, float)) else type(model).__name__
        expected = "a folder, the name of a model on the hub, or 'demo'; or a module of torch or a state dict"
        raise ParameterError("model", described, expected)
    return None


def _open_adapter(source: Source) -> Model | None:
    """Open an adapter's updates, or its base with or without them; revision and subfolder are the base's, if given."""
    folder, base, where = source.folder, source.base, source.where
    if source.adapter is None and base is None and not (folder is not None and is_adapter_alone(folder)):
        return None
    way = source.adapter or ("delta" if base is None else "merged")
    if way not in WAYS:
        raise ParameterError("adapter", way, f"one of {', '.join(WAYS)}")
    name = Path(where).resolve().name
    of_base = Source(base, source.revision, source.subfolder, cache=source.cache)
    is_fetched = (
        folder is None and isinstance(where, str) and where != "demo" and hub.HUB_ID.fullmatch(where) is not None
    )
    if is_fetched:
        revision, inside = (source.revision, source.subfolder) if base is None else (None, None)
        folder, name = hub.fetch_checkpoint(where, revision, inside, source.cache) / (inside or ""), where
    if folder is None or not (folder / ADAPTER_CONFIG).is_file():
        advice = which_adapter(folder) if folder is not None else None
        expected = f"the folder of an adapter, with {ADAPTER_CONFIG}, as the model"
        raise ParameterError("adapter", way, f"{expected}; {advice}" if advice else expected)
    if way == "delta":
        if base is not None:
            return Model.of_updates(Adapter.open(folder), Named(name), _opened(of_base, _STORED))
        for keyword in ("revision", "subfolder"):
            if (value := getattr(source, keyword)) is not None and not is_fetched:
                raise ParameterError(keyword, str(value), "none: updates that are opened by themselves have no base")
        return Model.of_updates(Adapter.open(folder), Named(name))
    if base is None and is_adapter_alone(folder):
        settings = read_json_object(folder / ADAPTER_CONFIG)
        base, named = settings.get("base_model_name_or_path"), settings.get("revision")
        if not isinstance(base, str) or not hub.HUB_ID.fullmatch(base):
            raise ParameterError("base", None, f"the base model of the adapter, which {folder.name} does not hold")
        named = named if isinstance(named, str) else None
        of_base = replace(of_base, revision=named, subfolder=None) if is_fetched else of_base
        of_base = replace(of_base, revision=of_base.revision or named)
    change = Adapter.open(folder).merged if way == "merged" else lambda checkpoint: checkpoint
    opened = _opened(replace(of_base, where=folder if base is None else base, adapted=change), _STORED)
    return opened if way == "base" or base is None else replace(opened, name=f"{opened.name} + {name}")


def _open_folder(source: Source) -> Model | None:
    if source.where == "demo":
        path, revision = demo_checkpoint(source.revision)
        return Model.from_folder(path, Named("demo", revision), source.adapted)
    path = source.folder
    if path is None:
        return None
    if source.subfolder is not None:
        path = path / source.subfolder
        if not path.is_dir():
            raise MissingCheckpointFileError(path, advice="pass the name of a folder within that of the checkpoint")
    hub.require_checkpoint(path, source.revision)
    return Model.from_folder(path, Named(path.resolve().name), source.adapted)


def _open_hub(source: Source) -> Model:
    where, subfolder, revision = source.where, source.subfolder, source.revision or "main"
    file = hub.HUB_GGUF.fullmatch(where) if isinstance(where, str) and subfolder is None else None
    if file is not None:
        path = hub.fetch_file(file["model"], file["file"], source.revision, source.cache)
        return Model.from_folder(path, Named(where, revision, (_commit_note(path.parent),)), source.adapted)
    if isinstance(where, Path) or not hub.HUB_ID.fullmatch(where):
        raise MissingCheckpointFileError(hub.expanded(Path(where)))
    name = hub.hub_id(where)
    folder = hub.fetch_checkpoint(name, source.revision, subfolder, source.cache)
    notes = (_commit_note(folder),)
    if subfolder is not None:
        folder, name = folder / subfolder, f"{name}/{subfolder}"
    if is_adapter_alone(folder):
        opened = Model.of_updates(Adapter.open(folder), Named(name))
        return replace(opened, revision=revision, notes=(*opened.notes, *notes))
    return Model.from_folder(folder, Named(name, revision, notes), source.adapted)


def _commit_note(folder: Path) -> Note:
    return Note("hub commit {}", "commit", (folder.name,))  # the hub's cache names folders after commits


def _open_memory(source: Source) -> Model | None:
    model = source.where
    torch = sys.modules.get("torch")  # a caller that holds a module has imported torch
    module = model if torch is not None and isinstance(model, torch.nn.Module) else None
    if module is None and not isinstance(model, Mapping):
        return None
    network = network_given = model_type = None
    config, family, sites = source.config, source.family, source.sites
    inner: Any = model
    if module is None:
        kind, own_name, tensors = "state dict", None, model
    else:
        kind, own_name = type(module).__name__, getattr(module, "name_or_path", None)
        inner = getattr(module, "module", module)  # torch.nn.DataParallel and its distributed variant wrap a module
        tensors = weights_in_effect(inner)
        network_given = Network(inner, Path(type(inner).__name__), source.inputs, module)
        own_config = getattr(module, "config", getattr(inner, "config", None))
        if config is None and hasattr(own_config, "to_dict"):  # otherwise it is not a configuration of transformers
            config = own_config
        model_type = getattr(config, "model_type", None)
        if family is None and (source.inputs is not None or model_type not in (None, *supported_architectures())):
            network = Network.of_module(inner, source.inputs, module)
            config = config or {"model_type": kind}
    name = source.name or (own_name if isinstance(own_name, str) else None) or kind
    if sites is not None:
        opened = Model.of_sites(Checkpoint.of_tensors(tensors, name), sites, Named(name, source.revision))
        return replace(opened, _network=network_given) if network_given else opened.without_proof(_NO_MODULE)
    try:
        settings = _settings(config, kind, family)
    except ParameterError as error:
        if error.name == "family" and family is None:
            advise_in_memory(error, model, tensors)
        raise
    if network_given is not None and "transformers" in sys.modules:
        from rmtbase.models.forward._stored_names import as_saved

        tensors = as_saved(inner, tensors)  # the table has the names of files
    named, is_complete = Named(name, source.revision), model_type is not None
    try:
        opened = Model.from_state_dict(tensors, settings, named, network, is_complete)
    except MissingTensorError:
        if network is not None or not is_complete or module is None:
            raise
        return Model.from_state_dict(tensors, settings, named, Network.of_module(inner, given=module))
    return replace(opened, _network=network or network_given or opened._network)


_STORED = (_open_folder, _open_hub)
_OPENERS = (_open_memory, _open_given_sites, _open_opened, _open_adapter, *_STORED)
"""Ways to open a model; the first that knows it opens it."""


def _settings(config: Any, kind: str, family: str | None) -> dict[str, Any]:
    mapping = config.to_dict() if hasattr(config, "to_dict") else config
    if mapping is not None and not isinstance(mapping, Mapping):
        expected = "a mapping, such as {'n_head': 12}, or a configuration of transformers"
        raise ParameterError("config", type(config).__name__, expected)
    settings, types = dict(mapping or {}), supported_architectures()
    model_type = settings.get("model_type")
    if family is None and model_type is None and not settings.get("architectures"):
        raise ParameterError(
            "family",
            None,
            f"the family of the {kind}, such as {near_architectures('', types)}, with the number of heads, as "
            "family='gpt2', config={'n_head': 12}; or sites=[Site(…)], which locate its queries and keys; or, for a "
            "module, inputs={…}, the arguments of its forward pass. Heads as arrays go into "
            "rmtbase.score_heads(w_q, w_k); rmtbase.models.split_qkv cuts them out of fused weights",
        )
    if family is not None and family not in types:
        expected = f"one of the {len(types)} that are known, such as {near_architectures(str(family), types)}"
        raise ParameterError("family", family, expected)
    if family is not None and model_type not in (None, family):
        raise ParameterError("family", family, f"{model_type!r}, as the configuration says")
    return settings if family is None else settings | {"model_type": family}


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
