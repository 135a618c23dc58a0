"""Low-rank adapters as PEFT saves them: merged they are what PEFT merges, by themselves what the formula says."""

import itertools
import json
import math
import re

import huggingface_hub
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from rmtbase.errors import CheckpointError, MissingFileError, ParameterError
from rmtbase.models import open_model

D_MODEL, N_HEADS, N_KEY_HEADS, D_HEAD, N_LAYERS = 32, 4, 2, 6, 2
ROWS = {"q": N_HEADS * D_HEAD, "k": N_KEY_HEADS * D_HEAD, "v": N_KEY_HEADS * D_HEAD}
OF_LLAMA = {
    "num_hidden_layers": N_LAYERS, "num_attention_heads": N_HEADS, "num_key_value_heads": N_KEY_HEADS,
    "hidden_size": D_MODEL, "head_dim": D_HEAD, "intermediate_size": 40,
}  # fmt: skip
LLAMA = {"model_type": "llama"} | OF_LLAMA
SETTINGS = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "k_proj", "v_proj"]}


def module(layer, part):
    return f"model.layers.{layer}.self_attn.{part}_proj"


def write(folder, tensors, config, weights="model.safetensors", name="config.json"):
    folder.mkdir(exist_ok=True, parents=True)
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, folder / weights)
    (folder / name).write_text(json.dumps(config))
    return folder


@pytest.fixture
def base(tmp_path):
    rng = np.random.default_rng(1)
    weights = {
        f"{module(layer, part)}.weight": rng.standard_normal((rows, D_MODEL)).astype(np.float32)
        for layer in range(N_LAYERS)
        for part, rows in ROWS.items()
    }
    for layer in range(N_LAYERS):
        weights[f"{module(layer, 'o')}.weight"] = rng.standard_normal((D_MODEL, ROWS["q"])).astype(np.float32)
    return write(tmp_path / "base", weights, LLAMA)


def updates(seed=2, rank=4, parts="qkv"):
    rng = np.random.default_rng(seed)
    return {
        f"base_model.model.{module(layer, part)}.lora_{side}.weight": rng.standard_normal(shape).astype(np.float32)
        for layer in range(N_LAYERS)
        for part in parts
        for side, shape in (("A", (rank, D_MODEL)), ("B", (ROWS[part], rank)))
    }


def adapter_in(folder, tensors=None, **settings):
    tensors = updates() if tensors is None else tensors
    return write(folder, tensors, SETTINGS | settings, "adapter_model.safetensors", "adapter_config.json")


def product(tensors, layer, part):
    b, a = (tensors[f"base_model.model.{module(layer, part)}.lora_{side}.weight"].astype(float) for side in "BA")
    return b @ a


def trained(adapted):
    """An adapter that has left its beginning, where it changes nothing."""
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return adapted


