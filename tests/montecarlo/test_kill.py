"""A run that is killed at any moment and started again gives the table of a run that nothing interrupts, to the bit."""

import random

from rmtbase.montecarlo import read_plan, run_in_memory
from rmtbase.tables import is_temporary, open_table

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

    last = start(PLAN, output)
    assert last.end() == 0
    assert "is the table of this plan already" in last.said()
    assert_same(open_table(output), run_in_memory(read_plan(output.with_suffix(".toml"))))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["table.log", "table.nc", "table.toml"]
