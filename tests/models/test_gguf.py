"""GGUF files: numbers as the gguf package makes them, rows and names as transformers has them, and what is none."""

import importlib.util
import json
import os
import struct

import gguf
import huggingface_hub
import numpy as np
import pytest
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

from rmtbase.errors import CheckpointError, CorruptFileError, MissingDependencyError, NonFiniteError, ParameterError
from rmtbase.models import Checkpoint, head_shape, open_model
from rmtbase.models.formats import _gguf

D_MODEL, D_MLP, N_HEADS, N_KEY_HEADS, D_HEAD = 256, 1024, 4, 2, 64
SIZES = {"block_count": 2, "embedding_length": D_MODEL, "feed_forward_length": D_MLP, "attention.head_count": N_HEADS}
KEYS, MODEL = N_KEY_HEADS * D_HEAD, D_MODEL  # N_HEADS * D_HEAD is as many
LLAMA = {
    "attn_q": ("self_attn.q_proj", MODEL, MODEL), "attn_k": ("self_attn.k_proj", KEYS, MODEL),
    "attn_v": ("self_attn.v_proj", KEYS, MODEL), "attn_output": ("self_attn.o_proj", MODEL, MODEL),
    "ffn_gate": ("mlp.gate_proj", D_MLP, MODEL), "ffn_up": ("mlp.up_proj", D_MLP, MODEL),
    "ffn_down": ("mlp.down_proj", MODEL, D_MLP),
}  # fmt: skip
BERT = {
    "attn_q": ("attention.self.query", MODEL, MODEL), "attn_k": ("attention.self.key", MODEL, MODEL),
    "attn_v": ("attention.self.value", MODEL, MODEL), "attn_output": ("attention.output.dense", MODEL, MODEL),
    "ffn_up": ("intermediate.dense", D_MLP, MODEL), "ffn_down": ("output.dense", MODEL, D_MLP),
}  # fmt: skip
GPT2 = {
    "attn_qkv": ("attn.c_attn", 3 * MODEL, MODEL), "attn_output": ("attn.c_proj", MODEL, MODEL),
    "ffn_up": ("mlp.c_fc", D_MLP, MODEL), "ffn_down": ("mlp.c_proj", MODEL, D_MLP),
}  # fmt: skip
SIZES_OF_LLAMA = {
    "hidden_size": D_MODEL, "num_hidden_layers": 2, "num_attention_heads": N_HEADS, "num_key_value_heads": N_KEY_HEADS,
    "intermediate_size": D_MLP,
}  # fmt: skip
FAMILIES = {
    "llama": (LLAMA, "model.layers.{}.", {"model_type": "llama"} | SIZES_OF_LLAMA),
    "qwen2": (LLAMA, "model.layers.{}.", {"model_type": "qwen2"} | SIZES_OF_LLAMA),
    "qwen3": (LLAMA, "model.layers.{}.", {"model_type": "qwen3", "head_dim": D_HEAD} | SIZES_OF_LLAMA),
    "bert": (BERT, "encoder.layer.{}.", {"model_type": "bert"} | SIZES_OF_LLAMA | {"num_key_value_heads": None}),
    "gpt2": (GPT2, "h.{}.", {"model_type": "gpt2", "n_embd": D_MODEL, "n_layer": 2, "n_head": 4, "n_inner": D_MLP}),
}  # fmt: skip


