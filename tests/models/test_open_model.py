"""Where models come from: folders, the hub, the bundle; and what opening one costs."""

import json
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import errors as hub_errors

from rmtbase.errors import CheckpointError, CorruptFileError, MissingDependencyError, MissingFileError, ParameterError
from rmtbase.models import demo_revisions, head_shape, open_model
from rmtbase.models.files._hub import split_name


def test_heads_of_a_folder_are_the_stored_rows(parts, tmp_path):
    model = open_model(str(parts.write(tmp_path / "tiny")))
    assert (model.name, model.revision, model.architecture) == ("tiny", None, "llama")
    assert (model.n_layers, model.n_heads, model.n_key_heads) == (2, 4, 2)
    assert (model.d_model, model.d_head) == (12, 3)
    assert model.components == ("attention_query", "attention_key")
    stored = parts.tensors["model.layers.1.self_attn.q_proj.weight"]
    np.testing.assert_array_equal(model.queries(1), stored.reshape(4, 3, 12))
    assert [model.key_head(i) for i in range(4)] == [0, 0, 1, 1]


def test_the_fingerprint_is_of_the_weights_alone_and_layers_with_the_same_ones_are_a_warning(parts, tmp_path):
    first = open_model(parts.write(tmp_path / "step0"))
    assert first.fingerprint() == open_model(parts.write_sharded(tmp_path / "step1")).fingerprint()
    assert first.warnings == ()
    for name in ("q_proj", "k_proj"):
        one, other = (f"model.layers.{layer}.self_attn.{name}.weight" for layer in range(2))
        parts.tensors[other] = parts.tensors[one]
    copied = open_model(parts.write(tmp_path / "copied"))
    (warning,) = copied.warnings
    assert warning.startswith("layers 0, 1 hold byte-identical")
    assert copied.fingerprint() != first.fingerprint()


NOWHERE = ("./nowhere", "/nowhere/at/all", "../nowhere", "a/b/c", "a b", "org/", "~nowhere", Path("org/name"))


def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(no_hub):
    for name in NOWHERE:
        with pytest.raises(MissingFileError, match="no such file"):
            open_model(name)
    with pytest.raises(CheckpointError, match="cannot be read"):  # too long for the system
        open_model("./" + "a" * 5000)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("demo@step-200", ("demo", "step-200", None)),
        ("org/name//text_encoder", ("org/name", None, "text_encoder")),
        ("org/name//a/b@refs/pr/1", ("org/name", "refs/pr/1", "a/b")),
        *((name, (name, None, None)) for name in ("org/name", "a/b/c", "@x", "demo@")),
    ],
)
def test_a_name_states_its_revision_and_its_subfolder(name, parts):
    assert split_name(name) == parts


def test_a_folder_has_no_revision_and_one_is_stated_once(parts, tmp_path):
    folder = parts.write(tmp_path / "model@home")
    assert open_model(str(folder)).path == folder
    for given in (f"{folder}@main", folder):
        with pytest.raises(ParameterError, match="revision = 'main': expected none for a folder"):
            open_model(given, None if isinstance(given, str) else "main")
    assert open_model("demo@step-200").fingerprint() == open_model("demo", "step-200").fingerprint()
    with pytest.raises(ParameterError, match="revision = 'final': expected none beside the name 'demo@step-200'"):
        open_model("demo@step-200", "final")


def test_what_cannot_name_a_model():
    for model in ("", "  ", None, 3):
        with pytest.raises(ParameterError, match="a folder, the name of a model on the hub, or 'demo'"):
            open_model(model)


def test_a_file_is_not_a_folder(parts, tmp_path):
    shard = tmp_path / "model-00001-of-00002.safetensors"
    (parts.write(tmp_path) / "model.safetensors").rename(shard)
    with pytest.raises(CheckpointError, match="is one of several files of a checkpoint; pass the folder that holds it"):
        open_model(shard)
    with pytest.raises(CheckpointError, match="is a file; pass the folder that holds it"):
        open_model(tmp_path / "config.json")


# The hub


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("hub was asked"))


@pytest.fixture
def hub(monkeypatch):
    """Puts a stand-in in the place of the download; the requests made of it are listed."""

    def install(answer):
        requests = []

        def download(model, **options):
            requests.append({"model": model} | options)
            return answer(options["allow_patterns"])

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return requests

    return install


def test_only_configuration_and_safetensors_are_fetched(parts, tmp_path, hub):
    folder = str(parts.write(tmp_path / "c0ffee"))
    requests = hub(lambda patterns: folder)
    model = open_model("org/name", revision="step1000")
    assert (model.name, model.revision) == ("org/name", "step1000")
    assert "hub commit c0ffee" in model.notes
    (request,) = requests
    assert (request["model"], request["revision"]) == ("org/name", "step1000")
    assert set(request["allow_patterns"]) == {
        "config.json", "model_index.json", "adapter_config.json", "*.safetensors", "*.safetensors.index.json",
        "quantize_config.json", "quant_config.json",
    }  # fmt: skip


