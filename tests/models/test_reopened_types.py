"""Tiny models of unusual types, saved and opened as a user does: what is read is proved, and the notes say the rest."""

import json
from collections import Counter
from functools import partial
from unittest.mock import Mock

import pytest
import torch
import transformers
from prove_architectures import contradictions, prove_type, reopened
from safetensors.torch import load_file, save_file
from tiny_models import PROFILES, config_class, make_model, saved_classes

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, MissingDependencyError, MissingTensorError, ParameterError
from rmtbase.models import open_model
from rmtbase.models.forward._torch_route import Network


def saved(model, folder):
    model.save_pretrained(folder)
    return open_model(folder)


def notes_with(model, beginning):
    return [note for note in model.notes if note.startswith(beginning)]


@pytest.mark.parametrize(
    ("model_type", "stacks"),
    [("detr", {"encoder": 2, "decoder": 3, "cross": 3}), ("hunyuan_vl", {"text": 3}), ("conditional_detr", {"": 2})],
)
def test_a_type_is_read_from_the_folder_of_its_class_with_a_head(model_type, stacks, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    model = reopened(make_model(model_type, of=saved_classes(model_type)[-1]))
    assert Counter(site.place.stack for site in model.sites) == stacks


@pytest.mark.exhaustive
def test_a_type_of_the_table_is_the_same_with_and_without_its_head():
    assert max(prove_type("hunyuan_vl", PROFILES[0]).values()) < 1e-6
    assert set(prove_type("bart", PROFILES[0])) == {"encoder", "decoder", "cross"}


def test_layers_of_a_part_that_is_not_read_are_not_taken_for_those_of_another(tmp_path, monkeypatch):
    model = make_model("siglip2", of=transformers.Siglip2ForImageClassification)
    found = saved(model, tmp_path)  # the table knows the text, of which there is none here
    assert {site.place.stack for site in found.sites} == {"vision", "cross"}
    monkeypatch.setattr(Network, "of_config", Mock(side_effect=MissingDependencyError("torch", "running it", "hf")))
    with pytest.raises(MissingTensorError, match=r"which a siglip2 model has, is not in this checkpoint"):
        open_model(tmp_path)


CROSSED = "attention that is not read, by the names of its matrices: "
PARTLY = "another softmax in it is not read: "


@pytest.mark.parametrize(
    ("model_type", "beginning", "named"),
    mostly_exhaustive(
        [
            ("pegasus_x", "read in part: encoder.layers.0.self_attn", PARTLY),
            ("convbert", "read in part: encoder.layer.0.attention.self", PARTLY),
            ("kosmos-2", CROSSED, "'image_to_text_projection.x_attn.k_proj.weight'"),
            ("mllama", CROSSED, "cross_attn.q_proj.weight'"),
            ("aria", CROSSED, "multi_modal_projector.cross_attn"),
            ("umt5", "beside the heads of attention that is read, not scored: ", "relative_attention_bias"),
            ("gemma3n_text", "layer 1: the keys are those of ", "layers.0.self_attn.k_proj, which reads the input of"),
        ],
        always=3,
    ),
)
def test_no_note_says_otherwise_than_what_is_read(model_type, beginning, named):
    model = reopened(make_model(model_type))
    assert contradictions(model) == []
    assert any(named in note for note in notes_with(model, beginning))


JOINED = "is applied to 2 inputs, which are joined as keys"
CONVOLVED = "convolutions before queries or keys: not in W_QK, which acts on their outputs"


GLOBAL = {"encoder_attention_type": "transient-global", "local_radius": 3, "global_block_size": 4}
JOINING = [
    ("pegasus_x", "encoder.layers.1.self_attn", {}),
    ("t5gemma2", "decoder.layers.2.self_attn", {}),
    ("longt5", "encoder.block.0.layer.0.TransientGlobalSelfAttention", GLOBAL),
]


@pytest.mark.parametrize(("model_type", "module", "options"), mostly_exhaustive(JOINING, always=1))
def test_keys_of_two_inputs_of_one_map_are_the_reason_why_a_softmax_is_not_read(model_type, module, options):
    notes = Network.of_module(make_model(model_type, **options)).inventory().notes
    (reason,) = {note for note in notes if note.startswith(f"not read: {module}: ")}
    assert reason.endswith(JOINED) and f"{module}.k" in reason


CONVOLVING = [("pvt", 6), ("vit", 0), ("cvt", 13), ("segformer", 6)]


@pytest.mark.parametrize(("model_type", "n_sites"), mostly_exhaustive(CONVOLVING, always=2))
def test_convolutions_before_queries_or_keys_are_noted(model_type, n_sites):
    """PVT and SegFormer shorten the keys of all stages but the last, CvT convolves queries and keys of all layers."""
    sites = Network.of_module(make_model(model_type)).inventory().sites
    assert [CONVOLVED in site.notes for site in sites] == [True] * n_sites + [False] * (len(sites) - n_sites)


class Spoken(torch.nn.Module):
    """A model with sound in its name, and parts that have names of their own or have none."""

    def __init__(self, *names):
        super().__init__()
        make = partial(torch.nn.MultiheadAttention, 24, 4, batch_first=True)
        self.speech = torch.nn.ModuleDict({name: torch.nn.ModuleList(make() for _ in range(2)) for name in names})

    def forward(self, x):
        for layer in (layer for layers in self.speech.values() for layer in layers):
            x = layer(x, x, x)[0]
        return x


@pytest.mark.parametrize(
    ("names", "stacks"),
    [
        (("encoder", "decoder"), ["encoder", "encoder", "decoder", "decoder"]),
        (("text", "vision"), ["text", "text", "vision", "vision"]),
        (("first", "decoder"), ["", "", "", ""]),
    ],
)
def test_stacks_are_called_by_the_names_of_parts_if_each_has_one(names, stacks):
    sites = Network.of_module(Spoken(*names), {"x": torch.randn(2, 5, 24)}).inventory().sites
    assert [site.place.stack for site in sites] == stacks
    if names == ("first", "decoder"):  # the self-attention of a speech decoder is that of a decoder
        model = make_model("speecht5", of=transformers.SpeechT5ForSpeechToText)
        counts = Counter(site.place.stack for site in Network.of_module(model).inventory().sites)
        assert counts == {"encoder": 2, "decoder": 3, "cross": 3}


@pytest.mark.parametrize("model_type", mostly_exhaustive(["mlcd", "pixtral", "sam3_vit_model"], always=1))
def test_rotation_by_two_axes_adds_no_factor_to_the_logits(model_type):
    model = make_model(model_type)
    assert {site.logit_scale for site in open_model(model).sites} == {0.25}
    shown = Network.of_module(model).inventory().sites
    assert [site.logit_scale for site in shown] == pytest.approx([0.25] * len(shown))


WITHOUT_ATTENTION = {
    "jamba": ({"attn_layer_period": 8, "attn_layer_offset": 4}, "attn_layer_period"),
    "lfm2": ({"layer_types": ["conv", "conv"]}, "layer_types"),
    "recurrent_gemma": ({"block_types": ["recurrent"]}, "block_types"),
    "nemotron_h": ({"layers_block_type": ["linear_attention", "mlp"]}, "layers_block_type"),
    "bamba": ({"attn_layer_indices": []}, "attn_layer_indices"),
}


@pytest.mark.parametrize("model_type", WITHOUT_ATTENTION)
def test_a_model_none_of_whose_layers_attends_is_refused_for_that_reason(model_type, tmp_path):
    options, key = WITHOUT_ATTENTION[model_type]
    model = make_model(model_type, **options)
    for opened in (open_model, partial(saved, folder=tmp_path)):
        with pytest.raises(CheckpointError, match=f"{key} = .*: no layer has attention; expected at least one"):
            opened(model)


def test_every_attention_of_an_inner_group_and_of_a_short_text_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    found = saved(make_model("albert", inner_group_num=2), tmp_path).prove()
    assert [site.module.rpartition("albert_layers.")[2] for site in found.sites] == ["0.attention", "1.attention"]
    assert "2 of 2 sites" in found.notes[-1] and not notes_with(found, CROSSED)
    model = make_model("big_bird")  # sparse in long texts alone
    assert model.config.attention_type == "block_sparse"
    assert "2 of 2 sites" in saved(model, tmp_path / "sparse").prove().notes[-1]


@pytest.mark.exhaustive
def test_layers_that_run_oftener_than_a_cache_has_places_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 120}
    config = config_class("hrm_text")(**sizes, num_layers_per_stack=4, num_hidden_layers=4)
    found = saved(transformers.HrmTextForCausalLM(config), tmp_path).prove()
    assert len(found.sites) == 8 and found.notes[-1].startswith("proved against")


