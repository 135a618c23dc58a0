"""The layers of a model: their tensors found by name in its checkpoint, and checked against its configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._config import Dimensions
from rmtbase.models._layouts import ATTENTION_PARTS, COMPONENTS, LAYOUTS, Layout
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
        query = cls(checkpoint, architecture, dimensions, "").tensor("{}", "attention_query")
        name_of_any = _any_layer(r"(?P<prefix>|.*\.)", query)
        found = (name_of_any.fullmatch(name) for name in checkpoint.names)
        stacks = {match["prefix"]: match[0] for match in found if match}
        if not stacks:
            raise MissingTensorError(checkpoint.path, query.format(0), architecture)
        if len(stacks) > 1:
            each = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
            raise CheckpointError(checkpoint.path, f"tensors {each}; expected one stack of layers, not {len(stacks)}")
        return cls(checkpoint, architecture, dimensions, *stacks)

    @property
    def layout(self) -> Layout:
        """Where the architecture keeps its matrices."""
        return LAYOUTS[self.architecture]

    def in_layer(self, layer: int | str, name: str) -> str:
        """The whole name of what a layer calls so."""
        return f"{self.prefix}{self.layout.layer.format(layer)}{name}"

    def tensor(self, layer: int | str, component: str) -> str:
        """The name of the tensor that holds a component of a layer."""
        return self.in_layer(layer, f"{self.layout.components[component].tensor}.weight")

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
            because = f"config.json: {n_layers} layers, of which there are tensors of {len(tensor_of)}"
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
                    self.checkpoint.path / "config.json",
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
            because = f"config.json: {self.dimensions.because}"
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


def _any_layer(prefix: str, name: str) -> re.Pattern[str]:
    """A pattern for the name, which has ``{}`` for the number of a layer."""
    return re.compile(prefix + re.escape(name).replace(re.escape("{}"), r"(?P<layer>\d+)"), re.DOTALL)


def _is_layer(text: str, n_layers: int) -> bool:
    return len(text) <= len(str(n_layers)) and str(int(text)) == text and int(text) < n_layers
