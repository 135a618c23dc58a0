"""MLPs, experts, routers and embeddings: what is read is what the module of ``transformers`` computes with.

Sizes differ pairwise: width 80, MLPs 52, experts 48, vocabulary 130, 4 experts.
"""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tiny_models import Profile, make_model

from rmtbase.errors import ParameterError
from rmtbase.models import EXPERT_COMPONENTS, Checkpoint, MatrixName, Place, inspect_model, open_model
from rmtbase.models.layouts._expressions import Tensor
from rmtbase.models.layouts._feed_forward import FeedForward
from rmtbase.models.layouts._sites import Site

TINY = Profile(n_layers=2, n_heads=8, n_key_heads=2, d_head=18, d_model=80, d_mlp=52, vocab=130)
TOKENS = torch.eye(5, 80) + torch.randn(5, 80, generator=torch.Generator().manual_seed(3))

# What is stored: a tensor for each expert, or a stack (experts, outputs, inputs), or its transposes.
MIXTURES = {
    **dict.fromkeys(("mixtral", "qwen2_moe", "deepseek_v3", "olmoe", "phimoe"), "each"),
    **dict.fromkeys(("granitemoe", "qwen3_vl_moe_text"), "stack"),
    **dict.fromkeys(("gpt_oss", "llama4_text", "aria_text"), "transposed"),
}


def tiny(model_type, **options):
    model = make_model(model_type, TINY, **options).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # of experts: no part of their matrices
                parameter.zero_()
    return model


def saved(model, folder):
    """Save a model, and return its tensors."""
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def whole(model, name):
    return np.concatenate(list(model.blocks(name)))


def experts_of(model):
    """Every expert's matrices by component."""
    found = {}
    for name in model.parts["experts"]:
        found.setdefault((name.place.layer, name.expert), {})[name.component] = torch.tensor(whole(model, name))
    return found


def expected(module, held, x):
    """y = W_out (act(W_gate x) ∘ W_in x), with the activation of the module's class."""
    into, gate = x @ held["expert_in"].T, x @ held["expert_gate"].T
    if hasattr(module, "alpha"):  # gpt_oss
        gate, into = gate.clamp(max=module.limit), into.clamp(-module.limit, module.limit) + 1
        return (gate * torch.sigmoid(gate * module.alpha) * into) @ held["expert_out"].T
    return (module.act_fn(gate) * into) @ held["expert_out"].T


def computed(module, expert, n_experts, x):
    """What the module itself makes of tokens that all go to one expert."""
    if "Llama4" in type(module).__name__:
        return module(x.repeat(n_experts, 1)).reshape(n_experts, *x.shape)[expert]
    chosen = torch.full((len(x), 1), expert)
    return module(x, chosen, torch.ones(len(x), 1))


@pytest.mark.parametrize("model_type", MIXTURES)
def test_each_expert_computes_what_its_module_does(model_type, tmp_path):
    model = tiny(model_type)
    stacks = [tensor.shape for tensor in saved(model, tmp_path).values() if tensor.ndim == 3]
    kind = "each" if not stacks else "transposed" if (4, 80, 104) in stacks else "stack"
    assert kind == MIXTURES[model_type]
    modules = {
        int(name.split("layers.")[1].split(".")[0]): module
        for name, module in model.named_modules()
        if isinstance(getattr(module, "down_proj", None), torch.nn.Parameter) and module.down_proj.ndim == 3
    }
    assert modules
    for opened in (open_model(tmp_path), open_model(model)):  # as it is stored, and in memory, where all are stacks
        found = experts_of(opened)
        assert len(found) == 4 * len(modules)
        for (layer, expert), held in found.items():
            with torch.no_grad():
                made = computed(modules[layer], expert, 4, TOKENS)
            torch.testing.assert_close(expected(modules[layer], held, TOKENS), made, rtol=1e-4, atol=1e-5)
            assert {one: tuple(held[one].shape) for one in EXPERT_COMPONENTS} == {
                name.component: opened.shape(name)
                for name in opened.parts["experts"]
                if (name.place.layer, name.expert) == (layer, expert)
            }


