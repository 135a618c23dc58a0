"""Shape of a model's attention heads, from the model's name or from only its configuration.

A configuration does not show which keys are ignored, or what is the default of an absent one. The table of
architectures has the keys of each model type that were proved; a type that it lacks is run without weights.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import (
    CheckpointError,
    MissingCheckpointFileError,
    MissingDependencyError,
    ParameterError,
    UnknownArchitectureError,
)
from rmtbase.models.files._demo import demo_checkpoint
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._hub import (
    HUB_ID,
    existing_folder,
    fetch_file,
    find_known,
    hub_id,
    names_near,
    require_checkpoint,
    split_name,
)
from rmtbase.models.files._other_programs import refuse_other_formats
from rmtbase.models.formats._gguf import find_gguf, open_gguf
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._layout_table import entries, read_architecture, unread
from rmtbase.models.layouts._sizes import Sizes
from rmtbase.shown import one_line, quoted

_WIDTHS = ("hidden_size", "n_embd", "d_model", "n_embed", "dim")
# In order of preference: the stack that writes text comes first.
_STACKS = ("", "text", "decoder", "encoder", "vision", "audio", "cross")
_SIZES = ("n_layers", "n_heads", "d_model", "n_key_heads", "d_head")
_SHOWN = 3  # notes in a source
_LONGEST = 300  # characters of an error of the network
_LATENT = "a head's W_QK is a longer chain of matrices, whose law is rmtbase.laws.GaussianChain"


class HeadShape(NamedTuple):
    """Shape of a model's attention heads: W_Q and W_K are (d_head, d_model)."""

    d_model: int  # width of the input of queries and keys, which is the residual stream except in a few types
    d_head: int
    n_heads: int | None  # query heads in a layer, None where layers differ
    n_key_heads: int | None  # key heads in a layer, None where layers differ
    n_layers: int | None  # layers with attention, None where the configuration does not give it
    source: str  # source of these numbers, in words, with the stack if the model has several


def head_shape(model: str | Path, revision: str | None = None) -> HeadShape:
    """Find the shape of a model's heads, in the stack that writes text if there are several. No weight is read."""
    if not isinstance(model, (str, Path)) or not str(model).strip():
        raise ParameterError("model", model, "the name of a known model, a folder, or a hub id OWNER/NAME")
    if isinstance(model, str):
        model, revision, _ = split_name(model, revision)
    if model == "demo":
        return _from_folder(demo_checkpoint()[0], "demo")
    folder = existing_folder(model)
    if folder is not None:
        require_checkpoint(folder, revision)
        return _from_folder(folder, str(model))
    if isinstance(model, Path):
        raise MissingCheckpointFileError(model / "config.json")
    model_sizes = find_known(model)
    if model_sizes is not None and revision is None:
        sizes: dict[str, Any] = {name: getattr(model_sizes, name) for name in HeadShape._fields[:-1]}
        return HeadShape(**sizes, source=f"{model_sizes.hub_id}, known")
    name = hub_id(model)
    if "/" not in name or not HUB_ID.fullmatch(name):
        expected = f"a folder, a hub id OWNER/NAME, or a known model such as {names_near(model)}"
        raise ParameterError("model", model, expected)
    return _from_folder(fetch_file(name, "config.json", revision).parent, f"{name}, the hub's config.json")


def _from_folder(folder: Path, source: str) -> HeadShape:
    path = (folder if folder.is_dir() else folder.parent) / "config.json"
    gguf = find_gguf(folder) if folder.suffix.lower() == ".gguf" or not path.is_file() else None
    if gguf is not None:
        return _of_config(open_gguf(gguf)[0], gguf, source)
    if not path.is_file():
        refuse_other_formats(folder)
    return _of_config(read_json_object(path), path, source)


