"""Scores and arrays that recipes keep, each of one model at one hub commit; and a published store of them.

Beside each file of a model of the hub lies its entry, a small JSON file. ``index.json``, made of them, has for each
file ``model``, ``revision``, ``commit`` (of a trajectory, a digest of the commits of its steps), ``what``, ``options``,
``schema``, ``software``, ``sha256`` and ``bytes``; a folder with it, here or behind a URL, is a published store. A file
is taken from there if its bytes have that SHA-256; a table is then verified by its own digest as well, as the atlas is.
"""

import glob
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from rmtbase.errors import TableError
from rmtbase.tables import SCHEMA_VERSION, software_version, write_bytes

INDEX = "index.json"
_IDENTITY = ("model", "revision", "what", "options", "schema")
_SECONDS = 60


class Entry(NamedTuple):
    """Identity of a kept file: the model, and what was made of it.

    Attributes:
        model: name as the file has it.
        revision: None for the usual one.
        weights: digest of weights on this machine; "" for those of the hub, which have a commit.
        what: ``scores``, ``trajectory``, or the name of arrays.
        options: with which it was made.
        end: of the file's name.
        of_hub: True for a model of the hub.
    """

    model: str
    revision: str | None
    weights: str
    what: str
    options: Mapping[str, Any]
    end: str
    of_hub: bool

    def identity(self) -> dict[str, Any]:
        """Everything that decides the content besides weights and software, as plain values."""
        options = json.loads(json.dumps(self.options, sort_keys=True, default=str))
        return dict(zip(_IDENTITY, (self.model, self.revision, self.what, options, SCHEMA_VERSION), strict=True))

    def stem(self) -> str:
        """Begin of the file's name, without the commit."""
        whole = [*self.identity().values(), self.weights, software_version()]
        key = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
        called = "@".join(re.sub(r"[^\w.-]+", "--", one) for one in (self.model, self.revision) if one)
        return f"{called}-{self.what}-{key}"


@dataclass(frozen=True)
class Store:
    """Folder of kept files, and a published store that is asked for what it lacks.

    Attributes:
        folder: where files are kept.
        published: folder or URL of a published store; "" for none.
        say: is told where a file comes from that was not verified to be of the weights that the hub has now.
    """

    folder: Path
    published: str = ""
    say: Callable[[str], None] = lambda text: None

    def path(self, entry: Entry, commit: str | None) -> Path:
        """File of an entry at a commit."""
        return self.folder / f"{entry.stem()}{f'-{commit[:12]}' if commit else ''}{entry.end}"

    def find(self, entry: Entry, commit: str | None) -> Path | None:
        """Return the kept file of an entry, from the published store if need be; None if there is none.

        Args:
            entry: what is looked for.
            commit: of the model on the hub; None if the hub does not say, where the newest kept file serves.

        Raises:
            TableError: the published store cannot be read, or its file is not the one that its index has.
        """
        if not entry.of_hub or commit:
            path = self.path(entry, commit)
            return path if path.exists() else self._fetch(entry, commit)
        found = sorted(
            self.folder.glob(f"{glob.escape(entry.stem())}-*{entry.end}"), key=lambda path: path.stat().st_mtime
        )
        found = [path for path in found if commit_of(path)]
        path = found[-1] if found else self._fetch(entry, None)
        if path is not None:
            at = commit_of(path)
            self.say(f"the hub does not say which commit {entry.model} has now: kept {entry.what} of {at} are used")
        return path

    def begin(self, entry: Entry, commit: str | None) -> Path:
        """Write the entry of a file, which is to be written next; returns the file's path."""
        path = self.path(entry, commit)
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.of_hub and commit:
            facts = entry.identity() | {"commit": commit, "software": software_version()}
            _write(path.with_suffix(".json"), facts)
        return path

    def _fetch(self, entry: Entry, commit: str | None) -> Path | None:
        """Take a file from the published store; files of other versions of the software serve."""
        if not self.published or not entry.of_hub:
            return None
        wanted = entry.identity() | ({"commit": commit} if commit else {})
        for one in _index(self.published):
            if all(one.get(name) == value for name, value in wanted.items()):
                content = _read(self.published, one["file"])
                digest = hashlib.sha256(content).hexdigest()
                if (digest, len(content)) != (one["sha256"], one["bytes"]):
                    found = f"SHA-256 {digest} of {len(content)} bytes"
                    raise TableError(_place(self.published, one["file"]), found, f"{one['sha256']} of {one['bytes']}")
                path = self.path(entry, one["commit"])
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(content, path)
                _write(path.with_suffix(".json"), {name: one[name] for name in (*_IDENTITY, "commit", "software")})
                return path
        return None


def commit_of(path: Path) -> str:
    """Commit of the weights of a kept file; "" if it is not of a model of the hub."""
    try:
        return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["commit"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_index(folder: Path) -> Path:
    """Write ``index.json`` of all files of models of the hub, so that the folder is a store to publish."""
    files = []
    for path in sorted(one for one in folder.glob("*") if one.suffix in (".nc", ".npz")):
        if commit_of(path):
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files.append({"file": path.name, **facts, "sha256": digest, "bytes": len(content)})
    _write(folder / INDEX, {"files": files})
    return folder / INDEX


def _write(path: Path, value: Any) -> None:
    write_bytes(f"{json.dumps(value, indent=1, ensure_ascii=False)}\n".encode(), path)


@cache
def _index(place: str) -> tuple[dict[str, Any], ...]:
    try:
        files = json.loads(_read(place, INDEX))["files"]
        names = {*_IDENTITY, "file", "commit", "software", "sha256", "bytes"}
        if all(names <= one.keys() and one["file"] == Path(one["file"]).name for one in files):
            return tuple(files)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise TableError(_place(place, INDEX), "something else", "the index of a published store")


def _read(place: str, name: str) -> bytes:
    try:
        if not is_url(place):
            return (Path(place).expanduser() / name).read_bytes()
        with urlopen(_place(place, name), timeout=_SECONDS) as answer:
            return answer.read()
    except (OSError, URLError) as error:
        raise TableError(_place(place, name), f"nothing ({error})", "a file of a published store") from error


def _place(place: str, name: str) -> str:
    return f"{place.rstrip('/')}/{name}"


def is_url(place: str) -> bool:
    """Return True for the address of a store on the web."""
    return place.startswith(("https://", "http://"))
