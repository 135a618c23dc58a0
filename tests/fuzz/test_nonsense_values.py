"""Nonsense in options, configurations and the environment ends with status 0 or 2: a small share of ``values.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("values.py")
SHORT = ("--cases", "60", "--seed", "0")


@pytest.mark.exhaustive
def test_nonsense_ends_with_status_0_or_2(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    ended = subprocess.run(
        [sys.executable, str(SUITE), *SHORT, "--json", str(record)],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr
    cases = json.loads(record.read_text())
    assert len(cases) in range(58, 63)
    assert [case for case, _, wrong, _ in cases if wrong] == [], ended.stdout
