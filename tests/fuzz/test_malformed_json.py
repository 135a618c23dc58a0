"""JSON files of a model's folder, malformed: each is read right, or ends in an error that names the file.

In one process, so that thousands can be tried; whole commands on mutated files are in ``test_fuzz.py``.
"""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from mutations_json import CHANGES, changed
from safetensors.numpy import save_file

from rmtbase.errors import CheckpointError, CorruptFileError
from rmtbase.models import head_shape, open_model, token_names

SHARE = 40  # malformed files of each kind by default
WHOLE = 800
SPECIAL = {"id": 4, "content": "<s>", "special": True, "normalized": False} | dict.fromkeys(
    ("single_word", "lstrip", "rstrip"), False
)
TOKENIZERS = {
    "BPE": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": [["a", "b"]], "unk_token": None},
    "WordPiece": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "c": 3}, "unk_token": "[UNK]"}
    | {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    "WordLevel": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "model": 3}, "unk_token": "a"},
    "Unigram": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.5], ["b", -2], ["c", -3.25]]},
}


def tokenizer(kind: str) -> dict:
    return {"version": "1.0", "truncation": None, "added_tokens": [SPECIAL], "model": TOKENIZERS[kind]}


def written(folder: Path, name: str, content: object) -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokens_are_those_that_the_package_tokenizers_reads(kind, tmp_path):
    import tokenizers

    reference = tokenizers.Tokenizer.from_str(json.dumps(tokenizer(kind)))
    expected = {number: token for token, number in reference.get_vocab().items()}
    assert token_names(written(tmp_path, "tokenizer.json", tokenizer(kind))) == expected


def test_a_word_of_a_vocabulary_may_be_model(tmp_path):
    vocabulary = {"model": 0, "vocab": 1, "added_tokens": 2}
    assert token_names(written(tmp_path, "vocab.json", vocabulary)) == {0: "model", 1: "vocab", 2: "added_tokens"}


@pytest.mark.exhaustive
def test_a_large_tokenizer_is_read(tmp_path):
    """A quarter of a million tokens, twice as many merges as pairs, and thousands of added tokens."""
    vocabulary = {f"t{number}": number for number in range(262_144)}
    merges = [["a", "b"]] * 514_906
    added = [SPECIAL | {"id": number, "content": f"t{number}"} for number in range(6_414)]
    whole = {"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}, "added_tokens": added}
    assert len(token_names(written(tmp_path, "tokenizer.json", whole))) == 262_144


@pytest.mark.parametrize(
    ("vocabulary", "found"),
    [
        ('{"a": 1e999}', "the number inf of the token 'a'"),
        ('{"a": NaN}', "the number nan of the token 'a'"),
        ('{"a": -1}', "the number -1 of the token 'a'"),
        ('{"a": 4294967296}', "the number 4294967296 of the token 'a'"),
        ('{"a": true}', "the number True of the token 'a'"),
        ('{"a": 1.5}', "the number 1.5 of the token 'a'"),
        ('{"a": "1"}', "the number '1' of the token 'a'"),
        ('{"a": null}', "the number None of the token 'a'"),
        ('{"a": [[]]}', "the number [[]] of the token 'a'"),
        ('{"a": 0, "a": 1}', "the name 'a' twice in one object"),
        ('{"\\ud800": 0}', "half of a surrogate pair"),
        ("[[]]", "the token []"),
        ("[[[]]]", "the token []"),
        ("[[1, 2]]", "the token 1"),
        ("[null]", "the token None"),
        ("[{}]", "the token {}"),
        ('[["\\udfff", 0.5]]', "half of a surrogate pair"),
        ("[" * 30_000 + "]" * 30_000, "more than 64 levels"),
        ("3", "model = {'vocab': 3}"),
        ("null", "model = {'vocab': None}"),
    ],
)
def test_a_malformed_vocabulary_is_named_with_what_was_found(vocabulary, found, tmp_path):
    (tmp_path / "tokenizer.json").write_text(f'{{"model": {{"vocab": {vocabulary}}}}}')
    with pytest.raises(CorruptFileError, match=re.escape(found)) as caught:
        token_names(tmp_path)
    assert caught.value.path.name == "tokenizer.json"


@pytest.mark.parametrize(
    ("whole", "found"),
    [
        ({}, "model = None"),
        ({"model": []}, "model = []"),
        ({"model": {}}, "model = {}"),
        ({"model": {"vocab": {}}, "added_tokens": None}, "added_tokens = None"),
        ({"model": {"vocab": {}}, "added_tokens": {"id": 3}}, "added_tokens = {'id': 3}"),
        ({"model": {"vocab": {}}, "added_tokens": ["<s>"]}, "added_tokens = ['<s>']"),
        ({"model": {"vocab": {}}, "added_tokens": [{"id": 3}]}, "the token None"),
        ({"model": {"vocab": {}}, "added_tokens": [{"content": "<s>"}]}, "the number None of the token '<s>'"),
    ],
)
def test_a_malformed_tokenizer_is_named_with_what_was_found(whole, found, tmp_path):
    with pytest.raises(CorruptFileError, match=re.escape(found)):
        token_names(written(tmp_path, "tokenizer.json", whole))


def folder_of_a_model(folder: Path) -> Path:
    """A Llama in two shards, with an adapter of it in a folder of its own."""
    rng, module = np.random.default_rng(1), "model.layers.0.self_attn.{}_proj"
    weights = {f"{module.format(part)}.weight": rng.standard_normal((8, 8)).astype(np.float32) for part in "qkvo"}
    weights["model.embed_tokens.weight"] = rng.standard_normal((4, 8)).astype(np.float32)
    shards = {name: f"model-0000{1 + number // 2}-of-00003.safetensors" for number, name in enumerate(weights)}
    for shard in set(shards.values()):
        save_file({name: one for name, one in weights.items() if shards[name] == shard}, folder / shard)
    written(folder, "model.safetensors.index.json", {"metadata": {"total_size": 1024}, "weight_map": shards})
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    written(folder, "config.json", {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes})
    (folder / "adapter").mkdir()
    sides = {"A": (2, 8), "B": (8, 2)}
    tensors = {
        f"base_model.model.{module.format(part)}.lora_{side}.weight": rng.standard_normal(shape).astype(np.float32)
        for part in "qk"
        for side, shape in sides.items()
    }
    embedding = "model.embed_tokens"
    tensors[f"base_model.model.{embedding}.token_adapter.trainable_tokens_delta"] = np.ones((2, 8), np.float32)
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj"], "bias": "none"}
    patterns = {"rank_pattern": {}, "alpha_pattern": {"k_proj": 2}, "modules_to_save": None, "layers_to_transform": [0]}
    patterns |= {"trainable_token_indices": {"embed_tokens": [3, 1]}, "target_parameters": ["mlp.experts.down_proj"]}
    written(folder / "adapter", "adapter_config.json", settings | patterns)
    return folder


def read_tokens(folder: Path) -> None:
    names = token_names(folder)
    assert all(type(number) is int and number >= 0 and token.encode() for number, token in names.items() if token)


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"tokenizer.json of {kind}": ("tokenizer.json", read_tokens) for kind in TOKENIZERS},
    "vocab.json": ("vocab.json", read_tokens),
    "config.json": ("config.json", open_model),
    "the sizes in config.json": ("config.json", head_shape),
    "index": ("model.safetensors.index.json", open_model),
    "adapter_config.json": ("adapter/adapter_config.json", lambda folder: open_model(folder / "adapter", base=folder)),
    "adapter_config.json, without its base": (
        "adapter/adapter_config.json",
        lambda folder: open_model(folder / "adapter"),
    ),
}