@pytest.mark.parametrize("with_base", [False, True])
def test_the_updates_are_a_model_of_one_head_for_each_module_or_of_those_of_the_base(with_base, base, tmp_path):
    folder = adapter_in(tmp_path / "adapter")
    model = open_model(folder, adapter="delta", base=base) if with_base else open_model(folder)
    assert [str(place) for place in model.layers] == [
        f"self_attn.{part}_proj layer {layer}" for part in "kqv" for layer in range(N_LAYERS)
    ]
    for index, site in enumerate(model.sites):
        part = site.place.stack.removeprefix("self_attn.")[0]
        heads, (key,) = model.queries(index), model.keys(index)
        n_heads, width = (N_HEADS if part == "q" else N_KEY_HEADS, D_HEAD) if with_base else (1, ROWS[part])
        assert (site.n_heads, site.n_key_heads, site.d_query, site.d_head, site.d_key) == (n_heads, 1, width, 4, 32)
        update = np.concatenate([head.T @ key for head in heads])
        np.testing.assert_allclose(update, 6 / 4 * product(updates(), site.place.layer, part), rtol=1e-12)
    assert ("by the heads of its base" if with_base else "without its base") in model.notes[0]
    wide = open_model(adapter_in(tmp_path / "wide", updates(rank=8), r=8), adapter="delta", base=base)
    assert {site.n_heads for site in wide.sites} == {1}
    assert any(note.startswith("of a rank above the rows of a head, so left whole: ") for note in wide.notes)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_one_module_of_queries_keys_and_values_has_the_heads_of_each(tmp_path):
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=11, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    trained(peft.get_peft_model(model, settings)).save_pretrained(tmp_path / "adapter")
    found = open_model(tmp_path / "adapter", adapter="delta", base=tmp_path / "base")
    change = open_model(tmp_path / "adapter", base=tmp_path / "base", minus=tmp_path / "base")
    assert [site.place.stack for site in found.sites[::2]] == [
        *(f"attn.c_attn {name}" for name in ("key", "query", "value")), "attn.c_proj", "mlp.c_proj",
    ]  # fmt: skip
    for index, site in enumerate(found.sites[:6]):
        name = site.place.stack.rpartition(" ")[2]
        update = np.concatenate([one.T @ found.keys(index)[0] for one in found.queries(index)])
        expected = change.matrix(site.place.layer, f"attention_{name}")
        assert site.n_heads == 4
        np.testing.assert_allclose(update, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "scale_q", "scale_k"),
    [
        ({"use_rslora": True}, 6 / math.sqrt(4), 6 / math.sqrt(4)),
        ({"alpha_pattern": {"layers.0.self_attn.q_proj": 20}}, 20 / 4, 6 / 4),
        ({"alpha_pattern": {"^model.layers.0.self_attn.(k|v)_proj": 2}}, 6 / 4, 2 / 4),
        ({"alpha_pattern": {"self_attn.q": 20}}, 6 / 4, 6 / 4),  # no whole name
    ],
)
def test_the_scale_is_that_of_the_settings(settings, scale_q, scale_k, base, tmp_path):
    merged = open_model(adapter_in(tmp_path / "adapter", **settings), base=base)
    plain = open_model(base)
    for component, part, scale in (("attention_query", "q", scale_q), ("attention_key", "k", scale_k)):
        expected = plain.matrix(0, component) + scale * product(updates(), 0, part)
        np.testing.assert_allclose(merged.matrix(0, component), expected, rtol=2e-6, atol=2e-6)


def test_ranks_may_differ_as_the_settings_say(tmp_path):
    folder = adapter_in(
        tmp_path / "adapter", updates(parts="k") | updates(rank=2, parts="q"), rank_pattern={"q_proj": 2}
    )
    assert [site.d_head for site in open_model(folder).sites] == [4, 4, 2, 2]


@pytest.mark.parametrize(
    ("choice", "patterns"),
    [
        (
            {"target_modules": r"^model\.layers\.[01]{1,2}\.self_attn\.(?:k_proj|q_proj)$"},
            {"rank_pattern": {r".*\.\d+\.self_attn\.q_proj": 2}, "alpha_pattern": {"k_proj|q_proj": 5}},
        ),
        (
            {"target_modules": ["q_proj", "k_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
            {"rank_pattern": {"^model.layers.[1-9]*.self_attn.+": 2}, "alpha_pattern": {r"(?!model.*0).*q_proj": 5}},
        ),
        ({"target_modules": "all-linear", "exclude_modules": r".*mlp.*"}, {"alpha_pattern": {"k_proj|q_proj": 5}}),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of peft, of patterns that match nothing
def test_whatever_peft_lets_one_choose_is_merged_as_peft_merges_it(choice, patterns, tmp_path):
    torch.manual_seed(4)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**OF_LLAMA, vocab_size=11))
    model.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=7, **choice, **patterns))
    trained(adapted).save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": choice["target_modules"]}))
    found = open_model(tmp_path / "adapter", base=tmp_path / "base")
    for name, one in adapted.merge_and_unload().state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            np.testing.assert_allclose(found.stored(name), one.numpy(), rtol=1e-5, atol=2e-6)