def _of_config(config: Mapping[str, Any], path: Path, source: str) -> HeadShape:
    inner = config.get("text_config")
    if isinstance(inner, dict) and not any(key in config for key in _WIDTHS):
        config_of_stack, inside = inner, ("text",)
    else:
        config_of_stack, inside = config, ()
    _refuse_latent(config_of_stack, path)
    try:
        model_type = read_architecture(config_of_stack, path, sizes_alone=True)
        stacks = list(entries(config_of_stack, model_type, path, inside, sizes_alone=True))
    except CheckpointError as refused:
        return _of_network(config, path, source, refused)
    entry = min(stacks, key=lambda entry: _STACKS.index(entry.stack))
    _refuse_latent(entry.config, path)
    if "d_latent" in entry.sizes:
        raise CheckpointError(path, f"a {model_type} model, with multi-head latent attention: {_LATENT}")
    sizes = Sizes(entry, path, _SIZES, optional=("n_layers",)).sizes
    if "d_model" not in sizes:
        refused = CheckpointError(path, f"a {model_type} model, whose heads have no width in its configuration")
        return _of_network(config, path, source, refused)
    layers = None
    with suppress(CheckpointError):  # the configuration does not say which layers attend
        layers = entry.attending(sizes["n_layers"], path) if "n_layers" in sizes else None
    stack = entry.stack or "".join(inside)
    left = unread(config_of_stack, model_type, path, sizes_alone=True)
    sources = [source, *([f"its {stack}"] if stack else []), *([f"not read: {', '.join(left)}"] if left else [])]
    return HeadShape(
        d_model=sizes["d_model"],
        d_head=sizes["d_head"],
        n_heads=sizes["n_heads"],
        n_key_heads=sizes["n_key_heads"],
        n_layers=None if layers is None else len(layers),
        source=": ".join(sources),
    )


def _refuse_latent(config: Mapping[str, Any], path: Path) -> None:
    latent = next((key for key in ("kv_lora_rank", "q_lora_rank") if config.get(key) is not None), None)
    if latent is not None:
        raise CheckpointError(path, f"multi-head latent attention ({latent}): {_LATENT}")


def _of_network(config: Mapping[str, Any], path: Path, source: str, refused: CheckpointError) -> HeadShape:
    """Read the shape from a forward pass of the network, or raise the table's refusal if that shows nothing."""
    try:
        inventory = Network.of_config(config, path).inventory()
    except (MissingDependencyError, CheckpointError) as error:
        if not isinstance(refused, UnknownArchitectureError):
            raise refused from error
        why = ""
        if isinstance(error, CheckpointError) and not isinstance(error, UnknownArchitectureError):
            why = f", and running it shows nothing ({one_line(error.problem, _LONGEST)})"
        raise CheckpointError(
            path,
            f"how a model of type {quoted(str(config.get('model_type')))} gives the size of its heads is not known for "
            f"certain{why}; expected a type that was proved, or with torch and transformers installed (rmtbase[hf]) "
            "one that transformers can run, or the shape itself: --d-model and --d-head",
        ) from error
    stack = min((site.place.stack for site in inventory.sites), key=_STACKS.index)
    sites = [site for site in inventory.sites if site.place.stack == stack]
    for site in sites:
        if site.d_query != site.d_key:
            problem = f"queries of {site.module} read {site.d_query} dimensions and its keys {site.d_key}"
            raise CheckpointError(path, f"{problem}; expected one d_model: W_QK is not square")
        if any(matrix is not None and matrix.holds_product() for matrix in (site.query, site.key)):
            raise CheckpointError(path, f"queries or keys of {site.module} are products: {_LATENT}")
    shapes = Counter((site.d_query, site.d_head) for site in sites).most_common()
    if len(shapes) > 1:
        listed = ", ".join(f"--d-model {d_model} --d-head {d_head} ({n})" for (d_model, d_head), n in shapes)
        problem = f"heads of {len(shapes)} shapes, but a baseline has only one; ask for each separately"
        raise CheckpointError(path, f"{problem}: {listed} layers")
    ((d_model, d_head), _) = shapes[0]
    n_heads, n_key_heads = ({getattr(site, name) for site in sites} for name in ("n_heads", "n_key_heads"))
    sources = [source, *([f"its {stack}"] if stack else []), *inventory.notes[:_SHOWN]]
    return HeadShape(
        d_model=d_model,
        d_head=d_head,
        n_heads=n_heads.pop() if len(n_heads) == 1 else None,
        n_key_heads=n_key_heads.pop() if len(n_key_heads) == 1 else None,
        n_layers=len({site.place for site in sites}),
        source=": ".join(sources),
    )
