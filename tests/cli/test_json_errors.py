"""With --json a command prints one object on stdout however it ends; a line that is piped is never wrapped."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from strict import error_in

DATA = Path(__file__).parents[1] / "data"
SIGNAL = ("signal", "demo", "--matrices", "none", "--circuits", "query")


def test_the_values_that_explain_an_error_are_values(run):
    error = error_in(run("score", "demo", "--null", "x", "--json").out)
    assert error["kind"] == "ParameterError"
    assert error["facts"]["name"] == "null"
    assert error["facts"]["found"] == "x"
    assert error_in(run("compare", "missing.nc", "--json").out)["facts"]["path"] == "missing.nc"


@pytest.mark.parametrize(
    ("raised", "status", "kind", "words"),
    [
        (KeyboardInterrupt(), 130, "KeyboardInterrupt", "interrupted"),
        (ZeroDivisionError("no"), 70, "ZeroDivisionError", "please report it"),
        (MemoryError(), 2, "MemoryError", "out of memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 2, "OSError", "No space left on device"),
        (typer.BadParameter("a bad one"), 2, "BadParameter", "a bad one"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_so_it_is_for_any_end(raised, status, kind, words, run, monkeypatch):
    def end(*arguments, **keywords):
        raise raised

    monkeypatch.setattr("rmtbase.diagnosis.examine", end)
    ran = run("doctor", "--json")
    error = error_in(ran.out)
    assert (ran.status, error["status"], error["kind"]) == (status, status, kind)
    assert words in error["message"]
    assert error["message"] in ran.err


def test_a_result_is_followed_by_no_error(run, monkeypatch):
    """What fails after the result was printed is told on stderr alone, so that stdout stays one object."""
    monkeypatch.setattr("rmtbase.cli._app.detail", lambda line: 1 // 0)
    ran = run("constants", "--json")
    assert ran.status == 70
    assert "error" not in json.loads(ran.out)


def test_an_error_that_stdout_cannot_take_is_still_told():
    command = [sys.executable, "-m", "rmtbase", "constants", "no_such_constant", "--json"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "no_such_constant" in ended.stderr


def test_piped_sentences_are_lines(run, model_folder, null_file, monkeypatch):
    """However long they are, unless COLUMNS asks for narrow lines: then the same words are wrapped."""
    longest = 0
    for options in (("score", model_folder, "--null", null_file), SIGNAL, ("inspect", model_folder)):
        monkeypatch.delenv("COLUMNS", raising=False)
        wide = run(*options).out
        monkeypatch.setenv("COLUMNS", "60")
        narrow = run(*options).out
        assert max(map(len, narrow.splitlines())) <= 60
        assert len(wide.splitlines()) < len(narrow.splitlines())
        assert wide.split() == narrow.split()
        longest = max(longest, *map(len, wide.splitlines()))
    assert longest > 200
    monkeypatch.delenv("COLUMNS")
    last = "With --json: all of it in full precision, each with its accuracy; the moments of W_QK in LaTeX, too."
    assert last in run("law", "--d-model", "64", "--d-head", "16").out.splitlines()
    listed = run("constants").out.splitlines()
    for entry in json.loads(run("constants", "--json").out)["constants"]:
        assert any(entry["description"] in line for line in listed)
