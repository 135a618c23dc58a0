"""Proof of a model's sites when it is read: the choice of sites, and the note about the result."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.models.forward._torch_route import NOT_PROVED, Network, require_transformers
from rmtbase.models.layouts._expressions import Read
from rmtbase.models.layouts._sites import Disproved, Site

_SWITCH = "RMTBASE_PROOF"  # 0: models are read without a proof


def proof_is_wanted() -> bool:
    """Return False if the environment has ``RMTBASE_PROOF=0``; otherwise models are proved where possible."""
    return os.environ.get(_SWITCH) != "0"


def proof_of(
    sites: Sequence[Site],
    config: Mapping[str, Any],
    path: Path,
    stored: Mapping[str, tuple[int, ...]],
    read: Read,
    network: Network | None = None,
    noted: Collection[str] = (),
) -> str:
    """Prove sites by a forward pass, and return a note about it.

    A module in memory is run itself, and either all of its sites are proved or none. For stored weights the network of
    their configuration is built, and the first and the last site of each kind are proved; sites are of one kind if the
    names of their tensors differ only in numbers, as in the layers of a stack. Each site is compared with a forward
    pass of the real weights on fresh noise: q·k of the module must equal xᵀ W_QK x′ for every head, up to rounding.

    The note: that the sites were proved and how, or "not proved" and why.
    """
    kinds: dict[str, list[Site]] = {}
    for site in sites:
        kinds.setdefault(re.sub(r"\d+", "#", " ".join(sorted(site.query_key_tensors()))), []).append(site)
    chosen = [site for each in kinds.values() for site in dict.fromkeys((each[0], each[-1]))]
    try:
        if network is not None and network.given is not None:
            require_transformers("a proof")
            from rmtbase.models.forward._given_module import reason_not_proved

            reason = reason_not_proved(network, sites, stored, read, noted)
            ran = f"proved by running the {network.path} that was given: all of {len(sites)} sites"
            return ran if reason is None else f"{NOT_PROVED}: {reason}"
        network = network or Network.of_config(config, path)
        proved = network.prove(chosen, stored, read)
    except Disproved:
        raise
    except (MissingDependencyError, CheckpointError) as error:  # the network cannot be built or run
        return f"{NOT_PROVED}: {error}"
    if not proved:
        names = ", ".join(sorted(chosen[0].query_key_tensors()))
        return f"{NOT_PROVED}: the forward pass shows no queries and keys of {names}"
    left = sorted({str(site.place) for site in chosen} - {str(site.place) for site in proved})
    but = f"; not {', '.join(left)}" if left else ""
    return (
        f"proved against transformers' own forward pass (transformers {package_version('transformers')}): "
        f"{len(proved)} of {len(sites)} sites, the first and the last of each kind{but}"
    )
