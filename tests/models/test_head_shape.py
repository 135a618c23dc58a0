"""The shape of a model's heads by its name or its configuration: no weights, no network, and never a guess."""

import json
from importlib.metadata import PackageNotFoundError
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoConfig, AutoModel

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, CorruptFileError, MissingFileError, ParameterError
from rmtbase.models import head_shape, known_models, open_model

BY_NAME = {known.name: known for known in known_models()}


@pytest.fixture
def folder(tmp_path):
    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return write


def sizes(shape):
    return shape.n_layers, shape.n_heads, shape.n_key_heads, shape.d_model, shape.d_head


def test_what_is_no_known_name_is_refused_with_those_that_come_near():
    for model in ("", "  ", None, 768, True, b"gpt2"):
        with pytest.raises(ParameterError, match="model = "):
            head_shape(model)
    for name, near in {"gpt-2": "gpt2", "llama3-8b": "llama-3-8b", "qwen2.5": "qwen2.5-7b", "zz": "pythia-70m"}.items():
        with pytest.raises(ParameterError) as caught:
            head_shape(name)
        assert near in caught.value.expected


SOURCES = {
    "gpt2": (768, 64), "gpt2-medium": (1024, 64), "gpt2-large": (1280, 64), "gpt2-xl": (1600, 64),
    "llama-3.1-8b": (4096, 128), "mistral-7b-v0.3": (4096, 128), "pythia-70m": (512, 64), "pythia-160m": (768, 64),
    "pythia-410m": (1024, 64), "pythia-1b": (2048, 256), "pythia-1.4b": (2048, 128), "pythia-2.8b": (2560, 80),
    "pythia-6.9b": (4096, 128), "pythia-12b": (5120, 128),
}  # fmt: skip
"""The sources' table of models: d_model and d_head."""


def test_a_known_model_is_found_by_name_and_hub_id_in_any_case():
    for name in ("gpt2-xl", "GPT2-XL", "openai-community/gpt2-xl", "OpenAI-Community/GPT2-xl"):
        shape = head_shape(name)
        assert (shape.d_model, shape.d_head, shape.n_heads, shape.n_layers) == (1600, 64, 25, 48)
    assert head_shape("meta-llama-3-8b")[:5] == head_shape("llama-3-8b")[:5]
    model = open_model("demo")
    assert sizes(head_shape("demo")) == (model.n_layers, model.n_heads, model.n_key_heads, model.d_model, model.d_head)
    for name, expected in SOURCES.items():
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


KNOWN = {
    "albert": "albert-xxlarge-v2", "bert": "bert-base-uncased", "cohere": "command-r", "gemma": "gemma-7b",
    "distilbert": "distilbert-base-uncased", "falcon": "falcon-7b", "gemma2": "gemma-2-2b", "gpt2": "gpt2",
    "gpt_neo": "gpt-neo-1.3b", "gpt_neox": "gpt-neox-20b", "gpt_oss": "gpt-oss-120b", "gptj": "gpt-j-6b",
    "llama": "llama-7b", "mistral": "mistral-7b-v0.1", "mixtral": "mixtral-8x7b", "modernbert": "modernbert-base",
    "olmo": "olmo-7b", "olmo2": "olmo-2-7b", "olmoe": "olmoe-1b-7b", "openai-gpt": "openai-gpt", "opt": "opt-125m",
    "persimmon": "persimmon-8b", "phi": "phi-1", "phi3": "phi-3-mini", "roberta": "roberta-base",
    "smollm3": "smollm3-3b", "stablelm": "stablelm-3b-4e1t", "starcoder2": "starcoder2-3b", "t5": "t5-small",
    "vit": "vit-base", "whisper": "whisper-tiny", "xlm-roberta-xl": "xlm-roberta-xl",
}  # fmt: skip


@pytest.mark.parametrize(("model_type", "name"), KNOWN.items())
def test_configurations_of_transformers_give_the_known_sizes(model_type, name, folder):
    """Its classes' defaults are the sizes of a published model: table, keys and head sizes are checked at once."""
    config = AutoConfig.for_model(model_type).to_dict()
    assert sizes(head_shape(folder(**config))) == BY_NAME[name][2:]


