"""examples/gate.sh is run by a shell, with ten checkpoints."""

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from rmtbase.results import open_table

GATE = Path(__file__).parents[2] / "examples" / "gate.sh"
STEPS = tuple(range(0, 100, 10))


@pytest.fixture(scope="module")
def ten_checkpoints(make_weights, tmp_path_factory):
    """Folder of ten checkpoints with four heads, the last of which never moves."""
    folder = tmp_path_factory.mktemp("ten") / "run"
    rng = np.random.default_rng(3)
    queries, keys = 0.05 * rng.standard_normal((2, 1, 4, 16, 128))
    axis, read, of_key = rng.standard_normal(16), rng.standard_normal(128), rng.standard_normal(128)
    for step in STEPS:
        learned = step / 90 * np.array([0.1, 0.1, 0.1, 0.0])[:, None, None]
        moved = 1e-6 * np.random.default_rng(step).standard_normal(queries.shape)  # no two checkpoints are the same
        make_weights(queries + moved + learned * np.outer(axis, read), keys + learned * np.outer(axis, of_key)).save(
            folder / f"step-{step}"
        )
    return folder


def gate(folder, step, where):
    """Run the script in a real shell, with this interpreter's rmtbase."""
    command = where / "bin" / "rmtbase"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rmtbase "$@"\n')
    command.chmod(0o755)
    paths = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", str(GATE), str(folder), str(step)], cwd=where, env=os.environ | paths, capture_output=True, text=True
    )


@pytest.mark.exhaustive
def test_the_gate_stops_while_a_head_does_not_differ_and_tells_what_is_missing_or_damaged(ten_checkpoints, tmp_path):
    ended = gate(ten_checkpoints, 90, tmp_path)
    assert (ended.returncode, ended.stdout) == (3, "failed: a head does not differ from random heads at step 90\n")
    assert "1 of 40 meet --fail-if" in ended.stderr
    assert "step 90 layer 0 head 3" in ended.stderr
    printed = json.loads((tmp_path / "gate.json").read_text())
    assert len(printed["heads"]) == 40
    schema = json.loads(files("rmtbase.results").joinpath("schemas", "trajectory.json").read_text(encoding="utf-8"))
    jsonschema.validate(printed, schema)
    heads = open_table(tmp_path / "gate.nc")["heads"]
    shares = heads["moved_share"].values[:, 0, 0]
    assert shares[-1] > 0.3 > 0.1 > shares[0]
    assert [one["moved_share"] for one in printed["heads"] if (one["layer"], one["head"]) == (0, 0)] == shares.tolist()
    ended = gate(ten_checkpoints, 95, tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "undecided: an error, such as no checkpoint of step 95\n")
    assert "a step that is there: 0, 10, 20, 30, 40, 50, 60, 70, 80, 90" in ended.stderr
    copy, other = tmp_path / "copy", tmp_path / "other"
    other.mkdir()
    shutil.copytree(ten_checkpoints, copy)
    (file,) = (copy / "step-40").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    ended = gate(copy, 90, other)
    assert (ended.returncode, ended.stdout) == (1, "undecided: a checkpoint is missing or damaged, see gate.json\n")


@pytest.mark.exhaustive
def test_the_gate_lets_a_run_pass_whose_heads_all_differ(make_weights, tmp_path):
    rng, folder = np.random.default_rng(4), tmp_path / "run"
    for step in (0, 10):
        queries, keys = rng.standard_normal((2, 1, 4, 16, 128))
        shared = 0.3 * step * np.outer(rng.standard_normal(16), rng.standard_normal(128))
        make_weights(queries + shared, keys + shared).save(folder / f"step-{step}")
    ended = gate(folder, 10, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "passed: every head differs from random heads at step 10\n")
