"""The shape of a model's heads by its name or its configuration: no weights, no network, and never a guess."""

import json

import pytest

from rmtbase.errors import CheckpointError, CorruptFileError, MissingFileError, ParameterError
from rmtbase.models import head_shape, known_models, open_model

BY_NAME = {known.name: known for known in known_models()}


@pytest.fixture
def folder(tmp_path):
    """Write a config.json alone, and give its folder."""

    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return write


def sizes(shape):
    return shape.n_layers, shape.n_heads, shape.n_key_heads, shape.d_model, shape.d_head


@pytest.mark.parametrize("model", ["", "  ", None, 768, True, b"gpt2"])
def test_what_is_no_name_is_refused(model):
    with pytest.raises(ParameterError, match="model = "):
        head_shape(model)


@pytest.mark.parametrize(
    ("name", "near"),
    [("gpt-2", "gpt2"), ("llama3-8b", "llama-3-8b"), ("qwen2.5", "qwen2.5-7b"), ("zzzz", "pythia-70m")],
)
def test_an_unknown_name_is_answered_with_those_that_come_near(name, near):
    with pytest.raises(ParameterError) as caught:
        head_shape(name)
    assert near in caught.value.expected


@pytest.mark.parametrize("name", ["gpt2-xl", "GPT2-XL", "openai-community/gpt2-xl", "OpenAI-Community/GPT2-xl"])
def test_a_known_model_is_found_by_name_and_hub_id_in_any_case(name):
    shape = head_shape(name)
    assert (shape.d_model, shape.d_head, shape.n_heads, shape.n_layers) == (1600, 64, 25, 48)


def test_a_known_model_is_found_by_its_hub_id_without_its_owner():
    assert head_shape("meta-llama-3-8b")[:5] == head_shape("llama-3-8b")[:5]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", (768, 64)),
        ("gpt2-medium", (1024, 64)),
        ("gpt2-large", (1280, 64)),
        ("gpt2-xl", (1600, 64)),
        ("llama-3.1-8b", (4096, 128)),
        ("mistral-7b-v0.3", (4096, 128)),
        ("pythia-70m", (512, 64)),
        ("pythia-160m", (768, 64)),
        ("pythia-410m", (1024, 64)),
        ("pythia-1b", (2048, 256)),
        ("pythia-1.4b", (2048, 128)),
        ("pythia-2.8b", (2560, 80)),
        ("pythia-6.9b", (4096, 128)),
        ("pythia-12b", (5120, 128)),
    ],
)
def test_the_sources_table_of_models_is_known(name, expected):
    assert (head_shape(name).d_model, head_shape(name).d_head) == expected


def test_known_models_are_possible_and_none_comes_twice():
    for known in known_models():
        assert known.n_heads % known.n_key_heads == 0, known
        assert min(known[2:]) > 0, known
        assert known.d_head <= known.d_model, known
        assert known.name == known.name.lower(), known
    for field in ("name", "hub_id"):
        values = [getattr(known, field).lower() for known in known_models()]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("albert", "albert-xxlarge-v2"),
        ("bert", "bert-base-uncased"),
        ("cohere", "command-r"),
        ("distilbert", "distilbert-base-uncased"),
        ("falcon", "falcon-7b"),
        ("gemma", "gemma-7b"),
        ("gemma2", "gemma-2-2b"),
        ("gpt2", "gpt2"),
        ("gpt_neo", "gpt-neo-1.3b"),
        ("gpt_neox", "gpt-neox-20b"),
        ("gpt_oss", "gpt-oss-120b"),
        ("gptj", "gpt-j-6b"),
        ("llama", "llama-7b"),
        ("mistral", "mistral-7b-v0.1"),
        ("mixtral", "mixtral-8x7b"),
        ("modernbert", "modernbert-base"),
        ("olmo", "olmo-7b"),
        ("olmo2", "olmo-2-7b"),
        ("olmoe", "olmoe-1b-7b"),
        ("openai-gpt", "openai-gpt"),
        ("opt", "opt-125m"),
        ("persimmon", "persimmon-8b"),
        ("phi", "phi-1"),
        ("phi3", "phi-3-mini"),
        ("roberta", "roberta-base"),
        ("smollm3", "smollm3-3b"),
        ("stablelm", "stablelm-3b-4e1t"),
        ("starcoder2", "starcoder2-3b"),
        ("t5", "t5-small"),
        ("vit", "vit-base"),
        ("whisper", "whisper-tiny"),
        ("xlm-roberta-xl", "xlm-roberta-xl"),
    ],
)
def test_configurations_of_transformers_give_the_known_sizes(model_type, name, folder):
    """Its classes' defaults are the sizes of a published model: table, keys and head sizes are checked at once."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type).to_dict()
    assert sizes(head_shape(folder(**config))) == BY_NAME[name][2:]


def test_a_folder_needs_no_weights_and_no_layout(folder):
    shape = head_shape(folder(model_type="mpt", d_model=4096, n_heads=32, n_layers=32))
    assert sizes(shape) == BY_NAME["mpt-7b"][2:]


def test_the_part_that_reads_text_counts_where_there_are_several(folder):
    text = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    assert sizes(head_shape(folder(model_type="seeing", text_config=text)))[3:] == (64, 16)


def test_the_bundled_model_has_the_shape_that_it_opens_with():
    model = open_model("demo")
    assert sizes(head_shape("demo")) == (model.n_layers, model.n_heads, model.n_key_heads, model.d_model, model.d_head)


def test_a_folder_without_configuration_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match=r"config\.json"):
        head_shape(tmp_path)
    with pytest.raises(MissingFileError, match=r"config\.json"):
        head_shape(tmp_path / "nowhere")


def test_a_folder_has_no_revision(folder):
    with pytest.raises(ParameterError, match="revision"):
        head_shape(folder(model_type="mpt", d_model=8, n_heads=2, n_layers=1), revision="main")


def test_a_configuration_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CorruptFileError):
        head_shape(tmp_path)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "mpt", "n_heads": 2, "n_layers": 1}, "hidden_size"),
        ({"model_type": "mpt", "d_model": 8, "n_layers": 1}, "num_attention_heads"),
        ({"model_type": "mpt", "d_model": 9, "n_heads": 2, "n_layers": 1}, "divisible"),
        ({"model_type": "mpt", "d_model": 8.0, "n_heads": 2, "n_layers": 1}, "positive integer"),
        ({"model_type": "mpt", "d_model": True, "n_heads": 2, "n_layers": 1}, "positive integer"),
        ({"model_type": "openelm", "d_model": 8, "n_heads": [2, 4], "n_layers": 1}, "positive integer"),
        ({"model_type": "gemma3_text", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}, "head_dim"),
        ({"model_type": "deepseek_v3", "hidden_size": 8, "kv_lora_rank": 2}, "latent attention"),
    ],
)
def test_a_configuration_that_does_not_say_is_never_guessed(config, said, folder):
    with pytest.raises(CheckpointError, match=said):
        head_shape(folder(**config))


def test_an_unknown_hub_id_is_fetched_and_nothing_but_its_configuration(monkeypatch, folder):
    import rmtbase.models._hub as hub

    asked = []
    path = folder(model_type="mpt", d_model=8, n_heads=2, n_layers=1)

    def download(model, revision, patterns):
        asked.append((model, revision, patterns))
        return path

    monkeypatch.setattr(hub, "_download", download)
    assert head_shape("someone/something", "v1").d_head == 4
    assert head_shape("pythia-70m", "step0").d_head == 4
    assert asked == [("someone/something", "v1", ["config.json"]), ("EleutherAI/pythia-70m", "step0", ["config.json"])]
