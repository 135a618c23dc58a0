"""A stand-in for the hub on this machine: it answers over HTTP what the hub's own client asks, of folders."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub
from huggingface_hub import constants


class LocalHub(ThreadingHTTPServer):
    """Serves ``<folder>/<owner>/<name>`` as models, and ``<name>@<revision>`` beside it as a branch; weights are LFS.

    Attributes:
        gated: names of the models that are refused.
        fetched: names of the files that were sent, one for each time.
        weights: checkpoints whose weights were sent, one for each time.
        slow: name of a file of which half is sent, and then nothing until :attr:`closed`.
        damaged: name of a file whose last byte is sent wrong.
        silent: True if the hub answers nothing but errors.
    """

    daemon_threads = True

    def __init__(self, folder: Path, gated: frozenset[str] = frozenset()) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.folder, self.gated, self.fetched, self.weights = folder, gated, list[str](), list[str]()
        self.slow, self.damaged, self.silent, self.closed = "", "", False, threading.Event()
        self._digests: dict[tuple[Path, int, int], tuple[str, str]] = {}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def branches(self, name: str) -> dict[str, Path]:
        """Folders of a model, by revision."""
        whole = self.folder / name
        found = {"main": whole} if whole.is_dir() else {}
        return found | {one.name.partition("@")[2]: one for one in whole.parent.glob(f"{whole.name}@*")}

    def commit(self, name: str, revision: str = "main") -> str:
        """Commit of a revision, which its files decide."""
        files = [(one.name, self.digests(one)[0]) for one in sorted(self.branches(name)[revision].iterdir())]
        return hashlib.sha1(repr((name, revision, files)).encode()).hexdigest()

    def digests(self, path: Path) -> tuple[str, str]:
        """SHA-1 and SHA-256 of a file, read once as long as it does not change."""
        facts = path.stat()
        key = path, facts.st_size, facts.st_mtime_ns
        if key not in self._digests:
            content = path.read_bytes()
            self._digests[key] = hashlib.sha1(content).hexdigest(), hashlib.sha256(content).hexdigest()
        return self._digests[key]


class _Answer(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        name, rest = ("/".join(parts[2:4]), parts[4:]) if is_api else ("/".join(parts[:2]), parts[2:])
        if hub.silent:
            return self._refuse(403, "", "no hub here")
        branches = hub.branches(name)
        if not branches:
            return self._refuse(401, "RepoNotFound", "Repository Not Found")
        commits = {revision: hub.commit(name, revision) for revision in branches}
        if rest[:1] == ["refs"]:
            heads = [{"name": one, "ref": f"refs/heads/{one}", "targetCommit": commits[one]} for one in branches]
            return self._json({"branches": heads, "tags": [], "converts": []})
        asked = rest[1] if len(rest) > 1 else "main"
        revision = next((one for one in branches if asked in (one, commits[one])), None)
        if revision is None:
            return self._refuse(404, "RevisionNotFound", "Revision Not Found")
        files = {one.name: one for one in sorted(branches[revision].iterdir())}
        is_gated = name in hub.gated
        if is_api and rest[:1] == ["tree"]:
            return self._json([_listed(hub, one) for one in files.values()])
        if is_api:
            siblings = [{"rfilename": one.name, "size": one.stat().st_size} for one in files.values()]
            gated = "manual" if is_gated else False
            return self._json({"id": name, "sha": commits[revision], "gated": gated, "siblings": siblings})
        if is_gated:
            return self._refuse(403, "GatedRepo", f"Access to model {name} is restricted.")
        path = files.get("/".join(rest[2:]))
        if path is None:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        headers = {"ETag": f'"{_etag(hub, path)}"', "X-Repo-Commit": commits[revision]}
        if self.command == "GET":
            hub.fetched.append(path.name)
            hub.weights += [f"{name}@{revision}"] * path.name.endswith(".safetensors")
        content = path.read_bytes()
        if path.name == hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        headers["Content-Type"] = "application/octet-stream"
        return self._send(200, content, headers, slow=path.name == hub.slow)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": message} if code else {})

    def _send(self, status: int, body: bytes, headers: dict[str, str], slow: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2 if slow else None])
            if slow:
                self.server.closed.wait()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


def _etag(hub: LocalHub, path: Path) -> str:
    """SHA-256 of what is stored with Git LFS, SHA-1 of other files, as the hub has it."""
    return hub.digests(path)[path.suffix == ".safetensors"]


def _listed(hub: LocalHub, path: Path) -> dict[str, object]:
    return {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": hub.digests(path)[0]}


@contextmanager
def local_hub(folder: Path, gated: frozenset[str] = frozenset()) -> Iterator[LocalHub]:
    """The stand-in, while it answers."""
    with LocalHub(folder, gated) as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.closed.set()
            hub.shutdown()
            thread.join()


@contextmanager
def asked(monkeypatch, tmp_path: Path, gated: frozenset[str] = frozenset()) -> Iterator[LocalHub]:
    """The stand-in for models of ``tmp_path``, which the hub's own client asks; it fetches into another folder."""
    for name in ("models", "fetched"):
        (tmp_path / name).mkdir(exist_ok=True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "fetched"))
    with local_hub(tmp_path / "models", gated) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        huggingface_hub.close_session()
        yield hub
    huggingface_hub.close_session()