def tried(kind: str, count: int, folder: Path, monkeypatch) -> dict[str, int]:
    """Outcomes of so many malformed files of a kind, by seed; any error but ours ends the test."""
    monkeypatch.setenv("RMTBASE_PROOF", "0")
    folder_of_a_model(folder)
    name, read = FILES[kind]
    if name == "tokenizer.json":
        written(folder, name, tokenizer(kind.rpartition(" ")[2]))
    elif name == "vocab.json":
        written(folder, name, TOKENIZERS["BPE"]["vocab"])
    path = folder / name
    original, outcomes = path.read_bytes(), {"read": 0, "refused": 0}
    read(folder)
    changes = [change for words, change in CHANGES.items() if words != "padding"]  # 50 MB each
    for seed in range(count):
        rng = Random(f"{kind}:{seed}")
        path.write_bytes(changed(rng, changes[seed % len(changes)], original))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(folder)
            outcomes["read"] += 1
        except CheckpointError as error:
            assert str(error).isprintable() and len(str(error)) < 2500, f"seed {seed}"
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {type(error).__name__}: {error}") from error
    return outcomes


@pytest.mark.parametrize("kind", [kind for kind, (name, _) in FILES.items() if name != "config.json"])
def test_each_malformed_file_is_read_or_refused(kind, tmp_path, monkeypatch):
    outcomes = tried(kind, SHARE, tmp_path, monkeypatch)
    assert min(outcomes.values()) > 0


@pytest.mark.exhaustive
@pytest.mark.weekly
@pytest.mark.parametrize("kind", FILES)
def test_each_of_many_malformed_files_is_read_or_refused(kind, tmp_path, monkeypatch):
    tried(kind, WHOLE, tmp_path, monkeypatch)


def test_a_number_of_layers_beyond_any_model_takes_no_memory(tmp_path):
    folder = folder_of_a_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    written(folder, "config.json", config | {"num_hidden_layers": 10**12})
    with pytest.raises(CheckpointError, match="1000000000000 layers, but tensors of only 1"):
        open_model(folder)
    assert head_shape(folder).n_layers is None


def test_the_parts_of_a_pipeline_may_have_any_names(tmp_path):
    written(tmp_path, "model_index.json", {"unet": ["diffusers", "UNet"], "x" * 9000: ["a", "b"], "\x00": ["a", "b"]})
    with pytest.raises(CheckpointError, match="a pipeline of diffusers"):
        open_model(tmp_path)
