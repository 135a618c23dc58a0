"""Checkpoints of the hub: one at a time is on the disk, and what was there before stays."""

import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors as hub_errors

import rmtbase
from rmtbase.errors import CheckpointError
from rmtbase.results.trajectory._along_steps import failures

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
