"""Models of any type that ``transformers`` knows, and live modules, read through their own forward pass.

This module imports torch and ``transformers`` only when a network is requested. A network is built without its weights
and run a few times on noise (:mod:`rmtbase.models.forward._probe_forward`), which takes seconds and the memory of a few
matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.interrupts import interrupts_held
from rmtbase.models.layouts._declared_biases import Declared, bias_notes
from rmtbase.models.layouts._expressions import Read
from rmtbase.models.layouts._sites import Inventory, Site

if TYPE_CHECKING:
    from torch import nn

    from rmtbase.models.forward._probe_network import Part

_SMALL, _TIMES_LARGER = 10**8, 4  # parameters that are run in any case, and at most, as a multiple of those stored

NOT_PROVED = "not proved"
"""Beginning of the note of a model that was not run or whose products were not found; a reason follows."""


@dataclass(frozen=True)
class Network:
    """Network without weights and its attention sites. Made by :meth:`of_config` or :meth:`of_module`.

    Attributes:
        network: the module.
        path: its name in messages.
        inputs: inputs of its forward pass, by name; None where they must be found.
        given: the user's object: the module itself or its wrapper; None for a network that was built here.
    """

    network: nn.Module
    path: Path
    inputs: Mapping[str, Any] | None = None
    given: nn.Module | None = None

    @classmethod
    def of_config(cls, config: Mapping[str, Any], path: Path) -> Network:
        """Build the class that ``transformers`` has for a configuration. No other code is run.

        Raises:
            MissingDependencyError: torch or ``transformers`` is not installed.
            UnknownArchitectureError: ``transformers`` does not know the type.
            CheckpointError: the type requires its own code, or the class cannot be built.
        """
        require_transformers("reading a model through its own forward pass")
        from rmtbase.models.forward._probe_network import build

        return cls(build(config, path), path)

    @classmethod
    def of_module(
        cls, module: nn.Module, inputs: Mapping[str, Any] | None = None, given: nn.Module | None = None
    ) -> Network:
        """Wrap a live module on any device and of any dtype; the module is not changed.

        Args:
            module: a module of ``transformers`` or of the user; its class may come from anywhere.
            inputs: inputs of its forward pass, by name, with at least two tokens; most modules of ``transformers`` need
                none.
            given: the wrapper of the module, if it has one.

        Raises:
            MissingDependencyError: torch or ``transformers`` is not installed.
        """
        require_transformers("reading a module")
        return cls(module, Path(type(module).__name__), inputs, module if given is None else given)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts that ran. Raises CheckpointError if none runs."""
        from rmtbase.models.forward._probe_network import read_parts

        try:
            return tuple(read_parts(self.network, self.inputs))
        except Exception as error:  # a network may raise anything
            name = type(self.network).__name__
            raise CheckpointError(
                self.path, f"{name} does not run on noise ({type(error).__name__}: {error})"
            ) from error

    @cached_property
    def _sites(self) -> tuple[Site, ...]:
        from rmtbase.models.forward._probe_places import in_places

        return in_places(met for part in self.parts for met in part.met.values())

    def inventory(self, stored: Mapping[str, tuple[int, ...]] | None = None) -> Inventory:
        """Find the attention sites, over the names of the stored tensors; notes name the modules that were not read.

        Args:
            stored: the shapes of the stored tensors by name; by default the names are the network's own.

        Raises:
            CheckpointError: the network does not run, no attention was found, or one of its tensors is not stored.
        """
        from rmtbase.models.forward._probe_network import never_run

        if stored is not None:
            self._require_stored_size(stored)
        unresolved = (one for part in self.parts for one in part.unresolved.items())
        left = [
            f"read in part: {module}: another softmax in it is not read: {reason}"
            if any(_is_within(site.module, module) for site in self._sites)
            else f"not read: {module}: {reason}"
            for module, reason in unresolved
        ]
        left += [f"not read: {module}: it did not run" for module in never_run(self.network, self.parts)]
        if not self._sites:
            why = "; ".join(left[:3]) or "no softmax of a product of queries and keys"
            raise CheckpointError(self.path, f"{type(self.network).__name__}: {why}; expected attention")
        sites = tuple(self._as_stored(self._sites, stored))
        notes = (*_of_two_layers(sites), *left, *self._bias_notes(stored))
        return Inventory(sites=sites, others={}, notes=notes)

    def _require_stored_size(self, stored: Mapping[str, tuple[int, ...]]) -> None:
        """Raise if the network is far larger than the stored tensors: it is another one, perhaps too large to run."""
        held, expected = sum(map(prod, stored.values())), sum(one.numel() for one in self.network.parameters())
        if expected > max(_SMALL, _TIMES_LARGER * held):
            raise CheckpointError(
                self.path,
                f"a network of {expected:,} parameters, where {held:,} are stored; expected one of the stored size",
            )

    def _as_stored(self, sites: tuple[Site, ...], stored: Mapping[str, tuple[int, ...]] | None) -> list[Site]:
        from rmtbase.models.forward._stored_names import as_stored, stored_parameters

        if stored is None:
            return list(sites)
        needed = {name for site in sites for one in site.expressions().values() for name in one.tensors()}
        needed |= {name for site in sites for norm in site.norms() for name in norm.tensors()}
        parameters = stored_parameters(self.network, stored, sorted(needed))
        return [as_stored(site, parameters, self.path) for site in sites]

    def _bias_notes(self, stored: Mapping[str, tuple[int, ...]] | None) -> Iterator[str]:
        """Note stored biases of the sites' maps that differ from those of the network."""
        from rmtbase.models.forward._stored_names import stored_parameters

        if stored is None:
            return
        maps = {name for site in self._sites for one in site.expressions().values() for name in one.tensors()}
        own = {name for name, _ in self.network.named_parameters(remove_duplicate=False)}
        held = stored_parameters(self.network, stored, sorted(maps))
        tensors: dict[str, list[str]] = {"with": [], "without": []}
        for name, one in held.items():
            which = "with" if name.removesuffix("weight") + "bias" in own else "without"
            tensors[which] += one.tensors()
        yield from bias_notes({"with": Declared(True), "without": Declared(False)}, tensors, stored)

    def prove(self, sites: Sequence[Site], stored: Mapping[str, tuple[int, ...]], read: Read) -> tuple[Site, ...]:
        """Compare q·k of the network's own modules, with the real weights, with xᵀ W_QK x′ of each site and head.

        The network first runs without the layers that hold none of these sites, since the inputs of the others are
        noise anyway. If it does not run in this way, or not all sites are found and equal, the whole network decides.

        Args:
            sites: sites over the names of the stored tensors, found in any way.
            stored: the shapes of the stored tensors by name.
            read: function that reads a stored tensor.

        Returns:
            The sites that were found in the network; all of them are proved.

        Raises:
            Disproved: the products differ by more than rounding.
            CheckpointError: the network does not run.
        """
        from rmtbase.models.forward._probe_layers import only_layers_of
        from rmtbase.models.forward._probe_network import read_parts
        from rmtbase.models.forward._prove import prove_parts
        from rmtbase.models.forward._stored_names import parameters_of

        of_sites = [frozenset(site.query_key_tensors()) for site in sites]
        parameters = parameters_of(self.network, stored, of_sites)
        try:
            with only_layers_of(self.network, parameters, of_sites):
                proved = prove_parts(sites, read_parts(self.network, self.inputs), parameters, read, self.path)
        except Exception:  # a network without some of its layers may raise anything
            proved = ()
        if len(proved) < len(sites):
            parts = self.parts
            try:
                proved = prove_parts(sites, parts, parameters, read, self.path)
            except CheckpointError:  # they differ, or a stored tensor cannot be read
                raise
            except Exception as error:  # a network may raise anything
                name, what = type(self.network).__name__, f"{type(error).__name__}: {error}"
                raise CheckpointError(
                    self.path, f"{name} does not run with its own queries and keys ({what})"
                ) from error
        return proved


