"""Finding a model's tensors by name in its checkpoint, and checking them against its configuration."""

from __future__ import annotations

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._config import Dimensions
from rmtbase.models._layouts import ATTENTION_PARTS, COMPONENTS, Layout


def find_prefix(checkpoint: Checkpoint, layout: Layout, architecture: str) -> str:
    """What stands in front of the layers' names: ``model.``, say, or nothing.

    Raises:
        MissingTensorError: no layer is there.
        CheckpointError: several stacks of layers are there.
    """
    first = tensor_name("", layout, 0, "attention_query")
    prefixes = [name.removesuffix(first) for name in checkpoint.names if name == first or name.endswith("." + first)]
    if not prefixes:
        raise MissingTensorError(checkpoint.path, first, architecture)
    if len(prefixes) > 1:
        raise CheckpointError(
            checkpoint.path, f"tensors {', '.join(p + first for p in prefixes)}; expected one stack of layers"
        )
    return prefixes[0]


def tensor_name(prefix: str, layout: Layout, layer: int, component: str) -> str:
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
        MissingTensorError: a layer lacks queries or keys, or a component that another layer has.
        CheckpointError: there are more layers than the configuration says.
    """
    beyond = tensor_name(prefix, layout, n_layers, "attention_query")
    if beyond in checkpoint:
        raise CheckpointError(
            checkpoint.path,
            f"tensor {beyond!r} is there; expected none beyond the {n_layers} layers of the configuration",
        )
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
    """Raise ShapeError unless every tensor has the shape that the configuration implies.

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
        if stored.transposed:
            expected = expected[::-1]
        for layer in range(dimensions.n_layers):
            name = tensor_name(prefix, layout, layer, component)
            checkpoint.require_supported(name)
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
