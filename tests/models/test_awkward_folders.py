"""Folders as they are found: each is read as the plain one, to the bit, or refused by its right name.

What an adapter, a quantisation or another format leaves is in ``test_leftovers.py``, what is broken in
``test_bad_checkpoints.py``, quantised weights in ``test_quantised.py`` and ``test_gguf.py``.
"""

import json
import warnings

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import open_model

LAYER = "model.layers.{}.self_attn."
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4976698672\n"


def whole(parts):
    """The model with all the matrices of its layers, and what a language model has besides."""
    rng = np.random.default_rng(21)
    parts.config |= {"intermediate_size": 20, "vocab_size": 5, "tie_word_embeddings": False}
    shapes = {"self_attn.v_proj": (6, 12), "self_attn.o_proj": (12, 12), "mlp.gate_proj": (20, 12)}
    shapes |= {"mlp.up_proj": (20, 12), "mlp.down_proj": (12, 20)}
    for layer in range(2):
        for name, shape in shapes.items():
            parts.tensors[f"model.layers.{layer}.{name}.weight"] = rng.standard_normal(shape, np.float32)
        for name in ("input_layernorm", "post_attention_layernorm"):
            parts.tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(12, np.float32)
    parts.tensors |= {"model.norm.weight": np.ones(12, np.float32)}
    parts.tensors |= {
        name: rng.standard_normal((5, 12), np.float32) for name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    return parts


def assert_same(model, plain):
    assert model.components == plain.components
    assert model.fingerprint() == plain.fingerprint()
    for layer in range(2):
        for component in plain.components:
            assert model.matrix(layer, component).tobytes() == plain.matrix(layer, component).tobytes()


# Names


PREFIXES = (
    "base_model.model.", "_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.", "_fsdp_wrapped_module.",
    "_forward_module.model.", "language_model.", "ema_model.",
)  # fmt: skip
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_fsdp_wrapped_module._checkpoint_wrapped_module")
NAMES = {
    "no prefix": lambda name: name.removeprefix("model."),
    "another stem": lambda name: "transformer." + name.removeprefix("model."),
    "torch.compile within": lambda name: name.replace("model.", "model._orig_mod.", 1),
    **{prefix: lambda name, prefix=prefix: prefix + name for prefix in PREFIXES},
    **{way: lambda name, way=way: name.replace(".self_attn.", f".{way}.self_attn.") for way in WRAPPERS},
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_wrappers_and_larger_models_give_are_read(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    parts.tensors = {NAMES[name](stored): tensor for stored, tensor in parts.tensors.items()}
    model = open_model(parts.write(tmp_path / "folder"))
    assert_same(model, plain)
    assert model.notes == plain.notes
    assert_same(open_model(parts.tensors, config=parts.config), plain)


def test_a_tensor_wrapped_and_not_is_refused(parts, tmp_path):
    name = LAYER.format(0) + "q_proj.weight"
    parts.tensors[f"_orig_mod.{name}"] = parts.tensors[name]
    with pytest.raises(CheckpointError, match=rf"both '{name}' and '_orig_mod.{name}'|both '_orig_mod"):
        open_model(parts.write(tmp_path))


# What stands beside the layers


def extra(**tensors):
    def change(parts):
        parts.tensors |= {name: np.ones(shape, np.float32) for name, shape in tensors.items()}

    return change


def configured(**words):
    def change(parts):
        parts.config |= words

    return change


def drafts(parts):
    """DeepSeek's layer beyond the last, which drafts one more token."""
    parts.config["num_nextn_predict_layers"] = 1
    for name in ("self_attn.q_proj", "self_attn.kv_b_proj", "eh_proj", "shared_head.head"):
        parts.tensors[f"model.layers.2.{name}.weight"] = np.ones((12, 12), np.float32)


def tied(parts):
    parts.config["tie_word_embeddings"] = True
    del parts.tensors["lm_head.weight"]


DRAFTS = "drafts of further tokens are left out: "
BESIDE = {
    "a classifier": (extra(**{"score.weight": (3, 12)}), None),
    "a classifier of BERT's kind": (extra(**{"classifier.weight": (3, 12), "classifier.bias": (3,)}), None),
    "a value head": (extra(**{"v_head.summary.weight": (1, 12), "v_head.summary.bias": (1,)}), None),
    "tied embeddings": (tied, None),
    "no embeddings": (lambda parts: parts.tensors.pop("model.embed_tokens.weight"), None),
    "a larger vocabulary": (extra(**{"model.embed_tokens.weight": (64, 12)}), None),
    "rotary frequencies": (extra(**{LAYER.format(0) + "rotary_emb.inv_freq": (2,)}), None),
    "Medusa": (extra(**{f"medusa_head.{i}.0.linear.weight": (12, 12) for i in range(3)}), DRAFTS + "medusa_head"),
    "draft layers": (drafts, DRAFTS + "layer 2"),
    "draft layers of their own name": (
        extra(**{"mtp.layers.0.self_attn.q_proj.weight": (12, 12), "mtp.fc.weight": (12, 24)}), DRAFTS + "mtp"
    ),
    "an odd dtype": (configured(torch_dtype="float8_e4m3fn_x2", dtype=None), None),
    "no model type": (configured(model_type=None, architectures=["LlamaForCausalLM"]), None),
    "no quantisation": (configured(quantization_config=None), None),
    "no pruned heads": (configured(pruned_heads={}), None),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_heads_drafts_and_odd_words_leave_the_layers_as_they_are(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    change, note = BESIDE[name]
    change(parts)
    model = open_model(parts.write(tmp_path / "folder"))
    assert_same(model, plain)
    added = set(model.notes) - set(plain.notes)
    assert added == ({note} if note else set())


# How the tensors are kept


def as_bin(parts, folder):
    (parts.write(folder) / "model.safetensors").unlink()
    torch.save({name: torch.from_numpy(tensor) for name, tensor in parts.tensors.items()}, folder / "pytorch_model.bin")


def as_bin_shards(parts, folder):
    (parts.write(folder) / "model.safetensors").unlink()
    shards = {name: f"pytorch_model-{number:05d}.bin" for number, name in enumerate(parts.tensors)}
    for name, shard in shards.items():
        torch.save({name: torch.from_numpy(parts.tensors[name])}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))


def with_empty_shard(parts, folder):
    index = parts.write_sharded(folder) / "model.safetensors.index.json"
    save_file({}, folder / "model-99999.safetensors")
    assert "99999" not in index.read_text()


def beside(*names):
    def write(parts, folder):
        parts.write(folder)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"anything")

    return write


KEPT = {
    "shards": lambda parts, folder: parts.write_sharded(folder),
    "a bin file": as_bin,
    "bin shards": as_bin_shards,
    "a shard without tensors": with_empty_shard,
    "an index beside the whole": lambda parts, folder: (parts.write_sharded(folder), parts.write(folder)),
    "a state of training beside": beside(
        "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "training_args.bin", "global_step7/x.pt"
    ),
    "other formats beside": beside(
        "tf_model.h5", "flax_model.msgpack", "model.onnx", "onnx/model.onnx", "openvino_model.bin",
        "consolidated.00.pth", "model.Q4_K_M.gguf", "coreml/model.mlpackage",
    ),
    "a variant beside": beside("model.fp16.safetensors", "pytorch_model.fp16.bin"),
    "a tokenizer beside": beside("tokenizer.model", "tokenizer.json", "vocab.json", "1_Pooling/config.json"),
    "older checkpoints beside": beside("checkpoint-500/model.safetensors", "original/params.json"),
    "a config with white space": lambda parts, folder: (parts.write(folder) / "config.json").write_text(
        "\n \t" + json.dumps(parts.config, indent=4) + "\r\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_however_the_tensors_are_kept_the_model_is_the_same(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    KEPT[name](parts, tmp_path / "folder")
    assert_same(open_model(tmp_path / "folder"), plain)


# One file, and folders within


@pytest.mark.parametrize("name", ["model.safetensors", "model.fp16.safetensors", "my model-4bit-128g.safetensors"])
def test_one_file_is_read_with_the_configuration_beside_it(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    folder = parts.write(tmp_path / "folder")
    (folder / "model.safetensors").rename(folder / name)
    save_file({"other": np.ones(3, np.float32)}, folder / "other.safetensors")
    model = open_model(folder / name)
    assert_same(model, plain)
    assert (model.name, model.path, model.files) == (name, folder, (folder / name,))


def test_a_folder_within_is_read_by_its_name(parts, tmp_path):
    (tmp_path / "model_index.json").write_text("{}")
    for subfolder in ("text_encoder", "a/b.c"):
        (tmp_path / subfolder).mkdir(parents=True)
        inner = open_model(whole(parts).write(tmp_path / subfolder))
        model = open_model(tmp_path, subfolder=subfolder)
        assert_same(model, inner)
        assert model.path == tmp_path / subfolder


def test_a_folder_within_is_of_a_folder_and_never_outside(parts, tmp_path):
    folder = parts.write(tmp_path).joinpath("folder")
    parts.write(folder)
    for subfolder in ("", ".", "..", "../up", "a/../..", "/etc", "a//b", "a\\b", "a\0b", "a b/"):
        with pytest.raises(ParameterError, match="subfolder = "):
            open_model(folder, subfolder=subfolder)
    with pytest.raises(CheckpointError, match="nowhere: no such file; pass the name of a folder within"):
        open_model(folder, subfolder="nowhere")
    for model in (open_model(folder), parts.tensors, "demo"):
        with pytest.raises(ParameterError, match="expected none: it is for a folder, or for a model on the hub"):
            open_model(model, subfolder="inner")


def test_a_folder_within_a_repository_is_fetched_alone(parts, tmp_path, monkeypatch):
    import huggingface_hub

    snapshot, asked = tmp_path / "c0ffee", []
    snapshot.mkdir()

    def download(model, **options):
        asked.append(options)
        parts.write(snapshot / "text_encoder")
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = open_model("org/pipeline", subfolder="text_encoder")
    assert (model.name, model.revision, model.path) == ("org/pipeline/text_encoder", "main", snapshot / "text_encoder")
    assert "hub commit c0ffee" in model.notes
    (request,) = asked
    assert {"text_encoder/config.json", "text_encoder/*.safetensors"} <= set(request["allow_patterns"])
    assert all(one.startswith("text_encoder/") for one in request["allow_patterns"] + request["ignore_patterns"])


# Refused by name


MLX = {"group_size": 64, "bits": 4}


def files(**contents):
    """A folder that holds these files and directories alone."""

    def write(parts, folder):
        folder.mkdir()
        for name, content in contents.items():
            if content is None:
                (folder / name).mkdir(parents=True)
            else:
                (folder / name).write_bytes(content)

    return write


def replaced(name, content, lost="none"):
    """A sound folder with another content of one file, and without another."""

    def write(parts, folder):
        parts.write(folder)
        (folder / lost).unlink(missing_ok=True)
        (folder / name).write_bytes(content)

    return write


def changed(change):
    def write(parts, folder):
        change(parts)
        parts.write(folder)

    return write


def missing_shard(parts, folder):
    index = parts.write_sharded(folder) / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": weight_map | {"more": "model-00077.safetensors"}}))


def only_inner(parts, folder):
    folder.mkdir()
    for name in ("text_encoder", "transformer"):
        parts.write(folder / name)
    (folder / "model_index.json").write_text("{}")


REFUSED = {
    "a pointer in place of the weights": (replaced("model.safetensors", POINTER), "found a Git LFS pointer"),
    "a pointer in place of the configuration": (replaced("config.json", POINTER), "json: found a Git LFS pointer"),
    "a page in place of the configuration": (replaced("config.json", b"<!DOCTYPE html><html>"), "that is not JSON"),
    "a page in place of the weights": (replaced("model.safetensors", b"<!DOCTYPE html><html>" * 9), "a page of HTML"),
    "an empty configuration": (replaced("config.json", b""), "found an empty file; expected a JSON object"),
    "a configuration with a mark": (replaced("config.json", b"\xef\xbb\xbf{}"), "unknown architecture '(none named)'"),
    "a configuration that is a list": (replaced("config.json", b'[{"model_type": "llama"}]'), "found a JSON list"),
    "a configuration that says nothing": (replaced("config.json", b"{}"), "unknown architecture '(none named)'"),
    "a configuration of other names": (
        changed(configured(model_type="gpt_neox", num_key_value_heads=None)), "query_key_value.weight', which a gpt"
    ),
    "an index of a shard that is not there": (missing_shard, "model-00077.safetensors: no such file (named in"),
    "pruned heads": (changed(configured(pruned_heads={"1": [3]})), "pruned_heads = {'1': [3]}: layers have lost heads"),
    "a draft layer that is not announced": (
        changed(extra(**{"model.layers.2.eh_proj.weight": (12, 24)})), "if they are not (draft layers, say), take"
    ),
    "a pipeline": (only_inner, "or name it as the subfolder: text_encoder, transformer"),
    "a pipeline without its parts": (files(**{"model_index.json": b"{}"}), "a pipeline of diffusers"),
    "a variant alone": (replaced("model.fp16.safetensors", b"", "model.safetensors"), "a variant of the weights: "),
    "OpenVINO": (files(**{"openvino_model.xml": b"", "openvino_model.bin": b""}), "a model of OpenVINO"),
    "a distributed checkpoint": (files(**{".metadata": b"", "__0_0.distcp": b""}), "a distributed checkpoint of torch"),
    "DeepSpeed": (files(global_step10=None, latest=b""), "a training state of DeepSpeed: global_step10"),
    "Megatron": (files(iter_0000100=None), "a training state of Megatron: iter_0000100"),
    "NeMo": (files(**{"model.nemo": b""}), "a file of another program's weights: model.nemo"),
    "an optimizer alone": (files(**{"optimizer.pt": b"", "scheduler.pt": b""}), "the state of a training run without"),
    "GGML": (files(**{"ggml-model-q4_0.bin": b""}), "a GGML file, older than GGUF"),
    "quantised otherwise": (
        changed(configured(quantization_config={"quant_method": "hqq", "bits": 4})), "quantised with HQQ (4 bit)"
    ),
    "MLX": (changed(configured(quantization=MLX, quantization_config=MLX)), "quantised with MLX (4 bit)"),
    "ModelOpt": (replaced("hf_quant_config.json", b"{}"), "hf_quant_config.json: the model is quantised with ModelOpt"),
    "quantised in the text's configuration": (
        changed(configured(text_config={"quantization_config": {"quant_method": "aqlm"}})), "quantised with AQLM"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_its_name(name, parts, tmp_path):
    write, said = REFUSED[name]
    write(parts, tmp_path / "folder")
    with pytest.raises(CheckpointError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        model = open_model(tmp_path / "folder")
        model.queries(0)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
