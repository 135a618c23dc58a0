"""Every layout against the queries, keys and values that the architecture's own module computes.

Fused weights are cut into heads as those modules do.
"""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import repeat_kv

from rmtbase.errors import ParameterError
from rmtbase.models import COMPONENTS, Checkpoint, open_model, split_qkv, supported_architectures

COMMON = {"vocab_size": 32, "attn_implementation": "rmtbase_capture"}
PLAIN = COMMON | {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 80}
CONFIGS = {
    "bert": transformers.BertConfig(**PLAIN),
    "gpt2": transformers.GPT2Config(
        **COMMON, n_embd=48, n_head=6, n_layer=2, n_positions=32, bos_token_id=0, eos_token_id=0
    ),
    "gpt_neox": transformers.GPTNeoXConfig(**PLAIN),
    "llama": transformers.LlamaConfig(**PLAIN, num_key_value_heads=2, attention_bias=True),
    "mistral": transformers.MistralConfig(**PLAIN, num_key_value_heads=3, head_dim=10),
    "qwen2": transformers.Qwen2Config(**PLAIN, num_key_value_heads=2),
    "qwen3": transformers.Qwen3Config(**PLAIN, num_key_value_heads=2, head_dim=20),
}
MATRICES = ("attention_query", "attention_output", "mlp_in", "mlp_out")
LLAMA = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
NAMES = dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), LLAMA) | {
    "bert": ("attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense"),
    "gpt2": ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
    "gpt_neox": ("attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
}
PROJECTIONS = {
    name: dict(zip(MATRICES, names, strict=True)) | ({"mlp_gate": "mlp.gate_proj"} if names is LLAMA else {})
    for name, names in NAMES.items()
}
NOTES = {
    "bert": ["biases", "split"],
    "gpt2": ["biases", "split"],
    "gpt_neox": ["rotary", "biases", "split"],
    "llama": ["rotary", "biases", "split"],
    "mistral": ["rotary", "split"],
    "qwen2": ["rotary", "biases", "split"],
    "qwen3": ["rotary", "query/key norm"],
}
FUSED = {
    "gpt2": ("h.0.attn.c_attn.weight", {"kind": "concatenated", "transposed": True}),
    "gpt_neox": ("layers.0.attention.query_key_value.weight", {"kind": "interleaved"}),
}
LAYERS = {"bert": "encoder.layer", "gpt2": "h"}


CAPTURED = []


def capture(module, query, key, value, attention_mask, **_):
    group = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, group), repeat_kv(value, group)
    CAPTURED.append([x[0].numpy() for x in (query, key, value)])
    return torch.softmax(query @ key.mT, -1).matmul(value).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("rmtbase_capture", capture)


def build(architecture: str, folder: Path) -> SimpleNamespace:
    """One forward pass: the model as rmtbase reads it, and what its own modules took in and gave out, in float64.

    ``heads[layer]`` holds the query, key and value of every position, each (head, position, d_head).
    """
    torch.manual_seed(7)
    network = transformers.AutoModel.from_config(CONFIGS[architecture])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim == 2:
                parameter.normal_(0, 0.3)
    network.save_pretrained(folder)
    run = SimpleNamespace(folder=folder, model=open_model(folder), heads=[], inputs={}, outputs={})

    def record(layer, component):
        def hook(module, inputs, output):
            run.inputs[layer, component] = inputs[0][0].numpy()
            run.outputs[layer, component] = output[0].numpy()

        return hook

    network = network.double().eval()  # exact up to 1e-15, so that a wrong layout cannot hide in the tolerance
    for layer, block in enumerate(network.get_submodule(LAYERS.get(architecture, "layers"))):
        for component, name in PROJECTIONS[architecture].items():
            block.get_submodule(name).register_forward_hook(record(layer, component))
        for norm in ("q_norm", "k_norm"):
            if hasattr(getattr(block, "self_attn", None), norm):
                setattr(block.self_attn, norm, torch.nn.Identity())
    tokens = torch.randint(0, 32, (1, 9))
    with torch.no_grad():  # all at position zero, where the rotation of queries and keys is by angle zero
        CAPTURED.clear()
        network(input_ids=tokens, position_ids=torch.zeros_like(tokens))
    run.heads.extend(CAPTURED)
    return run


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def run(request, tmp_path_factory):
    return build(request.param, tmp_path_factory.mktemp(request.param))