def test_an_update_that_the_settings_leave_out_is_noted_and_not_merged(base, tmp_path):
    settings = {"target_modules": ["q_proj", "k_proj"], "exclude_modules": r".*layers\.1\..*k_proj"}
    folder = adapter_in(tmp_path / "adapter", **settings)
    note = "read, though the settings do not target it and PEFT leaves it out: 'model.layers.0.self_attn.v_proj', "
    assert any(line.startswith(note) for line in open_model(folder).notes)
    with pytest.raises(CheckpointError, match=r"leave out 'model.layers.0.self_attn.v_proj', .*PEFT does not load"):
        open_model(folder, base=base)


def test_of_several_adapters_in_a_folder_the_paths_are_named(base, tmp_path):
    for name in ("other", "second"):
        adapter_in(tmp_path / "several" / name)
    paths = " or ".join(re.escape(str(tmp_path / "several" / name)) for name in ("other", "second"))
    with pytest.raises(MissingFileError, match=f"adapters in folders within it: pass {paths}"):
        open_model(tmp_path / "several")
    with pytest.raises(ParameterError, match=f"expected the folder of an adapter, .*: pass {paths}"):
        open_model(tmp_path / "several", base=base)
    folder = adapter_in(tmp_path / "several")
    note = "not read: other adapters within the folder, each opened by its own path: 'other', 'second'"
    assert note in open_model(folder).notes
    assert any(one.endswith(note) for one in open_model(folder, base=base).notes)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft and transformers to each other
def test_merged_is_what_peft_merges_and_the_base_is_left_as_it_is(tmp_path):
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**OF_LLAMA, vocab_size=11))
    model.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(r=3, lora_alpha=7, target_modules=["q_proj", "k_proj"], use_dora=True)
    adapted = peft.get_peft_model(model, settings)
    trained(adapted).save_pretrained(tmp_path / "adapter")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged, expected = open_model(tmp_path / "adapter", base=tmp_path / "base"), open_model(tmp_path / "merged")
    plain = open_model(tmp_path / "adapter", base=tmp_path / "base", adapter="base")
    assert merged.components == expected.components == plain.components
    for layer, component in itertools.product(range(2), merged.components):
        found, of_peft = merged.matrix(layer, component), expected.matrix(layer, component)
        np.testing.assert_allclose(found, of_peft, rtol=1e-5, atol=2e-6)
    assert np.abs(merged.matrix(1, "attention_query") - plain.matrix(1, "attention_query")).max() > 0.01
    assert merged.fingerprint() != plain.fingerprint() == open_model(tmp_path / "base").fingerprint()
    assert any(note.startswith("adapter adapter merged in: ") for note in merged.notes)
    with pytest.raises(CheckpointError, match="is a DoRA adapter"):
        open_model(tmp_path / "adapter")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.filterwarnings("ignore")  # of peft, of tied weights
def test_updates_of_embeddings_are_merged_where_the_base_stores_them(tied, tmp_path):
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**OF_LLAMA, vocab_size=11, tie_word_embeddings=tied))
    model.save_pretrained(tmp_path / "base")
    targets = ["q_proj", "k_proj", "lm_head"] if tied else ["q_proj", "k_proj", "lm_head", "embed_tokens"]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=7, target_modules=targets))
    trained(adapted).save_pretrained(tmp_path / "adapter")
    found = open_model(tmp_path / "adapter", base=tmp_path / "base")
    expected = {name: one.numpy() for name, one in adapted.merge_and_unload().state_dict().items()}
    names = ["model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"]
    for name in names if tied else [*names, "model.embed_tokens.weight", "lm_head.weight"]:
        np.testing.assert_allclose(found.stored(name), expected[name], rtol=1e-5, atol=2e-6)
    (note,) = (note for note in found.notes if note.startswith("adapter adapter merged in: "))
    assert ("which the base does not store: queries and keys do not depend on it" in note) == tied
    delta = open_model(tmp_path / "adapter")
    assert {site.place.stack for site in delta.sites} == {"self_attn.q_proj", "self_attn.k_proj", "lm_head"}
    of_embeddings = "updates of embeddings or convolutions, which are not linear maps: "
    assert any(note.startswith(of_embeddings) for note in delta.notes) != tied
    name = "base_model.model.model.embed_tokens.lora_embedding_"
    alone = {f"{name}A": np.ones((4, 11), np.float32), f"{name}B": np.ones((D_MODEL, 4), np.float32)}
    with pytest.raises(CheckpointError, match=r"changes only .*experts, 'model.embed_tokens'; expected"):
        open_model(adapter_in(tmp_path / "alone", alone))


