"""The entry to the sources' figures where there is a hub: it fetches, scores, keeps the scores, deletes the weights."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from local_hub import asked, local_hub
from tiny_gpt2 import N_HEADS, N_LAYERS, write_tiny_gpt2

from studies.sources import __main__ as entry
from studies.sources.recipe import Result, Row
from studies.sources.verdicts import needs

GATED = "meta-llama/Llama-3.1-8B"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's own client asks a server on this machine, which has one small model and refuses another."""
    for name in ("some-org/tiny-gpt2", GATED):
        write_tiny_gpt2(tmp_path / "models" / name)
    with asked(monkeypatch, tmp_path, frozenset({GATED})) as server:
        yield server


@pytest.fixture
def recipe(monkeypatch):
    """A short recipe in the place of those that draw: the scores, and an array of the weights."""

    def make(run):
        heads = run.scores(matrices="none")["heads"].dataset.sel(statistic="normalized_participation_ratio")
        shapes = run.arrays("shapes", lambda model: {"one": model.matrix(0, "attention_output").shape})["one"]
        row = Row("post 2, figure 8", "NPR", 0.8552, float(heads["observed"].mean()), None, needs("gpt2"), "λ")
        assert heads["observed"].shape == (N_LAYERS, N_HEADS)
        assert shapes.prod() == 128 * 128
        return Result(rows=(row,))

    monkeypatch.setattr(entry, "recipe", lambda name: SimpleNamespace(make=make))


def run(tmp_path, model):
    folders = ("--out", str(tmp_path / "out"), "--store", str(tmp_path / "store"))
    return entry.main(["post2", "--model", model, "--quick", *folders])


def test_a_model_of_the_hub_is_fetched_once_scored_kept_and_its_weights_deleted(hub, recipe, tmp_path):
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    assert sorted(hub.fetched) == ["config.json", "model.safetensors"]
    assert [*(tmp_path / "fetched").iterdir()] == []
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.safetensors")} == {"models"}
    results = json.loads((tmp_path / "out/some-org--tiny-gpt2/post2/results.json").read_text(encoding="utf-8"))
    assert results["model"] == ["some-org/tiny-gpt2"]
    assert results["weights"]["some-org/tiny-gpt2@main"]["commit"] == hub.commit("some-org/tiny-gpt2")
    assert 0.7 < results["rows"][0]["observed"] < 0.9
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


def test_a_model_that_changed_is_scored_anew_and_a_silent_hub_leaves_what_is_kept(hub, recipe, tmp_path, capsys):
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    path = tmp_path / "out/some-org--tiny-gpt2/post2/results.json"
    first = json.loads(path.read_text(encoding="utf-8"))
    shutil.rmtree(tmp_path / "models/some-org/tiny-gpt2")
    write_tiny_gpt2(tmp_path / "models/some-org/tiny-gpt2", seed=1)
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    second = json.loads(path.read_text(encoding="utf-8"))
    assert first["rows"][0]["observed"] != second["rows"][0]["observed"]
    commit = hub.commit("some-org/tiny-gpt2")
    assert second["weights"]["some-org/tiny-gpt2@main"]["commit"] == commit
    assert len(hub.weights) == 2
    hub.silent = True
    capsys.readouterr()
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    assert f"the hub does not say which commit some-org/tiny-gpt2 has now: kept scores of {commit}" in (
        capsys.readouterr().err
    )
    assert json.loads(path.read_text(encoding="utf-8")) == second


def test_bytes_that_are_not_those_of_the_hub_are_refused_with_both_digests_and_not_kept(hub, recipe, tmp_path, capsys):
    hub.damaged = "model.safetensors"
    assert run(tmp_path, "some-org/tiny-gpt2") == 2
    there = hashlib.sha256((tmp_path / "models/some-org/tiny-gpt2/model.safetensors").read_bytes()).hexdigest()
    said = capsys.readouterr().err
    assert len({*re.findall("[0-9a-f]{64}", said)}) == 2 and f"the hub has {there}" in said
    assert not [*(tmp_path / "store").glob("*")]
    hub.damaged = ""
    assert run(tmp_path, "some-org/tiny-gpt2") == 0


class Quiet(SimpleHTTPRequestHandler):
    """Nothing on stderr."""

    def log_message(self, format, *args):
        pass


def test_a_published_store_is_read_by_its_address_and_damage_is_refused(hub, recipe, tmp_path, monkeypatch, capsys):
    assert run(tmp_path, "some-org/tiny-gpt2") == 0
    published = tmp_path / "store"
    files = json.loads((published / "index.json").read_text(encoding="utf-8"))["files"]
    commit = hub.commit("some-org/tiny-gpt2")
    assert {(one["model"], one["commit"]) for one in files} == {("some-org/tiny-gpt2", commit)}
    assert sorted(one["what"] for one in files) == ["scores", "shapes"]
    del hub.weights[:]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=published)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(entry, "STORE", tmp_path / "here")
        arguments = ["post2", "--model", "some-org/tiny-gpt2", "--quick", "--out", str(tmp_path / "again")]
        assert entry.main([*arguments, "--store", address]) == 0
        assert hub.weights == []
        both = [tmp_path / folder / "some-org--tiny-gpt2/post2/results.json" for folder in ("out", "again")]
        assert both[0].read_bytes() == both[1].read_bytes()
        monkeypatch.setattr(entry, "STORE", tmp_path / "elsewhere")
        (scores,) = published.glob("*-scores-*.nc")
        scores.write_bytes(scores.read_bytes()[:-1] + b"?")
        assert entry.main([*arguments, "--store", address]) == 2
        assert "found SHA-256" in capsys.readouterr().err
        server.shutdown()


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