def _is_within(module: str, other: str) -> bool:
    """Return True if the modules are the same, or one contains the other."""
    return f"{module}.".startswith(f"{other}.") or f"{other}.".startswith(f"{module}.")


def _of_two_layers(sites: Sequence[Site]) -> Iterator[str]:
    """Yield notes on sites whose keys are computed by another layer from its own input."""
    from rmtbase.models.forward._probe_places import other_layer

    shared: dict[str, list[str]] = {}
    for site in sites:
        assert site.query is not None and site.key is not None
        keys = other_layer(site.query.tensors(), site.key.tensors())
        if keys is not None:
            shared.setdefault(keys, []).append(str(site.place))
    for keys, places in shared.items():
        each = ", ".join(places)
        yield f"{each}: the keys are those of {keys}, which reads the input of its own layer: W_QK joins two inputs"


def stored_of(module: nn.Module) -> tuple[dict[str, tuple[int, ...]], Read]:
    """Return the shapes of a module's parameters by name, and a function that reads one in float64."""
    parameters = dict(module.named_parameters())

    def read(name: str) -> np.ndarray:
        return parameters[name].detach().double().cpu().numpy()

    return {name: tuple(one.shape) for name, one in parameters.items()}, read


def require_transformers(purpose: str) -> None:
    """Raise MissingDependencyError unless torch and transformers are installed."""
    for package in ("torch", "transformers"):
        try:
            version(package)
        except PackageNotFoundError:
            raise MissingDependencyError(package, purpose, "hf") from None
    Path.cwd()  # in a folder that was deleted torch's oneMKL ends the process
    with interrupts_held():
        import_module("torch")
