"""Locate the heads of a running model in its stored tensors, in the format of the table of architectures."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from attention_trace import Attention, Linear, Refused, Trace, run, sources
from transformers.activations import ACT2FN
from transformers.core_model_loading import revert_weight_conversion

from rmtbase.models.layouts._layout_table import Rows

_PATTERNS = {
    "q": ("q", "(q g)"),
    "k": ("k",),
    "v": ("v",),
    "kv": ("k v", "(k v)"),
    "qk": ("q k", "(q k)"),
    "qkv": ("q k v", "(q k v)", "4(q v k)", "q v k", "k v q", "(k q v)"),
}
_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "relu2", "quick_gelu", "linear")


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
    """

    layer: str
    tensors: dict[str, str]
    norms: dict[str, str | None]
    beside: list[str]
    sizes: dict[str, Any]
    layers: list[int]
    crossed: bool


@dataclass
class Probe:
    """Observations from one tiny model."""

    config: Mapping[str, Any]
    groups: list[Group] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)


def probe(model: torch.nn.Module, beside: Iterable[str] = ()) -> Probe:
    """Find the attention modules of a model from its own forward pass, without those of its parts ``beside``."""
    trace, rotated = run(model)
    kept = model.state_dict()
    disk = revert_weight_conversion(model, dict(kept))
    at = {tensor.untyped_storage().data_ptr(): name for name, tensor in disk.items()}
    on_disk = {name: at.get(tensor.untyped_storage().data_ptr()) for name, tensor in kept.items()}
    uses = Counter((tensor.data_ptr(), tensor.shape) for tensor in disk.values())
    root = model.base_model_prefix + "."
    shared = {name.removeprefix(root) for name, one in disk.items() if uses[one.data_ptr(), one.shape] > 1}
    found = Probe(model.config.to_dict())
    by_group: dict[tuple[str, ...], Group] = {}
    seen: set[str] = set()
    for one, turned in zip(trace.attentions, rotated.attentions, strict=True):
        if any(one.module.startswith(part + ".") for part in beside):
            continue
        try:
            group, layer = _one(one, turned, trace, on_disk, disk, root)
            if several := shared & {f"{group.layer.format(layer)}{name}" for name in group.tensors}:
                raise Refused(f"{min(several)} is of several layers, and is stored for one")
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
        for name in ("n_heads", "n_key_heads", "d_head", "d_value", "d_query", "d_key", "d_mlp"):
            if name not in held.sizes and name in group.sizes:
                held.sizes[name] = group.sizes[name]
            if name in group.sizes and held.sizes[name] != group.sizes[name]:
                held.sizes[name] = None
        scales = held.sizes["scale"], group.sizes["scale"]
        if None in scales or abs(scales[0] - scales[1]) > 1e-5 * abs(scales[1]):
            held.sizes["scale"] = None  # it depends on the layer
        held.sizes["rotated"] = held.sizes["rotated"] or group.sizes["rotated"]  # of the first layer that is
        held.norms |= group.norms
        held.beside = sorted({*held.beside, *group.beside})
    return Probe(found.config, list(by_group.values()), found.unresolved)


def _one(
    one: Attention,
    turned: Attention,
    trace: Trace,
    on_disk: Mapping[str, str | None],
    disk: Mapping[str, Any],
    root: str,
) -> tuple[Group, int]:
    """Describe the attention module of one layer."""
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
    output = _output(one, trace)
    if output is not None:
        name = on_disk.get(output.tensor)
        if name and name.startswith(within):
            tensors[name] = "o" + " T" * output.transposed
            sizes["d_output"] = output.y.shape[1]
    for name, text in _mlp(trace, on_disk, disk, within, set(tensors)).items():
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
        if not name.startswith(within) or inner in used or not attention or not inner.startswith(attention):
            continue
        side = re.match(
            r"(q|k)(uery|ey)?_?(norm|layernorm|ln|layer_norm)", inner.removeprefix(attention).split(".")[-2:][0]
        )
        if side:
            of = {(sizes["d_head"],): "d_head", (sizes["n_heads"] * sizes["d_head"],): "q"}
            of[(key_heads * sizes["d_head"],)] = "k" if side[1] == "k" else of.get((key_heads * sizes["d_head"],))
            norms[inner] = of.get(tuple(tensor.shape)) if tuple(tensor.shape) != (0,) else None
        else:
            beside.append(inner)
    sizes["rotated"] = int((np.abs(turned.query - one.query).max((0, 1)) > 1e-9).sum())
    factor = [parts[symbol].factor for symbol in "qk"]
    uniform = all(np.ptp(each) < 1e-5 * abs(each.mean()) for each in factor)
    sizes["scale"] = float(one.scale * factor[0].mean() * factor[1].mean()) if uniform and one.scale else None
    crossed = where[owners["q"][0]].x.shape != where[owners["k"][0]].x.shape or not np.allclose(
        where[owners["q"][0]].x, where[owners["k"][0]].x
    )
    if {"a", "c"} & {word for text in tensors.values() for word in text.split()}:
        crossed = False
    if crossed:  # after layers that rotate nothing is as it was
        sizes["rotated"] = None
    return Group(layer, local, norms, sorted(beside), sizes, [], crossed), index