def mismatch(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def score_mismatch(run, layer: int, w_q: np.ndarray, w_k: np.ndarray, key_head=None) -> list[float]:
    """Per head, how far xᵀ W_QK x' is from the module's own q·k, over all pairs of positions."""
    query, key, _ = run.heads[layer]
    x = run.inputs[layer, "attention_query"]
    key_head = key_head or run.model.key_head
    return [
        mismatch(x @ (w_q[i].T.astype(np.float64) @ w_k[key_head(i)].astype(np.float64)) @ x.T, query[i] @ key[i].T)
        for i in range(run.model.n_heads)
    ]


def test_q_dot_k_is_x_w_qk_x_for_every_head(run):
    """All other types are proved by test_every_architecture.py and by sims/make_architectures.py --check."""
    assert run.model.architecture in supported_architectures()
    assert len(run.heads) == run.model.n_layers == 2
    for layer in range(2):
        errors = score_mismatch(run, layer, run.model.queries(layer), run.model.keys(layer))
        assert len(errors) == 6
        assert max(errors) < 1e-12


def test_every_matrix_maps_inputs_to_outputs_as_its_module_does(run):
    model = run.model
    assert model.components == tuple(
        name for name in COMPONENTS if name in {*PROJECTIONS[model.architecture], *COMPONENTS[:3]}
    )
    for layer in range(2):
        for component in PROJECTIONS[model.architecture].keys() - {"attention_query"}:
            computed = run.inputs[layer, component] @ model.matrix(layer, component).T.astype(np.float64)
            assert mismatch(computed, run.outputs[layer, component]) < 1e-12
        x = run.inputs[layer, "attention_query"]
        for component, heads in zip(COMPONENTS[:3], run.heads[layer], strict=True):
            weight = model.matrix(layer, component).astype(np.float64)
            assert weight.shape == (len(weight) // model.d_head * model.d_head, model.d_model)
            own = (x @ weight.T).reshape(len(x), -1, model.d_head).transpose(1, 0, 2)
            assert mismatch(own.repeat(model.n_heads // len(own), axis=0), heads) < 1e-12
    matrix = model.matrix(0, "mlp_out")
    assert matrix.dtype == np.float32
    assert not matrix.flags.writeable
    assert model.queries(0).flags.c_contiguous
    if model.architecture in FUSED:
        name, options = FUSED[model.architecture]
        q, k, v = split_qkv(Checkpoint.open(run.folder).read(name), 6, **options)
        assert_parts((q, k, v.reshape(48, 48)), (model.queries(0), model.keys(0), model.matrix(0, "attention_value")))
    assert len(model.notes) == len(NOTES[model.architecture])
    assert all(note.startswith(start) for note, start in zip(model.notes, NOTES[model.architecture], strict=True))


def test_other_splits_and_other_pairs_of_heads_are_wrong(tmp_path):
    run = build("gpt_neox", tmp_path / "flat")
    stored = Checkpoint.open(tmp_path / "flat").read("layers.0.attention.query_key_value.weight")
    w_q, w_k = stored.reshape(3, 6, 8, 48)[:2]
    assert w_q.shape == run.model.queries(0).shape
    assert min(score_mismatch(run, 0, w_q, w_k)) > 0.1
    run = build("llama", tmp_path / "in turn")
    assert [run.model.key_head(i) for i in range(6)] == [0, 0, 0, 1, 1, 1]
    errors = score_mismatch(run, 0, run.model.queries(0), run.model.keys(0), key_head=lambda i: i % 2)
    assert min(errors[i] for i in range(6) if i % 2 != i // 3) > 0.1


N_HEADS, D_HEAD, D_MODEL = 6, 8, 48


def fused(n_key_heads=N_HEADS):
    rows = (N_HEADS + 2 * n_key_heads) * D_HEAD
    return np.random.default_rng(0).standard_normal((rows, D_MODEL))


def assert_parts(parts, expected):
    for part, one in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(part), one)


@pytest.mark.parametrize("n_key_heads", [6, 2, 1])
def test_parts_are_cut_as_forward_passes_cut_them(n_key_heads):
    weight, rows = fused(n_key_heads), N_HEADS * D_HEAD
    expected = [one.reshape(-1, D_HEAD, D_MODEL) for one in np.split(weight, [rows, rows + n_key_heads * D_HEAD])]
    assert_parts(split_qkv(weight, N_HEADS, "concatenated", n_key_heads=n_key_heads), expected)
    assert_parts(split_qkv(weight.T, N_HEADS, "concatenated", n_key_heads=n_key_heads, transposed=True), expected)
    # Interleaved, as Falcon's own _split_heads cuts what its linear map gives.
    x = np.random.default_rng(1).standard_normal((5, D_MODEL))
    made = (x @ weight.T).reshape(5, n_key_heads, N_HEADS // n_key_heads + 2, D_HEAD)
    expected = made[:, :, :-2].reshape(5, N_HEADS, D_HEAD), made[:, :, -2], made[:, :, -1]
    parts = split_qkv(weight, N_HEADS, "interleaved", n_key_heads=n_key_heads)
    for part, one in zip(parts, expected, strict=True):
        np.testing.assert_allclose(np.einsum("pd,hid->phi", x, part), one, rtol=1e-12)


def test_arrays_come_back_as_what_they_were():
    weight = torch.from_numpy(fused()).bfloat16().requires_grad_()
    for part in split_qkv(weight, N_HEADS, "interleaved"):
        assert part.dtype == torch.bfloat16
        assert part.shape == (N_HEADS, D_HEAD, D_MODEL)
    assert isinstance(split_qkv(jax.numpy.asarray(fused()), N_HEADS, "concatenated")[0], jax.Array)
    assert_parts(split_qkv(fused().tolist(), N_HEADS, "concatenated"), split_qkv(fused(), N_HEADS, "concatenated"))


@pytest.mark.parametrize(
    ("shape", "options", "fragments"),
    [
        ((144, 48), {"kind": "separate"}, ["kind = 'separate'", "'concatenated' or 'interleaved'"]),
        ((144, 48), {"kind": "fused"}, ["kind = 'fused'"]),
        ((48, 144), {}, ["(48, 144)", "transposed=True would fit"]),
        ((144, 48), {"transposed": True}, ["transposed=False would fit"]),
        ((143, 48), {}, ["18 · d_head rows for 6 heads on 6 key heads"]),
        ((144, 48), {"n_key_heads": 4}, ["n_key_heads = 4", "a divisor of the 6 heads"]),
        ((144, 48), {"n_heads": 0}, ["n_heads = 0", "positive integer"]),
        ((144,), {}, ["(144,)", "a matrix"]),
        ((144, 48, 1), {}, ["a matrix"]),
        ((144, 48), {"transposed": 1}, ["True or False"]),
    ],
)
def test_weights_that_do_not_fit_are_refused(shape, options, fragments):
    with pytest.raises(ParameterError) as caught:
        split_qkv(np.ones(shape), **{"n_heads": N_HEADS, "kind": "concatenated"} | options)
    for fragment in fragments:
        assert fragment in str(caught.value)
