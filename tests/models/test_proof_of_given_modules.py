"""A proof runs the module that was given: what that does otherwise than its weights say is not called proved.

It decides by itself which are queries: these change the logits of their own row only, and all of them; a key changes
one entry of many rows. A proof is made once of the same weights, settings and versions.
"""

import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from safetensors.numpy import load_file, save_file
from torch import nn
from torch.utils._pytree import tree_flatten
from transformers import AttentionInterface

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError
from rmtbase.models import _model, demo_revisions, open_model
from rmtbase.models.files._demo import demo_checkpoint, demo_root
from rmtbase.models.forward import _proof, _prove
from rmtbase.models.forward._probe_network import written_out
from rmtbase.models.forward._prove import prove_parts
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import Scaled, Tensor
from rmtbase.models.layouts._sites import Disproved
from tests.models.conftest import stored_of

D_MODEL, HEADS, LAYERS = 48, 6, 3
every, plain = nn.modules.module, nn.Linear.forward


@pytest.fixture(autouse=True)
def proofs_are_wanted(monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")


def llama():
    torch.manual_seed(4)
    sizes = {"hidden_size": D_MODEL, "num_attention_heads": HEADS, "num_key_value_heads": 2, "intermediate_size": 64}
    return transformers.LlamaModel(transformers.LlamaConfig(**sizes, num_hidden_layers=LAYERS, vocab_size=32))


def gpt2():
    torch.manual_seed(4)
    sizes = {"n_embd": D_MODEL, "n_head": HEADS, "n_layer": 2, "vocab_size": 32, "n_positions": 32}
    return transformers.GPT2Model(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def proof_of(model, **options):
    (note,) = (note for note in open_model(model, **options).prove().notes if "proved" in note)
    return note


def query(module):
    return module.layers[1].self_attn.q_proj


def twice(module, given, result=None):
    return tuple(2 * one for one in given) if result is None else 2 * result


def of_class(name, forward):
    """A change of a module: its queries are those of a class of one's own."""

    def change(module):
        query(module).more = [torch.randn(D_MODEL)]  # no parameter
        query(module).__class__ = type(name, (nn.Linear,), {"forward": forward})

    return change


def method_replaced(module):
    query(module).forward = lambda given: 2 * nn.functional.linear(given, query(module).weight)


def parametrized(module):
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    nn.utils.parametrize.register_parametrization(query(module), "weight", Twice())


def attention_of_ones_own(module):
    def attend(module, query, key, value, mask, **others):
        return AttentionInterface()["sdpa"](module, query * query, key, value, mask, **others)

    AttentionInterface.register("mine", attend)
    module.config._attn_implementation = "mine"


CHANGES = {
    "a forward hook": (lambda one: query(one).register_forward_hook(twice), r"hook on 'layers.1.self_attn.q_proj'"),
    "a pre-hook": (lambda one: query(one).register_forward_pre_hook(twice), r"pre-hook on 'layers.1.self_attn.q_proj'"),
    "a hook elsewhere": (lambda one: one.layers[0].mlp.register_forward_hook(twice), r"hook on 'layers.0.mlp'"),
    "a hook of all modules": (lambda _: every.register_module_forward_hook(print), "a forward hook of all modules"),
    "a method replaced": (method_replaced, r"forward of 'layers.1.self_attn.q_proj' was replaced on the instance"),
    "a class of one's own": (
        of_class("Twice", lambda own, x: 2 * plain(own, x)),
        r"q_proj' computes with Twice.forward",
    ),
    "an input moved": (of_class("Shifted", lambda own, x: plain(own, x + 1)), r"q_proj' computes with Shifted.forward"),
    "unregistered": (
        of_class("Added", lambda own, x: plain(own, x) + own.more[0]),
        r"q_proj' computes with Added.forward",
    ),
    "a weight computed": (parametrized, r"weight of 'layers.1.self_attn.q_proj' is computed from other tensors"),
    "attention of one's own": (attention_of_ones_own, r"its attention implementation 'mine' is .*attend"),
    "no values": (lambda one: one.to("meta"), r"k_proj.weight' is on torch's meta device, without values"),
    "compiled": (lambda one: setattr(one, "_compiled_call_impl", print), r"the module itself is compiled"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_computes_something_else_is_not_proved(change):
    module = llama()
    make, words = CHANGES[change]
    handle = None
    try:
        handle = make(module)
        note = proof_of(module)
    finally:
        if change == "a hook of all modules":
            handle.remove()
        AttentionInterface._global_mapping.pop("mine", None)
    assert note.startswith("not proved: "), note
    assert re.search(words, note), note


def test_code_of_a_class_that_was_replaced_is_run(monkeypatch):
    """What no inspection of the instance shows: the pass itself does."""
    module = llama()
    rotated = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    where = "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"

    def changed(by):
        monkeypatch.setattr(where, lambda q, k, *others, **more: rotated(by(q), k, *others, **more))
        return proof_of(module)

    assert changed(lambda q: q).startswith("proved by running the LlamaModel that was given")
    assert "queries or keys go through tanh" in changed(torch.tanh)
    assert "queries are no outputs of linear maps" in changed(lambda q: q + torch.ones(q.shape[-1]))
    assert "norms of queries or keys of layer 0 differ" in changed(
        lambda q: q * q.pow(2).mean(-1, keepdim=True).rsqrt()
    )
    with pytest.raises(CheckpointError, match="logit scale"):
        changed(lambda q: 2 * q)


def other_state(module):
    def other(owner, state, prefix, metadata):
        state["layers.0.self_attn.q_proj.weight"] = 2 * state["layers.0.self_attn.q_proj.weight"]

    module.register_state_dict_post_hook(other)


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (gpt2, lambda module: setattr(module.config, "n_head", 12), "layer 0: n_heads 12; expected 6, as h.0.attn has"),
        (llama, lambda module: setattr(module.layers[1].self_attn, "scaling", 1.0), "layer 1: logit scale"),
        (llama, other_state, r"layer 0 head \d: q·k"),
    ],
    ids=["a configuration edited after building", "a layer in the middle", "a state dict of other tensors"],
)
def test_a_module_that_contradicts_what_is_read_is_refused(make, change, words):
    module = make()
    change(module)
    with pytest.raises(CheckpointError, match=words):
        open_model(module).prove()


def test_a_weight_that_is_computed_is_read_as_it_is_in_effect():
    module = llama()
    before = query(module).weight.detach().clone()
    parametrized(module)
    model = open_model(module)
    np.testing.assert_array_equal(model.queries(1).reshape(before.shape), 2 * before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_module_of_any_type_is_proved(dtype):
    proof = proof_of(llama().to(getattr(torch, dtype)))
    assert proof == f"proved by running the LlamaModel that was given: all of {LAYERS} sites"


class Random(nn.Module):
    """Attention with a buffer that counts, attributes that are set, and random numbers on the way."""

    def __init__(self, of_queries):
        super().__init__()
        self.ask, self.tell = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.register_buffer("calls", torch.zeros(()))
        self.of_queries = of_queries

    def forward(self, x):
        self.calls += 1
        self.seen = tuple(x.shape)
        self.noise = torch.rand(()), np.random.rand(), random.random()  # noqa: NPY002
        x = x + torch.rand(x.shape)

        def heads(part):
            return part.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        q, k = heads(self.ask(x)), heads(self.tell(x))
        q = q * torch.rand(q.shape) if self.of_queries else q
        return x + (torch.softmax(q @ k.mT, -1) @ k).transpose(1, 2).flatten(2)


def state_of(module):
    attributes = {path: dict(vars(one)) for path, one in module.named_modules()}
    generators = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    grads = [one.grad for one in module.parameters()], [one.requires_grad for one in module.parameters()]
    return copy.deepcopy((attributes, generators, grads, [one.dtype for one in module.parameters()]))


def assert_same(before, after):
    leaves = [tree_flatten(state)[0] for state in (before, after)]
    assert tree_flatten(before)[1] == tree_flatten(after)[1]
    for old, new in zip(*leaves, strict=True):
        if isinstance(old, torch.Tensor):
            assert torch.equal(old, new)
        elif not isinstance(old, nn.Module) and not callable(old):
            assert old == new or type(old).__eq__ is object.__eq__


@pytest.mark.parametrize("training", [True, False])
def test_a_module_is_left_as_it_was(training):
    torch.manual_seed(1)
    own = Random(of_queries=False).train(training)
    x = torch.randn(1, 7, D_MODEL, requires_grad=True)
    own(x).sum().backward()
    before = state_of(own)
    note = proof_of(own, inputs={"x": x})
    assert note.startswith("proved by running the Random that was given")
    assert_same(before, state_of(own))
    with pytest.raises(CheckpointError, match="expected attention"):
        open_model(Random(of_queries=True), inputs={"x": x})
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert not nn.modules.module._global_forward_hooks


def test_a_module_may_train_in_another_thread_meanwhile():
    module, stop, errors = llama(), threading.Event(), []
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        expected = module(tokens).last_hidden_state

    def run():
        while not stop.is_set():
            with torch.no_grad():
                found = module(tokens).last_hidden_state
            if found.dtype != torch.float32 or not torch.allclose(found, expected, atol=1e-5):
                errors.append(found)
                return

    other = llama()  # of the same class, and proved here
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert proof_of(other).startswith("proved by running")
    finally:
        stop.set()
        thread.join()
    assert not errors


def test_what_was_given_with_its_sites_is_run_too():
    module = llama()
    sites = open_model(module).sites
    assert proof_of(module, sites=sites).startswith("proved by running the LlamaModel that was given")
    assert proof_of(module.state_dict(), sites=sites).startswith("not proved: its sites were given with tensors")


class OfPatches(nn.Module):
    """Convolution with a bias before the attention, and rounding to single precision, as in code for images."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, D_MODEL, 4, 4)
        self.scale = nn.Buffer(torch.full((D_MODEL,), 0.5))
        self.attention = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)

    def forward(self, image):
        tokens = self.patches(image).flatten(2).transpose(1, 2).float()
        tokens = tokens - torch.cdist(tokens, self.scale.float()[None, None].expand(2, 1, -1))
        return self.attention(tokens, tokens, tokens)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_and_buffers_of_any_precision_meet_the_same_arithmetic(dtype):
    torch.manual_seed(4)
    module, image = OfPatches().to(dtype), torch.randn(2, 3, 16, 16, dtype=dtype)
    assert proof_of(module, inputs={"image": image})
    (site,) = open_model(module, inputs={"image": image}).sites
    assert (site.module, site.n_heads, site.d_head) == ("attention", HEADS, D_MODEL // HEADS)


SIZES = {"num_hidden_layers": 1, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 97}
SIZES_OF_TWO = {f"{one}_attention_heads": 4 for one in ("encoder", "decoder")} | {
    f"{one}_{word}": size for one in ("encoder", "decoder") for word, size in (("layers", 1), ("ffn_dim", 64))
}


def text(n_tokens):
    return {"input_ids": 3 + torch.arange(2 * n_tokens).reshape(2, n_tokens) % 90}


OF_TWO = SIZES_OF_TWO | {"d_model": 48, "vocab_size": 97}
MAKE = {
    "longformer": lambda window: transformers.LongformerConfig(**SIZES, attention_window=[window]),
    "led": lambda window: transformers.LEDConfig(**OF_TWO, attention_window=window),
    "big_bird": lambda block: transformers.BigBirdConfig(
        **SIZES, max_position_embeddings=256, num_random_blocks=1, block_size=block
    ),
    "pegasus_x": lambda block: transformers.PegasusXConfig(**OF_TWO, num_global_tokens=3, block_size=block),
}
WINDOWS = [
    ("longformer", 4, None),
    ("longformer", 8, None),
    ("led", 4, None),
    ("big_bird", 4, None),
    *(("longformer", window, None) for window in (6, 10, 12)),
    *(("longformer", window, 24) for window in (4, 6, 8, 10, 12)),
    *(("led", window, n_tokens) for window in (4, 8, 12) for n_tokens in (16, 24)),
    ("big_bird", 4, 64),
    *(("pegasus_x", 4, n_tokens) for n_tokens in (None, 24)),
]


def q_and_k(site):
    """The last words of the names of both maps, without which of the two they are."""
    each = [name.removesuffix(".weight").rpartition(".")[2] for one in (site.query, site.key) for name in one.tensors()]
    return [name.replace("query", "q").replace("key", "k").removesuffix("_proj") for name in each]


@pytest.mark.parametrize(("kind", "window", "n_tokens"), mostly_exhaustive(WINDOWS, always=4, weekly=True))
def test_queries_are_queries_in_windows_that_overlap(kind, window, n_tokens):
    torch.manual_seed(1)
    module = transformers.AutoModel.from_config(MAKE[kind](window))
    model = open_model(module, inputs=None if n_tokens is None else text(n_tokens)).prove()
    assert {tuple(q_and_k(site)) for site in model.sites} == {("q", "k")}
    assert [site.logit_scale for site in model.sites] == pytest.approx([12**-0.5] * len(model.sites))
    assert model.notes[-1].endswith(f"all of {len(model.sites)} sites")


def exchanged(network):
    """The parts of a network as a trace would have them that takes keys for queries and queries for keys."""

    def turned(met):
        site = replace(met.site, query=met.site.key, key=met.site.query)
        return met._replace(site=site, queries_left=not met.queries_left)

    return [replace(part, met={key: turned(met) for key, met in part.met.items()}) for part in network.parts]


def decided(parts):
    result = []
    for part in parts:
        with written_out(part.module):
            result += _prove._queries_move_rows(part, part.met).values()
    return result


def own_expressions(network):
    return {name: Tensor(name) for name, _ in network.network.named_parameters(remove_duplicate=False)}


KINDS = ["phi3", "gpt2", "longformer", "deepseek_v3", "bart", "vit", "t5", "falcon", "albert", "swin"]
KINDS += ["grounding-dino", "informer"]


@pytest.mark.parametrize("model_type", mostly_exhaustive(KINDS, always=3, weekly=True))
def test_a_trace_that_takes_keys_for_queries_proves_nothing(model_type):
    """Fused, transposed, latent, grouped, cross-attended, windowed: the sites are those of the same wrong trace."""
    network = Network.of_module(tiny_models.make_model(model_type, replace(tiny_models.PROFILES[0], n_layers=1)))
    parts = exchanged(network)
    assert {*decided(network.parts)} == {True}
    assert {*decided(parts)} == {False}
    sites = [met.site for part in parts for met in part.met.values()]
    _, read = stored_of(network.network)
    with pytest.raises(Disproved, match="changes rows of the logits as a whole, as queries do; expected that of"):
        prove_parts(sites, parts, own_expressions(network), read, network.path)


class Own(nn.Module):
    """Attention of four heads of 5, whose scores are arranged in some way before their softmax over an axis."""

    def __init__(self, arranged=lambda scores: scores, axis=-1, keys_first=False, n_keys=None):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(24, 20, bias=False) for _ in range(3))
        self.arranged, self.axis, self.keys_first, self.n_keys = arranged, axis, keys_first, n_keys

    def forward(self, x):
        of_keys = x if self.n_keys is None else x[:, : self.n_keys]
        q, k, v = (
            one.unflatten(-1, (4, 5)).transpose(1, 2) for one in (self.wq(x), self.wk(of_keys), self.wv(of_keys))
        )
        scores = self.arranged(k @ q.mT if self.keys_first else q @ k.mT)
        weights = scores.softmax(self.axis)
        return (weights.mT if self.keys_first else weights) @ v


def read(module, n_tokens=6):
    torch.manual_seed(2)
    network = Network.of_module(module, {"x": torch.randn(2, n_tokens, 24)})
    return network, network.inventory().sites


@pytest.mark.parametrize("options", [{}, {"n_keys": 3}, {"n_keys": 1}, {"keys_first": True, "axis": -2}, {"axis": -2}])
def test_the_softmax_runs_over_the_keys_wherever_they_stand_whatever_they_are_called(options):
    network, (site,) = read(Own(**options))
    names = ("wk.weight", "wq.weight") if options == {"axis": -2} else ("wq.weight", "wk.weight")
    assert (*site.query.tensors(), *site.key.tensors()) == names
    assert any("runs over another axis" in note for note in site.notes) == ("axis" in options)
    assert network.prove((site,), *stored_of(network.network)) == (site,)
    assert decided(exchanged(network)) == [False]


def test_scores_in_neither_rows_nor_columns_are_not_read():
    def mixed(scores):
        order = torch.randperm(36, generator=torch.Generator().manual_seed(3))
        return scores.flatten(-2)[..., order].view(scores.shape)

    with pytest.raises(CheckpointError, match="neither rows nor columns of its scores belong to one token each"):
        read(Own(mixed))


def test_one_query_and_one_key_are_not_told_from_each_other():
    with pytest.raises(CheckpointError, match="one query meets one key: they are not told from each other"):
        read(Own(), n_tokens=1)
    network, sites = read(Own())
    (part,) = network.parts
    short = replace(part, inputs={"x": part.inputs["x"][:1, :1]})
    assert decided([short]) == decided(exchanged(SimpleNamespace(parts=[short]))) == [None]
    with pytest.raises(CheckpointError, match="are not told from the keys of"):
        prove_parts(sites, [short], own_expressions(network), stored_of(network.network)[1], network.path)


def test_exchanged_weights_are_refused_where_the_batch_is_the_second_axis():
    x = torch.randn(5, 2, 24)
    network = Network.of_module(nn.MultiheadAttention(24, 4), {"query": x, "key": x, "value": x})
    (site,) = network.inventory().sites
    stored, read = stored_of(network.network)
    assert network.prove((site,), stored, read) == (site,)
    with pytest.raises(Disproved, match=r"head \d: q·k of"):
        network.prove((replace(site, query=site.key, key=site.query),), stored, read)


class Mutual(nn.Module):
    """Two texts that attend to each other by one product, as an image and a text do in Grounding DINO."""

    def __init__(self):
        super().__init__()
        self.wa, self.wb, self.va, self.vb = (nn.Linear(24, 10, bias=False) for _ in range(4))

    def forward(self, x):
        a, b = x[:, :4], x[:, 4:]
        scores = self.wa(a) @ self.wb(b).mT
        return scores.softmax(-1) @ self.vb(b), scores.mT.softmax(-1) @ self.va(a)


def test_both_sites_of_one_product_are_proved():
    network, sites = read(Mutual(), n_tokens=9)
    assert [site.query.name for site in sites] == ["wa.weight", "wb.weight"]
    stored, values = stored_of(network.network)
    assert network.prove(sites, stored, values) == sites
    for wrong in range(2):
        claimed = [replace(one, key=Scaled(one.key, 2.0)) if i == wrong else one for i, one in enumerate(sites)]
        with pytest.raises(Disproved, match=r"head 0: q·k of"):
            network.prove(claimed, stored, values)


NOTE = "proved against transformers' own forward pass (transformers 1.2): 2 of 4 sites"


@pytest.fixture
def proofs(monkeypatch, tmp_path):
    made = []
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_model, "proof_of", lambda *arguments: made.append(arguments) or _proof.Proof(NOTE))
    return made


@pytest.fixture
def folder(tmp_path):
    """A model like the bundled one, with other weights."""
    folder = shutil.copytree(demo_checkpoint(None)[0], tmp_path / "model")
    change_weight(folder, 1.0)
    return folder


def change_weight(folder, value):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"].flat[0] = value
    save_file(tensors, folder / "model.safetensors")


def kept(tmp_path):
    return sorted((tmp_path / "cache").glob("proof-*.json"))


def test_second_time_the_proof_is_read(proofs, folder, tmp_path):
    first, second = open_model(folder).prove(), open_model(folder).prove()
    assert len(proofs) == len(kept(tmp_path)) == 1
    assert first.notes == second.notes  # what files record does not depend on when it was proved
    assert (first.notes_now[-1], second.notes_now[-1]) == (NOTE, f"proved before: {NOTE}")


def test_other_weights_settings_versions_or_proofs_are_proved_anew(proofs, folder, tmp_path, monkeypatch):
    open_model(folder).prove()
    change_weight(folder, 2.0)
    open_model(folder).prove()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    open_model(folder).prove()
    for name in ("rmtbase", "torch", "transformers"):
        with monkeypatch.context() as patch:
            patch.setattr(_proof, "version", lambda asked, name=name: "9" if asked == name else "1")
            open_model(folder).prove()
    monkeypatch.setattr(_proof, "_source", lambda: "another way to prove")
    open_model(folder).prove()
    assert len(proofs) == len(kept(tmp_path)) == 7


def test_damaged_or_foreign_proof_is_made_again(proofs, folder, tmp_path):
    open_model(folder).prove()
    (path,) = kept(tmp_path)
    text = path.read_bytes()
    foreign = json.dumps(json.loads(text) | {"proof": "0"}).encode()
    for number, damaged in enumerate((b"", b"\xff[[", b"[]", text.replace(b"2 of 4", b"4 of 4"), foreign, None), 2):
        path.unlink()
        path.mkdir() if damaged is None else path.write_bytes(damaged)
        assert open_model(folder).prove().notes_now[-1] == NOTE
        assert len(proofs) == number


def test_what_cannot_be_kept_or_proved_is_tried_again(proofs, folder, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file in its place")
    for _ in range(2):
        assert open_model(folder).prove().notes_now[-1] == NOTE
    (tmp_path / "cache").unlink()
    monkeypatch.setattr(_model, "proof_of", lambda *given: proofs.append(given) or _proof.not_proved("no torch"))
    for _ in range(2):
        open_model(folder).prove()
    assert (len(proofs), kept(tmp_path)) == (4, [])


def test_without_torch_the_bundled_model_is_proved_before(proofs, monkeypatch):
    """Its proofs ship with it, for all of its revisions, and nothing is imported for them."""

    monkeypatch.setattr(_proof, "version", Mock(side_effect=_proof.PackageNotFoundError))
    for name in demo_revisions():
        assert open_model("demo", name).prove().notes_now[-1].startswith("proved before: proved against")
    assert proofs == []


def test_proofs_that_ship_are_those_that_are_made_now(monkeypatch):
    """Without what names the version of transformers that made them."""
    shipped = json.loads((demo_root() / _proof.DEMO_PROOFS).read_text(encoding="utf-8"))
    models = [open_model("demo", name) for name in demo_revisions()]
    assert set(shipped) == {model.proof_subject() for model in models}
    for model in models[-1:]:
        made, held = model.proved_now().note, shipped[model.proof_subject()]
        assert made.rpartition("): ")[2] == held.rpartition("): ")[2]


def test_a_model_that_was_proved_is_read_without_torch():
    command = "import sys; from rmtbase.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    arguments = ["composition", "demo", "-v"]
    ended = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True, text=True, check=True, env=os.environ | {"RMTBASE_PROOF": "1"},
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1] == "False"
    assert "proved before" in ended.stderr