def modules_shape(config, at):
    """(d_model, d_head, n_heads, n_key_heads) by the weights and the word of the type's own class, without values."""
    with torch.device("meta"):
        module = AutoModel.from_config(config).get_submodule(at)
    query = getattr(module, "q_proj", None) or getattr(module, "query", None) or getattr(module, "q", None)
    key = getattr(module, "k_proj", None) or getattr(module, "key", None) or getattr(module, "k", None)
    names = ("head_dim", "attention_head_size", "key_value_proj_dim")
    d_head = next(getattr(module, name) for name in names if hasattr(module, name))
    if query is None:  # JetMoe's keys and values share a tensor, and each expert has queries
        return module.kv_proj.in_features, d_head, module.num_heads, module.kv_proj.out_features // (2 * d_head)
    assert query.in_features == key.in_features
    return query.in_features, d_head, query.out_features // d_head, key.out_features // d_head


BERT_LIKE = "encoder.layer.0.attention.self"
LLAMA_LIKE = "layers.1.self_attn"
OWN = {
    "mobilebert": (BERT_LIKE, [
        {},
        {"hidden_size": 80, "intra_bottleneck_size": 48, "num_attention_heads": 3},
        {"hidden_size": 80, "use_bottleneck": False, "num_attention_heads": 5},
    ]),
    "convbert": (BERT_LIKE, [
        {},
        {"hidden_size": 96, "num_attention_heads": 12, "head_ratio": 3},
        {"hidden_size": 96, "num_attention_heads": 2, "head_ratio": 4},
    ]),
    "jetmoe": ("layers.0.self_attention", [
        {}, {"hidden_size": 96, "kv_channels": 10, "num_key_value_heads": 3, "num_experts_per_tok": 4},
    ]),
    "zamba": ("layers.2.shared_transf.self_attn", [
        {},
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3},
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 6, "attention_head_dim": 20},
    ]),
    "zamba2": ("layers.6.shared_transformer.self_attn", [{}, {"hidden_size": 192, "num_attention_heads": 6}]),
}  # fmt: skip
PUBLISHED = {
    "mobilebert": (128, 32, 4), "zamba": (7424, 464, 16), "zamba2": (5120, 160, 32), "jetmoe": (2048, 128, 32),
    "convbert": (768, 64, 6),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "at", "changes"),
    mostly_exhaustive(
        [(model_type, at, changes) for model_type, (at, cases) in OWN.items() for changes in cases], always=5
    ),
)
def test_types_with_sizes_of_their_own_are_read_as_their_modules_are_built(model_type, at, changes, folder):
    config = AutoConfig.for_model(model_type, **changes)
    assert head_shape(folder(**config.to_dict()))[:4] == modules_shape(config, at)
    assert changes or head_shape(folder(**config.to_dict()))[:3] == PUBLISHED[model_type]
    if changes:  # a configuration on the hub mostly says no more than what is not by default
        said = {name: value for name, value in config.to_dict().items() if name in {*changes, "num_hidden_layers"}}
        said |= {"hidden_size": config.hidden_size, "num_attention_heads": config.num_attention_heads}
        assert head_shape(folder(model_type=model_type, **said))[:4] == modules_shape(config, at)


