"""Finding a model's tensors by name in its checkpoint, and checking them against its configuration."""

from __future__ import annotations

import re
from itertools import count

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._config import Dimensions
from rmtbase.models._layouts import ATTENTION_PARTS, COMPONENTS, Layout
from rmtbase.shown import quoted, shown

_SHOWN = 3  # names in a message


def find_prefix(checkpoint: Checkpoint, layout: Layout, architecture: str) -> str:
    """What stands in front of the layers' names: ``model.``, say, or nothing.

    Raises:
        MissingTensorError: no layer is there.
        CheckpointError: several stacks of layers are there.
    """
    name_of_any = _any_layer(r"(?P<prefix>|.*\.)", layout, tensor_name("", layout, "{}", "attention_query"))
    found = (name_of_any.fullmatch(name) for name in checkpoint.names)
    stacks = {match["prefix"]: match[0] for match in found if match}
    if not stacks:
        raise MissingTensorError(checkpoint.path, tensor_name("", layout, 0, "attention_query"), architecture)
    if len(stacks) > 1:
        each = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
        raise CheckpointError(checkpoint.path, f"tensors {each}; expected one stack of layers, not {len(stacks)}")
    return next(iter(stacks))


def require_layers(checkpoint: Checkpoint, prefix: str, layout: Layout, n_layers: int, architecture: str) -> None:
    """Raise unless tensors of each layer of the configuration are there, and of no other.

    The layers are those of the names, so that a configuration of 10¹⁸ layers ends at the first that is missing.

    Raises:
        MissingTensorError: a layer has no tensor at all: naming the first.
        CheckpointError: there are tensors of layers beyond, or of a layer that is no number.
    """
    tensor_of = _layers_of_names(checkpoint, prefix, layout)
    missing = next(layer for layer in count() if str(layer) not in tensor_of)
    if missing < n_layers:
        first = tensor_name(prefix, layout, missing, "attention_query")
        because = f"config.json: {n_layers} layers, of which there are tensors of {len(tensor_of)}"
        raise MissingTensorError(checkpoint.path, first, architecture, because)
    beyond = sorted((len(layer), layer) for layer in tensor_of if not _is_layer(layer, n_layers))
    if beyond:
        query = tensor_name(prefix, layout, beyond[0][1], "attention_query")
        name = query if query in checkpoint else tensor_of[beyond[0][1]]
        listed = ", ".join(shown(layer) for _, layer in beyond[:_SHOWN]) + (", …" if len(beyond) > _SHOWN else "")
        raise CheckpointError(
            checkpoint.path,
            f"tensor {quoted(name)} is there; expected none beyond the {n_layers} layers of the configuration "
            f"(numbered besides: {listed}): if these are layers of the model, correct the configuration; "
            "if they are not (draft layers, say), take them out",
        )


def _layers_of_names(checkpoint: Checkpoint, prefix: str, layout: Layout) -> dict[str, str]:
    """What stands for the layer in the names behind the prefix, and one name for each."""
    of_any = _any_layer(re.escape(prefix), layout, layout.layer)
    found = ((of_any.match(name), name) for name in checkpoint.names)
    return {match["layer"]: name for match, name in found if match}


def _any_layer(prefix: str, layout: Layout, name: str) -> re.Pattern[str]:
    """A pattern for the name, which has ``{}`` for the number of a layer."""
    return re.compile(prefix + re.escape(name).replace(re.escape("{}"), r"(?P<layer>\d+)"), re.DOTALL)


def _is_layer(text: str, n_layers: int) -> bool:
    return len(text) <= len(str(n_layers)) and str(int(text)) == text and int(text) < n_layers


def tensor_name(prefix: str, layout: Layout, layer: int | str, component: str) -> str:
    """The name of the tensor that holds a component of a layer."""
    return f"{prefix}{layout.layer.format(layer)}{layout.components[component].tensor}.weight"


def part_rows(dimensions: Dimensions) -> tuple[int, int, int]:
    """The number of outputs of the query, key and value matrices."""
    keys = dimensions.n_key_heads * dimensions.d_head
    return dimensions.n_heads * dimensions.d_head, keys, keys


