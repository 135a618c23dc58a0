"""Every bad command line of ``refused.toml`` ends in one line and exit status 2 before any work; every file stays."""

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from strict import error_in

from rmtbase.cli import _app

DATA = Path(__file__).parents[1] / "data"
TABLE = tomllib.loads(Path(__file__).with_name("refused.toml").read_text(encoding="utf-8"))
REFUSED = [(f"{name} {options}".strip(), said) for name, cases in TABLE.items() for options, said in cases.items()]

FIRST = [(f"{name} {options}".strip(), said) for name, cases in TABLE.items() for options, said in [*cases.items()][:1]]


@pytest.mark.parametrize(("command", "said"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused(command, said, run, no_work, weights, null_file, watch):
    weights.save(Path("model"))
    for name in ("scores.nc", "baseline.nc"):
        shutil.copy(DATA / name, name)
    shutil.copy(null_file, "null.nc")
    for name in ("taken.pdf", "kept", "kept.nc"):
        Path(name).write_text("what was there")
    before = watch(Path())
    ran = run(*shlex.split(command))
    assert ran.status == 2, ran.err
    *notes, line = ran.err.splitlines()
    assert all(note.startswith("rmtbase: ") and "error" not in note for note in notes)
    assert line.startswith("rmtbase: error: ")
    for words in said:
        assert words in line
    if "--json" in command:
        assert line == f"rmtbase: error: {json.loads(ran.out)['error']['message']}"
    else:
        assert ran.out == ""
    if (command, said) in FIRST:  # of each command: with --json, wherever it stands, the error is an object
        for words in (("--json", *shlex.split(command)), (*shlex.split(command), "--json")):
            of_json = run(*words)
            error = error_in(of_json.out)
            assert (of_json.status, error["status"], of_json.err) == (2, 2, ran.err)
            assert line.startswith(f"rmtbase: error: {error['message']}")
    before.assert_untouched()


def test_every_command_has_one_and_an_example_in_its_help(run):
    commands = [command.__name__ for command in _app._COMMANDS]
    assert set(commands) - {"doctor"} <= set(TABLE)
    listed = run("--help").out
    for command in commands:
        assert re.search(rf"\b{command}\b", listed)
        ran = run(command, "--help")
        assert ran.status == 0
        assert f"Example: rmtbase {command}" in " ".join(ran.out.split())


def test_work_would_be_begun_if_all_is_well(run, no_work):
    with pytest.raises(pytest.fail.Exception, match="work before"):
        run("score", "demo")
