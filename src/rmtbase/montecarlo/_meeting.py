"""How hosts that share a folder find each other there: each is numbered, and the first says one word to the others.

Each host keeps one small file with a token that it has drawn for this meeting. It is there for another host once its
file bears that one's token: what a host that was killed has left never does. No clocks are compared: whoever waits for
the first host's word sees by a number that counts on that it is still at work.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmtbase.errors import OutputError, WorkerError
from rmtbase.montecarlo._store_files import parse_record
from rmtbase.regular_files import open_regular
from rmtbase.tables import write_bytes

_POLL = 0.1  # seconds between looks
_BEAT = 1.0  # seconds between signs of life of the first host
_LEAVE = 5.0  # seconds that the first host gives the others to hear it before it is gone
_LARGEST = 1 << 28  # bytes of a file


class Meeting:
    """One host's part in a meeting.

    Args:
        folder: of the meeting, made and removed by the hosts, in a folder that all of them share.
        process: number of this host, from 0.
        processes: how many there are.
    """

    def __init__(self, folder: Path, process: int, processes: int) -> None:
        self.process, self.processes = process, processes
        self._folder, self._others = folder, [other for other in range(processes) if other != process]
        self._record: dict[str, Any] = {"token": secrets.token_hex(8), "processes": processes}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._heard = False  # what the first host says, or that it is lost

    def gather(self, timeout: float) -> None:
        """Wait until all hosts are there.

        Raises:
            TimeoutError: they do not come in time; its words say who.
            WorkerError: two have the same number, or not all of them know how many they are.
            OutputError: the folder cannot be written.
        """
        deadline = time.monotonic() + timeout
        self._tell()
        while missing := self._missing():
            if time.monotonic() > deadline:
                numbers = ", ".join(map(str, missing))
                raise TimeoutError(f"no sign of host {numbers} in {self._folder.parent}, which all hosts must share")
            time.sleep(_POLL)
        if self.process == 0:
            self._tell(met=[self._read(other).get("token") for other in self._others])
            threading.Thread(target=self._live, name="rmtbase-meeting", daemon=True).start()

    def say(self, **word: Any) -> None:
        """Tell the others what they wait for, once: nothing that is said later is heard. Of the first host."""
        self._over.set()
        if "word" not in self._record:
            self._tell(word=word)

    def hear(self, patience: float) -> dict[str, Any]:
        """Wait for what the first host says, so many seconds without a sign of it. Of the others.

        Raises:
            WorkerError: it is lost before it has said anything.
        """
        beat, since = None, time.monotonic()
        while "word" not in (first := self._read(0)):
            if first.get("beat") != beat:
                beat, since = first.get("beat"), time.monotonic()
            elif time.monotonic() - since > patience:
                self._heard = True
                lost = f"it was lost before it could say what is left to draw (no sign of it for {patience:g} s)"
                raise WorkerError("host 0", lost)
            time.sleep(_POLL)
        self._heard = True
        return first["word"]

    def leave(self) -> None:
        """Remove this host's file. All others' go with the first host, or before with the last that has heard it."""
        self._over.set()
        deadline = time.monotonic() + (_LEAVE if "word" in self._record else 0.0)
        while time.monotonic() < deadline and any(self._path(other).exists() for other in self._others):
            time.sleep(_POLL)
        with suppress(OSError), self._lock:
            self._path(self.process).unlink(missing_ok=True)
            last = self._heard and not any(self._path(other).exists() for other in self._others if other)
            if self.process == 0 or last:
                for number in range(self.processes):
                    self._path(number).unlink(missing_ok=True)
            self._folder.rmdir()

    def _missing(self) -> list[int]:
        """The hosts of which there is no sign: to the first all others, to the others the first."""
        own = self._read(self.process)
        if own and own["token"] != self._record["token"]:
            raise WorkerError(f"host {self.process}", "another host has the same number")
        if self.process == 0:
            return [other for other in self._others if self._read(other).get("first") != self._record["token"]]
        first = self._read(0)
        if not own or first.get("token") != self._record.get("first"):
            self._tell(first=first.get("token"))
        if self._record["token"] not in first.get("met", []):
            return [0]
        if first.get("processes") != self.processes:
            found = f"it was told of {self.processes} hosts, the first one of {first.get('processes')}"
            raise WorkerError(f"host {self.process}", found)
        return []

    def _live(self) -> None:
        beat = 0
        while not self._over.wait(_BEAT):
            beat += 1
            with suppress(OutputError):
                self._tell(beat=beat)

    def _tell(self, **more: Any) -> None:
        with self._lock:
            self._record |= more
            while not self._written():
                pass  # one that left took the folder, empty as yet, with it

    def _written(self) -> bool:
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            reason = f"the folder where the hosts meet cannot be made: {error.strerror or error}"
            raise OutputError(self._folder, reason) from error
        try:
            write_bytes(json.dumps(self._record).encode(), self._path(self.process), swept=True)
        except OutputError:
            if self._folder.is_dir():
                raise
            return False
        return True

    def _read(self, number: int) -> dict[str, Any]:
        """What a host has written; nothing where there is no such file."""
        try:
            with open_regular(self._path(number)) as file:
                return parse_record(file.read(_LARGEST))
        except (OSError, ValueError):
            return {}

    def _path(self, number: int) -> Path:
        return self._folder / f"host-{number}.json"