@pytest.fixture
def hub(base, tmp_path, monkeypatch):
    """A stand-in that has an adapter and its base; what is asked of it is listed."""
    folders = {
        "org/adapter": adapter_in(tmp_path / "c0ffee", base_model_name_or_path="org/base", revision="v2"),
        "org/base": base,
    }
    asked = []

    def download(model, revision, **_):
        asked.append((model, revision))
        return str(folders[model])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_an_adapter_of_the_hub_is_opened_as_one_in_a_folder(hub, tmp_path):
    delta = open_model("org/adapter", "v1")
    assert (delta.name, delta.revision, len(delta.sites)) == ("org/adapter", "v1", 6)
    assert "hub commit c0ffee" in delta.notes
    assert hub == [("org/adapter", "v1")]
    hub.clear()
    merged = open_model("org/adapter", "v1", adapter="merged")
    assert hub == [("org/adapter", "v1"), ("org/base", "v2")]
    assert (merged.name, merged.revision) == ("org/base + org/adapter", "v2")
    in_folders = open_model(tmp_path / "c0ffee", base=tmp_path / "base")
    assert merged.fingerprint() == in_folders.fingerprint()
    hub.clear()
    assert open_model(tmp_path / "c0ffee", adapter="base").name == "org/base"
    assert open_model(tmp_path / "c0ffee", "v3", adapter="merged").name == "org/base + c0ffee"
    assert hub == [("org/base", "v2"), ("org/base", "v3")]


