"""A run that is killed at any moment and started again gives the table of a run that nothing interrupts, to the bit."""

import random
import re

import pytest

from rmtbase.montecarlo import read_plan, run_in_memory, run_plan
from rmtbase.tables import is_temporary
from telling import Told

CHUNKS = 81
KILLED_BEFORE_THE_TABLE_IS_THERE = """
import os, signal
from pathlib import Path

rename = Path.replace

def killed(path, target):
    if Path(target).name == "table.nc":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)

Path.replace = killed
"""
"""The table is written beside its place and never renamed: from outside that moment is too short to be caught."""


@pytest.mark.exhaustive
def test_more_draws_go_on_from_the_chunks_of_fewer_after_kills_at_every_stage(start, tmp_path, assert_same, plan_text):
    output, chunks = tmp_path / "table.nc", tmp_path / "table.nc.chunks"
    (tmp_path / "fewer.toml").write_text(plan_text(405))
    run_plan(read_plan(tmp_path / "fewer.toml"), output, keep_chunks=True)
    kept = {file.name: file.read_bytes() for file in chunks.glob("*.chunk")}
    assert len(kept) == 41
    fewer = output.read_bytes()

    def drawn():
        return len(list(chunks.glob("*.chunk")))

    def killed(moment, beforehand=""):
        """A run of more draws that is killed then, with no draw lost and no table written."""
        run = start(plan_text(803), output, beforehand=beforehand)
        assert run.kill(moment)
        assert all((chunks / name).read_bytes() == kept[name] for name in kept)
        assert "not a sound chunk" not in run.said()
        assert output.read_bytes() == fewer
        return run

    # At the beginning, in the midst, and as the table is written.
    killed(lambda: drawn() > 41)
    some = random.Random(5).randrange(45, 60)
    drawing = killed(lambda: drawn() > some)
    there = drawn() - 1  # without the short last chunk of fewer draws
    assert some <= there < CHUNKS
    assert re.search("resuming: [0-9]+ draws in [0-9]+ chunks left of 803 draws in 81 chunks", drawing.said())
    writing = killed(lambda: False, KILLED_BEFORE_THE_TABLE_IS_THERE)
    assert any(is_temporary(file.name) for file in tmp_path.iterdir())
    assert f"resuming: {803 - 10 * there} draws in {CHUNKS - there} chunks left" in writing.said()
    assert drawn() == CHUNKS + 1

    removing = start(plan_text(803), output)
    removing.kill(lambda: drawn() <= CHUNKS)
    assert f"all {CHUNKS} chunks are there: nothing is left to draw" in removing.said()

    plan, last = read_plan(output.with_suffix(".toml")), Told()
    assert_same(run_plan(plan, output, progress=last), run_in_memory(plan))
    assert "is the table of this plan already" in last.notes[-1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fewer.toml", "table.log", "table.nc", "table.toml"]


@pytest.fixture
def kept(tmp_path, plan_text):
    """The table of fewer draws, whose chunks were kept."""
    (tmp_path / "fewer.toml").write_text(plan_text(45))
    output = tmp_path / "table.nc"
    run_plan(read_plan(tmp_path / "fewer.toml"), output, keep_chunks=True)
    return output


@pytest.mark.parametrize(
    ("change", "drawn"),
    [(("405", "123"), 83), (("405", "30"), 0), (("chunk = 10", "chunk = 20"), 405), (("405", "7"), 7)],
    ids=["more", "fewer", "chunk", "less than a chunk"],
)
def test_a_plan_that_differs_only_in_its_numbers_of_draws_goes_on(
    change, drawn, kept, tmp_path, assert_same, plan_text
):
    (tmp_path / "other.toml").write_text(plan_text(405).replace(*change))
    plan, told = read_plan(tmp_path / "other.toml"), Told()
    assert_same(run_plan(plan, kept, progress=told), run_in_memory(plan))
    assert told.steps.get("drawing", 0) == drawn


def test_chunks_of_a_longer_run_stay_and_that_run_goes_on(kept, tmp_path, plan_text):
    folder = tmp_path / "table.nc.chunks"
    (tmp_path / "other.toml").write_text(plan_text(30))
    run_plan(read_plan(tmp_path / "other.toml"), kept)
    assert [file.name for file in sorted(folder.glob("*.chunk"))] == [
        "case-0000-draws-0000000030-0000000040.chunk",
        "case-0000-draws-0000000040-0000000045.chunk",
    ]
    told = Told()
    run_plan(read_plan(tmp_path / "fewer.toml"), kept, progress=told)
    assert told.steps["drawing"] == 30
    assert not folder.exists()
