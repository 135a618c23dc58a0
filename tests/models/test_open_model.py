"""Where models come from: folders, the hub, the bundle; and what opening one costs."""

import json
import os
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


def test_fingerprint_is_of_the_weights_alone(parts, tmp_path):
    first = open_model(parts.write(tmp_path / "step0"))
    second = open_model(parts.write_sharded(tmp_path / "step1"))
    assert first.fingerprint() == second.fingerprint()
    parts.tensors["model.layers.0.self_attn.k_proj.weight"][0, 0] += 1e-3
    assert open_model(parts.write(tmp_path / "step2")).fingerprint() != first.fingerprint()


def test_layers_with_the_same_weights_are_a_warning(parts, tmp_path):
    assert open_model(parts.write(tmp_path / "sound")).warnings == ()
    for name in ("q_proj", "k_proj"):
        first, second = (f"model.layers.{layer}.self_attn.{name}.weight" for layer in range(2))
        parts.tensors[second] = parts.tensors[first]
    (warning,) = open_model(parts.write(tmp_path / "copied")).warnings
    assert warning.startswith("layers 0, 1 hold byte-identical")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "../nowhere", "a/b/c", "a b", "org/", "~nowhere"])
def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(name, no_hub):
    with pytest.raises(MissingFileError, match="no such file"):
        open_model(name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("demo@step-200", ("demo", "step-200", None)),
        ("pythia-70m@step512", ("pythia-70m", "step512", None)),
        ("org/name//text_encoder", ("org/name", None, "text_encoder")),
        ("org/name//a/b@refs/pr/1", ("org/name", "refs/pr/1", "a/b")),
        ("org/name", ("org/name", None, None)),
        ("a/b/c", ("a/b/c", None, None)),
        ("@x", ("@x", None, None)),
        ("demo@", ("demo@", None, None)),
    ],
)
def test_a_name_states_its_revision_and_its_subfolder(name, parts):
    assert split_name(name) == parts


def test_a_folder_with_an_at_sign_is_a_folder(parts, tmp_path):
    folder = parts.write(tmp_path / "model@home")
    assert open_model(str(folder)).path == folder
    with pytest.raises(ParameterError, match="revision = 'main': expected none for a folder"):
        open_model(f"{folder}@main")


def test_a_revision_is_stated_once():
    assert open_model("demo@step-200").fingerprint() == open_model("demo", "step-200").fingerprint()
    with pytest.raises(ParameterError, match="revision = 'final': expected none beside the name 'demo@step-200'"):
        open_model("demo@step-200", "final")


def test_a_path_object_is_never_a_hub_name(no_hub):
    with pytest.raises(MissingFileError, match="org/name"):
        open_model(Path("org/name"))


@pytest.mark.parametrize("model", ["", "  ", None, 3])
def test_what_cannot_name_a_model(model):
    with pytest.raises(ParameterError, match="a folder, the name of a model on the hub, or 'demo'"):
        open_model(model)


def test_a_file_is_not_a_folder(parts, tmp_path):
    shard = tmp_path / "model-00001-of-00002.safetensors"
    (parts.write(tmp_path) / "model.safetensors").rename(shard)
    with pytest.raises(CheckpointError, match="is one of several files of a checkpoint; pass the folder that holds it"):
        open_model(shard)
    with pytest.raises(CheckpointError, match="is a file; pass the folder that holds it"):
        open_model(tmp_path / "config.json")


def test_a_folder_has_no_revisions(parts, tmp_path):
    with pytest.raises(ParameterError, match="revision = 'step1': expected none for a folder"):
        open_model(parts.write(tmp_path), revision="step1")


def test_a_path_too_long_for_the_system(no_hub):
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_model("./" + "a" * 5000)


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


def test_a_name_without_organisation_is_a_hub_name(parts, tmp_path, hub):
    folder = str(parts.write(tmp_path))
    requests = hub(lambda patterns: folder)
    assert open_model("some-model").revision == "main"
    assert requests[0]["model"] == "some-model"


@pytest.mark.parametrize("name", ["pythia-70m", "Pythia-70M", "EleutherAI/pythia-70m"])
def test_a_known_model_is_fetched_by_its_hub_id(name, parts, tmp_path, hub):
    folder = str(parts.write(tmp_path))
    requests = hub(lambda patterns: folder)
    model = open_model(name, revision="step1")
    assert (model.name, model.revision) == ("EleutherAI/pythia-70m", "step1")
    assert requests[0]["model"] == "EleutherAI/pythia-70m" == head_shape("pythia-70m").source.partition(",")[0]


def test_a_folder_comes_before_a_known_model_of_its_name(parts, tmp_path, monkeypatch, no_hub):
    parts.write(tmp_path / "pythia-70m")
    monkeypatch.chdir(tmp_path)
    assert open_model("pythia-70m").d_model == 12
    assert head_shape("pythia-70m").d_model == 12


@pytest.mark.exhaustive
def test_score_of_a_known_name_that_cannot_be_fetched_names_the_hub_id(run_process, tmp_path):
    ended = run_process("score", "pythia-70m", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert ended.status == 2
    (line,) = ended.err.strip().splitlines()
    assert line.startswith("rmtbase: error: EleutherAI/pythia-70m: ")
    assert "cannot be fetched from the hub" in line


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


def test_bin_files_are_not_fetched_without_torch(parts, tmp_path, hub, monkeypatch):
    (parts.write(tmp_path) / "model.safetensors").unlink()
    requests = hub(lambda patterns: str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="torch"):
        open_model("org/name")
    assert len(requests) == 1


def test_a_model_of_the_hub_without_known_weights_is_told_so(tmp_path, hub):
    (tmp_path / "config.json").write_text("{}")
    hub(lambda patterns: str(tmp_path))
    with pytest.raises(
        CheckpointError, match=r"org/name: .* neither safetensors nor pytorch_model.bin .* pass its path"
    ):
        open_model("org/name")


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


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_offline_says_what_to_do(tmp_path):
    code = (
        "import rmtbase.models as m, rmtbase.errors as e\n"
        "try: m.open_model('org/name')\n"
        "except e.CheckpointError as error: print(error)\n"
    )
    told = run_python(code, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert "cannot be fetched from the hub" in told
    assert "pass the folder of a downloaded checkpoint" in told


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
    assert run_python(code).strip() == "[] []"


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


@pytest.mark.parametrize("revision", ["step1", "../final", ""])
def test_unknown_demo_revision_lists_the_known(revision, bundle):
    with pytest.raises(ParameterError, match="one of the bundled checkpoints: step0, final"):
        open_model("demo", revision=revision)


@pytest.mark.parametrize("index", [{}, {"revisions": 3, "default": "a"}, {"revisions": ["a"], "default": "a"}])
def test_damaged_demo_index(index, bundle):
    (bundle / "index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFileError, match="no list of revisions"):
        open_model("demo")


def test_package_without_its_demo(bundle):
    (bundle / "index.json").unlink()
    with pytest.raises(MissingFileError, match=r"index\.json"):
        open_model("demo")
