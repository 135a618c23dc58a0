"""The proof of a model's sites at read time: which of them, and what to say of it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.models._expressions import Read
from rmtbase.models._sites import Disproved, Site
from rmtbase.models._torch_route import NOT_PROVED, Network, require_transformers

_SWITCH = "RMTBASE_PROOF"  # 0: models are read without a proof


def proof_is_wanted() -> bool:
    """Tell whether models are proved where they can be: unless the environment has ``RMTBASE_PROOF=0``."""
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
    """Prove sites by a forward pass, and say so.

    A module in memory is run itself, and all of its sites are proved or none. Of stored weights the network of their
    configuration is built, and of each kind of sites the first and the last are proved: those are of one kind whose
    names of tensors differ only in numbers, so that the layers of a stack are one. Each is compared with the forward
    pass, its real weights and fresh noise: q·k of the module is xᵀ W_QK x′ of every head, to rounding.

    Args:
        sites: of raw matrices.
        config: of the model.
        path: what messages call it.
        stored: the shapes of its stored tensors by name.
        read: gives one.
        network: of the model, where it is at hand.
        noted: what is noted of the model already.

    Returns:
        What to note: that and by what they were proved, or "not proved" and why.

    Raises:
        CheckpointError: they differ.
    """
    kinds: dict[str, list[Site]] = {}
    for site in sites:
        kinds.setdefault(re.sub(r"\d+", "#", " ".join(sorted(site.query_key_tensors()))), []).append(site)
    chosen = [site for each in kinds.values() for site in dict.fromkeys((each[0], each[-1]))]
    try:
        if network is not None and network.given is not None:
            require_transformers("a proof")
            from rmtbase.models._given_module import reason_not_proved

            reason = reason_not_proved(network, sites, stored, read, noted)
            ran = f"proved by running the {network.path} that was given: all of {len(sites)} sites"
            return ran if reason is None else f"{NOT_PROVED}: {reason}"
        network = network or Network.of_config(config, path)
        proved = network.prove(chosen, stored, read)
    except Disproved:
        raise
    except (MissingDependencyError, CheckpointError) as error:  # of the network: it cannot be built or run
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
