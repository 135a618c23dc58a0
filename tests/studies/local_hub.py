"""A stand-in for the hub on this machine: it answers over HTTP what the hub's own client asks, of folders."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class LocalHub(ThreadingHTTPServer):
    """Serves ``<folder>/<owner>/<name>`` as models, at the one commit; names in ``gated`` are refused.

    Attributes:
        fetched: names of the files that were sent, one for each time.
        slow: name of a file of which half is sent, and then nothing until :attr:`closed`.
    """

    daemon_threads = True

    def __init__(self, folder: Path, gated: frozenset[str] = frozenset()) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.folder, self.gated, self.fetched = folder, gated, list[str]()
        self.slow, self.closed = "", threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if is_api else parts[:2])
        folder = self.server.folder / name
        if name in self.server.gated:
            return self._refuse(403, "GatedRepo", f"Access to model {name} is restricted.")
        if not folder.is_dir():
            return self._refuse(401, "RepoNotFound", "Repository Not Found")
        files = sorted(path for path in folder.iterdir() if path.is_file())
        if is_api and parts[4:5] == ["tree"]:
            listed = [{"type": "file", "path": one.name, "size": one.stat().st_size, "oid": _oid(one)} for one in files]
            return self._json(listed)
        if is_api:
            return self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": one.name} for one in files]})
        path = folder / "/".join(parts[4:])
        if path not in files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        headers = {"ETag": f'"{_oid(path)}"', "X-Repo-Commit": COMMIT, "Content-Type": "application/octet-stream"}
        if self.command == "GET":
            self.server.fetched.append(path.name)
        return self._send(200, path.read_bytes(), headers, slow=path.name == self.server.slow)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", "X-Repo-Commit": COMMIT})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": message})

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


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


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
