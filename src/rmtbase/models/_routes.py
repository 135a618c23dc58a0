"""Two ways to find the sites in a checkpoint: with the table of architectures, and by running the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import (
    CheckpointError,
    MissingDependencyError,
    MissingTensorError,
    UnknownArchitectureError,
    UnprovedConfigurationError,
)
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._architectures import find_inventory
from rmtbase.models.layouts._layout_table import read_architecture
from rmtbase.models.layouts._sites import Inventory
from rmtbase.models.layouts._stack_prefixes import SeveralStacks


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
    """Find the content of a checkpoint with the table, or by running its network, which is then returned too.

    The network is run, where possible, if the table was not proved for the configuration, if some layers lack tensors
    that the table expects, or if there are several stacks instead of one. A layer without any tensor in the checkpoint
    is an error in any case, and so is a stack that the network does not have.
    """
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
