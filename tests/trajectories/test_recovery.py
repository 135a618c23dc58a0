"""A trajectory that is killed and gone on with, or scored elsewhere, is that of one process that nothing interrupts."""

import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

import rmtbase
from rmtbase.montecarlo import Scheduler
from rmtbase.results.trajectory import _checkpoint_scores, measure
from rmtbase.results.trajectory._along_steps import renamed, revisions_of, until
from rmtbase.tables import groups_of
from telling import Told

MANY = 6
OPTIONS = {"matrices": "none"}


@pytest.fixture(scope="module")
def many(write_step, tmp_path_factory):
    """A folder of more checkpoints, two of which have the same weights."""
    folder = tmp_path_factory.mktemp("many") / "run"
    for step in range(MANY - 1):
        write_step(folder, 3 * step)
    shutil.copytree(folder / "step-0", folder / "step-1")
    return folder


@pytest.fixture(scope="module")
def uninterrupted(many, tmp_path_factory):
    """The file of their trajectory."""
    path = tmp_path_factory.mktemp("whole") / "traj.nc"
    rmtbase.trajectory(many, output=path, **OPTIONS)
    return path


@pytest.mark.exhaustive
def test_run_that_is_killed_and_gone_on_with_gives_the_same_file_to_the_bit(many, uninterrupted, tmp_path):
    output, kept = tmp_path / "traj.nc", tmp_path / "traj.nc.steps"
    command = [sys.executable, "-m", "rmtbase", "trajectory", many, "--matrices", "none", "-o", output]
    enough = random.Random(3).randrange(2, MANY - 2)
    with subprocess.Popen(map(str, command), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list(kept.glob("*-*.nc"))) < enough:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    there = len(list(kept.glob("*.nc")))
    assert enough <= there < MANY
    damaged = sorted(kept.glob("*.nc"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-1000])
    (kept / "rmtbase-fetched-abc").mkdir()
    told = Told()
    rmtbase.trajectory(many, output=output, progress=told, **OPTIONS)
    assert f"resuming: {MANY - there + 1} of {MANY} checkpoints left" in told.notes
    assert any(note.startswith(f"not sound, scored again: {damaged}") for note in told.notes)
    assert output.read_bytes() == uninterrupted.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["traj.nc"]


def test_checkpoint_that_was_written_again_since_is_scored_again(many, write_step, tmp_path, monkeypatch):
    run = tmp_path / "run"
    for step in (0, 20):
        write_step(run, step)
    stopped, score = iter([None, KeyboardInterrupt]), measure.score_checkpoint

    def one_then_interrupt(*arguments):
        if (stop := next(stopped, None)) is not None:
            raise stop
        return score(*arguments)

    monkeypatch.setattr(measure, "score_checkpoint", one_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        rmtbase.trajectory(run, output=tmp_path / "traj.nc", **OPTIONS)
    write_step(tmp_path / "other", 40)
    (tmp_path / "other" / "step-40" / "model.safetensors").replace(run / "step-0" / "model.safetensors")
    told = Told()
    tree = rmtbase.trajectory(run, output=tmp_path / "traj.nc", progress=told, **OPTIONS)
    assert not any("resuming" in note for note in told.notes)
    assert tree.identical(rmtbase.trajectory(run, **OPTIONS))


@pytest.mark.exhaustive
def test_workers_of_a_scheduler_score_each_set_of_weights_once_and_give_the_same_file(
    many, uninterrupted, tmp_path, monkeypatch
):
    from distributed import LocalCluster

    scored, score = [], _checkpoint_scores.score

    def slowly(model, *args, **more):
        scored.append(model.revision)
        time.sleep(0.2)  # until another worker has begun with the same weights
        return score(model, *args, **more)

    monkeypatch.setattr(_checkpoint_scores, "score", slowly)
    told, output = Told(), tmp_path / "traj.nc"
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # or it asks for a port that others may have
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp",
        scheduler_kwargs=quiet,
    ) as cluster:  # fmt: skip
        rmtbase.trajectory(many, output=output, executor=Scheduler(cluster.scheduler_address), progress=told, **OPTIONS)
    assert "scoring on 2 Dask workers" in told.notes
    assert told.steps["scoring checkpoints"] == MANY
    assert len(scored) == MANY - 1
    assert output.read_bytes() == uninterrupted.read_bytes()


def test_a_copy_under_another_name_has_its_variables_in_the_same_order(tree):
    """Of equal weights those that come first are scored: the bytes of a file would depend on which that is."""
    begun = until(tree, 0)
    (at,) = revisions_of(begun).values()
    copied = renamed(begun, at._replace(step=1, revision="step-1"))
    for name, group in groups_of(begun).items():
        assert list(groups_of(copied)[name].variables) == list(group.variables)
