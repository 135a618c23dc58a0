"""A trajectory that is there is gone on with: what it lacks is scored, what it has stays, and it is that of one go."""

import json
import shutil

import pytest

import rmtbase
from rmtbase.errors import ParameterError, TableError
from rmtbase.models import open_model
from rmtbase.nulls import Gaussian
from rmtbase.results import open_table
from rmtbase.results.trajectory._along_steps import failures, joined, until
from rmtbase.tables import write_table
from telling import Told

OPTIONS = {"matrices": "none"}


@pytest.fixture(scope="module")
def early(whole_run, tmp_path_factory):
    """The file of some of the run's checkpoints, and what its folder held then; not to be changed."""
    folder = tmp_path_factory.mktemp("early")
    for step in (0, 20):
        shutil.copytree(whole_run / f"step-{step}", folder / "run" / f"step-{step}")
    (folder / "run" / "step-40").mkdir()  # being written
    rmtbase.trajectory(folder / "run", output=folder / "traj.nc", **OPTIONS)
    return folder / "traj.nc"


@pytest.fixture
def output(early, tmp_path):
    """A copy of that file, to be extended."""
    return shutil.copy(early, tmp_path / "traj.nc")


def test_checkpoints_that_the_file_lacks_are_scored_and_the_file_is_that_of_one_go(run_folder, output, scored, run):
    assert list(failures(open_table(output, "trajectory"))) == ["step-40"]
    shutil.copytree(run_folder / "step-20", run_folder / "step-30")
    shutil.copytree(run_folder / "step-0", run_folder / "step-50")
    ran = run("trajectory", run_folder, "--matrices", "none", "-o", output, "--json")
    assert ran.status == 0
    assert scored == ["step-10", "step-40"]
    assert [one["step"] for one in json.loads(ran.out)["steps"]] == [0, 10, 20, 30, 40, 50]
    assert "rmtbase: going on from the 2 checkpoints that are there: 4 to be scored" in ran.err
    again = output.with_name("again.nc")
    rmtbase.trajectory(run_folder, output=again, **OPTIONS)
    assert output.read_bytes() == again.read_bytes()
    told, before = Told(), output.stat()
    rmtbase.trajectory(run_folder, output=output, progress=told, **OPTIONS)
    assert told.notes == [f"{output} is the trajectory of these checkpoints already: nothing is left to score"]
    assert output.stat() == before
    assert sorted(path.name for path in output.parent.iterdir()) == ["again.nc", "run", "traj.nc"]


def test_checkpoint_that_is_there_no_more_stays_in_the_file(run_folder, output, scored):
    shutil.rmtree(run_folder / "step-0")
    (run_folder / "step-20" / "model.safetensors").write_bytes(b"")
    told = Told()
    tree = rmtbase.trajectory(run_folder, output=output, progress=told, **OPTIONS)
    assert tree["heads"]["step"].values.tolist() == [0, 10, 20, 40]
    assert any(note.startswith("step-20 cannot be read any more, its scores stay: ") for note in told.notes)
    assert scored == ["step-10", "step-40"]


@pytest.mark.exhaustive
def test_extension_that_is_stopped_leaves_the_old_file_and_goes_on(run_folder, output, scored, killed_as_it_writes):
    before = output.read_bytes()
    killed_as_it_writes(run_folder, output=output, **OPTIONS)
    assert output.read_bytes() == before
    told = Told()
    rmtbase.trajectory(run_folder, output=output, progress=told, **OPTIONS)
    assert "resuming: 0 of 2 checkpoints left" in told.notes
    assert scored == ["step-10", "step-40"]
    rmtbase.trajectory(run_folder, output=output.with_name("whole.nc"), **OPTIONS)
    assert output.read_bytes() == output.with_name("whole.nc").read_bytes()


def test_file_of_other_options_kinds_or_steps_is_refused_by_name(run_folder, output):
    before, seed = output.read_bytes(), r"scored with seed of gaussian = 0; expected one with seed of gaussian = 1"
    for nulls, words in (
        (Gaussian(seed=1), rf"{seed}; name another output, or remove"),
        (("gaussian", "axes"), "nulls = gaussian, .*; expected one with nulls = gaussian, axes, "),
        ("analytic", "nulls = gaussian, .*; expected one with nulls = analytic"),
    ):
        with pytest.raises(TableError, match=words):
            rmtbase.trajectory(run_folder, output=output, nulls=nulls, **OPTIONS)
    assert output.read_bytes() == before
    assert not output.with_name("traj.nc.steps").exists()
    scores = rmtbase.score(open_model(run_folder / "step-0", proof=False), matrices="none")
    path = write_table(scores, output.with_name("scores.nc"))
    with pytest.raises(TableError, match=r"kind 'scores'; expected a trajectory file .*; name another output"):
        rmtbase.trajectory(run_folder, output=path, **OPTIONS)
    shutil.move(run_folder / "step-0", run_folder / "main")
    with pytest.raises(ParameterError, match=r"'0:main': expected those of traj.nc, in which step 0 is step-0"):
        rmtbase.trajectory(run_folder, ["0:main"], output, **OPTIONS)
    with pytest.raises(ParameterError, match=r"'30:step-20': .* step 20 is step-20"):
        rmtbase.trajectory(run_folder, ["30:step-20"], output, **OPTIONS)


def test_file_of_other_weights_or_of_another_model_is_refused_until_it_is_removed(run_folder, output, run):
    shutil.copytree(run_folder, output.with_name("other"))
    with pytest.raises(TableError, match="the trajectory of 'run'; expected one of 'other'"):
        rmtbase.trajectory(output.with_name("other"), output=output, **OPTIONS)
    shutil.copy(run_folder / "step-40" / "model.safetensors", run_folder / "step-20")
    command = ("trajectory", run_folder, "--revisions", "20,40", "--matrices", "none", "-o", output)
    ran = run(*command)
    assert ran.status == 2
    assert "found other weights of step-20" in ran.err
    output.unlink()
    assert run(*command).status == 0
    assert open_table(output, "trajectory")["heads"]["step"].values.tolist() == [20, 40]


def test_checkpoints_of_another_shape_than_the_file_has_are_left_out(run_folder, write_step, output):
    for step in (10, 40, 50):
        shutil.rmtree(run_folder / f"step-{step}", ignore_errors=True)
        write_step(run_folder, step, n_heads=2)
    tree = rmtbase.trajectory(run_folder, output=output, **OPTIONS)
    assert tree["heads"]["step"].values.tolist() == [0, 20]
    assert failures(tree)["step-50"] == "other sizes than before: 2 of head and not 4"


def test_the_same_is_joined_of_the_same_steps_in_whatever_parts(whole_run):
    parts = [rmtbase.trajectory(whole_run, [step], **OPTIONS) for step in ("0", "10", "20", "40")]
    whole = rmtbase.trajectory(whole_run, **OPTIONS)
    assert joined([joined(parts[::2]), joined(parts[1::2])]).identical(whole)
    assert joined([until(joined(parts[1:]), 20), parts[3], parts[0]]).identical(whole)
    some = joined([joined(parts[1:], {"b": "later"}), parts[0]], {"a10": "too", "a9": "and"})
    assert list(failures(some)) == ["a9", "a10", "b"]
