"""Words come last: with "x" for every text in the source, numbers, codes, figures and lines of reports are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("words_replaced.py")
TOGETHER = [
    ("scores", "first", "comparison"),
    pytest.param(("composition", "changes", "depth", "law", "constants"), marks=pytest.mark.weekly),
    pytest.param(("signal", "signs", "trajectory", "baseline"), marks=pytest.mark.weekly),
]
"""Commands of one process each; a comparison is of the scores before it."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_nothing_but_words_depends_on_words(names, tmp_path):
    environment = os.environ | {"MPLBACKEND": "agg", "RMTBASE_PROOF": "0"}
    environment.pop("COLUMNS", None)  # shorter texts would be wrapped into fewer lines
    processes = []
    for mode in ("words", "x"):
        (tmp_path / mode).mkdir()
        command = [sys.executable, str(SCRIPT), mode, str(tmp_path / mode), *names]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True))
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    as_written, replaced = map(json.loads, printed)
    for name in names:
        assert as_written[name]["status"] == 0 and as_written[name]["json"]
        for part, values in as_written[name].items():
            assert replaced[name][part] == values, f"{name}: {part}"
