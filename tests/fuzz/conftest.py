"""One run of the suite, short and of a fixed seed, for all tests of this folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import KINDS

SUITE = Path(__file__).with_name("run.py")
SHORT = ("--mutations", "2", "--points", "6", "--command", "finish a run")


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The record of every case: of each kind of file, of a command interrupted, and those that were wrong once."""
    folder = tmp_path_factory.mktemp("fuzz")
    kinds = [option for name in KINDS for option in ("--kind", name)]
    options = [*SHORT, *kinds, "--seeds", "--json", str(folder / "verdicts.json"), "--keep", str(folder / "wrong")]
    ended = subprocess.run(
        [sys.executable, str(SUITE), *options], capture_output=True, text=True, env=os.environ, check=False
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return json.loads((folder / "verdicts.json").read_text())
