"""A trajectory that is there is gone on with; checkpoints of the hub are on the disk one at a time."""

import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors as hub_errors

import rmtbase
from rmtbase.errors import CheckpointError, ParameterError, TableError
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


COMMITS = {"main": "c40", "step0": "c00", "step20": "c20", "step40": "c40"}


@pytest.fixture
def hub(whole_run, tmp_path, monkeypatch):
    """A stand-in for the hub with its cache: the run's checkpoints as tags; the most that was fetched at a time."""
    cache, log = tmp_path / "hub", SimpleNamespace(fetched=[], most=0, places=set())

    def refs(self, model):
        assert model == "org/model"
        tags = [SimpleNamespace(name=name, target_commit=commit) for name, commit in COMMITS.items()]
        return SimpleNamespace(branches=tags[:1], tags=tags[1:])

    def download(model, revision, cache_dir=None, local_files_only=False, **options):
        folder = (cache_dir or cache) / "models--org--model" / "snapshots" / COMMITS.get(revision, "none")
        if folder.exists() and (folder / "model.safetensors").exists():
            return str(folder)
        if local_files_only or revision not in COMMITS:
            raise hub_errors.LocalEntryNotFoundError("not here")
        shutil.copytree(whole_run / f"step-{int(COMMITS[revision][1:])}", folder)
        log.fetched.append(revision)
        log.places.add(cache_dir)
        log.most = max(log.most, len([*tmp_path.rglob("model.safetensors")]))
        return str(folder)

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_refs", refs)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    log.cache = cache
    return log


@pytest.mark.exhaustive
def test_one_checkpoint_at_a_time_is_on_the_disk_and_none_at_the_end(hub, tree, tmp_path):
    found = rmtbase.trajectory("org/model", output=tmp_path / "traj.nc", matrices="none")
    assert hub.fetched == ["step0", "step20", "step40"]
    assert hub.most == 1
    assert [path.name for path in tmp_path.iterdir()] == ["traj.nc"]
    assert None not in hub.places
    assert found["heads"]["revision"].values.tolist() == ["step0", "step20", "step40"]
    here, there = (one["heads"]["observed"].sel(step=[0, 20, 40]) for one in (found, tree))
    assert here.values.tolist() == there.values.tolist()
    assert "hub commit" not in found.attrs["notes"]
    weights = json.loads(found.attrs["provenance"])["weights"]
    assert [weights[name]["commit"] for name in hub.fetched] == ["c00", "c20", "c40"]


def test_what_the_hubs_cache_held_is_read_there_and_stays(hub, tmp_path):
    huggingface_hub.snapshot_download("org/model", "step20")
    rmtbase.trajectory("org/model", ["step0", "step20"], tmp_path / "traj.nc", matrices="none")
    assert hub.fetched == ["step20", "step0"]
    assert [path.parent.name for path in tmp_path.rglob("model.safetensors")] == ["c20"]


def test_fetched_checkpoints_are_kept_where_that_is_asked_for_and_a_revision_that_the_hub_lacks_is_named(hub, tmp_path):
    rmtbase.trajectory("org/model", ["step0", "9:main"], tmp_path / "traj.nc", matrices="none", keep=True)
    assert sorted(path.parent.name for path in hub.cache.rglob("model.safetensors")) == ["c00", "c40"]
    tree = rmtbase.trajectory("org/model", ["step0", "step7"], matrices="none")
    (name, reason), *_ = failures(tree).items()
    assert name == "step7"
    assert "cannot be fetched from the hub" in reason
    with pytest.raises(CheckpointError, match="cannot be fetched from the hub"):
        rmtbase.trajectory("org/other")
