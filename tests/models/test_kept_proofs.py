"""A proof is made once of the same weights, settings and versions; what is kept is never taken for another's."""

import json
import os
import shutil
import subprocess
import sys
from unittest.mock import Mock

import pytest
from safetensors.numpy import load_file, save_file

from rmtbase.models import _model, demo_revisions, open_model
from rmtbase.models.files._demo import demo_checkpoint, demo_root
from rmtbase.models.forward import _proof

NOTE = "proved against transformers' own forward pass (transformers 1.2): 2 of 4 sites"


@pytest.fixture
def proofs(monkeypatch, tmp_path):
    """Proofs are counted, not made; the cache is empty."""
    made = []
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_model, "proof_of", lambda *arguments: made.append(arguments) or _proof.Proof(NOTE))
    return made


@pytest.fixture
def folder(tmp_path):
    """A model like the bundled one, with other weights."""
    folder = shutil.copytree(demo_checkpoint(None)[0], tmp_path / "model")
    change(folder, 1.0)
    return folder


def change(folder, value):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"].flat[0] = value
    save_file(tensors, folder / "model.safetensors")


def kept(tmp_path):
    return sorted((tmp_path / "cache").glob("proof-*.json"))


def test_second_time_the_proof_is_read(proofs, folder, tmp_path):
    first, second = open_model(folder).prove(), open_model(folder).prove()
    assert len(proofs) == len(kept(tmp_path)) == 1
    assert first.notes == second.notes  # what files record does not depend on when it was proved
    assert (first.notes_now[-1], second.notes_now[-1]) == (NOTE, f"proved before: {NOTE}")


def test_other_weights_settings_versions_or_proofs_are_proved_anew(proofs, folder, tmp_path, monkeypatch):
    open_model(folder).prove()
    change(folder, 2.0)
    open_model(folder).prove()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    open_model(folder).prove()
    for name in ("rmtbase", "torch", "transformers"):
        with monkeypatch.context() as patch:
            patch.setattr(_proof, "version", lambda asked, name=name: "9" if asked == name else "1")
            open_model(folder).prove()
    monkeypatch.setattr(_proof, "_source", lambda: "another way to prove")
    open_model(folder).prove()
    assert len(proofs) == len(kept(tmp_path)) == 7


def test_damaged_or_foreign_proof_is_made_again(proofs, folder, tmp_path):
    open_model(folder).prove()
    (path,) = kept(tmp_path)
    text = path.read_bytes()
    foreign = json.dumps(json.loads(text) | {"proof": "0"}).encode()
    for number, damaged in enumerate((b"", b"\xff[[", b"[]", text.replace(b"2 of 4", b"4 of 4"), foreign, None), 2):
        path.unlink()
        path.mkdir() if damaged is None else path.write_bytes(damaged)
        assert open_model(folder).prove().notes_now[-1] == NOTE
        assert len(proofs) == number


def test_what_cannot_be_kept_or_proved_is_tried_again(proofs, folder, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file in its place")
    for _ in range(2):
        assert open_model(folder).prove().notes_now[-1] == NOTE
    (tmp_path / "cache").unlink()
    monkeypatch.setattr(_model, "proof_of", lambda *given: proofs.append(given) or _proof.not_proved("no torch"))
    for _ in range(2):
        open_model(folder).prove()
    assert (len(proofs), kept(tmp_path)) == (4, [])


def test_without_torch_the_bundled_model_is_proved_before(proofs, monkeypatch):
    """Its proofs ship with it, for all of its revisions, and nothing is imported for them."""

    monkeypatch.setattr(_proof, "version", Mock(side_effect=_proof.PackageNotFoundError))
    for name in demo_revisions():
        assert open_model("demo", name).prove().notes_now[-1].startswith("proved before: proved against")
    assert proofs == []


def test_proofs_that_ship_are_those_that_are_made_now(monkeypatch):
    """Without what names the version of transformers that made them."""
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    shipped = json.loads((demo_root() / _proof.DEMO_PROOFS).read_text(encoding="utf-8"))
    models = [open_model("demo", name) for name in demo_revisions()]
    assert set(shipped) == {model.proof_subject() for model in models}
    for model in models[-1:]:
        made, held = model.proved_now().note, shipped[model.proof_subject()]
        assert made.rpartition("): ")[2] == held.rpartition("): ")[2]


def test_a_model_that_was_proved_is_read_without_torch():
    command = "import sys; from rmtbase.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    arguments = ["composition", "demo", "-v"]
    ended = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True, text=True, check=True, env=os.environ | {"RMTBASE_PROOF": "1"},
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1] == "False"
    assert "proved before" in ended.stderr
