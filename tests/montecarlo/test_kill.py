"""A run that is killed at any moment and started again gives the table of a run that nothing interrupts, to the bit."""

import random

from rmtbase.montecarlo import read_plan, run_in_memory, run_plan
from rmtbase.tables import is_temporary
from telling import Told

PLAN = """
ensemble = "gaussian_matrix"
draws = 1000
seed = 7
chunk = 10
[[case]]
n_rows = 6
n_columns = 4
"""
CHUNKS = 100


def test_resume_after_kills_at_every_stage_is_bit_identical(start, tmp_path, assert_same):
    output = tmp_path / "table.nc"
    some = random.Random(5).randrange(10, 60)
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
