"""Models of any type that ``transformers`` knows, and live modules, read through their own forward pass on noise.

This module imports torch and ``transformers`` only when a network is requested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, permutations
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmtbase.errors import (
    CheckpointError,
    MissingDependencyError,
    MissingTensorError,
    UnknownArchitectureError,
    UnprovedConfigurationError,
)
from rmtbase.interrupts import interrupts_held
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._architectures import SeveralStacks, find_inventory
from rmtbase.models.layouts._expressions import Read
from rmtbase.models.layouts._layout_table import read_architecture
from rmtbase.models.layouts._sites import NORM_FIELDS, Declared, Disproved, Inventory, Site, bias_notes, kind_of
from rmtbase.shown import one_line

if TYPE_CHECKING:
    from torch import nn

    from rmtbase.models.forward._probe_network import Part

_SMALL, _TIMES_LARGER = 10**8, 4  # parameters that are run in any case, and at most, as a multiple of those stored


@dataclass(frozen=True)
class Network:
    network: nn.Module  # the module
    path: Path  # its name in messages
    inputs: Mapping[str, Any] | None = None  # inputs of its forward pass, by name; None where they must be found
    # the user's object: the module itself or its wrapper; None for a network that was built here
    given: nn.Module | None = None

    @classmethod
    def of_config(cls, config: Mapping[str, Any], path: Path) -> Network:
        require_transformers("reading a model through its own forward pass")
        from rmtbase.models.forward._probe_network import build

        return cls(build(config, path), path)

    @classmethod
    def of_module(
        cls, module: nn.Module, inputs: Mapping[str, Any] | None = None, given: nn.Module | None = None
    ) -> Network:
        """Wrap a live module on any device and of any dtype; the module is not changed."""
        require_transformers("reading a module")
        return cls(module, Path(type(module).__name__), inputs, module if given is None else given)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        from rmtbase.models.forward._probe_network import read_parts

        try:
            return tuple(read_parts(self.network, self.inputs))
        except Exception as error:  # a network may raise anything
            problem = f"{type(self.network).__name__} does not run on noise ({type(error).__name__}: {error})"
            raise CheckpointError(self.path, problem) from error

    @cached_property
    def _sites(self) -> tuple[Site, ...]:
        from rmtbase.models.forward._probe_places import in_places

        return in_places(met for part in self.parts for met in part.met.values())

    def inventory(self, stored: Mapping[str, tuple[int, ...]] | None = None) -> Inventory:
        """Find the attention sites, over the names of the stored tensors; notes name the modules that were not read."""
        from rmtbase.models.forward._probe_network import never_run
        from rmtbase.models.forward._stored_names import as_stored, stored_parameters

        if stored is not None:
            n_stored = sum(map(prod, stored.values()))
            n_built = sum(parameter.numel() for parameter in self.network.parameters())
            if n_built > max(_SMALL, _TIMES_LARGER * n_stored):
                problem = f"a network of {n_built:,} parameters, where {n_stored:,} are stored"
                raise CheckpointError(self.path, f"{problem}; expected one of the stored size")
        unresolved = (reason_of for part in self.parts for reason_of in part.unresolved.items())
        left = [
            f"read in part: {module}: another softmax in it is not read: {reason}"
            if any(f"{a}.".startswith(f"{b}.") for site in self._sites for a, b in permutations((site.module, module)))
            else f"not read: {module}: {reason}"
            for module, reason in unresolved
        ]
        left += [f"not read: {module}: it did not run" for module in never_run(self.network, self.parts)]
        if not self._sites:
            why = "; ".join(left[:3]) or "no softmax of a product of queries and keys"
            raise CheckpointError(self.path, f"{type(self.network).__name__}: {why}; expected attention")
        if stored is None:
            return Inventory(sites=self._sites, others={}, notes=(*_of_two_layers(self._sites), *left))
        matrices = (matrix for site in self._sites for matrix in site.expressions().values())
        maps = {name for matrix in matrices for name in matrix.tensors()}
        norms = {name for site in self._sites for norm in site.norms() for name in norm.tensors()}
        parameters = stored_parameters(self.network, stored, sorted(maps | norms))
        sites = tuple(as_stored(site, parameters, self.path) for site in self._sites)
        # Stored biases of the sites' maps may differ from those of the network.
        own_names = {name for name, _ in self.network.named_parameters(remove_duplicate=False)}
        tensors: dict[str, list[str]] = {"with": [], "without": []}
        for name in sorted(maps & parameters.keys()):
            group = "with" if name.removesuffix("weight") + "bias" in own_names else "without"
            tensors[group] += parameters[name].tensors()
        biases = bias_notes({"with": Declared(True), "without": Declared(False)}, tensors, stored)
        return Inventory(sites=sites, others={}, notes=(*_of_two_layers(sites), *left, *biases))

    def prove(self, sites: Sequence[Site], stored: Mapping[str, tuple[int, ...]], read: Read) -> tuple[Site, ...]:
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
                problem = f"{type(self.network).__name__} does not run with its own queries and keys"
                raise CheckpointError(self.path, f"{problem} ({type(error).__name__}: {error})") from error
        return proved


def _of_two_layers(sites: Sequence[Site]) -> Iterator[str]:
    from rmtbase.models.forward._probe_places import other_layer

    shared: dict[str, list[str]] = {}
    for site in sites:
        assert site.query is not None and site.key is not None
        keys = other_layer(site.query.tensors(), site.key.tensors())
        if keys is not None:
            shared.setdefault(keys, []).append(str(site.place))
    for keys, places in shared.items():
        listed = ", ".join(places)
        yield f"{listed}: the keys are those of {keys}, which reads the input of its own layer: W_QK joins two inputs"


def reason_not_proved(
    network: Network, sites: Sequence[Site], stored: Mapping[str, tuple[int, ...]], read: Read, noted: Collection[str]
) -> str | None:
    from rmtbase.models.forward._prove import attention_of, prove_parts, reasons_not_to_run
    from rmtbase.models.forward._stored_names import parameters_of

    assert network.given is not None
    names = [frozenset(site.query_key_tensors()) for site in sites]
    parameters = parameters_of(network.network, stored, names)
    stored_in = {own_name: frozenset(matrix.tensors()) for own_name, matrix in parameters.items()}
    weights = [  # by their names in the module
        sorted({own_name for own_name in stored_in if stored_in[own_name] & stored_names} or stored_names)
        for stored_names in names
    ]
    places = [attention_of(network.network, *of_site) for of_site in zip(sites, weights, strict=True)]
    reason = next(reasons_not_to_run(network.given, network.network, {*places}, sorted({*chain(*weights)})), None)
    if reason is not None:
        return reason
    try:
        traced = {frozenset(site.query_key_tensors()): site for site in network.inventory(stored).sites}
        own_parameters = dict(network.network.named_parameters(remove_duplicate=False))
        proved = prove_parts(sites, network.parts, parameters, read, network.path, own_parameters)
    except Disproved:
        raise
    except CheckpointError as error:
        return str(error)
    except Exception as error:  # a network may raise anything
        name = type(network.network).__name__
        return f"{name} does not run with its own queries and keys ({type(error).__name__}: {one_line(str(error))})"
    unresolved = {name: reason for part in network.parts for name, reason in part.unresolved.items()}
    for site, name, place in zip(sites, names, places, strict=True):
        trace = traced.get(name)
        if trace is None or site not in proved:
            reasons = (reason for path, reason in unresolved.items() if path.startswith(place))
            why = next(reasons, "they do not occur in it")
            return f"the forward pass shows no queries and keys of {site.place}: {why}"
        norms = [field for field in NORM_FIELDS if getattr(site, field) is not None]
        differing = [f"{field.replace('_', ' ')}s" for field in norms if getattr(site, field) != getattr(trace, field)]
        if site.rotated is not None and site.rotated != (trace.rotated or 0):
            differing.append("rotated dimensions")
        if "norms" in map(kind_of, trace.notes) and "norms" not in map(kind_of, (*noted, *site.notes)):
            differing.append("norms of queries or keys")
        if differing:
            read_with = f"those that a {network.path} is read with"
            return f"{differing[0]} of {site.place} differ in the forward pass from {read_with}"
    return None


def require_transformers(purpose: str) -> None:
    for package in ("torch", "transformers"):
        try:
            version(package)
        except PackageNotFoundError:
            raise MissingDependencyError(package, purpose, "hf") from None
    Path.cwd()  # in a folder that was deleted torch's oneMKL ends the process
    with interrupts_held():
        import_module("torch")


def find_architecture(config: Mapping[str, Any], path: Path, network: Network | None) -> tuple[str, Network | None]:
    """Return the model type, and the network if one is given or the table lacks the type, so that it must be run."""
    if network is not None:
        return str(config.get("model_type")), network
    try:
        return read_architecture(config, path), None
    except UnknownArchitectureError as unknown:
        try:
            return unknown.architecture, Network.of_config(config, path)
        except (MissingDependencyError, UnknownArchitectureError):
            raise unknown from None


def inventory_by_route(
    config: Mapping[str, Any], path: Path, architecture: str, checkpoint: Checkpoint, network: Network | None
) -> tuple[Inventory, Network | None]:
    if network is not None:
        return network.inventory(checkpoint.shapes()), network
    try:
        return find_inventory(config, checkpoint, path, architecture), None
    except (UnprovedConfigurationError, MissingTensorError, SeveralStacks) as refused:
        if isinstance(refused, MissingTensorError) and refused.because:
            raise
        try:
            network = Network.of_config(config, path)
            inventory = network.inventory(checkpoint.shapes())
        except (MissingDependencyError, CheckpointError):
            raise refused from None
        if isinstance(refused, SeveralStacks) and not inventory.used_tensors().issuperset(refused.tensors):
            raise
        return inventory, network
