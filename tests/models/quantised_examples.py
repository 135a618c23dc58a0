"""One matrix in each format of quantised weights, with what the format's own library makes of it.

The references are transformers' own dequantisation (fp8), bitsandbytes and compressed-tensors as they are installed; of
GPTQ and AWQ, whose libraries need a compiler or a GPU, the formulas of AutoGPTQ's and AutoAWQ's modules in the
arithmetic of torch, and their ways of packing; of fbgemm, which needs a GPU, the formula.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

D_IN, D_OUT = 64, 96


class Example(NamedTuple):
    config: dict  # the ``quantization_config``
    # from a matrix (outputs, inputs), the tensors by the endings of their names after ``….q_proj``, and the matrix that
    # the library makes of them
    make: Callable[[torch.Tensor], tuple[dict[str, torch.Tensor], torch.Tensor]]
    said: str  # how the note calls it


def packed(codes: np.ndarray, bits: int) -> torch.Tensor:
    """Codes of as many bits along the last axis, one after another in words of 32."""
    each = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    return torch.from_numpy(np.packbits(each.reshape(*codes.shape[:-1], -1), -1, bitorder="little").view("<i4").copy())


def gptq(
    bits: int, group_size: int, order: bool = False, version: int = 1, dtype=torch.float16, sym: bool = False
) -> Example:
    def make(weight):
        size = D_IN if group_size == -1 else group_size
        group = np.arange(D_IN) // size
        if order:
            group = np.random.default_rng(1).permutation(group)
        rng = np.random.default_rng(2)
        codes = rng.integers(0, 2**bits, (D_IN, D_OUT))
        zeros = rng.integers(1, 2**bits, (group.max() + 1, D_OUT))
        if sym:
            zeros[:] = 2 ** (bits - 1)
        scales = torch.rand(zeros.shape).mul(0.1).add(0.01).to(dtype)
        index = torch.from_numpy(group.astype(np.int32))
        reference = scales[index.long()] * (torch.from_numpy(codes) - torch.from_numpy(zeros)[index.long()])
        words = {".qweight": packed(codes.T, bits).T.contiguous(), ".qzeros": packed(zeros - (version == 1), bits)}
        return words | {".scales": scales, ".g_idx": index}, reference.T

    config = {"quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": order, "sym": sym}
    if version == 2:
        config["checkpoint_format"] = "gptq_v2"
    return Example(config, make, f"GPTQ ({bits} bit)")


def awq(group_size: int) -> Example:
    def make(weight):
        size = D_IN if group_size == -1 else group_size
        rng = np.random.default_rng(3)
        codes, zeros = rng.integers(0, 16, (D_IN, D_OUT)), rng.integers(0, 16, (D_IN // size, D_OUT))
        scales = torch.rand(zeros.shape).mul(0.1).add(0.01).half()

        def in_words(values):
            words = np.zeros((len(values), D_OUT // 8), np.uint32)
            for place, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                words |= values[:, output::8].astype(np.uint32) << np.uint32(4 * place)
            return torch.from_numpy(words.view(np.int32))

        spread = np.repeat(zeros, size, 0)
        reference = torch.from_numpy((codes - spread).astype(np.int8)) * scales.repeat_interleave(size, 0)
        return {".qweight": in_words(codes), ".qzeros": in_words(zeros), ".scales": scales}, reference.T

    config = {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm"}
    return Example(config, make, "AWQ (4 bit)")


def fp8(scale_dtype=torch.float32, block=(32, 32)) -> Example:
    def make(weight):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize

        codes = (weight * 50).to(torch.float8_e4m3fn)
        shape = (D_OUT // block[0], D_IN // block[1]) if block else ()
        scales = torch.randint(110, 125, shape) if scale_dtype == torch.uint8 else torch.rand(shape).mul(0.02).add(0.01)
        scales = scales.to(scale_dtype)
        reference = Fp8Dequantize(None)._dequantize_one(codes, scales if block else scales.reshape(1, 1))
        tensors = {".weight": codes, ".weight_scale_inv": scales, ".activation_scale": torch.ones(1)}
        return tensors, reference

    config = {"quant_method": "fp8", "weight_block_size": list(block) if block else None}
    return Example(config, make, "FP8")


def fbgemm() -> Example:
    def make(weight):
        scales = weight.abs().amax(1, keepdim=True) / 448
        codes = (weight / scales).to(torch.float8_e4m3fn)
        tensors = {".weight": codes, ".weight_scale": scales, ".input_scale_ub": torch.ones(1)}
        return tensors, codes.float() * scales

    return Example({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, make, "FP8 (fbgemm)")


def compressed(stored: str, dtype=torch.bfloat16, **scheme) -> Example:
    def make(weight):
        from compressed_tensors.compressors import NaiveQuantizationCompressor, PackedQuantizationCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        arguments = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**scheme))
        shape = {"tensor": (1,), "channel": (D_OUT, 1), "group": (D_OUT, D_IN // 32), "block": (3, 2)}
        shape = shape[scheme["strategy"]]
        tensors = {"weight": weight.to(dtype), "weight_scale": torch.rand(shape).mul(0.05).add(0.02).to(dtype)}
        if not scheme["symmetric"]:
            middle = 2 ** (scheme["num_bits"] - 1)
            tensors["weight_zero_point"] = torch.randint(-middle, middle, shape).to(torch.int8)
        library = PackedQuantizationCompressor if stored == "pack-quantized" else NaiveQuantizationCompressor
        tensors = library.compress(tensors, arguments)
        reference = library.decompress(tensors, arguments)["weight"]
        return {f".{name}": tensor for name, tensor in tensors.items()}, reference

    group = {"targets": ["Linear"], "weights": scheme, "input_activations": None}
    config = {"quant_method": "compressed-tensors", "format": stored, "config_groups": {"group_0": group}}
    return Example(config, make, f"compressed-tensors {stored} ({scheme['num_bits']} bit)")


def in_act_order(stored: str, **scheme) -> Example:
    """Groups are of inputs in another order, as older versions of the library wrote them: its own, rearranged."""
    plain = compressed(stored, num_bits=scheme.pop("num_bits"), strategy="group", group_size=32, type="int", **scheme)

    def make(weight):
        from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

        bits = plain.config["config_groups"]["group_0"]["weights"]["num_bits"]
        tensors, reference = plain.make(weight)
        order = torch.randperm(D_IN)
        codes = unpack_from_int32(tensors[".weight_packed"], bits, torch.Size((D_OUT, D_IN)))
        tensors[".weight_packed"] = pack_to_int32(codes[:, order].contiguous(), bits)
        tensors[".weight_g_idx"] = (order // 32).int()
        return tensors, reference[:, order]

    weights = plain.config["config_groups"]["group_0"]["weights"] | {"actorder": "group"}
    group = plain.config["config_groups"]["group_0"] | {"weights": weights}
    return plain._replace(config=plain.config | {"config_groups": {"group_0": group}}, make=make)


def int8() -> Example:
    def make(weight):
        from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant

        codes, largest, _ = int8_vectorwise_quant(weight.half())
        tensors = {".weight": codes, ".SCB": largest, ".weight_format": torch.tensor(0, dtype=torch.uint8)}
        return tensors, int8_vectorwise_dequant(codes, largest)

    return Example({"quant_method": "bitsandbytes", "load_in_8bit": True}, make, "bitsandbytes (8 bit)")


def four_bit(kind: str, nested: bool, dtype=torch.bfloat16, storage=torch.uint8) -> Example:
    def make(weight):
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit

        codes, state = quantize_4bit(
            weight.to(dtype), blocksize=64, quant_type=kind, compress_statistics=nested, quant_storage=storage
        )
        tensors = {f".weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
        return tensors | {".weight": codes}, dequantize_4bit(codes, state)

    config = {"quant_method": "bitsandbytes", "_load_in_4bit": True, "bnb_4bit_quant_type": kind}
    return Example(config, make, "bitsandbytes (4 bit)")


INTEGERS = {"type": "int", "symmetric": True}
BY_GROUP = {"num_bits": 4, "strategy": "group", "group_size": 32}
WITH_ZEROS = {"type": "int", "symmetric": False}
FLOATS = {"type": "float", "num_bits": 8, "symmetric": True}
EXAMPLES = {
    "gptq": gptq(4, 32),
    "gptq by order": gptq(4, 16, order=True),
    "gptq of one group": gptq(8, -1),
    "gptq in two words": gptq(3, 32),
    "gptq of 2 bits in version 2": gptq(2, 32, version=2, dtype=torch.bfloat16),
    "gptq, symmetric": gptq(4, 32, sym=True),
    "gptq, symmetric, of 8 bits by order": gptq(8, 16, order=True, sym=True),
    "awq": awq(32),
    "awq of one group": awq(-1),
    "fp8": fp8(),
    "fp8 with exponents": fp8(torch.float8_e8m0fnu),
    "fp8 with exponents as bytes": fp8(torch.uint8),
    "fp8 with one scale": fp8(block=None),
    "fbgemm": fbgemm(),
    "float-quantized tensor": compressed("float-quantized", strategy="tensor", **FLOATS),
    "float-quantized channel": compressed("float-quantized", torch.float32, strategy="channel", **FLOATS),
    "float-quantized block": compressed("float-quantized", strategy="block", block_structure=[32, 32], **FLOATS),
    "int-quantized": compressed("int-quantized", num_bits=8, strategy="channel", **WITH_ZEROS),
    "pack-quantized": compressed("pack-quantized", **BY_GROUP, **INTEGERS),
    "pack-quantized with zeros": compressed("pack-quantized", torch.float16, **BY_GROUP, **WITH_ZEROS),
    "pack-quantized by outputs": compressed("pack-quantized", num_bits=8, strategy="channel", **WITH_ZEROS),
    "pack-quantized in act-order": in_act_order("pack-quantized", num_bits=4, symmetric=True),
    "pack-quantized in act-order with zeros": in_act_order("pack-quantized", num_bits=8, symmetric=False),
    "int8": int8(),
    "nf4": four_bit("nf4", nested=False),
    "nf4, nested": four_bit("nf4", nested=True, dtype=torch.float16),
    "fp4, nested, stored as bfloat16": four_bit("fp4", nested=True, storage=torch.bfloat16),
    "fp4": four_bit("fp4", nested=False, dtype=torch.float32),
}