def _shared(names: Iterable[str]) -> str:
    shared = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}." for part in shared)


def _key_heads(source: Any) -> int:
    """Count the different key heads, each serving the same number of neighbouring query heads."""
    heads = [
        tuple(zip(lin, row, strict=True)) for lin, row in zip(source.linear.tolist(), source.row.tolist(), strict=True)
    ]
    distinct = list(dict.fromkeys(heads))
    group = len(heads) // len(distinct)
    if [head for head in distinct for _ in range(group)] != heads:
        raise Refused("heads share keys in an order of their own")
    return len(distinct)


def _plain(
    parts: Mapping[str, Any], owners: Mapping[str, list[str]], where: Mapping[str, Linear], sizes: dict
) -> dict[str, str]:
    """Describe the rows of each tensor, where each of q, k and v lies in a single tensor."""
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
            if whole != height or any(
                width[one] % (sizes[rows.repeated] if isinstance(rows.repeated, str) else rows.repeated)
                for one in rows.blocks
            ):
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
    """Return True if each head has its rows, in any order within the head."""
    heads = sizes["n_heads"] if symbol == "q" else sizes["n_key_heads"]
    size = len(expected) // heads
    group = len(source.row) // heads
    if len(source.row) % heads or source.row.shape[1] != size:
        return False
    rows = source.row[::group]
    return all(
        sorted(rows[head].tolist()) == sorted(expected[head * size : (head + 1) * size]) for head in range(heads)
    )


def _same_order(parts: Mapping[str, Any]) -> bool:
    """Return True if the queries and keys of each head have their dimensions in the same order."""

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
    """Describe the rows where keys are [W_UK W_DKV; W_KR], as in DeepSeek; None where they are not."""
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
    lower = next((one for one in trace.linears if one.y.shape == above.x.shape and np.allclose(one.y, above.x)), None)
    if lower is not None and on_disk.get(lower.tensor):
        found = {str(on_disk[lower.tensor]): "a", owners["q"][0]: "q < a", **found}
        sizes["d_query_latent"] = lower.y.shape[1]
        sizes["d_query"] = lower.x.shape[1]
    else:
        found = {owners["q"][0]: "q", **found}
    sizes["d_key"] = where[down].x.shape[1]
    return found


def _output(one: Attention, trace: Trace) -> Linear | None:
    """Find the weight that reads the concatenated outputs of all heads."""
    if one.context is None:
        return None
    heads = one.context.transpose(1, 0, 2)
    flat = heads.reshape(len(heads), -1)
    for linear in trace.linears:
        if linear.x.shape == flat.shape and np.allclose(linear.x, flat, rtol=1e-6, atol=1e-9):
            return linear
    return None


def _mlp(
    trace: Trace, on_disk: Mapping[str, str | None], disk: Mapping[str, Any], within: str, used: set[str]
) -> dict[str, str]:
    """Find the matrices of the layer's MLP: down(act(up x)) or down(act(gate x) · up x)."""
    here = []
    for linear in trace.linears:
        name = on_disk.get(linear.tensor)
        if (
            name
            and "expert" not in name
            and name.startswith(within)
            and name not in used
            and prod(disk[name].shape[2:]) == 1
        ):
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
                        alike = gate_name not in words and gate.y.shape == up.y.shape == down.x.shape
                        if alike and act is not acts["linear"] and same(act(gate.y) * up.y, down.x):
                            words[gate_name] = "gate"
                            break
                    else:
                        continue
                linears = dict(here)
                return {name: text + " T" * linears[name].transposed for name, text in words.items()}
    return {}
