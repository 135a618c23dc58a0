"""Folders as they are found: each is read as the plain one, to the bit, or refused by its right name.

What an adapter, a quantisation or another format leaves is in ``test_leftovers.py``, what is broken in
``test_bad_checkpoints.py``, quantised weights in ``test_quantised.py`` and ``test_gguf.py``.
"""

import json
import warnings

import ml_dtypes
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


def renamed(rename):
    def change(parts):
        parts.tensors = {rename(name): tensor for name, tensor in parts.tensors.items()}

    return change


def prefixed(prefix):
    return renamed(lambda name: prefix + name)


def without_model(name):
    return name.removeprefix("model.")


def wrapped_layers(wrapper):
    """As FSDP and activation checkpointing wrap each layer, and the attention within."""

    def rename(name):
        return name.replace(".self_attn.", f".{wrapper}.self_attn.") if ".layers." in name else name

    return renamed(rename)


NAMES = {
    "no prefix": renamed(without_model),
    "another stem": renamed(lambda name: "transformer." + without_model(name)),
    "a merged adapter": prefixed("base_model.model."),
    "torch.compile": prefixed("_orig_mod."),
    "torch.compile within": renamed(lambda name: name.replace("model.", "model._orig_mod.", 1)),
    "torch.compile of each layer": wrapped_layers("_orig_mod"),
    "DataParallel": prefixed("module."),
    "torch.compile of DataParallel": prefixed("_orig_mod.module."),
    "DataParallel of torch.compile": prefixed("module._orig_mod."),
    "FSDP": prefixed("_fsdp_wrapped_module."),
    "FSDP of each layer": wrapped_layers("_fsdp_wrapped_module"),
    "activation checkpointing": wrapped_layers("_checkpoint_wrapped_module"),
    "FSDP and activation checkpointing": wrapped_layers("_fsdp_wrapped_module._checkpoint_wrapped_module"),
    "Lightning": prefixed("_forward_module.model."),
    "a language model within another": prefixed("language_model."),
    "EMA of a trainer": prefixed("ema_model."),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_wrappers_and_larger_models_give_are_read(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    NAMES[name](parts)
    model = open_model(parts.write(tmp_path / "folder"))
    assert_same(model, plain)
    assert model.notes == plain.notes
    assert_same(open_model(parts.tensors, config=parts.config), plain)


def gpt2(parts):
    shapes = {"attn.c_attn": (12, 36), "attn.c_proj": (12, 12), "mlp.c_fc": (12, 48), "mlp.c_proj": (48, 12)}
    parts.config = {"model_type": "gpt2", "n_embd": 12, "n_layer": 2, "n_head": 4}
    return filled(parts, "transformer.h.{}.", shapes)


def bert(parts):
    names = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    shapes = dict.fromkeys(names, (12, 12))
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
    parts.config = {"model_type": "bert"} | sizes
    return filled(parts, "bert.encoder.layer.{}.", shapes | {"intermediate.dense": (20, 12), "output.dense": (12, 20)})


def filled(parts, layer, shapes):
    rng = np.random.default_rng(22)
    parts.tensors = {
        f"{layer.format(i)}{name}.weight": rng.standard_normal(shape, np.float32)
        for i in range(2)
        for name, shape in shapes.items()
    }
    return parts


@pytest.mark.parametrize("make", [gpt2, bert])
@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.partition(".")[2],
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module.{name}",
        lambda name: name.replace(".0.", ".0._checkpoint_wrapped_module.").replace(".1.", ".1._fsdp_wrapped_module."),
        lambda name: f"base_model.model.{name}",
    ],
    ids=["no prefix", "torch.compile", "DataParallel", "wrapped layers", "a merged adapter"],
)
def test_names_of_other_families_are_read_so_too(make, rename, parts, tmp_path):
    plain = open_model(make(parts).write(tmp_path / "plain"))
    parts.tensors = {rename(name): tensor for name, tensor in parts.tensors.items()}
    assert_same(open_model(parts.write(tmp_path / "folder")), plain)


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
    "a reward": (extra(**{"reward_head.weight": (1, 12)}), None),
    "a value head": (extra(**{"v_head.summary.weight": (1, 12), "v_head.summary.bias": (1,)}), None),
    "a span head": (extra(**{"qa_outputs.weight": (2, 12)}), None),
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
    "no dtype of its own": (configured(torch_dtype=None), None),
    "words of others": (configured(_name_or_path="/home/x", transformers_version="9.9", id2label={}), None),
    "no quantisation": (configured(quantization_config=None), None),
    "no drafts": (configured(num_nextn_predict_layers=0), None),
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
    shards = {name: f"pytorch_model-{1 + i % 2:05d}-of-00002.bin" for i, name in enumerate(parts.tensors)}
    for shard in set(shards.values()):
        held = {name: torch.from_numpy(parts.tensors[name]) for name in shards if shards[name] == shard}
        torch.save(held, folder / shard)
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