def permuted(weight, n_heads):
    """What llama.cpp's converter does to W_Q and W_K of a Llama."""
    return weight.reshape(n_heads, 2, len(weight) // n_heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def converted(path, architecture, kind=Type.F32, change=lambda words, tensors: None):
    """A GGUF file as llama.cpp's converter writes it, and the weights that it stands for by transformers' names."""
    names, layer, _ = FAMILIES[architecture]
    rng, tensors, weights = np.random.default_rng(7), {}, {}
    for i in range(2):
        for own, (name, outputs, inputs) in names.items():
            weight = rng.standard_normal((outputs, inputs), np.float32)
            heads = {"attn_q": N_HEADS, "attn_k": N_KEY_HEADS}.get(own) if architecture == "llama" else None
            if heads:  # quantised by rows, so that quantising and permuting may change places
                weight = permuted(weight, heads)
            stored = gguf.quants.quantize(weight, kind)
            tensors[f"blk.{i}.{own}.weight"] = (stored, kind)
            back = gguf.quants.dequantize(stored, kind)
            if heads:
                back = back.reshape(heads, D_HEAD // 2, 2, -1).swapaxes(1, 2).reshape(back.shape)
            turned = back.T if architecture == "gpt2" else back
            weights[f"{layer.format(i)}{name}.weight"] = np.ascontiguousarray(turned)
    words = dict(SIZES) | ({"attention.head_count_kv": N_KEY_HEADS} if names is LLAMA else {})
    if architecture == "qwen3":
        words["attention.key_length"] = D_HEAD
    change(words, tensors)
    prefixed = {
        word if word.startswith(("general.", "split.")) else f"{architecture}.{word}": words[word] for word in words
    }
    return written(path, architecture, prefixed, tensors), weights


def written(path, architecture, words, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    for word, value in words.items():
        kinds = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        kinds[type(value)](word, value)
    for name, (stored, kind) in tensors.items():
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if tensors:
        writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("llama", Type.Q8_0), ("llama", Type.F16), ("llama", Type.BF16), ("qwen2", Type.Q4_0), ("qwen3", Type.Q5_1),
        ("bert", Type.F32), ("gpt2", Type.Q8_0), ("gpt2", Type.F16),
    ],
)  # fmt: skip
def test_a_file_is_the_model_that_it_was_converted_from(architecture, kind, tmp_path):
    path, weights = converted(tmp_path / "model.gguf", architecture, kind)
    model = open_model(path)
    plain = tmp_path / "plain"
    plain.mkdir()
    config = {word: value for word, value in FAMILIES[architecture][2].items() if value is not None}
    (plain / "config.json").write_text(json.dumps(config))
    save_file(weights, plain / "model.safetensors")
    same = open_model(plain)
    assert (model.name, model.architecture, model.files) == ("model.gguf", same.architecture, (path,))
    assert model.components == same.components
    for layer in range(2):
        for component in model.components:
            assert model.matrix(layer, component).tobytes() == same.matrix(layer, component).tobytes()
        assert np.array_equal(model.queries(layer), same.queries(layer))
    quantised = [note.partition(":")[0] for note in model.notes if note.startswith("quantised in a GGUF file")]
    assert quantised == ([] if kind.name in ("F32", "F16", "BF16") else [f"quantised in a GGUF file ({kind.name})"])


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_shape_of_its_heads_is_read_by_its_own_description(architecture, tmp_path):
    path, _ = converted(tmp_path / "model.gguf", architecture)
    names, layer, _ = FAMILIES[architecture]
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], 2)
    assert all(known.get_name(f"{layer.format(1)}{name}") == f"blk.1.{own}" for own, (name, *_) in names.items())
    n_key_heads = N_KEY_HEADS if FAMILIES[architecture][0] is LLAMA else N_HEADS
    for given in (path, str(path), tmp_path):
        assert head_shape(given) == (D_MODEL, D_HEAD, N_HEADS, n_key_heads, 2, str(given))
    with pytest.raises(ParameterError, match="pass the file of that revision"):
        head_shape(path, revision="main")
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["bert"][2] | {"hidden_size": 2 * D_MODEL}))
    assert head_shape(tmp_path).d_model == 2 * D_MODEL
    assert head_shape(path).d_model == D_MODEL


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_transformers_reads_the_same_weights_of_it(architecture, tmp_path):
    """By its own code for GGUF, which knows nothing of this."""

    def change(words, tensors):
        norm = "layer_norm_epsilon" if architecture == "gpt2" else "layer_norm_rms_epsilon"
        words |= {f"attention.{norm}": 1e-5, "vocab_size": 8, "context_length": 16}
        if architecture != "gpt2":  # whose vocabulary transformers takes to have its usual size
            tensors["token_embd.weight"] = (np.ones((8, D_MODEL), np.float32), Type.F32)
        tensors["output_norm.weight"] = (np.ones(D_MODEL, np.float32), Type.F32)

    path, _ = converted(tmp_path / "m.gguf", architecture, Type.Q8_0, change)
    network = transformers.AutoModel.from_pretrained(tmp_path, gguf_file=path.name)
    reference, model = open_model(network), open_model(path)
    assert model.components == reference.components
    assert any("transformers dequantised it" in note for note in reference.notes)
    for layer in range(2):
        for component in model.components:
            assert np.array_equal(model.matrix(layer, component), reference.matrix(layer, component))