def present_components(
    checkpoint: Checkpoint, prefix: str, layout: Layout, n_layers: int, architecture: str
) -> tuple[str, ...]:
    """The components that the checkpoint holds: queries and keys always, each of the others wholly or not.

    Raises:
        MissingTensorError: a layer lacks queries or keys, or a component that another layer has; or has no tensor.
        CheckpointError: there are more layers than the configuration says.
    """
    require_layers(checkpoint, prefix, layout, n_layers, architecture)
    present = []
    for component in (name for name in COMPONENTS if name in layout.components):
        names = [tensor_name(prefix, layout, layer, component) for layer in range(n_layers)]
        missing = [name for name in names if name not in checkpoint]
        needed = component in ATTENTION_PARTS[:2] or len(missing) < n_layers
        if missing and needed:
            raise MissingTensorError(checkpoint.path, missing[0], architecture)
        if not missing:
            present.append(component)
    return tuple(present)


def require_shapes(
    checkpoint: Checkpoint, prefix: str, layout: Layout, dimensions: Dimensions, components: tuple[str, ...]
) -> None:
    """Raise ShapeError unless every tensor, and its bias if any, has the shape that the configuration implies.

    Also raises CheckpointError where a tensor is empty or of a type that cannot be read. Only headers are
    looked at.
    """
    for component in components:
        stored = layout.components[component]
        expected = _linear_shape(component, stored.kind, dimensions)
        if expected is None:
            raise CheckpointError(
                checkpoint.path / "config.json",
                f"no {' or '.join(layout.config.d_mlp)}; expected a positive integer",
            )
        outputs = expected[:1]
        if stored.transposed:
            expected = expected[::-1]
        for layer in range(dimensions.n_layers):
            name = tensor_name(prefix, layout, layer, component)
            checkpoint.require_supported(name)
            _require_shape(checkpoint, name, expected, dimensions)
            bias = name.removesuffix("weight") + "bias"
            if bias in checkpoint:
                _require_shape(checkpoint, bias, outputs, dimensions)


def tensors_show_head_size(
    checkpoint: Checkpoint, prefix: str, layout: Layout, dimensions: Dimensions, rotated: int, architecture: str
) -> bool:
    """Whether the shape of a tensor shows how many outputs a head has.

    The weights do not: twelve heads of 64 have the shape of 24 heads of 32. A norm of the queries and keys of each
    head has d_head gains, and the rotary frequencies that older checkpoints keep are one for two of the ``rotated``
    dimensions of a head.

    Raises:
        ShapeError: it shows another size than the configuration's.
        MissingTensorError: a layer lacks the norms that another has.
    """
    layers = [f"{prefix}{layout.layer.format(layer)}" for layer in range(dimensions.n_layers)]
    norms = [f"{layer}{norm}.weight" for layer in layers for norm in layout.query_key_norms]
    frequencies = [f"{layer}{layout.rotary_frequencies}" for layer in layers if layout.rotary_frequencies]
    expected = {norm: (dimensions.d_head,) for norm in norms}
    expected |= {name: ((rotated + 1) // 2,) for name in frequencies}
    held = [name for name in expected if name in checkpoint]
    for name in held:
        _require_shape(checkpoint, name, expected[name], dimensions)
    missing = [norm for norm in norms if norm not in checkpoint]
    if 0 < len(missing) < len(norms):
        raise MissingTensorError(checkpoint.path, missing[0], architecture)
    return bool(held)


def _require_shape(checkpoint: Checkpoint, name: str, expected: tuple[int, ...], dimensions: Dimensions) -> None:
    if checkpoint.shape(name) != expected:
        because = f"config.json: {dimensions.because}"
        raise ShapeError(checkpoint.file(name), name, checkpoint.shape(name), expected, because)


def _linear_shape(component: str, kind: str, dimensions: Dimensions) -> tuple[int, int] | None:
    """(outputs, inputs) of the tensor that holds the component; None where the configuration does not say."""
    rows, d_model, d_mlp = part_rows(dimensions), dimensions.d_model, dimensions.d_mlp
    if component in ATTENTION_PARTS:
        own = rows[ATTENTION_PARTS.index(component)]
        return (own if kind == "separate" else sum(rows)), d_model
    if component == "attention_output":
        return d_model, rows[0]
    if d_mlp is None:
        return None
    return (d_model, d_mlp) if component == "mlp_out" else (d_mlp, d_model)
