"""Jobs that draw ranges of a plan's chunks into a folder that they share give the table of one process, to the bit."""

import json
import shutil

import pytest

from rmtbase.errors import ParameterError, StoreError
from rmtbase.montecarlo import Store, draw_chunks, plan_status, read_plan, run_in_memory, run_plan
from rmtbase.tables import open_table
from telling import Told

PLAN = """
ensemble = "gaussian_matrix"
draws = 405
seed = 7
chunk = 10
[[case]]
n_rows = 6
n_columns = 4
[[case]]
n_rows = 7
n_columns = 3
"""
CHUNKS = 82
THIRDS = ("0:30", "30:60", "60:90")  # the last reaches beyond the end, as that of an array may


@pytest.fixture
def job(start, tmp_path):
    """Start the job of a range; each writes its messages to a file of its own."""

    def start_job(chunks):
        name = chunks.replace(":", "-")
        return start(PLAN, tmp_path / "table.nc", "--chunks", chunks, log=tmp_path / f"job-{name}.log")

    return start_job


@pytest.mark.exhaustive
def test_job_array_of_three_processes_draws_the_table_of_one(job, run, tmp_path, assert_same):
    jobs = [job(chunks) for chunks in THIRDS]
    assert [one.end() for one in jobs] == [0, 0, 0], [one.said() for one in jobs]
    output, folder = tmp_path / "table.nc", tmp_path / "table.nc.chunks"
    assert not output.exists()
    assert sorted(file.suffix for file in folder.iterdir()) == ["", *[".chunk"] * CHUNKS, ".json"]  # "" is the lock
    assert any("; a run without a range writes the table" in one.said() for one in jobs)
    assert f"rmtbase: chunks 60 to 81 are in {folder}" in jobs[2].said()
    ended = run("baseline", tmp_path / "table.toml", "-o", output)
    assert ended.status == 0
    assert f"all {CHUNKS} chunks are there: nothing is left to draw" in ended.err
    assert_same(open_table(output), run_in_memory(read_plan(tmp_path / "table.toml")))
    assert not folder.exists()


@pytest.mark.exhaustive
def test_job_that_is_killed_goes_on_where_it_stood(job, tmp_path, assert_same):
    first = job("0:80")
    assert first.kill(lambda: first.drawn() >= 5)
    there = first.drawn()
    assert (tmp_path / "table.nc.chunks" / "lock-0-80").exists()
    again = job("0:80")
    assert again.end() == 0
    assert "rmtbase: resuming: " in again.said()
    assert 5 <= there < 80
    plan = read_plan(tmp_path / "table.toml")
    assert_same(run_plan(plan, tmp_path / "table.nc"), run_in_memory(plan))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "table.nc"


def jobs(plan, output, *ranges):
    for first, stop in ranges:
        draw_chunks(plan, output, first, stop)


def test_run_draws_what_no_job_has_drawn(plan, output, table, assert_same):
    jobs(plan, output, (9, 12), (2, 5))
    told = Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert told.steps["drawing"] == 60
    assert [file.name for file in output.parent.iterdir()] == ["table.nc"]


def test_stores_of_jobs_that_share_no_folder_are_put_together_by_copying(plan, tmp_path, table, assert_same):
    for name, first, stop in (("one", 0, 6), ("other", 6, 12)):
        (tmp_path / name).mkdir()
        draw_chunks(plan, tmp_path / name / "table.nc", first, stop)
    for chunk in (tmp_path / "other" / "table.nc.chunks").glob("*.chunk"):
        shutil.copy(chunk, tmp_path / "one" / "table.nc.chunks")
    told = Told()
    assert_same(run_plan(plan, tmp_path / "one" / "table.nc", progress=told), table)
    assert "all 12 chunks are there: nothing is left to draw" in told.notes


def test_damaged_chunk_of_its_range_is_drawn_again_by_a_job_and_others_are_left(plan, output):
    jobs(plan, output, (0, 12))
    store = Store(output.with_name("table.nc.chunks"), plan)
    whole = store.path(plan.chunks[1]).read_bytes()
    for number in (1, 11):
        store.path(plan.chunks[number]).write_bytes(whole[:-1])
    told = Told()
    draw_chunks(plan, output, 0, 6, progress=told)
    assert store.path(plan.chunks[1]).read_bytes() == whole
    assert store.unsound(plan.chunks[11]) is not None
    assert told.steps["drawing"] == 10