@pytest.mark.parametrize(
    ("architecture", "also", "meaning"),
    [
        ("llama", "output", "unembedding"), ("qwen2", None, None), ("bert", "position_embd", "position_embedding"),
        ("gpt2", "position_embd", "position_embedding"),
    ],
)  # fmt: skip
def test_embeddings_are_read_under_llama_cpp_s_names(architecture, also, meaning, tmp_path):
    stored = {name: np.full((8, D_MODEL), len(name), np.float32) for name in ("token_embd", also) if name}

    def change(words, tensors):
        words["context_length"] = 8
        tensors |= {f"{name}.weight": (values, Type.F32) for name, values in stored.items()}

    model = open_model(converted(tmp_path / "m.gguf", architecture, change=change)[0])
    found = {name.component: np.concatenate([*model.blocks(name)]) for name in model.parts["embeddings"]}
    expected = {"embedding": "token_embd"} | ({meaning: also} if also else {})
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], stored[own]) for name, own in expected.items())
    assert all(model.is_transposed(name) == (name.component != "unembedding") for name in model.parts["embeddings"])
    said = [note for note in model.part_notes("embeddings") if "the embedding itself" in note]
    assert bool(said) == (architecture in ("qwen2", "gpt2"))


def test_a_folder_with_one_file_is_that_file_and_with_several_says_which(tmp_path):
    converted(tmp_path / "model-Q8_0.gguf", "qwen2", Type.Q8_0)
    (tmp_path / "config.json").write_text("{}")
    assert open_model(tmp_path).architecture == "qwen2"
    converted(tmp_path / "model-F16.gguf", "qwen2", Type.F16)
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF files: model-F16\.gguf, model-Q8_0\.gguf; pass the path"):
        open_model(tmp_path)
    with pytest.raises(ParameterError, match="expected none for a file"):
        open_model(tmp_path / "model-F16.gguf", revision="main")


def test_a_file_of_a_repository_is_fetched_alone(tmp_path, monkeypatch):
    snapshot, asked = tmp_path / "c0ffee", []
    snapshot.mkdir()

    def download(model, **options):
        asked.append((model, options["revision"], options["allow_patterns"]))
        converted(snapshot / "m-Q8_0.gguf", "qwen2", Type.Q8_0)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = open_model("org/name-GGUF/m-Q8_0.gguf", revision="v2")
    assert asked == [("org/name-GGUF", "v2", ["m-Q8_0.gguf"])]
    assert (model.name, model.revision, model.path) == ("org/name-GGUF/m-Q8_0.gguf", "v2", snapshot)
    assert "hub commit c0ffee" in model.notes
    for name in ("org/name/../m.gguf", "org/name/more/m.gguf", "nowhere.gguf"):
        with pytest.raises(CheckpointError):
            open_model(name) if "/" in name else open_model(tmp_path / name)
    assert len(asked) == 1


def test_a_checkpoint_beside_a_file_comes_first_and_what_is_lacking_or_changed_is_named(parts, tmp_path, monkeypatch):
    path, _ = converted(tmp_path / "m.gguf", "qwen2")
    with pytest.raises(CheckpointError, match="the folder holds a GGUF file"):
        Checkpoint.open(tmp_path)
    model = open_model(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CorruptFileError, match="changed while in use"):
        model.queries(1)
    assert open_model(parts.write(tmp_path)).architecture == "llama"
    written(path, "rwkv7", {}, {})
    with pytest.raises(CheckpointError, match="of the architecture 'rwkv7'; expected llama, qwen2"):
        open_model(path)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name))
    with pytest.raises(MissingDependencyError, match=r'needs the package .gguf., .* pip install "rmtbase\[gguf\]"'):
        open_model(path)