@pytest.fixture
def llama(tmp_path):
    return saved(make_model("llama", attention_bias=True), tmp_path / "biased").path


def edited(folder, biases, **config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    tensors = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in tensors.items() if biases or not name.endswith("_proj.bias")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_biases_that_are_stored_are_those_that_the_configuration_says(llama):
    edited(llama, biases=True, attention_bias=False)
    found = open_model(llama)
    (note,) = notes_with(found, "biases that are stored and that the model does not have (attention_bias = false): ")
    assert "self_attn.q_proj.bias" in note and "(8 of them)" in note
    with pytest.raises(ParameterError, match="biases that are stored and that the model does not have"):
        found.fold("biases")
    assert "folded into queries, keys and values: norms" in found.fold("norms").notes
    words = r"self_attn.q_proj.bias'.*config.json: attention_bias = true; correct"
    with pytest.raises(MissingTensorError, match=words):
        open_model(edited(llama, biases=False, attention_bias=True))
    assert not notes_with(open_model(edited(llama, biases=False, attention_bias=False)), "biases")
    model = make_model("qwen2")
    state = {name: one for name, one in model.state_dict().items() if not name.endswith("_proj.bias")}
    found = open_model(state, config=model.config)
    (note,) = notes_with(found, "biases that the model has and that are not stored (the model's class): ")
    assert "layers.0.self_attn.q_proj.bias" in note


@pytest.mark.exhaustive
def test_biases_are_compared_with_those_of_the_network_where_the_table_lacks_the_type(tmp_path):
    path = saved(make_model("gemma3n_text", attention_bias=True), tmp_path).path
    assert not notes_with(open_model(path), "biases that")
    (note,) = notes_with(open_model(edited(path, biases=False)), "biases that the model has and that are not stored")
    assert "layers.0.self_attn" in note
    denied = saved(make_model("gemma3n_text", attention_bias=True), tmp_path / "denied").path
    found = open_model(edited(denied, biases=True, attention_bias=False))
    (note,) = notes_with(found, "biases that are stored and that")
    assert "layers.0.self_attn" in note
