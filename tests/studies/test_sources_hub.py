"""The entry to the sources' figures where there is a hub: it fetches, scores, keeps the scores, deletes the weights."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants
from local_hub import COMMIT, local_hub
from tiny_gpt2 import N_HEADS, N_LAYERS, write_tiny_gpt2

from studies.sources import __main__ as entry
from studies.sources.recipe import Result, Row

GATED = "meta-llama/Llama-3.1-8B"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's own client asks a server on this machine, which has one small model and refuses another."""
    write_tiny_gpt2(tmp_path / "models" / "some-org" / "tiny-gpt2")
    (tmp_path / "fetched").mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "fetched"))
    with local_hub(tmp_path / "models", frozenset({GATED})) as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        huggingface_hub.close_session()
        yield server
    huggingface_hub.close_session()


@pytest.fixture
def recipe(monkeypatch):
    """A short recipe in the place of those that draw: the scores, and an array of the weights."""

    def make(run):
        heads = run.scores(matrices="none")["heads"].dataset.sel(statistic="normalized_participation_ratio")
        shapes = run.arrays("shapes", lambda model: {"one": model.matrix(0, "attention_output").shape})["one"]
        row = Row("post 2, figure 8", "NPR", 0.8552, float(heads["observed"].mean()), None, "needs gpt2", "λ")
        assert heads["observed"].shape == (N_LAYERS, N_HEADS)
        assert shapes.prod() == 128 * 128
        return Result(rows=(row,))

    monkeypatch.setattr(entry, "recipe", lambda name: SimpleNamespace(make=make, COVERS={}))


def run(tmp_path, model):
    folders = ("--out", str(tmp_path / "out"), "--store", str(tmp_path / "store"))
    return entry.main(["post2", "--model", model, "--quick", *folders])


def test_a_model_of_the_hub_is_fetched_once_scored_kept_and_its_weights_deleted(hub, recipe, tmp_path):
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    assert sorted(hub.fetched) == ["config.json", "model.safetensors"]
    assert [*(tmp_path / "fetched").iterdir()] == []
    assert [*tmp_path.rglob("*.safetensors")] == [tmp_path / "models/some-org/tiny-gpt2/model.safetensors"]
    results = json.loads((tmp_path / "out/post2/results.json").read_text(encoding="utf-8"))
    assert results["model"] == ["some-org/tiny-gpt2"]
    assert results["weights"]["some-org/tiny-gpt2@main"]["commit"] == COMMIT
    assert 0.7 < results["rows"][0]["observed"] < 0.9
    (tmp_path / "models/some-org/tiny-gpt2/model.safetensors").unlink()
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    assert len(hub.fetched) == 2


def test_what_is_refused_is_said_with_what_to_do(hub, recipe, tmp_path, capsys):
    assert run(tmp_path, GATED) == 2
    said = capsys.readouterr().err
    assert "must be asked for on the hub; then log in with hf auth login" in said
    assert "Llama 3.1 Community License" in said
    assert run(tmp_path, "some-org/none") == 2
    assert "neither a folder here nor a public model of the hub" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_a_network_that_is_said(recipe, tmp_path, capsys):
    assert run(tmp_path, "some-org/tiny-gpt2") == 2
    assert "cannot be fetched from the hub" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_a_download_that_is_stopped_ends_at_once_and_leaves_no_weights(tmp_path):
    write_tiny_gpt2(tmp_path / "models" / "some-org" / "tiny-gpt2")
    (tmp_path / "fetched").mkdir()
    with local_hub(tmp_path / "models") as server:
        server.slow = "model.safetensors"
        settings = {"HF_ENDPOINT": server.endpoint, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": str(tmp_path / "cache"),
                    "NO_PROXY": "127.0.0.1", "TMPDIR": str(tmp_path / "fetched")}  # fmt: skip
        folders = ("--out", str(tmp_path / "out"), "--store", str(tmp_path / "store"))
        command = (sys.executable, "-m", "studies.sources", "post2", "--model", "some-org/tiny-gpt2", *folders)
        here = Path(entry.__file__).parents[2]
        with subprocess.Popen(command, cwd=here, env=os.environ | settings, stderr=subprocess.PIPE) as running:
            end = time.monotonic() + 60
            while not any((tmp_path / "fetched").rglob("*.incomplete")):
                assert running.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=20)[1].decode()
    assert running.returncode == 128 + signal.SIGINT
    assert "stopped; what was scored is kept" in said
    assert [*(tmp_path / "fetched").iterdir()] == []
