"""Recognition of attention modules by the names and shapes of tensors that the table of architectures lacks.

Such are the weights of other programs and of the user's own modules. A layout is listed here only if its names leave no
doubt about the order of its rows.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

Shape = tuple[int, ...]

# torch.compile, FSDP and activation checkpointing insert these into names wherever they wrap a module;
# torch.nn.DataParallel, its distributed variant and PEFT put the second set in front of all names.
_WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_IN_FRONT = ("module.", "base_model.model.")
_ENDINGS = (".weight", "/kernel:0", "/kernel", ".kernel")
# Last parts of the names of queries, keys and values, and those that outputs can have beside them.
_SEPARATE = {
    leaves[0]: leaves
    for leaves in (
        ("q_proj", "k_proj", "v_proj", "o_proj", "output_proj", "out_proj", "dense"),
        ("wq", "wk", "wv", "wo"),
        ("c_q", "c_k", "c_v", "c_proj"),
        ("to_q", "to_k", "to_v", "to_out.0", "to_out"),
        ("query", "key", "value", "out", "attention_output"),
        ("q_lin", "k_lin", "v_lin", "out_lin"),
        ("W_query", "W_key", "W_value", "out_proj"),
        ("W_q", "W_k", "W_v", "W_o", "out_proj"),
        ("q", "k", "v", "o"),
    )
}
_HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads", "nhead", "n_attention_heads", "heads", "num_q_heads")
_KEY_HEADS = (
    "n_kv_heads", "n_kv_head", "num_kv_heads", "num_key_value_heads", "n_query_groups", "num_query_groups",
)  # fmt: skip
_NORMS_OF_HEADS = (".q_norm.scale", ".q_norm.weight", ".norm_q.weight")


class Order(Enum):
    """Order of the rows of queries, keys and values."""

    SEPARATE = "separate"  # a tensor for each
    HEADS = "heads"  # a tensor for each, with an axis of heads: (head, inputs, d_head)
    CONCATENATED = "concatenated"  # all queries, all keys, all values
    GROUPS = "groups"  # of each key head its queries, its key, its value


class Program(Enum):
    """Program that the names of tensors belong to, as messages name it."""

    TRANSFORMER_LENS = "TransformerLens"
    GPT2 = "GPT-2 of transformers (Conv1D, transposed)"
    NANO_GPT = "nanoGPT (Linear, not transposed)"
    TORCH = "torch.nn.MultiheadAttention"
    TIMM = "timm"
    LITGPT = "litgpt"
    MEGATRON = "Megatron"
    TORCHTUNE = "torchtune"
    META = "Meta's Llama"
    DIFFUSERS = "diffusers"
    OTHER = "a module by widespread names"


# Name of the fused weight, order of its rows, and the names that outputs can have beside it.
_FUSED = (
    (".c_attn.weight", Order.CONCATENATED, (".c_proj.weight",)),
    (".in_proj_weight", Order.CONCATENATED, (".out_proj.weight",)),
    (".Wqkv.weight", Order.CONCATENATED, (".out_proj.weight", ".Wo.weight")),
    (".qkv.weight", Order.CONCATENATED, (".proj.weight",)),
    (".attn.weight", Order.GROUPS, (".proj.weight",)),
    (".linear_qkv.weight", Order.GROUPS, (".linear_proj.weight",)),
    (".query_key_value.weight", Order.GROUPS, (".dense.weight",)),
)


class Module(NamedTuple):
    """Attention module."""

    name: str  # the common beginning of the names of its tensors
    order: Order
    # the endings of the names of queries, keys, values and outputs, or of a fused weight and outputs
    leaves: tuple[str, ...]
    transposed: bool  # whether weights are stored as (inputs, outputs)
    rows: tuple[int, int, int]  # numbers of rows of queries, keys and values
    widths: tuple[int, int, int]  # inputs of queries and of keys, outputs of the output (0 where unknown)
    n_heads: int = 0  # 0 where no shape shows it
    stacked: bool = False  # whether heads have an axis of their own


class Attention(NamedTuple):
    """Attention modules that were recognised."""

    program: Program
    modules: tuple[Module, ...]
    n_heads: int | None  # number of heads in each, or None where they differ or it is unknown


def own_names(names: Iterable[str]) -> dict[str, str]:
    """Map each stored name to the tensor's name in the model itself, without the insertions of wrappers."""
    unwrapped = {name: _WRAPPERS.sub("", name) for name in names}
    for in_front in _IN_FRONT:
        if all(name.startswith(in_front) for name in unwrapped.values()):
            unwrapped = {name: inner.removeprefix(in_front) for name, inner in unwrapped.items()}
    return unwrapped


