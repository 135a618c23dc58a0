"""Short runs of the suite, of a fixed seed, each once for all tests of this folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from kinds import KINDS, SOME

SUITE = Path(__file__).with_name("run.py")
INTERRUPTED = ("--command", "finish a run", "--points")


def _verdicts(factory: pytest.TempPathFactory, name: str, kinds: list[str], *options: str) -> list[dict]:
    """The record of a run, which the first worker that asks for it makes for all."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of the session
    record = folder / f"{name}.json"
    with FileLock(f"{record}.lock"):
        if not record.exists():
            of_kinds = [option for kind in kinds for option in ("--kind", kind)]
            command = [sys.executable, str(SUITE), "--mutations", "2", *of_kinds, *options, "--json", str(record)]
            ended = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
            assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return json.loads(record.read_text())


@pytest.fixture(scope="session")
def some_verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The verdicts of every case of :data:`SOME` kinds, and of a command interrupted twice."""
    return _verdicts(tmp_path_factory, "some-verdicts", list(SOME), *INTERRUPTED, "2")


@pytest.fixture(scope="session")
def other_verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The same of the other kinds, of a command interrupted in every way, and of what was wrong once."""
    others = [name for name in KINDS if name not in SOME]
    return _verdicts(tmp_path_factory, "other-verdicts", others, *INTERRUPTED, "10", "--seeds")
