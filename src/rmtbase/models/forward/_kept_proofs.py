"""Proofs that are kept: what was proved once of the same weights, settings and versions is not proved again.

A proof is a file of the user's cache. Its name is the digest of everything that it depends on: the weights, the sites,
the configuration, the versions of rmtbase, torch and transformers, and the source of what proves. Only proofs are kept:
a model that could not be proved is tried again, and one that was disproved is an error. The bundled model comes with
its proofs, which say by which version of transformers they were made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.models.files._demo import demo_root
from rmtbase.models.forward._torch_route import NOT_PROVED
from rmtbase.models.layouts._expressions import to_json
from rmtbase.models.layouts._sites import Site
from rmtbase.systems import cache_folder

DEMO_PROOFS = "proofs.json"
"""File of the bundled model: digest of what was proved -> the note about it."""

_LARGEST = 1 << 16  # bytes of a file
_SOURCES = ("_proof.py", "_prove.py", "_probe*.py", "_kept_proofs.py")


class Kept(NamedTuple):
    """Note about a proof."""

    note: str  # what was proved and how, or "not proved" and why
    before: bool  # whether it was proved before, and only read now


def subject(
    weights: str, sites: Sequence[Site], config: Mapping[str, Any], stored: Mapping[str, tuple[int, ...]]
) -> str:
    """Digest of what is proved: the weights, given by their own digest, and the sites that are read from them."""
    read = [
        [str(site.place), site.n_heads, site.n_key_heads, site.d_head, site.d_query, site.d_key, site.logit_scale]
        + [None if one is None else to_json(one) for one in (site.query, site.key)]
        for site in sites
    ]
    return _digest([weights, read, config, sorted(stored.items())])


def kept_proof(what: str, prove: Callable[[], str]) -> Kept:
    """Return the note about a proof that is kept, or prove and keep it."""
    shipped = _read(demo_root() / DEMO_PROOFS).get(what)
    if isinstance(shipped, str):
        return Kept(shipped, True)
    try:
        versions = [version(name) for name in ("rmtbase", "torch", "transformers")]
    except PackageNotFoundError:
        return Kept(prove(), False)
    key = _digest([what, *versions, _source()])
    path = cache_folder() / f"proof-{key[:32]}.json"
    held = _read(path)
    if held.get("proof") == key and isinstance(note := held.get("note"), str) and held.get("sha256") == _digest(note):
        return Kept(note, True)
    note = prove()
    if not note.startswith(NOT_PROVED):
        from rmtbase.tables import write_bytes  # with xarray, which nothing else here needs

        content = json.dumps({"proof": key, "note": note, "sha256": _digest(note)}, indent=1)
        with suppress(OSError):  # then it is proved again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(f"{content}\n".encode(), path)
    return Kept(note, False)


def _read(path: Path) -> dict[str, Any]:
    """Read a file of the cache; {} if there is none that can be read, or it holds something else."""
    with suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            content = json.loads(file.read(_LARGEST))
        return content if isinstance(content, dict) else {}
    return {}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _source() -> str:
    """Digest of the source of what proves: another way to prove proves anew."""
    folder = Path(__file__).parent
    files = sorted({path for pattern in _SOURCES for path in folder.glob(pattern)})
    return _digest([[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in files])