def find_attention(shapes: Mapping[str, Shape], settings: Mapping[str, Any]) -> Attention | None:
    """Find attention modules among tensors. Returns None if no name is known, or if modules are of several kinds."""
    unwrapped = own_names(shapes)
    shapes = {unwrapped[name]: shape for name, shape in shapes.items()}
    modules = tuple(module for name in shapes if (module := _module(name, shapes)) is not None)
    if len({(module.order, module.leaves, module.transposed, module.stacked) for module in modules}) != 1:
        return None
    n_heads = {_count_heads(module, shapes, settings) for module in modules}
    return Attention(_program(modules[0], shapes), modules, n_heads.pop() if len(n_heads) == 1 else None)


def why_no_attention(shapes: Mapping[str, Shape]) -> str:
    """Return the reason why tensors with these names have no queries and keys, or "" if none is known."""
    if any(name.endswith(("A_log", "mixer.D")) for name in shapes):
        return "the names are those of Mamba, a state-space model: it has no queries and keys, and no W_QK"
    if any(re.search(r"\.att\.(receptance|time_\w+)|time_mix", name) for name in shapes):
        return "the names are those of RWKV, whose layers have no queries, and no W_QK"
    return ""


def _module(name: str, shapes: Mapping[str, Shape]) -> Module | None:
    if name.endswith(".W_Q") and len(shapes[name]) == 3:
        return _by_heads(name.removesuffix(".W_Q"), shapes)
    return _fused(name, shapes) or _separate(name, shapes)


def _by_heads(module: str, shapes: Mapping[str, Shape]) -> Module | None:
    """Recognise (head, d_model, d_head), with outputs (head, d_head, d_model), as TransformerLens stores them."""
    lead = "._W_" if f"{module}._W_K" in shapes else ".W_"
    leaves = (".W_Q", f"{lead}K", f"{lead}V", ".W_O")
    stored = [shapes.get(module + leaf, ()) for leaf in leaves]
    if any(len(shape) != 3 for shape in stored):
        return None
    (heads, width, d_head), (key_heads, key_width, _), (_, _, d_value), (_, _, d_output) = stored
    rows = heads * d_head, key_heads * d_head, key_heads * d_value
    return Module(module, Order.HEADS, leaves, True, rows, (width, key_width, d_output), heads, True)


