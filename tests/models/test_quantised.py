"""Quantised weights are dequantised as their own libraries do it, to the last bit; what does not fit is named."""

import json
import tracemalloc

import numpy as np
import pytest
import torch
from quantised_examples import D_IN, D_OUT, EXAMPLES, four_bit, gptq, packed
from safetensors.torch import save_file

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, NonFiniteError, ShapeError
from rmtbase.models import Checkpoint, MatrixName, open_model
from rmtbase.models.formats._quantised import dequantised

LAYER = "model.layers.{}.self_attn."
Q = LAYER.format(0) + "q_proj"
CONFIG = {
    "model_type": "llama", "hidden_size": D_IN, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "head_dim": D_OUT // 6,
}  # fmt: skip


def made(example, seed=0):
    """The tensors of two layers, and the matrices that the library makes of them, by their names."""
    torch.manual_seed(seed)
    tensors, references = {}, {}
    for layer in range(2):
        for part in ("q_proj", "k_proj"):
            base = LAYER.format(layer) + part
            found, reference = example.make(torch.randn(D_OUT, D_IN))
            tensors |= {base + ending: tensor.contiguous() for ending, tensor in found.items()}
            references[base + ".weight"] = reference.contiguous()
    return tensors, references


def written(folder, tensors, quantisation=None):
    folder.mkdir(exist_ok=True)
    config = CONFIG if quantisation is None else CONFIG | {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def same_bits(model, other):
    parts = ("attention_query", "attention_key")
    return all(model.matrix(i, one).tobytes() == other.matrix(i, one).tobytes() for i in range(2) for one in parts)


def opened(folder, quantisation):
    return dequantised(Checkpoint.open(folder), {"quantization_config": quantisation}, folder / "config.json")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_matrix_is_what_its_own_library_makes_of_it(name, tmp_path):
    example = EXAMPLES[name]
    tensors, references = made(example)
    model = open_model(written(tmp_path / "quantised", tensors, example.config))
    plain = open_model(written(tmp_path / "plain", references))
    assert same_bits(model, plain)
    assert model.matrix(0, "attention_query").any()
    (note,) = [note for note in model.notes if note.startswith("quantised")]
    assert note.startswith(f"quantised with {example.said}: 4 matrices are dequantised, and W_QK carries the rounding")
    assert [one for one in model.notes if one != note] == list(plain.notes)
    assert model.least_sigma(0, "attention_query") == plain.least_sigma(0, "attention_query")
    checkpoint = opened(tmp_path / "quantised", EXAMPLES[name].config)
    whole = checkpoint.read_stored(f"{Q}.weight")
    assert not checkpoint.tensor(f"{Q}.weight").is_made_whole
    for start, stop in ((0, 1), (5, 41), (33, 96), (95, 96)):
        assert checkpoint.read_rows(f"{Q}.weight", start, stop).tobytes() == whole[start:stop].tobytes()


def test_experts_in_fp8_are_made_one_by_one(tmp_path):
    torch.manual_seed(4)
    codes, scales = torch.randn(5, 70, 40).to(torch.float8_e4m3fn), torch.rand(5, 3, 2) + 0.5
    folder = written(tmp_path, {"experts.up": codes, "experts.up_scale_inv": scales})
    checkpoint = opened(folder, {"quant_method": "fp8", "weight_block_size": [32, 32]})
    spread = scales.repeat_interleave(32, 1).repeat_interleave(32, 2)[:, :70, :40]
    for expert, reference in enumerate(codes.float() * spread):
        assert checkpoint.read_rows("experts.up", expert, expert + 1)[0].tobytes() == reference.numpy().tobytes()


def test_of_a_stack_of_experts_one_is_held_at_a_time(tmp_path):
    """64 experts of 512 × 256 and 256 × 256 take 50 MB in float32, one of them half of one."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(6)
    n_experts, size, experts = 64, 256, "model.layers.0.mlp.experts."
    tensors = {f"{LAYER.format(0)}{part}_proj.weight": torch.randn(size, size) for part in "qkvo"}
    tensors |= {"model.layers.0.mlp.router.weight": torch.randn(n_experts, size)}
    references = {}
    for part, rows in (("gate_up_proj", 2 * size), ("down_proj", size)):
        codes = torch.randint(0, 256, (n_experts, rows, size // 32, 16), dtype=torch.uint8)
        scales = torch.randint(110, 130, codes.shape[:3], dtype=torch.uint8)
        tensors |= {f"{experts}{part}_blocks": codes, f"{experts}{part}_scales": scales}
        references[part] = convert_moe_packed_tensors(codes, scales).float().numpy()
    folder, quantisation = (
        written(tmp_path, tensors),
        {"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn"]},
    )
    sizes = {"hidden_size": size, "intermediate_size": size, "head_dim": 64, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 4, "num_hidden_layers": 1, "num_local_experts": n_experts}
    config = CONFIG | sizes | {"model_type": "gpt_oss", "quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = opened(folder, quantisation)
    for part, reference in references.items():
        assert checkpoint.shape(experts + part) == reference.shape
        assert checkpoint.read(experts + part).tobytes() == reference.tobytes()
        assert checkpoint.read_rows(experts + part, 1, 3).astype(np.float32).tobytes() == reference[1:3].tobytes()
    model = open_model(folder)
    tracemalloc.start()
    try:
        blocks = {name: [*model.blocks(MatrixName(model.layers[0], name, 63))] for name in ("expert_in", "expert_out")}
        assert tracemalloc.get_traced_memory()[1] < 10 * 4 * size**2
    finally:
        tracemalloc.stop()
    for component, reference in (
        ("expert_in", references["gate_up_proj"][63][:, 1::2]), ("expert_out", references["down_proj"][63])
    ):  # fmt: skip
        np.testing.assert_array_equal(np.concatenate(blocks[component]), reference.T)


def test_codes_are_read_from_memory_and_bin_files_too(tmp_path):
    for name in ("int8", "nf4, nested", "fp8", "pack-quantized", "gptq", "awq"):
        (tensors, _), quantisation = made(EXAMPLES[name]), EXAMPLES[name].config
        folder = written(tmp_path, tensors, quantisation)
        model = open_model(folder)
        if name in ("gptq", "awq"):  # which programs pack in their own ways
            with pytest.raises(CheckpointError, match=r"is in memory and quantised with .*; expected the folder"):
                open_model(tensors, config=CONFIG | {"quantization_config": quantisation})
        else:
            memory = open_model(tensors, config=CONFIG | {"quantization_config": quantisation})
            assert same_bits(model, memory)
            assert model.fingerprint() == memory.fingerprint()
        if name == "gptq":  # the fingerprint is of codes and scales
            scales = LAYER.format(1) + "k_proj.scales"
            scaled = written(tmp_path / "scaled", tensors | {scales: tensors[scales] * 2}, quantisation)
            assert open_model(scaled).fingerprint() != model.fingerprint()
        torch.save(tensors, folder / "pytorch_model.bin")
        matrices = [model.matrix(layer, "attention_key") for layer in range(2)]
        (folder / "model.safetensors").unlink()
        again = open_model(folder)
        assert all(np.array_equal(again.matrix(layer, "attention_key"), matrices[layer]) for layer in range(2))


def test_what_older_versions_wrote_beside_the_configuration_counts(tmp_path):
    of_gptq = {"bits": 4, "group_size": 32, "desc_act": False}
    of_awq = {"w_bit": 4, "q_group_size": 32, "zero_point": True, "version": "GEMM"}
    for name, file, config in (("gptq", "quantize_config.json", of_gptq), ("awq", "quant_config.json", of_awq)):
        tensors, references = made(EXAMPLES[name])
        folder = written(tmp_path / name, tensors)
        (folder / file).write_text(json.dumps(config))
        assert same_bits(open_model(folder), open_model(written(tmp_path / "plain", references)))


def test_one_matrix_is_dequantised_at_a_time_and_a_few_are_held(tmp_path):
    size = 2048
    codes = np.random.default_rng(0).integers(0, 15, (size, size))
    tensors = {}
    for layer in range(2):
        for part in ("q_proj", "k_proj"):
            base = LAYER.format(layer) + part
            tensors[f"{base}.qweight"] = packed(codes.T, 4).T.contiguous()
            tensors[f"{base}.qzeros"] = packed(codes[: size // 128], 4)
            tensors[f"{base}.scales"] = torch.full((size // 128, size), 0.01).half()
    config = CONFIG | {"hidden_size": size, "head_dim": None, "num_attention_heads": 8, "num_key_value_heads": 8}
    folder = written(tmp_path, tensors, gptq(4, 128).config)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": gptq(4, 128).config}))
    tracemalloc.start()
    try:
        model = open_model(folder)
        assert tracemalloc.get_traced_memory()[1] < size**2 * 2
        tracemalloc.reset_peak()
        for layer in range(2):
            for component in ("attention_query", "attention_key"):
                model.matrix(layer, component)
        assert tracemalloc.get_traced_memory()[1] < 5 * 4 * size**2
    finally:
        tracemalloc.stop()


# What does not fit


def refused(tmp_path, tensors, quantisation, *fragments, kind=CheckpointError, reading=False):
    folder = written(tmp_path, tensors, quantisation)
    with pytest.raises(kind) as caught:
        model = open_model(folder)
        assert reading, "it was opened"
        model.matrix(0, "attention_query")
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message, message
    assert message.isprintable()


def first(value):
    def change(tensor):
        changed = tensor.clone()
        changed.reshape(-1)[0] = value
        return changed

    return change


nan_in, first_zero = first(float("nan")), first(0)


@pytest.mark.parametrize(
    ("name", "ending", "change", "kind", "fragments"),
    [
        ("gptq", ".scales", lambda t: t[:1], ShapeError, ["has shape (1, 96); expected (2, 96)", "GPTQ (4 bit)"]),
        ("gptq", ".qzeros", lambda t: t[:, :1], ShapeError, [".qzeros' has shape (2, 1); expected (2, 12)"]),
        ("gptq", ".qweight", lambda t: t.float(), CheckpointError, [".qweight' has element type F32; expected I32"]),
        ("gptq", ".qweight", lambda t: t[0], CheckpointError, ["shape (96,); expected a matrix of codes of GPTQ"]),
        ("gptq", ".g_idx", lambda t: t[:5], ShapeError, [".g_idx' has shape (5,); expected (64,)"]),
        ("gptq", ".scales", None, CheckpointError, ["q_proj.qweight' is part of a matrix", f"expected '{Q}.scales'"]),
        ("awq", ".qzeros", lambda t: t.T.contiguous(), ShapeError, ["has shape (12, 2); expected (2, 12)"]),
        ("awq", ".qweight", lambda t: t[:50], CheckpointError, ["50 inputs; expected a multiple of the 32"]),
        ("fp8", ".weight_scale_inv", lambda t: t[:1], ShapeError, ["has shape (1, 2); expected (3, 2)"]),
        ("fp8", ".weight", lambda t: t.to(torch.float8_e5m2), CheckpointError, ["F8_E5M2; expected F8_E4M3"]),
        ("fp8", ".weight", None, CheckpointError, [f"expected '{Q}.weight' beside it"]),
        ("fbgemm", ".weight_scale", lambda t: t[:, 0], ShapeError, ["has shape (96,); expected (96, 1)"]),
        ("pack-quantized", ".weight_shape", lambda t: t * 1000, CheckpointError, ["holds the shape (96000, 64000)"]),
        ("pack-quantized", ".weight_scale", lambda t: t[:, :1], ShapeError, ["has shape (96, 1); expected (96, 2)"]),
        ("pack-quantized with zeros", ".weight_zero_point", None, CheckpointError, ["expected its weight_zero_point"]),
        ("int8", ".SCB", lambda t: t[:3], ShapeError, [".SCB' has shape (3,); expected (96,)"]),
        ("int8", ".weight_format", lambda t: t + 1, CheckpointError, ["is not 0; expected codes row by row"]),
        ("nf4", ".weight.absmax", lambda t: t[1:], ShapeError, ["absmax' has shape (95,); expected (96,)"]),
        ("nf4", ".weight", lambda t: t[1:], CheckpointError, ["holds 3071 bytes; expected 3072, of two codes each"]),
        ("nf4, nested", ".weight.nested_quant_map", None, CheckpointError, ["expected its nested_quant_map"]),
        ("nf4, nested", ".weight.nested_absmax", None, CheckpointError, ["element type U8; expected F32"]),
        ("nf4", ".weight.quant_state.bitsandbytes__nf4", None, CheckpointError, ["has 0 descriptions quant_state"]),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_named_at_the_opening(name, ending, change, kind, fragments, tmp_path):
    (tensors, _), removed = made(EXAMPLES[name]), torch.empty(0)
    tensors[Q + ending] = removed if change is None else change(tensors[Q + ending]).contiguous()
    tensors = {stored: tensor for stored, tensor in tensors.items() if tensor is not removed}
    refused(tmp_path, tensors, EXAMPLES[name].config, *fragments, kind=kind)


@pytest.mark.parametrize(
    ("name", "ending", "change", "kind", "fragments"),
    [
        ("gptq", ".scales", nan_in, NonFiniteError, [f"'{Q}.scales' holds 1 NaN"]),
        ("gptq", ".scales", first_zero, CheckpointError, [f"'{Q}.scales' holds scales that are zero"]),
        ("gptq", ".g_idx", lambda t: t + 1, CheckpointError, ["holds groups from 1 to 2; expected 0 to 1"]),
        ("gptq", ".qzeros", lambda t: t | -1, CheckpointError, ["holds 15, a zero point less one of 16"]),
        ("awq", ".scales", lambda t: t * float("inf"), NonFiniteError, ["192 infinite"]),
        ("fp8", ".weight_scale_inv", first_zero, CheckpointError, ["zero where the codes are not"]),
        ("fp8 with exponents as bytes", ".weight_scale_inv", lambda t: t | 255, NonFiniteError, ["6 NaN"]),
        ("fp8", ".weight", lambda t: (t.view(torch.uint8) | 127).view(torch.float8_e4m3fn), NonFiniteError, ["NaN"]),
        ("nf4", ".weight.quant_map", lambda t: t * 2, CheckpointError, ["is not the table of nf4"]),
        ("nf4, nested", ".weight.nested_absmax", nan_in, NonFiniteError, ["nested_absmax' holds 1 NaN"]),
        ("pack-quantized", ".weight_scale", lambda t: t * 1e38 * 1e3, NonFiniteError, ["infinite"]),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_named_when_they_are_read(name, ending, change, kind, fragments, tmp_path):
    tensors, _ = made(EXAMPLES[name])
    tensors[Q + ending] = change(tensors[Q + ending])
    refused(tmp_path, tensors, EXAMPLES[name].config, *fragments, kind=kind, reading=True)


@pytest.mark.parametrize(
    ("name", "change", "fragment"),
    [
        ("gptq", {"bits": 5}, "quantization_config: bits = 5; expected 2 or 3 or 4 or 8"),
        ("gptq", {"group_size": -5}, "group_size = -5; expected a positive number of inputs"),
        ("gptq", {"group_size": "32"}, "group_size = '32'"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format = 'marlin'; expected 'gptq' or 'gptq_v2'"),
        ("gptq", {"dynamic": {"-:.*": {}}}, "dynamic = "),
        ("awq", {"version": "gemv"}, "version = 'gemv'; expected 'gemm'"),
        ("awq", {"zero_point": False}, "zero_point = False"),
        ("awq", {"bits": 8}, "bits = 8; expected 4"),
        ("fp8", {"weight_block_size": [0, 32]}, "weight_block_size = [0, 32]; expected two positive integers"),
        ("fp8", {"weight_block_size": [2**70, 1]}, "weight_block_size = "),
        ("fp8", {"fmt": "e5m2"}, "fmt = 'e5m2'"),
        ("pack-quantized", {"format": "nvfp4-pack-quantized"}, "format = 'nvfp4-pack-quantized'; expected"),
        ("pack-quantized", {"config_groups": {}}, "config_groups = {}; expected groups"),
        ("pack-quantized", {"sparsity_config": {"format": "sparse-24"}}, "sparsity_config = "),
        ("pack-quantized", {"transform_config": {"config_groups": {"u": 1}}}, "transform_config = "),
        ("nf4", {"load_in_8bit": True}, "expected one of load_in_4bit and load_in_8bit"),
        ("gptq", {"quant_method": "hqq"}, "quantised with HQQ (4 bit), and what is stored is not the trained weights"),
        ("gptq", {"quant_method": "awq", "version": "gemm"}, "has 8 inputs; expected a multiple of the 32"),
    ],
)  # fmt: skip
def test_settings_that_are_not_read_are_named(name, change, fragment, tmp_path):
    tensors, _ = made(EXAMPLES[name])
    refused(tmp_path, tensors, EXAMPLES[name].config | change, fragment)


DESCRIPTIONS = (
    ({"shape": [10**9, 10**9]}, "expected 500000000000000000"),
    ({"shape": [-96, 64]}, "shape = [-96, 64]; expected a list"),
    ({"blocksize": 0}, "blocksize = 0; expected a positive integer"),
    ({"dtype": "int8"}, "dtype = 'int8'; expected 'float32'"),
    ({"quant_type": "fp4"}, "quant_type = 'fp4'; expected 'nf4'"),
    ({"nested_offset": "1"}, "nested_offset = '1'; expected a finite number"),
)


def test_a_description_that_does_not_fit_or_is_none_is_named(tmp_path):
    example = four_bit("nf4", nested=True)
    tensors, _ = made(example)
    name = f"{Q}.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(bytes(tensors[name].tolist()))
    texts = [(json.dumps(state | change).encode(), fragment) for change, fragment in DESCRIPTIONS]
    none = (b"{", "that is not JSON"), (b"[1]", "not a JSON object"), (b" " * 70_000, "at most 65536")
    for text, fragment in (*texts, *none):
        refused(tmp_path, tensors | {name: torch.tensor(list(text), dtype=torch.uint8)}, example.config, fragment)


def test_what_is_left_of_a_quantisation_is_refused_by_name(tmp_path):
    tensors, references = made(EXAMPLES["fp8"])
    left = {f"{Q}.weight_zero_point": torch.ones(3)}
    refused(tmp_path, tensors | left, EXAMPLES["fp8"].config, f"'{Q}.weight_zero_point' belongs to quantised weights")
    refused(tmp_path, references, EXAMPLES["fp8"].config, "no tensor ends in _scale_inv", "take quantization_config")
    tensors, _ = made(EXAMPLES["gptq"])
    whole = {f"{Q}.weight": torch.ones(D_OUT, D_IN)}
    refused(tmp_path, tensors | whole, EXAMPLES["gptq"].config, f"'{Q}.weight' is there beside the codes")
    refused(tmp_path, tensors, None, "belongs to quantised weights: the numbers beside it are codes")


# Zero points whose version the settings get wrong, and groups of inputs that are not consecutive


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("bits", mostly_exhaustive([4, 3, 2, 8], always=2))
def test_symmetric_zero_points_show_their_version_whatever_the_settings_say(bits, version, tmp_path):
    example = gptq(bits, 32, version=version, sym=True)
    tensors, references = made(example)
    plain = open_model(written(tmp_path / "plain", references))
    other = {"checkpoint_format": "gptq_v2" if version == 1 else "gptq"}
    for settings in (example.config, example.config | other):
        model = open_model(written(tmp_path / "quantised", tensors, settings))
        assert same_bits(model, plain)
        (note,) = [note for note in model.notes if note.startswith("quantised")]
        told = f"; zero points are all {2 ** (bits - 1) - (version == 1)}: version {version}, though the settings say"
        assert (told in note) == (settings is not example.config)


def test_zero_points_that_differ_are_read_as_the_settings_say_which_is_noted(tmp_path):
    example = gptq(4, 32)
    tensors, references = made(example)
    plain = open_model(written(tmp_path / "plain", references))
    for symmetric in ({}, {"sym": True}, {"sym": None}):
        model = open_model(written(tmp_path / "quantised", tensors, example.config | symmetric))
        assert same_bits(model, plain)
        assert any(note.endswith("of version 1, which they do not show") for note in model.notes)
    shifted = open_model(written(tmp_path / "shifted", tensors, example.config | {"checkpoint_format": "gptq_v2"}))
    assert any(note.endswith("of version 2, which they do not show") for note in shifted.notes)
    assert not same_bits(shifted, plain)
    tensors, references = made(gptq(4, 32, version=2, sym=True))  # equal zero points, said to be asymmetric
    model = open_model(written(tmp_path / "equal", tensors, gptq(4, 32).config))
    step = tensors[f"{Q}.scales"].float().repeat_interleave(32, 0).T.numpy()
    expected = references[f"{Q}.weight"].numpy().astype(np.float32) - step
    assert np.abs(model.matrix(0, "attention_query") - expected).max() < step.max() * 2**-6
    assert any(note.endswith("of version 1, which they do not show") for note in model.notes)


def test_an_index_of_zeros_alone_is_of_consecutive_groups(tmp_path):
    """GPTQ-for-LLaMa wrote it so where it had not ordered the inputs."""
    tensors, references = made(EXAMPLES["gptq"])
    zeros = {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.endswith("g_idx")}
    model = open_model(written(tmp_path / "quantised", tensors | zeros, EXAMPLES["gptq"].config))
    assert same_bits(model, open_model(written(tmp_path / "plain", references)))
    settings = EXAMPLES["gptq"].config | {"desc_act": True}
    refused(tmp_path / "ordered", tensors | zeros, settings, "holds groups from 0 to 0; expected 0 to 1", reading=True)


def test_an_order_without_its_index_is_refused_by_name(tmp_path):
    for example, fragment in (
        ("gptq by order", "desc_act = True; expected a g_idx beside"),
        ("pack-quantized in act-order", "in act-order (actorder); expected weight_g_idx beside it"),
    ):
        tensors, _ = made(EXAMPLES[example])
        without = {name: tensor for name, tensor in tensors.items() if not name.endswith("g_idx")}
        refused(tmp_path, without, EXAMPLES[example].config, fragment, "k_proj.")


def with_index(tensors, index):
    bases = [f"{LAYER.format(layer)}{part}" for layer in range(2) for part in ("q_proj", "k_proj")]
    return tensors | {f"{base}.weight_g_idx": index.clone() for base in bases}


def test_an_index_beside_packed_codes_counts_unless_it_was_never_set(tmp_path):
    for name in ("pack-quantized", "pack-quantized with zeros"):
        tensors, references = made(EXAMPLES[name])
        plain = open_model(written(tmp_path / "plain", references))
        for index in (torch.full((D_IN,), -1), torch.arange(D_IN) // 32):
            folder = written(tmp_path / "quantised", with_index(tensors, index.int()), EXAMPLES[name].config)
            assert same_bits(open_model(folder), plain)
        turned = with_index(tensors, torch.arange(D_IN).flip(0).int() // 32)
        assert not same_bits(open_model(written(tmp_path / "quantised", turned, EXAMPLES[name].config)), plain)


@pytest.mark.parametrize(
    ("name", "index", "fragment", "reading"),
    [
        ("pack-quantized", torch.zeros(D_IN), "holds groups from 0 to 0; expected 0 to 1, all of them", True),
        ("pack-quantized", torch.arange(D_IN) // 16, "holds groups from 0 to 3; expected 0 to 1", True),
        ("pack-quantized", torch.zeros(D_OUT), "weight_g_idx' has shape (96,); expected (64,)", False),
        ("pack-quantized by outputs", torch.zeros(D_IN), "act-order (actorder); expected scales of groups", False),
    ],
)
def test_an_index_that_does_not_fit_is_named(name, index, fragment, reading, tmp_path):
    tensors, _ = made(EXAMPLES[name])
    refused(tmp_path, with_index(tensors, index.int()), EXAMPLES[name].config, fragment, reading=reading)