def test_an_adapter_beside_its_base_is_opened_as_is_said(base, tmp_path):
    adapter_in(base)
    with pytest.raises(CheckpointError, match="or say which by adapter: delta, merged or base"):
        open_model(base)
    ways = {way: open_model(base, adapter=way) for way in ("delta", "merged", "base")}
    assert len(ways["delta"].sites) == 6 and len(ways["merged"].sites) == len(ways["base"].sites) == 2
    change = ways["merged"].matrix(1, "attention_key").astype(float) - ways["base"].matrix(1, "attention_key")
    np.testing.assert_allclose(change, 1.5 * product(updates(), 1, "k"), rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"peft_type": None}, "holds an adapter; only adapters"),
        ({"a_new_setting": 3}, "a_new_setting is set"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is pissa_niter_4, which changes the base as well"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern is no table of names"),
        ({"alpha_pattern": {"(": 3}}, "alpha_pattern: pattern = .* expected a regular expression"),
        ({"alpha_pattern": {r"(q)_proj\1": 3}}, "alpha_pattern: pattern = .* expected one without"),
        ({"target_modules": "("}, "target_modules, or what restricts them: pattern = .* expected a regular expression"),
        ({"lora_alpha": "much"}, "lora_alpha is much; expected a positive number"),
        ({"use_dora": True}, "has lora_A, lora_B; expected lora_A, lora_B, lora_magnitude_vector"),
        ({"r": 5}, r"has shape \(4, 32\); expected \(5, 32\)"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(settings, fragment, tmp_path):
    with pytest.raises(CheckpointError, match=fragment):
        open_model(adapter_in(tmp_path / "adapter", **settings))
    tensors = updates() | {f"base_model.model.{module(0, 'q')}.lora_C.weight": np.ones((4, 4), np.float32)}
    with pytest.raises(CheckpointError, match=r"q_proj.lora_C.weight' is not supported in an adapter"):
        open_model(adapter_in(tmp_path / "other", tensors))


def test_a_tensor_that_the_settings_do_not_name_replaces_that_of_the_base_as_in_peft(base, tmp_path):
    tensors = {f"base_model.model.{module(1, 'k')}.weight": np.ones((ROWS["k"], D_MODEL), np.float32)}
    folder = adapter_in(tmp_path / "adapter", updates(parts="q") | tensors, target_modules=["q_proj"])
    assert any(module(1, "k") in note for note in open_model(folder).notes)
    assert (open_model(folder, base=base).stored(f"{module(1, 'k')}.weight") == 1).all()
    unknown = {f"base_model.model.{module(1, 'k')}.gate": np.ones(4, np.float32)}
    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.1.self_attn.k_proj.gate', which the adapter"):
        open_model(adapter_in(tmp_path / "other", updates() | unknown), base=base)


def test_a_base_that_does_not_fit_is_named(base, tmp_path):
    folder = adapter_in(tmp_path / "adapter")
    gate = {
        f"base_model.model.model.layers.0.mlp.gate_proj.lora_{side}.weight": np.ones(shape, np.float32)
        for side, shape in (("A", (4, D_MODEL)), ("B", (40, 4)))
    }
    of_parameter = adapter_in(tmp_path / "gate", gate, target_modules=[], target_parameters=["gate_proj.weight"])
    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.0.mlp.gate_proj.weight', which the adapter"):
        open_model(of_parameter, base=base)
    (base / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 1}))
    tensors = {name: tensor for name, tensor in load_file(base / "model.safetensors").items() if ".1." not in name}
    save_file(tensors, base / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.1.self_attn.k_proj.weight', which the adapter"):
        open_model(folder, base=base)


def test_arguments_that_fit_no_adapter_are_refused(base, tmp_path):
    folder = adapter_in(tmp_path / "adapter")
    for arguments, fragment in (
        ({"adapter": "both"}, "adapter = 'both': expected one of delta, merged, base"),
        ({"adapter": "merged"}, "base = None: expected the base model of the adapter"),
        ({"adapter": "delta", "revision": "v2"}, "revision = 'v2': expected none"),
    ):
        with pytest.raises(ParameterError, match=fragment):
            open_model(folder, **arguments)
    with pytest.raises(ParameterError, match="expected the folder of an adapter"):
        open_model(base, adapter="merged")


def test_a_head_of_several_layers_that_the_base_lacks_is_left_out(base, tmp_path):
    head = {f"base_model.model.score.{layer}.weight": np.ones((3, D_MODEL), np.float32) for layer in (0, 2)}
    folder = adapter_in(tmp_path / "adapter", updates() | head, modules_to_save=["classifier", "score"])
    found = open_model(folder, base=base)
    assert any("not 'score.0.weight', 'score.2.weight', which the base does not store" in note for note in found.notes)
    missing = {"base_model.model.model.layers.0.mlp.gate_proj.weight": np.ones((40, D_MODEL), np.float32)}
    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.0.mlp.gate_proj.weight', which the adapter"):
        open_model(adapter_in(tmp_path / "other", updates() | missing, modules_to_save=["gate_proj"]), base=base)


@pytest.mark.parametrize("rows", [None, [1], [1, -1], [1, True], [1, 99], {"wte": [1, 2]}, {"embed_tokens": "12"}])
def test_rows_of_tokens_that_do_not_fit_are_named(rows, base, tmp_path):
    embeddings = {"model.embed_tokens.weight": np.zeros((11, D_MODEL), np.float32)}
    save_file(load_file(base / "model.safetensors") | embeddings, base / "model.safetensors")
    name = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    new = {name: np.ones((2, D_MODEL), np.float32)}
    with pytest.raises(CheckpointError, match=r"trainable_token_indices has|has shape .11, 32.; expected .100, 32."):
        open_model(adapter_in(tmp_path / "bad", updates() | new, trainable_token_indices=rows), base=base)
    whole = open_model(adapter_in(tmp_path / "good", updates() | new, trainable_token_indices=[4, 2]), base=base)
    np.testing.assert_array_equal(np.flatnonzero(whole.stored("model.embed_tokens.weight").any(axis=1)), [2, 4])
