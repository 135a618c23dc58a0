"""The layers of a model: their tensors found by name in its checkpoint, and checked against its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._config import Dimensions
from rmtbase.models._layouts import ATTENTION_PARTS, COMPONENTS, KINDS, LAYOUTS, Layout
from rmtbase.models._sites import Expression, Inventory, Place, Site, Tensor, take_rows
from rmtbase.shown import quoted, shown

_SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Stack:
    """The layers of a model of a known layout, as its checkpoint names them.

    Attributes:
        checkpoint: where the tensors are.
        architecture: by which they are laid out.
        dimensions: what the configuration says.
        prefix: what stands in front of the layers' names: ``model.``, say, or nothing.
    """

    checkpoint: Checkpoint
    architecture: str
    dimensions: Dimensions
    prefix: str

    @classmethod
    def find(cls, checkpoint: Checkpoint, architecture: str, dimensions: Dimensions) -> Stack:
        """The one stack of layers of a checkpoint.

        Raises:
            MissingTensorError: no layer is there.
            CheckpointError: several stacks of layers are there.
        """
        return cls(checkpoint, architecture, dimensions, _prefix(checkpoint, architecture))

    @property
    def layout(self) -> Layout:
        """Where the architecture keeps its matrices."""
        return LAYOUTS[self.architecture]

    def in_layer(self, layer: int | str, name: str) -> str:
        """The whole name of what a layer calls so."""
        return f"{self.prefix}{self.layout.layer.format(layer)}{name}"

    def tensor(self, layer: int | str, component: str) -> str:
        """The name of the tensor that holds a component of a layer."""
        return self.prefix + _weight(self.layout, layer, component)

    def in_each_layer(self, *names: str) -> list[str]:
        """The whole names, layer by layer, of what every layer calls so."""
        return [self.in_layer(layer, name) for layer in range(self.dimensions.n_layers) for name in names]

    def of_each_layer(self, *components: str) -> list[str]:
        """The tensors that hold these components, layer by layer."""
        return self.in_each_layer(*(f"{self.layout.components[one].tensor}.weight" for one in components))

    def components(self) -> tuple[str, ...]:
        """The components that the checkpoint holds: queries and keys always, each of the others wholly or not.

        Raises:
            MissingTensorError: a layer lacks queries or keys, or a component that another layer has; or has no tensor.
            CheckpointError: there are more layers than the configuration says.
        """
        self._require_layers()
        present = []
        for component in (name for name in COMPONENTS if name in self.layout.components):
            missing = [name for name in self.of_each_layer(component) if name not in self.checkpoint]
            needed = component in ATTENTION_PARTS[:2] or len(missing) < self.dimensions.n_layers
            if missing and needed:
                raise MissingTensorError(self.checkpoint.path, missing[0], self.architecture)
            if not missing:
                present.append(component)
        return tuple(present)

    def inventory(self) -> Inventory:
        """The sites and the other matrices of the checkpoint, whose tensors and shapes are checked.

        Raises:
            MissingTensorError, ShapeError, CheckpointError: as :meth:`components` and :meth:`require_shapes`.
        """
        present = self.components()
        self.require_shapes(present)
        places = [Place("", layer) for layer in range(self.dimensions.n_layers)]
        others = {
            place: {name: self._expression(place.layer, name) for name in present if name not in COMPONENTS[:4]}
            for place in places
        }
        return Inventory(sites=tuple(self._site(place, present) for place in places), others=others)

    def _site(self, place: Place, present: tuple[str, ...]) -> Site:
        sizes = self.dimensions
        parts = {name: self._expression(place.layer, name) for name in COMPONENTS[:4] if name in present}
        return Site(
            place=place,
            module=self.in_layer(place.layer, self.layout.components["attention_query"].tensor).rpartition(".")[0],
            n_heads=sizes.n_heads,
            n_key_heads=sizes.n_key_heads,
            d_head=sizes.d_head,
            d_query=sizes.d_model,
            d_key=sizes.d_model,
            d_value=sizes.d_head,
            d_output=sizes.d_model,
            query=parts["attention_query"],
            key=parts["attention_key"],
            value=parts.get("attention_value"),
            output=parts.get("attention_output"),
        )

    def _expression(self, layer: int, component: str) -> Expression:
        stored = self.layout.components[component]
        whole = Tensor(self.tensor(layer, component), stored.transposed)
        if stored.kind == "separate":
            return whole
        rows = self.dimensions.part_rows
        indices = np.arange(sum(rows))[:, None]
        part = KINDS[stored.kind](indices, ATTENTION_PARTS.index(component), rows, self.dimensions.d_head)
        return take_rows(whole, map(int, part.ravel()))

    def _require_layers(self) -> None:
        """Raise unless tensors of each layer of the configuration are there, and of no other.

        The layers are those of the names, so that a configuration of 10¹⁸ layers ends at the first that is missing.
        """
        n_layers = self.dimensions.n_layers
        of_any = _any_layer(re.escape(self.prefix), self.layout.layer)
        found = ((of_any.match(name), name) for name in self.checkpoint.names)
        tensor_of = {match["layer"]: name for match, name in found if match}
        missing = next(layer for layer in count() if str(layer) not in tensor_of)
        if missing < n_layers:
            because = (
                f"{self.checkpoint.config_path.name}: {n_layers} layers, of which there are tensors of {len(tensor_of)}"
            )
            first = self.tensor(missing, "attention_query")
            raise MissingTensorError(self.checkpoint.path, first, self.architecture, because)
        beyond = sorted((len(layer), layer) for layer in tensor_of if not _is_layer(layer, n_layers))
        if beyond:
            query = self.tensor(beyond[0][1], "attention_query")
            name = query if query in self.checkpoint else tensor_of[beyond[0][1]]
            listed = ", ".join(shown(layer) for _, layer in beyond[:_SHOWN]) + (", …" if len(beyond) > _SHOWN else "")
            raise CheckpointError(
                self.checkpoint.path,
                f"tensor {quoted(name)} is there; expected none beyond the {n_layers} layers of the configuration "
                f"(numbered besides: {listed}): if these are layers of the model, correct the configuration; "
                "if they are not (draft layers, say), take them out",
            )

    def require_shapes(self, components: tuple[str, ...]) -> None:
        """Raise ShapeError unless every tensor, and its bias if any, has the shape that the configuration implies.

        Also raises CheckpointError where a tensor is empty or of a type that cannot be read. Only headers are
        looked at.
        """
        for component in components:
            expected = self._linear_shape(component)
            if expected is None:
                raise CheckpointError(
                    self.checkpoint.config_path,
                    f"no {' or '.join(self.layout.config.d_mlp)}; expected a positive integer",
                )
            outputs = expected[:1]
            if self.layout.components[component].transposed:
                expected = expected[::-1]
            for name in self.of_each_layer(component):
                self.checkpoint.require_supported(name)
                self._require_shape(name, expected)
                bias = name.removesuffix("weight") + "bias"
                if bias in self.checkpoint:
                    self._require_shape(bias, outputs)

    def shows_head_size(self, rotated: int) -> bool:
        """Whether the shape of a tensor shows how many outputs a head has.

        The weights do not: twelve heads of 64 have the shape of 24 heads of 32. A norm of the queries and keys of each
        head has d_head gains, and the rotary frequencies that older checkpoints keep are one for two of the ``rotated``
        dimensions of a head.

        Raises:
            ShapeError: it shows another size than the configuration's.
            MissingTensorError: a layer lacks the norms that another has.
        """
        norms, frequencies = self.norms(), self.layout.rotary_frequencies
        expected = dict.fromkeys(norms, (self.dimensions.d_head,))
        if frequencies:
            expected |= dict.fromkeys(self.in_each_layer(frequencies), ((rotated + 1) // 2,))
        held = [name for name in expected if name in self.checkpoint]
        for name in held:
            self._require_shape(name, expected[name])
        missing = [norm for norm in norms if norm not in self.checkpoint]
        if 0 < len(missing) < len(norms):
            raise MissingTensorError(self.checkpoint.path, missing[0], self.architecture)
        return bool(held)

    def norms(self) -> list[str]:
        """The gains of the norms that the layout applies to queries and keys, layer by layer."""
        return self.in_each_layer(*(f"{norm}.weight" for norm in self.layout.query_key_norms))

    def _require_shape(self, name: str, expected: tuple[int, ...]) -> None:
        if self.checkpoint.shape(name) != expected:
            because = f"{self.checkpoint.config_path.name}: {self.dimensions.because}"
            raise ShapeError(self.checkpoint.file(name), name, self.checkpoint.shape(name), expected, because)

    def _linear_shape(self, component: str) -> tuple[int, int] | None:
        """(outputs, inputs) of the tensor that holds the component; None where the configuration does not say."""
        rows, d_model, d_mlp = self.dimensions.part_rows, self.dimensions.d_model, self.dimensions.d_mlp
        if component in ATTENTION_PARTS:
            separate = self.layout.components[component].kind == "separate"
            return rows[ATTENTION_PARTS.index(component)] if separate else sum(rows), d_model
        if component == "attention_output":
            return d_model, rows[0]
        if d_mlp is None:
            return None
        return (d_model, d_mlp) if component == "mlp_out" else (d_mlp, d_model)


def with_sizes(config: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """The configuration, and the sizes that it leaves out where the tensors show them, by the words of its layout.

    They do not show the number of heads: twelve heads of 64 have the shape of 24 heads of 32. Where that is given, the
    head size and the number of key heads follow.

    Raises:
        MissingTensorError, CheckpointError: there is no stack of layers of the architecture, or there are several.
    """
    completed, architecture = dict(config), str(config.get("model_type"))
    if architecture not in LAYOUTS:
        return completed
    layout, prefix = LAYOUTS[architecture], _prefix(checkpoint, architecture)
    of_any = _any_layer(re.escape(prefix), layout.layer)

    def linear(component: str) -> tuple[int, ...]:
        """(outputs, inputs) of the tensor that holds it in the first layer; zeros where there is none."""
        name = prefix + _weight(layout, 0, component)
        shape = checkpoint.shape(name) if name in checkpoint else ()
        outputs_first = shape[::-1] if layout.components[component].transposed else shape
        return outputs_first if len(shape) == 2 else (0, 0)

    def size(name: str, shown: int | None) -> int | None:
        """What the configuration says of it, or else what is shown, which it then says."""
        words = getattr(layout.config, name)
        held = next((completed[word] for word in words if completed.get(word) is not None), None)
        if held is None and words and shown:
            completed[words[0]] = held = shown
        return held if type(held) is int and held > 0 else None

    query_rows, d_model = linear("attention_query")
    size("n_layers", len({match["layer"] for name in checkpoint.names if (match := of_any.match(name))}))
    size("d_model", d_model)
    size("d_mlp", linear("mlp_in")[0])
    n_heads = size("n_heads", None)
    d_head = size("d_head", query_rows // n_heads if n_heads else None)
    size("n_key_heads", linear("attention_key")[0] // d_head if d_head else None)
    return completed


def _prefix(checkpoint: Checkpoint, architecture: str) -> str:
    """What stands in front of the names of the one stack of layers."""
    query = _weight(LAYOUTS[architecture], "{}", "attention_query")
    name_of_any = _any_layer(r"(?P<prefix>|.*\.)", query)
    found = (name_of_any.fullmatch(name) for name in checkpoint.names)
    stacks = {match["prefix"]: match[0] for match in found if match}
    if not stacks:
        raise MissingTensorError(checkpoint.path, query.format(0), architecture)
    if len(stacks) > 1:
        each = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
        raise CheckpointError(checkpoint.path, f"tensors {each}; expected one stack of layers, not {len(stacks)}")
    return next(iter(stacks))


def _weight(layout: Layout, layer: int | str, component: str) -> str:
    """The name of the tensor that holds a component, without what stands in front."""
    return f"{layout.layer.format(layer)}{layout.components[component].tensor}.weight"


def _any_layer(prefix: str, name: str) -> re.Pattern[str]:
    """A pattern for the name, which has ``{}`` for the number of a layer."""
    return re.compile(prefix + re.escape(name).replace(re.escape("{}"), r"(?P<layer>\d+)"), re.DOTALL)


def _is_layer(text: str, n_layers: int) -> bool:
    return len(text) <= len(str(n_layers)) and str(int(text)) == text and int(text) < n_layers