def _fused(name: str, shapes: Mapping[str, Shape]) -> Module | None:
    shape = shapes[name]
    for leaf, order, outputs in _FUSED:
        module = name.removesuffix(leaf)
        if module == name or len(shape) != 2 or not _is_known_order(name, shapes):
            continue
        transposed = leaf == ".c_attn.weight" and shape[1] > shape[0]
        total, width = shape[::-1] if transposed else shape
        output = next((ending for ending in outputs if len(shapes.get(module + ending, ())) == 2), "")
        stored = shapes[module + output] if output else (0, total // 3)
        d_output, queries = stored[::-1] if transposed and output else stored
        if queries >= total or (total - queries) % 2:
            return None
        rows = queries, (total - queries) // 2, (total - queries) // 2
        return Module(module, order, (leaf, output), transposed, rows, (width, width, d_output))
    return None


def _is_known_order(name: str, shapes: Mapping[str, Shape]) -> bool:
    """Return True if a fused weight belongs to a known program: ``qkv`` by itself leaves the order of rows open."""
    if name.endswith(".query_key_value.weight"):  # the order of rows in ChatGLM differs from that of the others
        return "transformer.encoder.layers." not in name
    if name.endswith(".qkv.weight"):
        return _is_litgpt(name, shapes) or _is_timm(name, shapes)
    return not name.endswith(".attn.weight") or _is_litgpt(name, shapes)


def _is_litgpt(name: str, shapes: Mapping[str, Shape]) -> bool:
    return re.sub(r"attn\.(qkv|attn)\.weight$", "norm_1.weight", name) in shapes


def _is_timm(name: str, shapes: Mapping[str, Shape]) -> bool:
    front = re.match(r"(.*?)blocks\.", name)
    return front is not None and f"{front[1]}patch_embed.proj.weight" in shapes


def _separate(name: str, shapes: Mapping[str, Shape]) -> Module | None:
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    stem = name.removesuffix(ending)
    cut = max(stem.rfind("."), stem.rfind("/"))
    if not ending or cut < 0 or (words := _SEPARATE.get(stem[cut + 1 :])) is None:
        return None
    module, leaves = stem[:cut], [f"{stem[cut]}{word}{ending}" for word in words]
    inputs = [shapes.get(module + leaf, ()) for leaf in leaves[:3]]
    output = next((leaf for leaf in leaves[3:] if module + leaf in shapes), "")
    stored = shapes.get(module + output, ()) if output else ()
    transposed = ending != ".weight"
    if transposed and all(len(shape) == 3 for shape in inputs):  # (inputs, head, d_head), as Flax and Keras store them
        (width, heads, d_head), (key_width, key_heads, _), (_, _, d_value) = inputs
        d_output = stored[-1] if len(stored) == 3 else 0
        rows = heads * d_head, key_heads * d_head, key_heads * d_value
        names = (*leaves[:3], output if d_output else "")
        return Module(module, Order.SEPARATE, names, True, rows, (width, key_width, d_output), heads, True)
    if any(len(shape) != 2 for shape in inputs[:2]):
        return None
    matrices = [shape if len(shape) == 2 else (0, 0) for shape in (*inputs, stored)]
    (rows_q, width), (rows_k, key_width), (rows_v, _), (d_output, d_concat) = (
        shape[::-1] if transposed else shape for shape in matrices
    )
    has_output = rows_v > 0 and d_concat == rows_q
    if output and not has_output:  # the rows hold more than the queries of heads, for instance a gate
        return None
    names = (*leaves[:2], leaves[2] if rows_v else "", output if has_output else "")
    widths = width, key_width, d_output if has_output else 0
    return Module(module, Order.SEPARATE, names, transposed, (rows_q, rows_k, rows_v), widths)


def _count_heads(module: Module, shapes: Mapping[str, Shape], settings: Mapping[str, Any]) -> int | None:
    if module.n_heads:
        return module.n_heads
    for norm in _NORMS_OF_HEADS:
        size = shapes.get(module.name + norm, ())
        if len(size) == 1 and 0 < size[0] < module.rows[0] and module.rows[0] % size[0] == 0:
            return module.rows[0] // size[0]
    counts = {settings[word] for word in _HEADS if type(settings.get(word)) is int}
    n_heads = counts.pop() if len(counts) == 1 else 0
    if n_heads < 1 or module.rows[0] % n_heads:
        return None
    d_head = module.rows[0] // n_heads
    key_heads = next((settings[word] for word in _KEY_HEADS if type(settings.get(word)) is int), None)
    fits = module.rows[1] % d_head == 0 and key_heads in (None, module.rows[1] // d_head)
    return n_heads if fits else None


def _program(module: Module, shapes: Mapping[str, Shape]) -> Program:
    leaf = module.leaves[0]
    name = module.name + leaf
    matching = {
        Program.TRANSFORMER_LENS: leaf == ".W_Q",
        Program.GPT2: leaf == ".c_attn.weight" and module.transposed,
        Program.NANO_GPT: leaf == ".c_attn.weight",
        Program.TORCH: leaf == ".in_proj_weight",
        Program.TIMM: leaf == ".qkv.weight" and _is_timm(name, shapes),
        Program.LITGPT: leaf in (".qkv.weight", ".attn.weight"),
        Program.MEGATRON: leaf == ".linear_qkv.weight" or "self_attention.query_key_value" in name,
        Program.TORCHTUNE: leaf == ".q_proj.weight" and module.leaves[3] == ".output_proj.weight",
        Program.META: leaf == ".wq.weight",
        Program.DIFFUSERS: leaf == ".to_q.weight" and "transformer_blocks" in name,
    }
    return next((program for program, matches in matching.items() if matches), Program.OTHER)
