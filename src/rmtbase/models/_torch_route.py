"""Models of any type that ``transformers`` knows, and live modules, read through their own forward pass.

This file needs neither torch nor ``transformers`` until a network is asked for. A network is built without its weights
and run a few times on noise (:mod:`rmtbase.models._probe_forward`): seconds, and a few matrices' worth of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.models._expressions import Read
from rmtbase.models._sites import Inventory, Site

if TYPE_CHECKING:
    from torch import nn

    from rmtbase.models._probe import Found
    from rmtbase.models._probe_network import Part

NOT_PROVED = "proved in CI, not here"
"""Of a model that is read where torch and ``transformers`` are not installed."""


@dataclass(frozen=True)
class Network:
    """A network without weights, and what its forward passes showed. Made by :meth:`of_config` or :meth:`of_module`.

    Attributes:
        network: the module.
        parts: those of it that ran.
        path: what messages call it.
    """

    network: nn.Module
    parts: tuple[Part, ...]
    path: Path

    @classmethod
    def of_config(cls, config: Mapping[str, Any], path: Path) -> Network:
        """Of the class that ``transformers`` has for a configuration. No other code is run.

        Raises:
            MissingDependencyError: torch or ``transformers`` is not installed.
            UnknownArchitectureError: ``transformers`` does not know the type.
            CheckpointError: the type brings its own code; or the class cannot be built, or not be run.
        """
        _require_torch("reading a model through its own forward pass")
        from rmtbase.models._probe_network import build

        return cls._run(build(config, path), None, path)

    @classmethod
    def of_module(cls, module: nn.Module, inputs: Mapping[str, Any] | None = None) -> Network:
        """Of a live module on any device and of any dtype, which stays as it is.

        Args:
            module: of ``transformers``, or one's own; its class may come from anywhere.
            inputs: of its forward, by name, of at least two tokens; those of ``transformers`` mostly need none.

        Raises:
            CheckpointError: it does not run.
        """
        _require_torch("reading a module")
        return cls._run(module, inputs, Path(type(module).__name__))

    @classmethod
    def _run(cls, network: nn.Module, inputs: Mapping[str, Any] | None, path: Path) -> Network:
        from rmtbase.models._probe_network import read_parts

        try:
            return cls(network, tuple(read_parts(network, inputs)), path)
        except Exception as error:  # whatever a network raises
            name = type(network).__name__
            raise CheckpointError(path, f"{name} does not run on noise ({type(error).__name__}: {error})") from error

    @cached_property
    def _found(self) -> Found:
        from rmtbase.models._probe import placed

        return placed([part.reading for part in self.parts])

    def inventory(self, stored: Mapping[str, tuple[int, ...]] | None = None) -> Inventory:
        """The attention sites, in names of the stored tensors; what could not be read is in the notes, by name.

        Args:
            stored: the shapes of the stored tensors by name; by default the names are the network's own.

        Raises:
            CheckpointError: no attention was read, or a tensor of it is not stored.
        """
        from rmtbase.models._probe_network import never_run

        sites, unresolved = self._found
        left = [f"not read: {module}: {reason}" for module, reason in unresolved]
        left += [f"not read: {module}: it did not run" for module in never_run(self.network, self.parts)]
        if not sites:
            why = "; ".join(left[:3]) or "no softmax of a product of queries and keys"
            raise CheckpointError(self.path, f"{type(self.network).__name__}: {why}; expected attention")
        return Inventory(sites=tuple(self._as_stored(sites, stored)), others={}, notes=tuple(left))

    def _as_stored(self, sites: tuple[Site, ...], stored: Mapping[str, tuple[int, ...]] | None) -> list[Site]:
        from rmtbase.models._stored_names import as_stored

        if stored is None:
            return list(sites)
        parameters = self._parameters(stored)
        return [as_stored(site, parameters, self.path) for site in sites]

    def _parameters(self, stored: Mapping[str, tuple[int, ...]]) -> dict:
        from rmtbase.models._stored_names import stored_parameters

        sites = self._found.sites
        needed = {name for site in sites for one in site.expressions().values() for name in one.tensors()}
        needed |= {name for site in sites for norm in site.norms() for name in norm.tensors()}
        return stored_parameters(self.network, stored, sorted(needed))

    def prove(self, sites: tuple[Site, ...], stored: Mapping[str, tuple[int, ...]], read: Read) -> str:
        """Compare q·k of the network's own modules, with the real weights, with xᵀ W_QK x′ of each site and head.

        Args:
            sites: from anywhere, in names of the stored tensors.
            stored: the shapes of the stored tensors by name.
            read: gives one.

        Returns:
            What to note.

        Raises:
            CheckpointError: they differ, by more than rounding, or a site is none of the network's.
        """
        from rmtbase.models._prove import prove_parts

        return prove_parts(sites, self.parts, self._parameters(stored), read, self.path)


def stored_of(module: nn.Module) -> tuple[dict[str, tuple[int, ...]], Read]:
    """The shapes of a module's parameters by name, and what reads one, in float64."""
    parameters = dict(module.named_parameters())

    def read(name: str) -> np.ndarray:
        return parameters[name].detach().double().cpu().numpy()

    return {name: tuple(one.shape) for name, one in parameters.items()}, read


def _require_torch(purpose: str) -> None:
    for package in ("torch", "transformers"):
        try:
            version(package)
        except PackageNotFoundError:
            raise MissingDependencyError(package, purpose, "hf") from None