def test_job_after_the_table_is_there_draws_nothing(plan, output, watch):
    run_plan(plan, output)
    before, told = watch(output.parent), Told()
    draw_chunks(plan, output, 0, 6, progress=told)
    assert told.notes == [f"{output} is the table of this plan already: nothing is left to draw"]
    before.assert_untouched()


@pytest.mark.exhaustive
def test_jobs_of_more_draws_go_on_from_the_chunks_of_fewer(output, tmp_path, assert_same):
    for name, draws in (("fewer", 45), ("more", 123)):
        (tmp_path / f"{name}.toml").write_text(PLAN.replace("405", str(draws)))
    fewer, more = (read_plan(tmp_path / f"{name}.toml") for name in ("fewer", "more"))
    jobs(fewer, output, (0, 10))
    jobs(more, output, (0, 13), (13, 26))
    assert_same(run_plan(more, output), run_in_memory(more))


class Started(Told):
    """A job that is at work, for another to begin beside it when its bar is made."""

    def __init__(self, beside):
        super().__init__()
        self.beside = beside

    def bar(self, label, total):
        self.beside()
        return super().bar(label, total)


def test_no_run_and_no_job_of_the_same_range_works_beside_a_job(plan, output, table, assert_same):
    said = []

    def beside():
        for other in (lambda: run_plan(plan, output), lambda: draw_chunks(plan, output, 0, 6)):
            with pytest.raises(StoreError, match="another run at work on it") as caught:
                other()
            said.append(caught.value)
        draw_chunks(plan, output, 4, 9)

    draw_chunks(plan, output, 0, 6, progress=Started(beside))
    assert len(said) == 2
    assert_same(run_plan(plan, output), table)


def test_no_job_works_beside_a_run(plan, output, table, monkeypatch, assert_same):
    monkeypatch.setattr("rmtbase.montecarlo._store._PATIENCE", 0.1)

    def beside():
        with pytest.raises(StoreError, match="another run at work on it"):
            draw_chunks(plan, output, 0, 6)

    assert_same(run_plan(plan, output, progress=Started(beside)), table)


def test_solvers_that_the_first_job_has_chosen_are_those_of_all(plan, output, monkeypatch):
    chosen = iter((["svd"], ["eigh"]))
    monkeypatch.setattr("rmtbase.montecarlo._run.choose_solvers", lambda plan: next(chosen))
    jobs(plan, output, (0, 6), (6, 12))
    assert json.loads((output.with_name("table.nc.chunks") / "store.json").read_text())["solvers"] == ["svd"]
    assert next(chosen) == ["eigh"]  # nobody has asked again


def test_jobs_of_unlike_machines_never_mix(plan, output, monkeypatch, watch):
    jobs(plan, output, (0, 6))
    before = watch(output.parent)
    monkeypatch.setattr("rmtbase.montecarlo._run.machine_settings", lambda: {"jax": "9.9.9"})
    with pytest.raises(StoreError, match=r"chunks of another installation \(.*jax: .* there, 9\.9\.9 here"):
        draw_chunks(plan, output, 6, 12)
    before.assert_untouched()


@pytest.mark.parametrize(("first", "stop"), [(-1, 3), (3, 3), (4, 3), (12, 15)])
def test_numbers_that_are_no_range_of_the_chunks_are_named(first, stop, plan, output):
    with pytest.raises(ParameterError, match=rf"first:stop = '{first}:{stop}': expected FIRST:STOP, .*chunks 0:12"):
        draw_chunks(plan, output, first, stop)
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize("chunks", ["3", "3:", "-1:3", "a:b", "1:2:3", ""])
def test_command_line_says_how_a_range_is_written(chunks, run, plan_file, output):
    ended = run("baseline", plan_file, "-o", output, f"--chunks={chunks}")
    assert ended.status == 2
    assert "expected FIRST:STOP, two numbers of chunks such as 0:100" in ended.err


def test_status_says_how_many_chunks_there_are_for_an_array_to_divide(plan, output):
    jobs(plan, output, (0, 6))
    assert any("60 draws in 6 chunks there, 60 draws in 6 chunks left" in line for line in plan_status(plan, output))