def test_routers_and_shared_experts_are_matrices_of_their_layers_and_dense_layers_have_mlps():
    model = tiny("deepseek_v3")
    opened = open_model(model)
    names = dict(model.named_parameters())
    assert [opened.has(0, one) for one in ("mlp_in", "mlp_gate", "mlp_out", "router")] == [True, True, True, False]
    assert [opened.has(1, one) for one in ("mlp_in", "router", "shared_expert_out")] == [False, True, True]
    for layer, component, name in (
        (0, "mlp_gate", "layers.0.mlp.gate_proj.weight"),
        (1, "router", "layers.1.mlp.gate.weight"),
        (1, "shared_expert_in", "layers.1.mlp.shared_experts.up_proj.weight"),
        (1, "shared_expert_gate", "layers.1.mlp.shared_experts.gate_proj.weight"),
    ):
        np.testing.assert_array_equal(opened.matrix(layer, component), names[name].detach().numpy())


@pytest.mark.parametrize("change", ["count", "width", "missing"])
def test_experts_that_are_not_certain_are_named_and_not_read(change, tmp_path):
    tensors = saved(tiny("mixtral"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    name = "layers.0.block_sparse_moe.experts.1.w1.weight"
    matrix = tensors.pop(name)
    if change != "missing":
        tensors[name] = np.ascontiguousarray(matrix[:, :-1]) if change == "width" else matrix
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | ({"num_local_experts": 5} if change == "count" else {})))
    opened = open_model(tmp_path)
    notes = opened.part_notes("experts")
    assert any(note.startswith("not read: block_sparse_moe.experts") and "layer 0" in note for note in notes)
    assert not [name for name in opened.parts.get("experts", ()) if name.place.layer == 0]
    assert len(opened.sites) == 2  # the heads are read all the same


def test_the_order_of_gate_and_inputs_in_one_tensor_is_never_guessed():
    model = tiny("granitemoe")
    checkpoint, config = Checkpoint.of_tensors(model.state_dict(), "tiny"), model.config.to_dict()
    sites = open_model(model).sites
    known = FeedForward(sites, checkpoint, config, (), frozenset({"granitemoe"}))
    unknown = FeedForward(sites, checkpoint, config, (), frozenset({"unheard_of"}))
    assert len(known.experts.matrices) == 2 * 4 * 3
    assert not unknown.experts.matrices
    (note,) = unknown.experts.notes
    assert "in an order that is not known for 'unheard_of' (layer 0 and 1 more)" in note


@pytest.mark.parametrize("family", ["Segformer", "Pvt"])
def test_layers_in_stages_are_each_as_wide_as_their_attention(family, tmp_path):
    sizes = {"depths": [2, 1], "hidden_sizes": [24, 40], "num_attention_heads": [2, 4], "mlp_ratios": [2, 3]}
    sizes |= {"num_encoder_blocks": 2, "strides": [4, 2], "image_size": 32, "sr_ratios": [1, 1]}
    patches = {"patch_sizes": [7, 3]} if family == "Segformer" else {"patch_sizes": [4, 2]}
    if family == "Pvt":
        sizes["sequence_reduction_ratios"] = sizes.pop("sr_ratios")
    model = getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**sizes, **patches))
    opened, weights = open_model(model), saved(model, tmp_path)
    assert [site.d_query for site in opened.sites] == [24, 24, 40]
    for layer, site in enumerate(opened.sites):
        block = site.module[: site.module.rindex("attention")]
        for component, name in (("mlp_in", "dense1"), ("mlp_out", "dense2")):
            np.testing.assert_array_equal(opened.matrix(layer, component), weights[f"{block}mlp.{name}.weight"])


