"""Short runs of the suite, of a fixed seed, each once for all tests of this folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import KINDS, SOME

SUITE = Path(__file__).with_name("run.py")
INTERRUPTED = ("--command", "finish a run", "--points")


def _verdicts(folder: Path, kinds: list[str], *options: str) -> list[dict]:
    of_kinds = [option for name in kinds for option in ("--kind", name)]
    kept = ["--json", str(folder / "verdicts.json"), "--keep", str(folder / "wrong")]
    ended = subprocess.run(
        [sys.executable, str(SUITE), "--mutations", "2", *of_kinds, *options, *kept],
        capture_output=True, text=True, env=os.environ, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return json.loads((folder / "verdicts.json").read_text())


@pytest.fixture(scope="session")
def some_verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The record of every case of :data:`SOME` kinds, and of a command interrupted twice."""
    return _verdicts(tmp_path_factory.mktemp("fuzz"), list(SOME), *INTERRUPTED, "2")


@pytest.fixture(scope="session")
def other_verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The same of the other kinds, of a command interrupted in every way, and of what was wrong once."""
    others = [name for name in KINDS if name not in SOME]
    return _verdicts(tmp_path_factory.mktemp("fuzz"), others, *INTERRUPTED, "6", "--seeds")