KINDS = [*(kind for kind in Type if kind in gguf.quants._type_traits and kind != Type.BF16)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_blocks_are_numbers_wherever_reading_begins(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(_gguf, "_PIECE", 1024)
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    stored = np.random.default_rng(kind.value).integers(0, 256, (6, 512 // weights * size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        reference = gguf.quants.dequantize(stored, kind)
    file = _gguf.GgufFile.open(written(tmp_path / "m.gguf", "llama", {}, {"w": (stored, kind)}))
    assert file.entries["w"].shape == (6, 512)
    assert file.types["w"] == kind.name
    assert np.array_equal(file.read_bits("w", 0, 3072).reshape(6, 512), reference, equal_nan=True)
    for start, stop in ((1, 2), (31, 290), (700, 3072)):
        assert np.array_equal(file.read_bits("w", start, stop), reference.reshape(-1)[start:stop], equal_nan=True)


def test_a_scale_that_is_no_number_is_named(tmp_path):
    def change(words, tensors):
        tensors["blk.1.attn_q.weight"][0].reshape(-1, 34)[5, :2] = np.float16([np.nan]).view(np.uint8)

    model = open_model(converted(tmp_path / "m.gguf", "qwen2", Type.Q8_0, change)[0])
    assert np.isfinite(model.queries(0)).all()
    with pytest.raises(NonFiniteError, match=r"layers\.1\.self_attn\.q_proj\.weight' holds 32 NaN"):
        model.queries(1)


def with_tensor(name, values, kind=Type.F32):
    return lambda words, tensors: tensors.update({f"blk.0.{name}.weight": (values, kind)})


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda words, tensors: tensors.pop("blk.1.attn_q.weight"), "'model.layers.1.self_attn.q_proj.weight', which"),
        (lambda words, tensors: words.pop("attention.head_count"), "expected an even number for each of None heads"),
        (lambda words, tensors: words.update({"attention.head_count": [4, 4]}), "for each of [4, 4] heads"),
        (lambda words, tensors: words.update({"attention.head_count": 3}), "has 256 rows; expected an even number"),
        (lambda words, tensors: words.update({"block_count": 9}), "9 layers, but tensors of only 2"),
        (lambda words, tensors: words.update({"general.type": "adapter"}), "a GGUF file of 'adapter'"),
        (lambda words, tensors: words.update({"split.count": 3}), "one of 3 parts of a GGUF file"),
        (
            with_tensor("attn_sinks", np.ones(4, np.float32)),
            "'blk.0.attn_sinks.weight' is not part of the attention of a",
        ),
        (with_tensor("attn_q", np.zeros((256, 292), np.uint8), Type.Q8_K), "element type Q8_K; expected one of F64"),
        (
            with_tensor("attn_q", np.ones((256, 100), np.float32)),
            "q_proj.weight' has shape (256, 100); expected (256, 256)",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, fragment, tmp_path):
    path, _ = converted(tmp_path / "m.gguf", "llama", change=change)
    with pytest.raises(CheckpointError) as caught:
        open_model(path)
    assert fragment in str(caught.value)


# What is no such file


def text(value):
    return struct.pack("<Q", len(value)) + value


def head(n_tensors=0, n_words=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_words)


def tensor(name=b"w", sizes=(32,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "an empty file"),
        (b"GGUF", "4 bytes (truncated)"),
        (b"GGML" + bytes(100), "the beginning b'GGML'"),
        (b"<!DOCTYPE html><html></html>", "found the beginning"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "a Git LFS pointer"),
        (head(version=1), "of version 1; expected version 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "of a big-endian machine"),
        (head(n_tensors=2**60), "1,152,921,504,606,846,976 tensors"),
        (head(n_words=1) + struct.pack("<Q", 2**62), "a text of 4,611,686,018,427,387,904 bytes"),
        (head(n_words=1) + text(b"a") + struct.pack("<IIQ", 9, 4, 2**61), "2,305,843,009,213,693,952 members of 'a'"),
        (head(n_words=1) + text(b"a") + struct.pack("<IIQ", 9, 9, 1), "a list of the kind 9 of 'a'"),
        (head(n_words=1) + text(b"a") + struct.pack("<I", 77), "a value of the kind 77 of 'a'"),
        (head(n_words=1) + text(b"\xff"), "the text"),
        (head(n_words=2) + 2 * (text(b"a") + struct.pack("<IB", 0, 1)), "the metadata 'a' twice"),
        (head(n_words=1) + text(b"general.alignment") + struct.pack("<II", 4, 3), "an alignment of 3"),
        (head(1) + tensor(sizes=(1,) * 5), "5 dimensions of tensor 'w'"),
        (head(1) + tensor(sizes=(2**40, 2**40)), "tensor 'w' of shape"),
        (head(1) + tensor(sizes=()), "tensor 'w' of shape ()"),
        (head(1) + tensor(kind=4), "tensor 'w' of the type 4"),
        (head(1) + tensor(kind=12), "in blocks of 256 weights"),
        (head(1) + tensor() + bytes(100), "beyond the end of the file"),
        (head(1) + tensor(offset=2**63) + bytes(300), "beyond the end of the file"),
        (head(2) + 2 * tensor() + bytes(300), "the tensor 'w' twice"),
        (head(2) + tensor() + tensor(b"v") + bytes(300), "over those of another"),
    ],
)
def test_what_is_no_gguf_file_is_told_what_it_is(content, fragment, tmp_path):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        open_model(tmp_path / "m.gguf")
    assert fragment in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.exhaustive
def test_every_cut_and_every_flipped_byte_of_the_description_ends_in_words(tmp_path):
    path, _ = converted(tmp_path / "m.gguf", "qwen2")
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    for cut in rng.integers(0, 5000, 40):
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptFileError):
            _gguf.GgufFile.open(path)
    for place in rng.integers(0, 1100, 200):
        damaged = bytearray(whole[:4000])
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        os.truncate(path, len(whole))
        try:
            open_model(path)
        except CheckpointError as error:
            assert str(error).isprintable()