def test_what_stands_in_layers_of_other_widths_under_other_names_is_told():
    tensors, sites = {}, []
    for layer, width in enumerate((8, 8, 12)):
        at = f"layers.{layer}."
        shapes = {
            "attention.q": (4, width),
            "attention.k": (4, width),
            "feed.into": (20, width),
            "feed.out": (width, 20),
        }
        tensors |= {f"{at}{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
        query, key = Tensor(f"{at}attention.q.weight"), Tensor(f"{at}attention.k.weight")
        sizes = {"n_heads": 1, "n_key_heads": 1, "d_head": 4, "d_query": width, "d_key": width}
        sites.append(Site(place=Place("", layer), module=f"{at}attention", query=query, key=key, **sizes))
    found = FeedForward(sites, Checkpoint.of_tensors(tensors, "tiny"), {}, (), frozenset())
    assert not found.layers
    assert found.notes == ("no matrices: feed.into, feed.out: none of the known names of an MLP (layer 0 and 2 more)",)
    named = {name.replace("into", "fc1").replace("out", "fc2"): one for name, one in tensors.items()}
    found = FeedForward(sites, Checkpoint.of_tensors(named, "tiny"), {}, (), frozenset())
    assert not found.notes
    assert [set(held) for held in found.layers.values()] == [{"mlp_in", "mlp_out"}] * 3


EMBEDDINGS = {
    "gpt2": {"embedding": "wte", "position_embedding": "wpe"},
    "llama": {"embedding": "embed_tokens"},
    "bert": {"embedding": "word_embeddings", "position_embedding": "position_embeddings"},
    "gpt_neox": {"embedding": "embed_in"},
    "bloom": {"embedding": "word_embeddings"},
    "opt": {"embedding": "embed_tokens", "position_embedding": "embed_positions"},
    "t5": {"embedding": "shared"},
}


@pytest.mark.parametrize("model_type", EMBEDDINGS)
def test_embeddings_are_those_of_the_model(model_type):
    model = tiny(model_type)
    opened = open_model(model)
    names = {name.component: name for name in opened.parts["embeddings"] if name.place == Place("", -1)}
    tokens = model.get_input_embeddings().weight.detach().numpy()
    assert opened.shape(names["embedding"]) == (80, 130)  # outputs, inputs
    np.testing.assert_array_equal(whole(opened, names["embedding"]), tokens)
    assert set(names) == set(EMBEDDINGS[model_type])
    for component, word in EMBEDDINGS[model_type].items():
        (stored,) = opened._of_part(names[component]).tensors()
        assert stored.split(".")[-2] == word


def test_an_unembedding_is_one_where_it_is_stored(tmp_path):
    tokens, d_model = 130, 80
    path, tensors = tmp_path / "model.safetensors", saved(tiny("llama", tie_word_embeddings=False), tmp_path)
    for head, read in (("lm_head.weight", True), ("head_of_mine.weight", False)):
        save_file(tensors | {head: np.ones((tokens, d_model), np.float32)}, path)
        opened = open_model(tmp_path)
        assert (MatrixName(Place("", -1), "unembedding") in opened.parts["embeddings"]) is read
        assert any("head_of_mine" in note for note in opened.part_notes("embeddings")) is not read
    save_file(tensors | {"lm_head.weight": np.ones((tokens + 1, d_model), np.float32)}, path)
    (note,) = (one for one in open_model(tmp_path).part_notes("embeddings") if "lm_head" in one)
    assert note.startswith("not read: lm_head.weight (131, 80): named like the unembedding; expected 130 rows of 80")


def test_an_output_behind_a_gate_is_a_matrix_and_no_circuit():
    opened = open_model(tiny("qwen3_next"))
    (site,) = opened.sites[:1]
    layer = opened.layers.index(site.place)
    assert site.output is None
    assert opened.matrix(layer, "attention_output").shape == (80, 8 * 18)
    assert any("stands a gate" in note for note in opened.notes)


def test_inspection_tells_experts_together_and_what_is_outside():
    found = inspect_model(open_model(tiny("gpt_oss")))
    layers, outside = found.layers
    words = "4 experts: rows 0-103 by 2 of layers.{}.mlp.experts.gate_up_proj[{}] transposed"
    assert layers.matrices["expert_gate"] == words
    assert layers.shapes["expert_gate"] == (52, 80)
    assert outside.sentence() == "outside the layers"
    assert outside.matrices == {"embedding": "embed_tokens.weight transposed"}
    plain = open_model(tiny("llama"))
    assert "experts" not in plain.parts
    with pytest.raises(ParameterError, match="layer 1 expert 3 expert_in"):
        plain.shape(MatrixName(Place("", 1), "expert_in", 3))