def indexed_too(parts, folder):
    parts.write_sharded(folder)
    parts.write(folder)


KEPT = {
    "shards": lambda parts, folder: parts.write_sharded(folder),
    "a bin file": as_bin,
    "bin shards": as_bin_shards,
    "a shard without tensors": with_empty_shard,
    "an index beside the whole": indexed_too,
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


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_wider_and_narrower_types_are_read_exactly(dtype, parts, tmp_path):
    parts.tensors = {name: tensor.astype(dtype) for name, tensor in whole(parts).tensors.items()}
    model = open_model(parts.write(tmp_path))
    for layer in range(2):
        stored = parts.tensors[LAYER.format(layer) + "q_proj.weight"].astype(np.float32)
        assert np.array_equal(model.matrix(layer, "attention_query"), stored)


# One file, and folders within

WHOLE_FILES = [
    "model.safetensors",
    "model.fp16.safetensors",
    "gptq_model-4bit-128g.safetensors",
    "my model.safetensors",
]


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_one_file_is_read_with_the_configuration_beside_it(name, parts, tmp_path):
    plain = open_model(whole(parts).write(tmp_path / "plain"))
    folder = parts.write(tmp_path / "folder")
    (folder / "model.safetensors").rename(folder / name)
    save_file({"other": np.ones(3, np.float32)}, folder / "other.safetensors")
    model = open_model(folder / name)
    assert_same(model, plain)
    assert (model.name, model.path, model.files) == (name, folder, (folder / name,))


@pytest.mark.parametrize("subfolder", ["text_encoder", "a/b.c", "0_Transformer"])
def test_a_folder_within_is_read_by_its_name(subfolder, parts, tmp_path):
    (tmp_path / subfolder).mkdir(parents=True)
    inner = open_model(whole(parts).write(tmp_path / subfolder))
    (tmp_path / "model_index.json").write_text("{}")
    model = open_model(tmp_path, subfolder=subfolder)
    assert_same(model, inner)
    assert model.path == tmp_path / subfolder


@pytest.mark.parametrize("subfolder", ["", ".", "..", "../up", "a/../..", "/etc", "a//b", "a\\b", "a\0b", "a b/"])
def test_a_folder_outside_is_never_opened(subfolder, parts, tmp_path):
    (tmp_path / "inner").mkdir()
    parts.write(tmp_path)
    with pytest.raises(ParameterError, match="subfolder = "):
        open_model(tmp_path / "inner", subfolder=subfolder)


def test_a_folder_within_is_of_a_folder(parts, tmp_path):
    folder = parts.write(tmp_path / "folder")
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


def replaced(name, content):
    """A sound folder with another content of one file."""

    def write(parts, folder):
        parts.write(folder)
        (folder / name).write_bytes(content)

    return write


def instead(name, content):
    """A sound folder with another file in the place of the weights."""

    def write(parts, folder):
        (parts.write(folder) / "model.safetensors").unlink()
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
    "a pointer in place of a bin file": (instead("pytorch_model.bin", POINTER), "a Git LFS pointer; expected the file"),
    "a pointer in place of the configuration": (replaced("config.json", POINTER), "json: found a Git LFS pointer"),
    "a pointer in place of the index": (
        instead("model.safetensors.index.json", POINTER), "index.json: found a Git LFS pointer"
    ),
    "a page in place of the configuration": (replaced("config.json", b"<!DOCTYPE html><html>"), "that is not JSON"),
    "a page in place of the weights": (replaced("model.safetensors", b"<!DOCTYPE html><html>" * 9), "a page of HTML"),
    "an empty configuration": (replaced("config.json", b""), "found an empty file; expected a JSON object"),
    "a configuration of white space": (replaced("config.json", b" \n"), "config.json: found an empty file"),
    "a configuration with a mark": (replaced("config.json", b"\xef\xbb\xbf{}"), "unknown architecture '(none named)'"),
    "a configuration in UTF-16": (replaced("config.json", '{"a": 1}'.encode("utf-16")), "text that is not JSON"),
    "a configuration that is a list": (replaced("config.json", b'[{"model_type": "llama"}]'), "found a JSON list"),
    "a configuration that says nothing": (replaced("config.json", b"{}"), "unknown architecture '(none named)'"),
    "a configuration cut short": (replaced("config.json", b'{"model_type": "llama", '), "text that is not JSON"),
    "a configuration of other names": (
        changed(configured(model_type="gpt_neox", num_key_value_heads=None)), "query_key_value.weight', which a gpt"
    ),
    "a type of no model": (changed(configured(model_type="no such model")), "unknown architecture 'no such model'"),
    "empty weights": (replaced("model.safetensors", b""), "model.safetensors: found an empty file"),
    "an empty bin file": (instead("pytorch_model.bin", b""), "an empty file"),
    "an index of a shard that is not there": (missing_shard, "model-00077.safetensors: no such file (named in"),
    "pruned heads": (changed(configured(pruned_heads={"1": [3]})), "pruned_heads = {'1': [3]}: layers have lost heads"),
    "a draft layer that is not announced": (
        changed(extra(**{"model.layers.2.eh_proj.weight": (12, 24)})), "if they are not (draft layers, say), take"
    ),
    "a pipeline": (only_inner, "or name it as the subfolder: text_encoder, transformer"),
    "a pipeline without its parts": (files(**{"model_index.json": b"{}"}), "a pipeline of diffusers"),
    "a part of a pipeline": (
        files(**{"config.json": b"{}", "diffusion_pytorch_model.safetensors": b""}), "unknown architecture"
    ),
    "sentence-transformers": (
        lambda parts, folder: (folder.mkdir(), parts.write(folder / "0_Transformer")), "as the subfolder: 0_Transformer"
    ),
    "a variant alone": (instead("model.fp16.safetensors", b""), "a variant of the weights: model.fp16.saf"),
    "variant shards alone": (instead("model.fp16-00001-of-00002.safetensors", b""), "a variant of the weights"),
    "OpenVINO": (files(**{"openvino_model.xml": b"", "openvino_model.bin": b""}), "a model of OpenVINO"),
    "a distributed checkpoint": (files(**{".metadata": b"", "__0_0.distcp": b""}), "a distributed checkpoint of torch"),
    "DeepSpeed": (files(global_step10=None, latest=b""), "a training state of DeepSpeed: global_step10"),
    "Megatron": (files(iter_0000100=None), "a training state of Megatron: iter_0000100"),
    "Megatron by ranks": (files(mp_rank_00=None, mp_rank_01=None), "a training state of Megatron: mp_rank_00"),
    "NeMo": (files(**{"model.nemo": b""}), "a file of another program's weights: model.nemo"),
    "an optimizer alone": (files(**{"optimizer.pt": b"", "scheduler.pt": b""}), "the state of a training run without"),
    "training arguments alone": (files(**{"training_args.bin": b""}), "the state of a training run without its model"),
    "GGML": (files(**{"ggml-model-q4_0.bin": b""}), "a GGML file, older than GGUF"),
    "quantised otherwise": (
        changed(configured(quantization_config={"quant_method": "hqq", "bits": 4})), "quantised with HQQ (4 bit)"
    ),
    "MLX": (
        changed(configured(quantization=MLX, quantization_config=MLX)),
        "quantised with MLX (4 bit)",
    ),
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


def test_there_are_as_many_awkward_folders_as_promised():
    assert len(NAMES) + len(BESIDE) + len(KEPT) + len(WHOLE_FILES) + len(REFUSED) >= 80
