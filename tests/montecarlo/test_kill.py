"""A run that is killed at any moment and started again gives the table of a run that nothing interrupts, to the bit."""

import random
import re

import pytest

from rmtbase.errors import StoreError
from rmtbase.montecarlo import plan_status, read_plan, run_in_memory, run_plan
from rmtbase.tables import is_temporary
from telling import Told

PLAN = """
ensemble = "gaussian_matrix"
draws = 400
seed = 7
chunk = 10
[[case]]
n_rows = 6
n_columns = 4
"""
CHUNKS = 40


def test_resume_after_kills_at_every_stage_is_bit_identical(start, tmp_path, assert_same):
    output = tmp_path / "table.nc"
    some = random.Random(5).randrange(5, 25)
    drawing = start(PLAN, output)
    assert drawing.kill(lambda: drawing.drawn() >= some)
    kept = drawing.drawn()
    assert some <= kept < CHUNKS
    assert not output.exists()

    writing = start(PLAN, output)
    assert writing.kill(
        lambda: writing.drawn() == CHUNKS and any(is_temporary(file.name) for file in tmp_path.iterdir())
    )
    assert f"resuming: {10 * (CHUNKS - kept)} draws in {CHUNKS - kept} chunks left" in writing.said()
    assert writing.drawn() == CHUNKS
    assert not output.exists()

    removing = start(PLAN, output)
    removing.kill(lambda: removing.drawn() < CHUNKS)
    assert f"all {CHUNKS} chunks are there: nothing is left to draw" in removing.said()
    assert output.exists()

    plan, last = read_plan(output.with_suffix(".toml")), Told()
    assert_same(run_plan(plan, output, progress=last), run_in_memory(plan))
    assert "is the table of this plan already" in last.notes[-1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["table.log", "table.nc", "table.toml"]


FEWER, MORE = PLAN.replace("400", "405"), PLAN.replace("400", "803")


def test_more_draws_go_on_from_the_chunks_of_fewer_after_kills_at_every_stage(start, tmp_path, assert_same):
    output = tmp_path / "table.nc"
    fewer = start(FEWER, output, "--keep-chunks")
    assert fewer.end() == 0
    kept = {file.name: file.read_bytes() for file in fewer.chunks.glob("*.chunk")}
    assert len(kept) == 41
    short, manifest = "case-0000-draw-0000000400.chunk", (fewer.chunks / "store.json").read_bytes()

    # As the short last chunk goes, as the store becomes that of more draws, and later.
    for moment in (
        lambda: not (fewer.chunks / short).exists(),
        lambda: (fewer.chunks / "store.json").read_bytes() != manifest,
        lambda: fewer.drawn() > 50,
    ):
        more = start(MORE, output)
        assert more.kill(moment)
        assert all((fewer.chunks / name).read_bytes() == kept[name] for name in kept if name != short)
        assert "not a sound chunk" not in more.said()
    assert re.search("resuming: [0-9]+ draws in [0-9]+ chunks left of 803 draws in 81 chunks", more.said())

    plan, last = read_plan(output.with_suffix(".toml")), Told()
    assert_same(run_plan(plan, output, progress=last), run_in_memory(plan))
    assert "not a sound chunk" not in " ".join(last.notes)
    assert not more.chunks.exists()


@pytest.fixture
def kept(tmp_path):
    """The table of fewer draws, whose chunks were kept."""
    (tmp_path / "fewer.toml").write_text(FEWER.replace("405", "45"))
    output = tmp_path / "table.nc"
    run_plan(read_plan(tmp_path / "fewer.toml"), output, keep_chunks=True)
    return output


def test_more_draws_say_what_they_go_on_from(kept, tmp_path):
    folder = tmp_path / "table.nc.chunks"
    (tmp_path / "more.toml").write_text(FEWER.replace("405", "123"))
    plan = read_plan(tmp_path / "more.toml")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    status = plan_status(plan, kept)
    assert f"{folder} is that of 45 draws: a run goes on from its whole chunks" in status
    assert f"{folder}: 40 draws in 4 chunks there, 83 draws in 9 chunks left" in status
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    told = Told()
    run_plan(plan, kept, progress=told)
    assert f"going on from 40 of the 45 draws in {folder}, those in whole chunks" in told.notes
    assert told.steps["drawing"] == 83


@pytest.mark.parametrize(
    "change", [("405", "30"), ("seed = 7", "seed = 8"), ("chunk = 10", "chunk = 20")], ids=["fewer", "seed", "chunk"]
)
def test_a_plan_that_is_not_the_same_with_more_draws_is_refused(change, kept, tmp_path, watch):
    (tmp_path / "other.toml").write_text(FEWER.replace(*change))
    before = watch(tmp_path)
    with pytest.raises(StoreError, match="the chunks of another plan"):
        run_plan(read_plan(tmp_path / "other.toml"), kept)
    before.assert_untouched()


def test_fewer_draws_than_a_chunk_has_are_drawn_anew_with_more(tmp_path, assert_same):
    output = tmp_path / "table.nc"
    (tmp_path / "few.toml").write_text(PLAN.replace("400", "7"))
    (tmp_path / "more.toml").write_text(PLAN.replace("400", "25"))
    run_plan(read_plan(tmp_path / "few.toml"), output, keep_chunks=True)
    plan, told = read_plan(tmp_path / "more.toml"), Told()
    assert_same(run_plan(plan, output, progress=told), run_in_memory(plan))
    assert f"going on from 0 of the 7 draws in {output}.chunks, those in whole chunks" in told.notes
    assert told.steps["drawing"] == 25
