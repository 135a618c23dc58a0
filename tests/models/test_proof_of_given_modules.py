"""A proof runs the module that was given: what that does otherwise than its weights say is not called proved."""

import copy
import random
import re
import threading

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.utils._pytree import tree_flatten
from transformers import AttentionInterface

from rmtbase.errors import CheckpointError
from rmtbase.models import open_model

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
