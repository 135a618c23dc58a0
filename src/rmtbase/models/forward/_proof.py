"""Proof of a model's sites when it is read: the choice of sites, and the note about the result."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.models.files._demo import demo_root
from rmtbase.models.forward._torch_route import Network, reason_not_proved, require_transformers
from rmtbase.models.layouts._expressions import Read, to_json
from rmtbase.models.layouts._sites import Disproved, Site
from rmtbase.systems import cache_folder

_SWITCH = "RMTBASE_PROOF"  # 0: models are read without a proof


def proof_is_wanted() -> bool:
    return os.environ.get(_SWITCH) != "0"


def proof_of(
    sites: Sequence[Site],
    config: Mapping[str, Any],
    path: Path,
    stored: Mapping[str, tuple[int, ...]],
    read: Read,
    network: Network | None = None,
    noted: Collection[str] = (),
) -> Proof:
    kinds: dict[str, list[Site]] = {}
    for site in sites:
        kinds.setdefault(re.sub(r"\d+", "#", " ".join(sorted(site.query_key_tensors()))), []).append(site)
    chosen = [site for alike_sites in kinds.values() for site in dict.fromkeys((alike_sites[0], alike_sites[-1]))]
    try:
        if network is not None and network.given is not None:
            require_transformers("a proof")
            reason = reason_not_proved(network, sites, stored, read, noted)
            ran = f"proved by running the {network.path} that was given: all of {len(sites)} sites"
            return Proof(ran) if reason is None else not_proved(reason)
        network = network or Network.of_config(config, path)
        proved = network.prove(chosen, stored, read)
    except Disproved:
        raise
    except (MissingDependencyError, CheckpointError) as error:  # the network cannot be built or run
        return not_proved(error)
    if not proved:
        names = ", ".join(sorted(chosen[0].query_key_tensors()))
        return not_proved(f"the forward pass shows no queries and keys of {names}")
    left = sorted({str(site.place) for site in chosen} - {str(site.place) for site in proved})
    but = f"; not {', '.join(left)}" if left else ""
    return Proof(
        f"proved against transformers' own forward pass (transformers {version('transformers')}): "
        f"{len(proved)} of {len(sites)} sites, the first and the last of each kind{but}"
    )


DEMO_PROOFS = "proofs.json"  # file of the bundled model: digest of what was proved -> the note about it

_LARGEST = 1 << 16  # bytes of a file
_SOURCES = ("_proof.py", "_prove.py", "_probe*.py")


class Proof(NamedTuple):
    note: str  # what was proved and how, or "not proved" and why
    holds: bool = True  # False if it was not proved
    before: bool = False  # whether it was proved before, and only read now


def not_proved(reason: object) -> Proof:
    return Proof(f"not proved: {reason}", False)


def subject(
    weights: str, sites: Sequence[Site], config: Mapping[str, Any], stored: Mapping[str, tuple[int, ...]]
) -> str:
    """Digest of what is proved: the weights, given by their own digest, and the sites that are read from them."""
    read = [
        [str(site.place), site.n_heads, site.n_key_heads, site.d_head, site.d_query, site.d_key, site.logit_scale]
        + [None if matrix is None else to_json(matrix) for matrix in (site.query, site.key)]
        for site in sites
    ]
    return _digest([weights, read, config, sorted(stored.items())])


def kept_proof(proof_subject: str, prove: Callable[[], Proof]) -> Proof:
    shipped = _read(demo_root() / DEMO_PROOFS).get(proof_subject)
    if isinstance(shipped, str):
        return Proof(shipped, before=True)
    try:
        versions = [version(name) for name in ("rmtbase", "torch", "transformers")]
    except PackageNotFoundError:
        return prove()
    key = _digest([proof_subject, *versions, _source()])
    path = cache_folder() / f"proof-{key[:32]}.json"
    kept_file = _read(path)
    if (
        kept_file.get("proof") == key
        and isinstance(note := kept_file.get("note"), str)
        and kept_file.get("sha256") == _digest(note)
    ):
        return Proof(note, before=True)
    proof = prove()
    if proof.holds:
        from rmtbase.tables import write_bytes  # with xarray, which nothing else here needs

        content = json.dumps({"proof": key, "note": proof.note, "sha256": _digest(proof.note)}, indent=1)
        with suppress(OSError):  # then it is proved again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(f"{content}\n".encode(), path)
    return proof


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            content = json.loads(file.read(_LARGEST))
        return content if isinstance(content, dict) else {}
    return {}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _source() -> str:
    folder = Path(__file__).parent
    files = sorted({path for pattern in _SOURCES for path in folder.glob(pattern)})
    return _digest([[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in files])