TINY = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 2}
GROUPED = TINY | {"num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("model_type", "at", "said"),
    [
        ("bert", BERT_LIKE, TINY),
        ("roberta", BERT_LIKE, TINY | {"head_dim": 16}),
        ("opt", "decoder.layers.0.self_attn", TINY),
        ("qwen2", LLAMA_LIKE, GROUPED),
        ("qwen2", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("cohere2", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("cohere2", LLAMA_LIKE, GROUPED),
        ("glm4_moe", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("mixtral", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("gemma", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("qwen3", LLAMA_LIKE, GROUPED | {"head_dim": 20}),
        ("t5", "encoder.block.0.layer.0.SelfAttention", {"d_model": 96, "num_heads": 6, "num_layers": 2, "d_kv": 20}),
    ],
)
def test_a_short_configuration_is_read_as_the_modules_are_built(model_type, at, said, folder):
    config = AutoConfig.for_model(model_type, **said)
    assert head_shape(folder(model_type=model_type, **said))[:4] == modules_shape(config, at)


@pytest.mark.parametrize("model_type", ["gemma4_text", "mimo_v2_flash", "squeezebert", "gemma3n_text"])
def test_a_type_whose_reading_is_not_proved_is_refused_where_it_cannot_be_run(model_type, folder, monkeypatch):
    path = folder(**json.loads(AutoConfig.for_model(model_type).to_json_string(use_diff=False)))
    monkeypatch.setattr("rmtbase.models.forward._torch_route.version", Mock(side_effect=PackageNotFoundError))
    with pytest.raises(CheckpointError, match="not known for certain"):
        head_shape(path)


WITH_LAYERS = TINY | {"vocab_size": 50, "vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 8}


def test_a_type_that_the_table_lacks_is_run(folder):
    said = {"head_dim": 10, "num_key_value_heads": 2, "num_hidden_layers": 3, "num_kv_shared_layers": 1}
    more = {"laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 3}
    more["layer_types"] = ["sliding_attention", "full_attention", "full_attention"]
    config = AutoConfig.for_model("gemma3n_text", **WITH_LAYERS | said | more)
    assert head_shape(folder(**config.to_dict()))[:4] == modules_shape(config, "layers.0.self_attn")


SEVERAL = WITH_LAYERS | {
    "model_type": "gemma4_text", "head_dim": 12, "global_head_dim": 20, "num_key_value_heads": 2,
    "num_kv_shared_layers": 0, "num_hidden_layers": 3, "intermediate_size": 60,
    "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
}  # fmt: skip
LATENT = TINY | {
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_key_value_heads": 6, "vocab_size": 50
}  # fmt: skip
SQUEEZED = TINY | {"model_type": "squeezebert", "embedding_size": 96, "intermediate_size": 60, "vocab_size": 50}
MPT = {"model_type": "mpt", "d_model": 8, "n_heads": 2, "n_layers": 1}
PLAIN = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
UNSAID = [
    *(({"model_type": name} | GROUPED, "no head_dim, without which") for name in ("gemma", "qwen3", "gpt_oss")),
    *(({"model_type": name} | GROUPED, "no head_dim, without which") for name in ("internlm3", "ernie4_5")),
    (SQUEEZED, "not known for certain, and running it shows nothing .*scores are no"),
    (SEVERAL, r"--d-model 96 --d-head 12 \(2\), --d-model 96 --d-head 20 \(1\)"),
    *(
        ({"model_type": name} | LATENT, r"longer chain of matrices, whose law is rmtbase\.laws\.GaussianChain")
        for name in ("deepseek_v3", "minicpm3")
    ),
    (
        {"model_type": "jetmoe", "hidden_size": 96, "num_hidden_layers": 1, "kv_channels": 8, "head_dim": 16},
        "head_dim = 16 beside .*kv_channels = 8; expected 8, two names of one",
    ),
    *((TINY | {"model_type": "mobilebert", "use_bottleneck": said}, "use_bottleneck = ") for said in ("yes", 1)),
    ({"model_type": "mpt", "n_heads": 2, "n_layers": 1}, "hidden_size"),
    ({"model_type": "mpt", "d_model": 8, "n_layers": 1}, "num_attention_heads"),
    (MPT | {"d_model": 9}, "divisible"),
    *((MPT | said, "positive integer") for said in ({"d_model": 8.0}, {"d_model": True}, {"n_heads": [2, 4]})),
    (PLAIN | {"model_type": "gemma3_text"}, "head_dim"),
    (MPT | {"model_type": "openelm"}, "not known for certain"),
    ({"model_type": "t5", "d_model": 8, "num_heads": 2, "num_layers": 1}, "d_kv"),
    (PLAIN | {"model_type": "bert", "head_dim": 8}, "head_dim = 8"),
    ({"model_type": "gpt2", "n_embd": 8, "hidden_size": 12, "n_head": 2, "n_layer": 1}, "two names"),
    ({"model_type": "deepseek_v3", "hidden_size": 8, "kv_lora_rank": 2}, "latent attention"),
    ({"model_type": "deepseek_v4", "hidden_size": 8, "q_lora_rank": 2, "head_dim": 4}, "latent attention"),
]


@pytest.mark.parametrize(("config", "said"), UNSAID)
def test_a_configuration_that_does_not_say_is_never_guessed(config, said, folder):
    with pytest.raises(CheckpointError, match=said):
        head_shape(folder(**config))


def test_of_several_stacks_the_one_that_writes_text_counts_and_is_named(folder):
    text = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    assert sizes(head_shape(folder(model_type="seeing", text_config=text)))[3:] == (64, 16)
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 6}
    path = folder(model_type="bart", d_model=96, encoder_layers=2, decoder_layers=3, **heads)
    assert head_shape(path) == (96, 16, 6, 6, 3, f"{path}: its decoder")
    text = {"model_type": "gemma", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    path = folder(model_type="seeing", text_config=text)  # a part leaves out what is as its class has it
    assert head_shape(path) == (64, 256, 4, 2, 28, f"{path}: its text")
    t5 = {"model_type": "t5", "d_model": 96, "num_heads": 6, "num_layers": 5, "d_kv": 20}
    assert head_shape(folder(**t5)).n_layers == 5  # decoders are as many layers as encoders if nothing else is said
    assert head_shape(folder(**t5, num_decoder_layers=3)).n_layers == 3


def test_layers_without_attention_do_not_count(folder):
    kinds = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    sizes = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 4, "head_dim": 20}
    assert head_shape(folder(model_type="qwen3_next", layer_types=kinds, **sizes)).n_layers == 1
    assert head_shape(folder(model_type="jamba", **sizes)).n_layers is None  # which they are is not known


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048, "num_attention_heads": 32,
             "num_hidden_layers": 48, "num_key_value_heads": 4},
            (48, 32, 4, 2048, 128),
        ),
        (
            {"model_type": "qwen3_next", "full_attention_interval": 4, "head_dim": 256, "hidden_size": 2048,
             "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 2},
            (12, 16, 2, 2048, 256),
        ),
        (
            {"model_type": "lfm2", "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048,
             "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8},
            (6, 32, 8, 2048, 64),
        ),
        (
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
             "intermediate_size": 10240, "num_hidden_layers": 34}, "vision_config": {}},
            (34, 8, 4, 2560, 256),
        ),
        ({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32}, BY_NAME["mpt-7b"][2:]),
        ({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}, (24, 16, 16, 1024, 64)),
    ],
)  # fmt: skip
def test_published_configurations_in_their_own_words(config, expected, folder):
    assert sizes(head_shape(folder(**config))) == expected


def test_a_folder_without_a_configuration_or_with_a_revision_is_refused(folder):
    with pytest.raises(ParameterError, match="revision"):
        head_shape(folder(**MPT), revision="main")
    path = folder()
    (path / "config.json").write_text("{")
    with pytest.raises(CorruptFileError):
        head_shape(path)
    (path / "config.json").unlink()
    for missing in (path, path / "nowhere"):
        with pytest.raises(MissingFileError, match=r"config\.json"):
            head_shape(missing)


def test_an_unknown_hub_id_is_fetched_and_nothing_but_its_configuration(monkeypatch, folder):
    asked = []
    path = folder(**MPT)

    def download(model, revision, allow_patterns, ignore_patterns):
        asked.append((model, revision, allow_patterns))
        return path

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert head_shape("someone/something", "v1").d_head == 4
    assert head_shape("pythia-70m", "step0").d_head == 4
    assert asked == [("someone/something", "v1", ["config.json"]), ("EleutherAI/pythia-70m", "step0", ["config.json"])]
