"""Make the table of architectures that is shipped with rmtbase, and the page of the docs that lists them.

Of every model type of the installed ``transformers`` a tiny random model is run, and watched: which rows of which
tensors its queries, keys and values are, under several sets of sizes and with every flag of its configuration turned
over. What can be said in one way alone is written down, read back by the package, and proved again.

    python sims/make_architectures.py                 probe all types and write the table and the page
    python sims/make_architectures.py --only bert t5  these anew, the others as they stand
    python sims/make_architectures.py --check         prove every entry of the table
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny_models
import torch
import transformers
from attention_trace import Attention, Linear, Trace, sources, watching
from tiny_models import PROFILES, Profile, make_config, make_model
from transformers import PreTrainedModel
from transformers.activations import ACT2FN
from transformers.core_model_loading import revert_weight_conversion

from rmtbase.models._layout_table import Rows

TABLE = Path(__file__).parents[1] / "src/rmtbase/models/architectures.json"
_PATTERNS = {
    "q": ("q", "(q g)"),
    "k": ("k",),
    "v": ("v",),
    "kv": ("k v", "(k v)"),
    "qk": ("q k", "(q k)"),
    "qkv": ("q k v", "(q k v)", "4(q v k)", "q v k", "k v q", "(k q v)"),
}
_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "relu2", "quick_gelu", "tanh", "linear")
_STILL = re.compile(r"[Nn]orm")
_UNVARIED = re.compile(
    r"use_cache|return_dict|output_.*|tie_.*|is_encoder_decoder|scale_.*embedding.*|norm_topk_prob|.*dropout.*|"
    r"use_(weighted|mean|auxiliary|timm|pretrained|return|mems).*|do_(sample|stable).*|apply_spec_augment|gradient_.*|"
    r"ctc_.*|add_(final|pooling).*|.*loss.*|remove_invalid_values|chunk_.*|use_mamba_kernels|early_stopping|auxiliary.*|"
    r"torchscript|reorder_and_upcast_attn|trainable.*|.*pooling.*|use_labels.*|deterministic.*|encoder_only|.*bfloat16|force_.*"
)


@dataclass
class Group:
    """The same attention module in every layer of one stack.

    Attributes:
        layer: the layer's name on disk, with a place for its index.
        tensors: name within the layer -> what its rows are.
        norms: norms of queries and keys -> the name of their size, or None.
        beside: the other tensors of the attention.
        sizes: what was measured.
        layers: the indices of the layers.
        crossed: whether keys read something else than queries.
        module: the running model's name of the first of them.
    """

    layer: str
    tensors: dict[str, str]
    norms: dict[str, str | None]
    beside: list[str]
    sizes: dict[str, Any]
    layers: list[int]
    crossed: bool
    module: str


@dataclass
class Probe:
    """What one tiny model showed."""

    config: Mapping[str, Any]
    groups: list[Group] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)


class Refused(Exception):
    """A type, or a variant of one, that the table cannot say, and why."""


def run(model: torch.nn.Module) -> tuple[Trace, Trace]:
    """What the model does with rotations by angle zero, and with its own."""
    failures = []
    for given in tiny_models.inputs(model):
        try:
            with watching(model) as first:
                model(**given)
            if not first.attentions:
                failures.append("no attention")
                continue
            still = {one.module for one in first.attentions}
            with watching(model, still=still) as trace:
                model(**given)
            with watching(model, still=still, rotate=True) as rotated:
                model(**given)
            return trace, rotated
        except Exception as error:
            failures.append(f"{type(error).__name__}: {str(error)[:100]}")
    raise Refused("its forward pass was not run: " + "; ".join(dict.fromkeys(failures)))


def probe(model: torch.nn.Module, beside: Iterable[str] = ()) -> Probe:
    """The attention modules of a model, by what its own forward pass does; not those of its parts ``beside``."""
    trace, rotated = run(model)
    stored = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    kept = model.state_dict()
    disk = revert_weight_conversion(model, dict(kept))
    at = {tensor.untyped_storage().data_ptr(): name for name, tensor in disk.items()}
    on_disk = {name: at.get(tensor.untyped_storage().data_ptr()) for name, tensor in kept.items()}
    root = model.base_model_prefix + "."
    found = Probe(model.config.to_dict())
    by_group: dict[tuple[str, ...], Group] = {}
    seen: set[str] = set()
    for one, turned in zip(trace.attentions, rotated.attentions, strict=True):
        if any(one.module.startswith(part + ".") for part in beside):
            continue
        try:
            group, layer = _one(one, turned, trace, on_disk, disk, root)
        except Refused as error:
            found.unresolved.append(f"{re.sub(r'[0-9]+', '{}', one.module)}: {error}")
            continue
        if one.module in seen:
            continue
        seen.add(one.module)
        key = (group.layer, *sorted(name for name, text in group.tensors.items() if set(text) & set("qkv")))
        held = by_group.setdefault(key, group)
        held.layers.append(layer)
        for name, text in group.tensors.items():
            if held.tensors.setdefault(name, text) != text:
                raise Refused(f"{name} is {text!r} in one layer, {held.tensors[name]!r} in another")
        held.sizes["mixed"] = held.sizes.get("mixed", False) or not {"down", "down T"} & set(group.tensors.values())
        for name in ("n_heads", "n_key_heads", "d_head", "d_value", "d_query", "d_key"):
            if held.sizes[name] != group.sizes[name]:
                held.sizes[name] = None
        held.norms |= group.norms
        held.beside = sorted({*held.beside, *group.beside})
    found.groups = list(by_group.values())
    return found


def _one(
    one: Attention, turned: Attention, trace: Trace, on_disk: Mapping[str, str | None], disk: Mapping[str, Any], root: str
) -> tuple[Group, int]:
    """One attention module of one layer."""
    parts = {}
    for symbol, heads in (("q", one.query), ("k", one.key), ("v", one.value)):
        source = None if heads is None else sources(heads, trace.linears)
        if source is None and symbol != "v":
            raise Refused("queries or keys are not rows of a weight's outputs")
        parts[symbol] = source
    where: dict[str, Linear] = {}
    owners: dict[str, list[str]] = {}
    for symbol, source in parts.items():
        if source is None:
            continue
        names = []
        for index in dict.fromkeys(source.linear.ravel().tolist()):
            linear = trace.linears[index]
            name = on_disk.get(linear.tensor)
            if name is None:
                raise Refused(f"{linear.tensor} is stored otherwise")
            where[name] = linear
            names.append(name)
        owners[symbol] = names
    first = owners["q"][0]
    position = re.search(r"(?:^|\.)(\d+)\.", first)
    if position is None:
        raise Refused(f"{first} has no number of a layer")
    layer, index = first[: position.start(1)].removeprefix(root) + "{}.", int(position[1])
    within = first[: position.end()]
    if any(not name.startswith(within) for names in owners.values() for name in names):
        raise Refused("queries and keys are of two layers")
    key_heads = _key_heads(parts["k"])
    sizes: dict[str, Any] = {
        "n_heads": len(one.query),
        "n_key_heads": key_heads,
        "d_head": one.query.shape[-1],
        "d_value": one.value.shape[-1] if one.value is not None else None,
        "d_query": where[owners["q"][0]].x.shape[1],
        "d_key": where[owners["k"][0]].x.shape[1],
    }
    tensors = _latent(parts, owners, where, trace, on_disk, sizes) or _plain(parts, owners, where, sizes)
    inside = [tensor.removeprefix(within) for tensor in tensors]
    output = _output(one, trace, where)
    if output is not None:
        name = on_disk.get(output.tensor)
        if name and name.startswith(within):
            tensors[name] = "o" + " T" * output.transposed
            sizes["d_output"] = output.y.shape[1]
    for name, text in _mlp(trace, on_disk, within, set(tensors)).items():
        tensors[name] = text
        if "up" in text.split():
            linear = next(one for one in trace.linears if on_disk.get(one.tensor) == name)
            sizes["d_mlp"] = linear.y.shape[1] // len(text.removesuffix(" T").split())
    local = {name.removeprefix(within): text for name, text in tensors.items()}
    attention = _shared([name for name, text in local.items() if not {"up", "gate", "down"} & set(text.split())])
    norms: dict[str, str | None] = {}
    beside = []
    used = set(local) | {name.removesuffix("weight") + "bias" for name in local}
    for name, tensor in disk.items():
        inner = name.removeprefix(within)
        if not name.startswith(within) or inner in used or (attention and not inner.startswith(attention)):
            continue
        if not attention:
            continue
        side = re.match(r"(q|k)(uery|ey)?_?(norm|layernorm|ln|layer_norm)", inner.removeprefix(attention).split(".")[-2:][0])
        if side:
            of = {(sizes["d_head"],): "d_head", (sizes["n_heads"] * sizes["d_head"],): "q"}
            of[(key_heads * sizes["d_head"],)] = "k" if side[1] == "k" else of.get((key_heads * sizes["d_head"],), None)
            norms[inner] = of.get(tuple(tensor.shape)) if tuple(tensor.shape) != (0,) else None
        else:
            beside.append(inner)
    sizes["rotated"] = int((np.abs(turned.query - one.query).max((0, 1)) > 1e-9).sum()) if index == 0 else None
    factor = [parts[symbol].factor for symbol in "qk"]
    uniform = all(np.ptp(each) < 1e-5 * abs(each.mean()) for each in factor)
    sizes["scale"] = float(one.scale * factor[0].mean() * factor[1].mean()) if uniform and one.scale else None
    crossed = where[owners["q"][0]].x.shape != where[owners["k"][0]].x.shape or not np.allclose(
        where[owners["q"][0]].x, where[owners["k"][0]].x
    )
    if {"a", "c"} & {word for text in tensors.values() for word in text.split()}:
        crossed = False
    del inside
    return Group(layer, local, norms, sorted(beside), sizes, [], crossed, one.module), index


def _shared(names: Iterable[str]) -> str:
    shared = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}." for part in shared)


def _key_heads(source: Any) -> int:
    """How many different heads there are, each serving as many neighbours."""
    heads = [tuple(zip(lin, row, strict=True)) for lin, row in zip(source.linear.tolist(), source.row.tolist(), strict=True)]
    distinct = list(dict.fromkeys(heads))
    group = len(heads) // len(distinct)
    if [head for head in distinct for _ in range(group)] != heads:
        raise Refused("heads share keys in an order of their own")
    return len(distinct)


def _plain(parts: Mapping[str, Any], owners: Mapping[str, list[str]], where: Mapping[str, Linear], sizes: dict) -> dict[str, str]:
    """What the rows of each tensor are, where each part lies in one."""
    if any(len(names) != 1 for names in owners.values()):
        raise Refused("a part is of several tensors")
    holding: dict[str, str] = {}
    for symbol in "qkv":
        if symbol in owners:
            holding[owners[symbol][0]] = holding.get(owners[symbol][0], "") + symbol
    width = {
        "q": sizes["n_heads"] * sizes["d_head"],
        "k": sizes["n_key_heads"] * sizes["d_head"],
        "v": sizes["n_key_heads"] * (sizes["d_value"] or 0),
    }
    width = {**sizes, **width, "g": width["q"]}
    found = {}
    for tensor, symbols in holding.items():
        height = where[tensor].y.shape[1]
        for pattern in _PATTERNS.get(symbols, ()):
            rows = Rows.parse(pattern)
            whole = rows.height(width)
            if whole != height or any(width[one] % (sizes[rows.repeated] if isinstance(rows.repeated, str) else rows.repeated) for one in rows.blocks):
                continue
            if all(_matches(rows.indices(symbol, width), parts[symbol], sizes, symbol) for symbol in symbols):
                found[tensor] = pattern + " T" * where[tensor].transposed
                break
        else:
            raise Refused(f"the rows of {tensor} are in no known order")
    if not _same_order(parts):
        raise Refused("the dimensions of queries and keys are in different orders")
    return found


def _matches(expected: list[int], source: Any, sizes: Mapping[str, int], symbol: str) -> bool:
    """Whether each head has its rows, in whatever order within it."""
    heads = sizes["n_heads"] if symbol == "q" else sizes["n_key_heads"]
    size = len(expected) // heads
    group = len(source.row) // heads
    if len(source.row) % heads or source.row.shape[1] != size:
        return False
    rows = source.row[::group]
    return all(sorted(rows[head].tolist()) == sorted(expected[head * size : (head + 1) * size]) for head in range(heads))


def _same_order(parts: Mapping[str, Any]) -> bool:
    """Whether a head's queries and keys have their dimensions in one order."""

    def rank(rows: np.ndarray) -> np.ndarray:
        return np.argsort(np.argsort(rows, axis=-1), axis=-1)

    query, key = rank(parts["q"].row), rank(parts["k"].row)
    return bool((query == np.repeat(key, len(query) // len(key), axis=0)).all())


def _latent(
    parts: Mapping[str, Any],
    owners: Mapping[str, list[str]],
    where: dict[str, Linear],
    trace: Trace,
    on_disk: Mapping[str, str | None],
    sizes: dict[str, Any],
) -> dict[str, str] | None:
    """What the rows are where keys are [W_UK W_DKV; W_KR]: the latent attention of DeepSeek. None where they are not."""
    if len(owners["k"]) != 2 or "v" not in owners or len(owners["v"]) != 1 or len(owners["q"]) != 1:
        return None
    upper, down = owners["v"][0], next((one for one in owners["k"] if one != owners["v"][0]), None)
    if down is None or upper not in owners["k"]:
        return None
    key, query = parts["k"], parts["q"]
    is_upper = np.array([on_disk.get(trace.linears[i].tensor) == upper for i in key.linear[0]])
    nope, heads = int(is_upper.sum()), sizes["n_heads"]
    latent, rotary = where[upper].x.shape[1], int((~is_upper).sum())
    block = nope + sizes["d_value"]
    for head in range(heads):
        if sorted(key.row[head][is_upper].tolist()) != list(range(head * block, head * block + nope)):
            return None
        if sorted(key.row[head][~is_upper].tolist()) != list(range(latent, latent + rotary)):
            return None
        if parts["v"].row[head].tolist() != list(range(head * block + nope, (head + 1) * block)):
            return None
        order = np.argsort(np.concatenate([key.row[head][is_upper], key.row[head][~is_upper]]))
        del order
        size = sizes["d_head"]
        if sorted(query.row[head].tolist()) != list(range(head * size, (head + 1) * size)):
            return None
        rank = query.row[head] - head * size  # of a query's rows: those of the upper part, then the rotary ones
        paired = np.where(is_upper, key.row[head] - head * block, key.row[head] - latent + nope)
        if (rank != paired).any():
            return None
    if where[down].y.shape[1] != latent + rotary or not np.allclose(where[upper].x, where[down].y[:, :latent]):
        return None
    found = {down: "c r", upper: "(n v) < c"}
    sizes |= {"n_key_heads": heads, "d_latent": latent, "d_rotary": rotary}
    above = where[owners["q"][0]]
    lower = next(
        (one for one in trace.linears if one.y.shape == above.x.shape and np.allclose(one.y, above.x)), None
    )
    if lower is not None and on_disk.get(lower.tensor):
        found = {str(on_disk[lower.tensor]): "a", owners["q"][0]: "q < a", **found}
        sizes["d_query_latent"] = lower.y.shape[1]
        sizes["d_query"] = lower.x.shape[1]
    else:
        found = {owners["q"][0]: "q", **found}
    sizes["d_key"] = where[down].x.shape[1]
    return found


def _output(one: Attention, trace: Trace, where: Mapping[str, Linear]) -> Linear | None:
    """What reads the outputs of all heads, one beside the other."""
    if one.context is None:
        return None
    heads = one.context.transpose(1, 0, 2)
    flat = heads.reshape(len(heads), -1)
    for linear in trace.linears:
        if linear.x.shape == flat.shape and np.allclose(linear.x, flat, rtol=1e-6, atol=1e-9):
            return linear
    return None


def _mlp(trace: Trace, on_disk: Mapping[str, str | None], within: str, used: set[str]) -> dict[str, str]:
    """The matrices of the layer's MLP: down(act(up x)) or down(act(gate x) · up x)."""
    here = []
    for linear in trace.linears:
        name = on_disk.get(linear.tensor)
        if name and name.startswith(within) and name not in used and "expert" not in name:
            here.append((name, linear))

    def same(left: np.ndarray, right: np.ndarray) -> bool:
        return left.shape == right.shape and np.allclose(left, right, rtol=1e-5, atol=1e-7)

    acts = {name: (lambda x, f=ACT2FN[name]: f(torch.from_numpy(x)).numpy()) for name in _ACTIVATIONS}
    for down_name, down in here:
        for up_name, up in here:
            if up_name == down_name or len(up.y) != len(down.x):
                continue
            for act in acts.values():
                words = {up_name: "up", down_name: "down"}
                half = up.y.shape[1] // 2
                if up.y.shape == down.x.shape and same(act(up.y), down.x):
                    pass
                elif up.y.shape[1] == 2 * down.x.shape[1] and same(act(up.y[:, :half]) * up.y[:, half:], down.x):
                    words[up_name] = "gate up"
                elif up.y.shape[1] == 2 * down.x.shape[1] and same(act(up.y[:, half:]) * up.y[:, :half], down.x):
                    words[up_name] = "up gate"
                else:
                    for gate_name, gate in here:
                        if gate_name not in words and gate.y.shape == up.y.shape == down.x.shape:
                            if act is not acts["linear"] and same(act(gate.y) * up.y, down.x):
                                words[gate_name] = "gate"
                                break
                    else:
                        continue
                linears = dict(here)
                return {name: text + " T" * linears[name].transposed for name, text in words.items()}
    return {}


# What gives each size, in the words that configurations usually have for it: the first that fits is taken.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "n_layers": (
        "n_layer n_layers num_layers num_hidden_layers encoder_layers decoder_layers num_encoder_layers "
        "num_decoder_layers encoder_num_hidden_layers decoder_num_hidden_layers depth num_blocks num_hidden_groups"
    ).split(),
    "n_heads": (
        "n_head n_heads num_heads num_attention_heads encoder_attention_heads decoder_attention_heads attention_heads "
        "num_encoder_attention_heads num_decoder_attention_heads encoder_num_attention_heads "
        "decoder_num_attention_heads encoder_num_heads decoder_num_heads"
    ).split(),
    "n_key_heads": (
        "num_key_value_heads num_kv_heads n_head_kv n_kv_heads encoder_num_key_value_heads decoder_num_key_value_heads"
    ).split(),
    "d_head": "head_dim d_kv kv_channels attention_head_dim attention_head_size".split(),
    "d_model": "n_embd d_model hidden_size dim embed_dim n_embed model_dim width emb_dim hidden_dim".split(),
    "d_mlp": (
        "n_inner d_ff ffn_dim intermediate_size encoder_ffn_dim decoder_ffn_dim mlp_dim ffn_hidden_size hidden_dim "
        "encoder_intermediate_size decoder_intermediate_size intermediate_dim feed_forward_dim"
    ).split(),
    "d_value": ("v_head_dim", "value_head_dim"),
    "d_latent": ("kv_lora_rank",),
    "d_rotary": ("qk_rope_head_dim",),
    "d_query_latent": ("q_lora_rank",),
}
_SCALES = ("query_pre_attn_scalar^-0.5", "attention_multiplier", "d_head^-0.5", "d_model^-0.5", "1")
_ROTATED = ("d_head * partial_rotary_factor", "d_head * rotary_pct", "rotary_dim", "qk_rope_head_dim", "d_head")


def keys_of(name: str, stack: str, observed: list[tuple[Mapping[str, Any], int]]) -> list[str]:
    """The keys of the configuration that may say a size: those whose value it is in every model that was seen."""
    words = _WORDS[name]
    other = {"encoder": "decoder", "decoder": "encoder", "cross": "encoder"}.get(stack, "")
    found = [key for key in words if all(config.get(key) == value for config, value in observed)]
    plain = [key for key in found if not (other and re.match(rf"(num_)?{other}", key))]
    own = [key for key in plain if stack and ("decoder" if stack == "cross" else stack) in key]
    return own or plain or found


def probes(model_type: str, beside: Iterable[str] = (), **options: Any) -> list[Probe]:
    """Tiny models of the type with each set of sizes that can be built; nothing of the parts that are ``beside``."""
    found, errors = [], []
    for profile in PROFILES:
        if len(found) == 2:
            break
        for more in _key_head_options(model_type, profile):
            try:
                found.append(probe(make_model(model_type, profile, **{**more, **options}), beside))
                break
            except Exception as error:
                errors.append(error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {str(error)[:150]}"))
    if len(found) < 2:
        raise errors[0]
    return found


def infer(model_type: str, beside: Iterable[str] = (), **options: Any) -> list[dict[str, Any]]:
    """The stacks of a type, as the table says them."""
    seen = probes(model_type, beside, **options)
    for one in seen:
        if one.unresolved:
            raise Refused("; ".join(dict.fromkeys(one.unresolved)))
    first = seen[0].groups
    if not first:
        raise Refused("no attention was seen")
    stacks = []
    for group in first:
        same = []
        for one in seen:
            alike = [other for other in one.groups if (other.layer, _core(other)) == (group.layer, _core(group))]
            if len(alike) != 1:
                raise Refused(f"{group.layer} is laid out otherwise with other sizes")
            same.append((one.config, alike[0]))
        stacks.append(entry(model_type, _stack_name(group, first), same))
    names = [one["stack"] for one in stacks]
    if len(set(names)) < len(names):
        raise Refused(f"several stacks of one kind: {', '.join(one.layer for one in first)}")
    return stacks


def _core(group: Group) -> tuple[Any, ...]:
    return tuple(sorted((name, text) for name, text in group.tensors.items() if set(text.split()) & set("qkv") or "(" in text))


def _stack_name(group: Group, groups: list[Group]) -> str:
    if group.crossed:
        return "cross"
    if sum(not one.crossed for one in groups) == 1:
        return ""
    words = {"encoder": "encoder", "decoder": "decoder", "text": "text", "visi": "vision", "image": "vision", "audio": "audio"}
    found = {name for word, name in words.items() if word in group.layer}
    if len(found) != 1:
        raise Refused(f"several stacks, one of them {group.layer}")
    return found.pop()


def entry(model_type: str, stack: str, same: list[tuple[Mapping[str, Any], Group]]) -> dict[str, Any]:
    """One stack in the table's words."""
    groups = [group for _, group in same]
    sizes: dict[str, str] = {}

    def observed(name: str) -> list[tuple[Mapping[str, Any], Any]]:
        return [(config, group.sizes.get(name)) for config, group in same]

    def choose(name: str, values: list[tuple[Mapping[str, Any], Any]]) -> str | None:
        keys = keys_of(name, stack, values)
        if len(keys) > 1:
            keys = [key for key in keys if _moves(model_type, key, same[0], name)] or keys
        return keys[0] if len(keys) == 1 else None

    kinds = _attending(same)
    layers = [(config, max(group.layers) + 1) for config, group in same]
    if not kinds and any(sorted(group.layers) != list(range(len(group.layers))) for group in groups):
        raise Refused("which layers attend is not plain from the configuration")
    if kinds:
        layers = [(config, len(config[next(iter(kinds))])) for config, _ in same]
    for name in ("n_layers", "n_heads"):
        key = choose(name, layers if name == "n_layers" else observed(name))
        if key is None:
            raise Refused(f"what gives {name} is not plain: {[v for _, v in (layers if name == 'n_layers' else observed(name))]}")
        sizes[name] = _with_aliases(model_type, key)
    heads = sizes["n_heads"].split(" or ")[0]
    width = choose("d_model", observed("d_query"))
    if width:
        sizes["d_model"] = _with_aliases(model_type, width)
    if any(value != group.sizes["n_heads"] for (_, value), group in zip(observed("n_key_heads"), groups, strict=True)):
        if all(value == 1 for _, value in observed("n_key_heads")):
            sizes["n_key_heads"] = "1"
        else:
            key = choose("n_key_heads", observed("n_key_heads"))
            if key is None:
                raise Refused("what gives the number of key heads is not plain")
            sizes["n_key_heads"] = f"{_with_aliases(model_type, key)} else {heads}"
    for name in ("d_rotary", "d_latent", "d_query_latent"):
        if groups[0].sizes.get(name):
            key = choose(name, observed(name))
            if key is None:
                raise Refused(f"what gives {name} is not plain")
            sizes[name] = key
    ratio = bool(width) and all(
        group.sizes["d_head"] * group.sizes["n_heads"] == config.get(width) for config, group in same
    )
    key = choose("d_head", observed("d_head"))
    if any(group.sizes["d_head"] is None for group in groups):
        raise Refused("the size of a head changes from layer to layer")
    if key and "d_rotary" not in sizes:
        sizes["d_head"] = _with_aliases(model_type, key)
        if width and _falls_back(model_type, key, stack):
            sizes["d_head"] += f" else {width} / {heads}"
    elif ratio:
        sizes["d_head"] = f"{width} / {heads}"
    elif "d_rotary" in sizes and all(
        group.sizes["d_head"] == config.get("qk_nope_head_dim", 0) + config.get("qk_rope_head_dim", 0)
        for config, group in same
    ):
        sizes["d_head"] = "qk_nope_head_dim + qk_rope_head_dim"
    else:
        raise Refused(f"what gives the size of a head is not plain: {[v for _, v in observed('d_head')]}")
    values = observed("d_value")
    if any(value is not None and value != group.sizes["d_head"] for (_, value), group in zip(values, groups, strict=True)):
        key = choose("d_value", values)
        if key is None:
            raise Refused("what gives the size of a head's values is not plain")
        sizes["d_value"] = key
    tensors = dict(groups[0].tensors)
    if any({"up", "gate"} & set(text.split()) for text in tensors.values()):
        key = choose("d_mlp", observed("d_mlp"))
        if key is not None and all(group.sizes.get("d_mlp") for group in groups):
            sizes["d_mlp"] = _with_aliases(model_type, key)
            if width and key in ("n_inner", "ffn_hidden_size") :
                sizes["d_mlp"] += f" else 4 * {width}"
        elif width and (times := _multiple(same, width)):
            sizes["d_mlp"] = f"{times} * {width}"
        else:
            tensors = {name: text for name, text in tensors.items() if not {"up", "gate", "down"} & set(text.split())}
    norms = {name: size for group in groups for name, size in group.norms.items()}
    for group in groups:
        norms = {name: size if group.norms.get(name, size) == size else None for name, size in norms.items()}
    found: dict[str, Any] = {
        "stack": stack,
        "layout": {
            "layer": groups[0].layer if stack not in ("",) else _shortened(groups[0].layer),
            "tensors": dict(sorted(tensors.items(), key=lambda item: _ORDER.index(item[1].split()[0].strip("(4")))),
            "norms": dict(sorted(norms.items())),
            "beside": sorted({name for group in groups for name in group.beside}),
        },
        "sizes": sizes,
    }
    if kinds:
        found["attends"] = kinds
    if any(group.sizes.get("mixed") for group in groups):
        found["mixed"] = True
    scale = next((text for text in _SCALES if _is_scale(text, same, width)), None)
    if scale:
        found["scale"] = scale
    rotated = observed("rotated")
    if any(value for _, value in rotated):
        found["rotated"] = next((text for text in _ROTATED if _is_rotated(text, same)), "?")
    return found


_ORDER = ["a", "q", "k", "c", "v", "n", "o", "gate", "up", "down"]


def _shortened(layer: str) -> str:
    """A layer's name without what the names of other models of the type have in front of it."""
    return layer


def _multiple(same: list[tuple[Mapping[str, Any], Group]], width: str) -> int | None:
    times = {group.sizes.get("d_mlp", 0) / config[width] for config, group in same}
    return int(times.pop()) if len(times) == 1 and next(iter(times)).is_integer() else None


def _number(text: str, config: Mapping[str, Any], group: Group, width: str | None) -> float | None:
    total = 1.0
    for term in text.split(" * "):
        name, root, _ = term.partition("^-0.5")
        parameters = config.get("rope_parameters")
        inner = parameters.get(name) if isinstance(parameters, Mapping) else None
        value = {"d_head": group.sizes["d_head"], "d_model": config.get(width or ""), "1": 1}.get(
            name, config.get(name) if inner is None else inner
        )
        if not isinstance(value, (int, float)) or value <= 0:
            return None
        total *= value**-0.5 if root else value
    return total


def _is_scale(text: str, same: list[tuple[Mapping[str, Any], Group]], width: str | None) -> bool:
    for config, group in same:
        value, seen = _number(text, config, group, width), group.sizes.get("scale")
        if value is None or seen is None or abs(value - seen) > 1e-5 * abs(seen):
            return False
    return True


def _is_rotated(text: str, same: list[tuple[Mapping[str, Any], Group]]) -> bool:
    for config, group in same:
        value, seen = _number(text, config, group, None), group.sizes.get("rotated")
        if seen is not None and (value is None or int(value) != seen):
            return False
    return True


def _attending(same: list[tuple[Mapping[str, Any], Group]]) -> dict[str, list[str]]:
    """The key of a list of layer types, and those that attend; nothing where every layer does."""
    if all(sorted(group.layers) == list(range(len(group.layers))) for _, group in same):
        one, group = same[0]
        if not any(isinstance(one.get(key), list) and len(one[key]) > len(group.layers) for key in _KINDS):
            return {}
    for key in _KINDS:
        kinds: set[str] = set()
        others: set[str] = set()
        for config, group in same:
            said = config.get(key)
            if not isinstance(said, list) or max(group.layers) >= len(said):
                break
            kinds |= {said[layer] for layer in group.layers}
            others |= {said[layer] for layer in range(len(said)) if layer not in group.layers}
        else:
            if not kinds & others:
                return {key: sorted(kinds)}
    return {}


_KINDS = ("layer_types", "layers_block_type", "block_types", "hybrid_override_pattern")


def _with_aliases(model_type: str, key: str) -> str:
    """The key, and the other names under which a configuration of the type may have it."""
    mapped = getattr(tiny_models.config_class(model_type), "attribute_map", {})
    return " or ".join([key, *(name for name, target in mapped.items() if target == key)])


def _moves(model_type: str, key: str, seen: tuple[Mapping[str, Any], Group], name: str) -> bool:
    """Whether a model with another value at this key alone has another such size."""
    config, group = seen
    measured = {"d_model": "d_query"}.get(name, name)
    try:
        other = probe(make_model(model_type, PROFILES[0], **{key: config[key] * 2}))
    except Exception:
        return False
    alike = [one for one in other.groups if (one.layer, _core(one)) == (group.layer, _core(group))]
    if len(alike) != 1:
        return False
    if name == "n_layers":
        return max(alike[0].layers) + 1 == 2 * config[key]
    return alike[0].sizes.get(measured) == 2 * group.sizes[measured]


def _falls_back(model_type: str, key: str, stack: str) -> bool:
    """Whether a head has d_model / n_heads dimensions where the key is empty."""
    try:
        other = probe(make_model(model_type, PROFILES[0], **{key: None}))
    except Exception:
        return False
    sizes = [one.sizes for one in other.groups]
    return all(one["d_head"] and one["d_head"] * one["n_heads"] == PROFILES[0].d_model for one in sizes)


_FLAGS = {
    "feed_forward_proj": ("relu", "gated-gelu", "gated-silu"),
    "attention_type": ("original_full", "block_sparse"),
    "position_embedding_type": ("absolute", "relative_key", "relative_key_query", "rotary"),
    "position_embeddings_type": ("relative", "rotary", "relative_key", None),
    "q_lora_rank": (None,),
    "qk_layernorm_type": ("rms", None),
    "hidden_act_moe": (),
}
"""Options of a configuration, besides its flags, that may change the attention: the values that are tried."""
_PARTS = {"text": "text", "language": "text", "llm": "text", "vision": "vision", "visual": "vision", "audio": "audio",
          "speech": "audio", "encoder": "encoder", "decoder": "decoder"}  # fmt: skip
_SWAPS = {
    "text": ("mistral", "llama", "qwen2", "qwen3", "gemma2", "phi3", "opt"),
    "vision": ("siglip_vision_model", "clip_vision_model", "pixtral"),
    "encoder": ("bert", "roberta", "vit", "deit"),
    "decoder": ("bert", "gpt2", "roberta", "trocr"),
}


def infer_type(model_type: str) -> dict[str, Any]:
    """The type as the table says it: its variants, and what its class says where a configuration says nothing."""
    parts, unread = parts_of(model_type)
    variants: list[dict[str, Any]] = []
    paths = [one.pop("path") for one in parts]
    try:
        stacks = infer(model_type, paths) if not parts else _beside(model_type, paths)
    except Refused:
        if not parts:
            raise
        stacks = []
    base = {"stacks": stacks}
    if parts:
        base["parts"] = parts
        if unread:
            base["unread"] = unread
        return {"variants": [base]}
    guards: dict[str, Any] = {}
    reference = _groups(model_type)
    default = make_config(model_type, PROFILES[0]).to_dict()
    for key, value in default.items():
        if isinstance(value, bool) and not _UNVARIED.fullmatch(key):
            tried: tuple[Any, ...] = (not value,)
        elif key in _FLAGS:
            tried = tuple(one for one in _FLAGS[key] if one != value)
        else:
            continue
        for other in tried:
            try:
                groups = _groups(model_type, **{key: other})
                if _attention(groups) == _attention(reference):
                    for stack, group in zip(stacks, reference, strict=True):
                        alike = next(one for one in groups if _attention([one]) == _attention([group]))
                        layout = stack["layout"]
                        mlp = {name: text for name, text in alike.tensors.items() if set(text.split()) & _MLP}
                        clash = any(layout["tensors"].get(name, text) != text for name, text in mlp.items())
                        if clash or "d_mlp" not in stack["sizes"]:
                            mlp = {}
                        layout["tensors"] |= mlp
                        layout["norms"] = dict(sorted((alike.norms | layout["norms"]).items()))
                        layout["beside"] = sorted({*layout["beside"], *alike.beside})
                    continue
                guards[key] = value
                variants.append({"when": {key: other}, "stacks": infer(model_type, **{key: other})})
            except Exception:
                guards[key] = value
    base_when = [{"when": guards, **base}] if guards else [base]
    for one in variants:
        one["when"] = {**guards, **one["when"]}
    return {"variants": base_when + variants}


def _groups(model_type: str, **options: Any) -> list[Group]:
    found = Probe({})
    for more in _key_head_options(model_type, PROFILES[0]):
        try:
            found = probe(make_model(model_type, PROFILES[0], **{**more, **options}))
            break
        except Refused as error:
            found.unresolved.append(str(error))
    if found.unresolved or not found.groups:
        raise Refused("; ".join(found.unresolved))
    return found.groups


def _key_head_options(model_type: str, profile: Profile) -> list[dict[str, int]]:
    """With fewer key heads than heads, and where that is not possible with as many."""
    held = [key for key in ("num_key_value_heads", "num_kv_heads") if key in tiny_models.default_config(model_type)]
    return [{}, dict.fromkeys(held, profile.n_heads)] if held else [{}]


def _attention(groups: list[Group]) -> set[tuple[Any, ...]]:
    """All that matters of the attention of each group; not its MLP, whose names tell which one it is."""
    names = ("n_heads", "n_key_heads", "d_head", "d_value", "d_query", "d_key")
    return {
        (
            group.layer,
            tuple(sorted((name, text) for name, text in group.tensors.items() if not set(text.split()) & _MLP)),
            tuple(group.layers),
            tuple(group.sizes.get(name) for name in names),
        )
        for group in groups
    }


_MLP = {"up", "gate", "down"}


def _beside(model_type: str, paths: list[str]) -> list[dict[str, Any]]:
    """The stacks of a type with parts that are in none of them."""
    seen = probe(make_model(model_type), paths)
    return infer(model_type, paths) if seen.groups or seen.unresolved else []


def parts_of(model_type: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The parts of a type that are models with a configuration of their own, and those that have no place in the table."""
    default = tiny_models.default_config(model_type)
    keys = [key for key, value in default.items() if isinstance(value, Mapping) and "model_type" in value]
    if not keys:
        return [], []
    model = make_model(model_type)
    parts, unread = [], []
    for key in keys:
        path = _path(model, key)
        stack = next((name for word, name in _PARTS.items() if word in key), None)
        if path is None:
            continue
        own = getattr(model.config, key).model_type
        if stack is None or stack in [one["stack"] for one in parts]:
            unread.append(key)
            continue
        types = [own]
        for other in _SWAPS.get(stack, ()):
            if other != own:
                if not _swaps(model_type, key, other):
                    break
                types.append(other)
        parts.append({"stack": stack, "config": key, "in": path.split(".")[-1], "type": own, "types": types, "path": path})
    return parts, unread


def _path(model: torch.nn.Module, key: str) -> str | None:
    sub = getattr(model.config, key, None)
    named = (name for name, one in model.named_modules() if name and getattr(one, "config", None) is sub)
    return next((name for name in named if isinstance(model.get_submodule(name), PreTrainedModel)), None)


def _swaps(model_type: str, key: str, other: str) -> bool:
    """Whether a part may be of another type, whose own class is then in its place."""
    values = {**tiny_models.sized(tiny_models.default_config(other), PROFILES[0].nested(1)), "model_type": other}
    try:
        model = make_model(model_type, PROFILES[0], **{key: values})
        path = _path(model, key)
        return path is not None and type(model.get_submodule(path)).config_class.model_type == other
    except Exception:
        return False


class _Slow(BaseException):
    """A type takes too long."""


def _too_long(*_: Any) -> None:
    raise _Slow


def results(types: Iterable[str], work: Path, limit: int = 120) -> dict[str, Any]:
    """What is known of each type, from the file of earlier work, or found now and kept there."""
    held = json.loads(work.read_text()) if work.is_file() else {}
    signal.signal(signal.SIGALRM, _too_long)
    for model_type in types:
        if model_type in held:
            continue
        start = time.monotonic()
        signal.alarm(limit)
        try:
            held[model_type] = infer_type(model_type)
        except _Slow:
            held[model_type] = {"refused": f"probing it takes more than {limit} s"}
        except Exception as error:
            text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            held[model_type] = {"refused": " ".join(text.split())[:300]}
        finally:
            signal.alarm(0)
        held[model_type]["seconds"] = round(time.monotonic() - start, 1)
        work.write_text(json.dumps(held))
    return held


def table(found: Mapping[str, Any]) -> dict[str, Any]:
    """The table, of what was found: layouts that types share are written once, parts that have no entry are left out."""
    layouts: dict[str, Any] = {}
    named: dict[str, str] = {}
    types: dict[str, Any] = {}
    plain = {name: one for name, one in found.items() if "variants" in one}
    for name in sorted(plain):
        variants = []
        for one in plain[name]["variants"]:
            variant = {"when": one["when"]} if one.get("when") else {}
            stacks = [{**stack, "layout": _named(stack["layout"], layouts, named)} for stack in one["stacks"]]
            variants.append(variant | ({"stacks": stacks} if stacks else {}) | {k: one[k] for k in ("parts", "unread") if k in one})
        types[name] = {"class": _class_prefix(name), "variants": variants}
        types[name]["defaults"] = _defaults(name, variants)
    readable = {name for name, one in types.items() if any("stacks" in each for each in one["variants"])}
    while True:  # parts of parts
        kept = {name for name, one in types.items() if name in readable or _parts(one, readable)}
        if kept == readable:
            break
        readable = kept
    for name in [*types]:
        if name not in readable:
            del types[name]
            continue
        for one in types[name]["variants"]:
            if "parts" in one:
                held = _parts({"variants": [one]}, readable)
                gone = [part["config"] for part in one["parts"] if part["config"] not in [each["config"] for each in held]]
                one["parts"] = held
                if gone or one.get("unread"):
                    one["unread"] = sorted({*one.get("unread", ()), *gone})
        if not types[name]["class"]:
            del types[name]["class"]
    return {"transformers": transformers.__version__, "layouts": layouts, "types": types}


def _parts(one: Mapping[str, Any], readable: set[str]) -> list[dict[str, Any]]:
    parts = [part for each in one["variants"] for part in each.get("parts", ())]
    return [
        {**part, "types": [name for name in part["types"] if name in readable]} for part in parts if part["type"] in readable
    ]


def _named(layout: Mapping[str, Any], layouts: dict[str, Any], named: dict[str, str]) -> str:
    content = {key: value for key, value in layout.items() if value}
    text = json.dumps(content, sort_keys=True)
    if text not in named:
        query = next(name for name, rows in layout["tensors"].items() if "q" in Rows.parse(rows).blocks)
        base = layout["layer"] + query.removesuffix(".weight")
        name = next(one for one in (base, *(f"{base} {i}" for i in range(2, 999))) if one not in layouts)
        layouts[name], named[text] = content, name
    return named[text]


def _class_prefix(model_type: str) -> str:
    names = tiny_models.MODEL_MAPPING_NAMES.get(model_type)
    return names.removesuffix("Model") if isinstance(names, str) and names.endswith("Model") else ""


def _defaults(model_type: str, variants: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What the class of the configuration says of the keys that the entry reads."""
    default = tiny_models.default_config(model_type)
    words: set[str] = set()
    for one in variants:
        words |= set(one.get("when", {}))
        for stack in one.get("stacks", ()):
            words |= {word for text in stack["sizes"].values() for word in re.findall(r"[A-Za-z_]\w+", text)}
            words |= set(stack.get("attends", ()))
    return {key: default[key] for key in sorted(words) if default.get(key) is not None and not isinstance(default[key], (list, dict))}


def write_table(content: Mapping[str, Any], path: Path) -> None:
    """One line for each layout and each type."""
    lines = ["{", f'"transformers": {json.dumps(content["transformers"])},']
    for part in ("layouts", "types"):
        rows = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in content[part].items()]
        lines += [f'"{part}": {{', ",\n".join(rows), "}" + ("," if part == "layouts" else "")]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")