PYTHIA = "EleutherAI/pythia-70m"
NAMES = {"some-model": "some-model", "pythia-70m": PYTHIA, "Pythia-70M": PYTHIA, PYTHIA: PYTHIA}


@pytest.mark.parametrize("name", NAMES)
def test_a_known_model_is_fetched_by_its_hub_id_and_others_by_their_name(name, parts, tmp_path, hub):
    folder = str(parts.write(tmp_path))
    requests = hub(lambda patterns: folder)
    model = open_model(name)
    assert (model.name, model.revision, requests[0]["model"]) == (NAMES[name], "main", NAMES[name])
    assert head_shape("pythia-70m").source.partition(",")[0] == NAMES["pythia-70m"]


def test_a_folder_comes_before_a_known_model_of_its_name(parts, tmp_path, monkeypatch, no_hub):
    parts.write(tmp_path / "pythia-70m")
    monkeypatch.chdir(tmp_path)
    assert open_model("pythia-70m").d_model == 12
    assert head_shape("pythia-70m").d_model == 12


def test_bin_files_are_fetched_only_where_there_is_nothing_else(parts, tmp_path, hub):
    (parts.write(tmp_path) / "model.safetensors").unlink()

    def answer(patterns):
        if "pytorch_model*.bin" in patterns:
            state = {name: torch.from_numpy(weight) for name, weight in parts.tensors.items()}
            torch.save(state, tmp_path / "pytorch_model.bin")
        return str(tmp_path)

    requests = hub(answer)
    assert open_model("org/name").n_layers == 2
    assert len(requests) == 2


def test_bin_files_are_not_fetched_without_torch_and_a_model_without_weights_is_told_so(
    parts, tmp_path, hub, monkeypatch
):
    (parts.write(tmp_path) / "model.safetensors").unlink()
    requests = hub(lambda patterns: str(tmp_path))
    with pytest.raises(CheckpointError, match=r"org/name: .* neither safetensors nor pytorch_model.bin .* pass its"):
        open_model("org/name")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"torch.*pip install \"rmtbase\[hf\]\""):
        open_model("org/name")
    assert len(requests) == 3


class TransportError(Exception):
    """What the client's transport may raise: of no family that rmtbase knows."""


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        (hub_errors.RepositoryNotFoundError, "nor a public model of the hub"),
        (hub_errors.GatedRepoError, "access to this model must be asked for"),
        (hub_errors.RevisionNotFoundError, "but no revision 'r9'"),
        (hub_errors.LocalEntryNotFoundError, "cannot be fetched from the hub (LocalEntryNotFoundError)"),
        (TransportError, "cannot be fetched from the hub (TransportError)"),
        (OSError, "cannot be fetched from the hub (OSError)"),
    ],
)
def test_a_hub_that_does_not_deliver_is_one_clear_line(kind, fragment, hub):
    def answer(patterns):
        raise kind.__new__(kind)  # whatever arguments it takes: they differ between versions of the client

    hub(answer)
    with pytest.raises(CheckpointError) as caught:
        open_model("org/name", revision="r9")
    assert str(caught.value).startswith("org/name: ")
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_offline_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"cannot be fetched from the hub .* pass the folder of a downloaded"):
        open_model("some-org/no-such-name", cache=tmp_path)


def test_reading_safetensors_imports_no_large_library(parts, tmp_path):
    folder = parts.write(tmp_path)
    code = (
        "import sys\n"
        "import rmtbase.models as m\n"
        "large = {'torch', 'transformers', 'jax', 'huggingface_hub', 'gguf', 'matplotlib'}\n"
        "imported = large & set(sys.modules)\n"
        f"m.open_model({str(folder)!r}).queries(0)\n"
        "print(sorted(imported), sorted(large & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[] []", 0), done.stderr


# The bundled model


@pytest.fixture
def bundle(parts, tmp_path, monkeypatch):
    for name in ("step0", "final"):
        parts.write(tmp_path / name)
    index = tmp_path / "index.json"
    revisions = [{"name": "step0", "step": 0}, {"name": "final", "step": 9}]
    index.write_text(json.dumps({"revisions": revisions, "default": "final"}))
    monkeypatch.setattr("rmtbase.models.files._demo.demo_root", lambda: tmp_path)
    return tmp_path


def test_demo_is_the_default_revision(bundle):
    model = open_model("demo")
    assert (model.name, model.revision, model.path) == ("demo", "final", bundle / "final")
    assert open_model("demo", revision="step0").path == bundle / "step0"
    assert demo_revisions() == ("step0", "final")


def test_an_unknown_demo_revision_lists_the_known_and_a_damaged_index_is_named(bundle):
    for revision in ("step1", "../final", ""):
        with pytest.raises(ParameterError, match="one of the bundled checkpoints: step0, final"):
            open_model("demo", revision=revision)
    for index in ({}, {"revisions": 3, "default": "a"}, {"revisions": ["a"], "default": "a"}):
        (bundle / "index.json").write_text(json.dumps(index))
        with pytest.raises(CorruptFileError, match="no list of revisions"):
            open_model("demo")
    (bundle / "index.json").unlink()
    with pytest.raises(MissingFileError, match=r"index\.json"):
        open_model("demo")
