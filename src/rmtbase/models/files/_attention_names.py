"""Recognition of attention modules by the names and shapes of tensors, and the lines of Python that read them.

It serves weights under names that the table of architectures lacks: those of other programs and of the user's own
modules. A layout is listed here only if its names leave no doubt about the order of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Shape = tuple[int, ...]

# torch.compile, FSDP and activation checkpointing insert these into names wherever they wrap a module;
# torch.nn.DataParallel, its distributed variant and PEFT put the second set in front of all names.
_WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_IN_FRONT = ("module.", "base_model.model.")
_HARMLESS = re.compile(r"[\w./:+-]{1,300}", re.ASCII)
_MOST_SITES = 1000
_ENDINGS = (".weight", "/kernel:0", "/kernel", ".kernel", "")
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
_CONCATENATED, _IN_GROUPS = "concatenated", "groups"
# Name of the fused weight, order of its rows, and the names that outputs can have beside it.
_FUSED = (
    (".c_attn.weight", _CONCATENATED, (".c_proj.weight",)),
    (".in_proj_weight", _CONCATENATED, (".out_proj.weight",)),
    (".Wqkv.weight", _CONCATENATED, (".out_proj.weight", ".Wo.weight")),
    (".qkv.weight", _CONCATENATED, (".proj.weight",)),
    (".attn.weight", _IN_GROUPS, (".proj.weight",)),
    (".linear_qkv.weight", _IN_GROUPS, (".linear_proj.weight",)),
    (".query_key_value.weight", _IN_GROUPS, (".dense.weight",)),
)
_CROSS = re.compile(r"(^|\.)(encoder_attn|EncDecAttention|cross_?att\w*|attn2|multihead_attn)($|\.)", re.IGNORECASE)
_HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads", "nhead", "n_attention_heads", "heads", "num_q_heads")
_KEY_HEADS = (
    "n_kv_heads", "n_kv_head", "num_kv_heads", "num_key_value_heads", "n_query_groups", "num_query_groups",
)  # fmt: skip
_NORMS_OF_HEADS = (".q_norm.scale", ".q_norm.weight", ".norm_q.weight")


def own_names(names: Iterable[str]) -> dict[str, str]:
    """Map each stored name to the tensor's name in the model itself, without the insertions of wrappers."""
    own = {name: _WRAPPERS.sub("", name) for name in names}
    for in_front in _IN_FRONT:
        if all(name.startswith(in_front) for name in own.values()):
            own = {name: inner.removeprefix(in_front) for name, inner in own.items()}
    return own


class Attention(NamedTuple):
    """Attention modules that were recognised."""

    names: str  # the program whose names they have, in words
    n_modules: int  # how many modules
    lines: tuple[str, ...]  # lines of Python that define their ``sites``
    n_heads: int | None  # number of heads in each, or None where they differ or it is unknown
    has_blank: bool  # whether the reader must fill in the number of heads


class _Module(NamedTuple):
    """Attention module."""

    name: str  # the common beginning of the names of its tensors
    layout: str  # "separate", "heads" (TransformerLens), or the order of the rows of a fused weight
    # the endings of the names of queries, keys, values and outputs, or of a fused weight and outputs
    leaves: tuple[str, ...]
    transposed: bool  # whether weights are stored as (inputs, outputs)
    rows: tuple[int, int, int]  # numbers of rows of queries, keys and values
    widths: tuple[int, int, int]  # inputs of queries and of keys, outputs of the output (0 where unknown)
    # n_heads, n_key_heads: 0 where no shape shows them
    n_heads: int = 0
    n_key_heads: int = 0
    stacked: bool = False  # whether heads have an axis of their own


def find_attention(
    shapes: Mapping[str, Shape], settings: Mapping[str, Any], heads_of: Callable[[str], int | None] | None = None
) -> Attention | None:
    """Find attention modules among tensors. Returns None if no name is known, or if modules are of several kinds."""
    modules = sorted(_modules(shapes), key=lambda module: _in_order(module.name))
    kinds = {(one.layout, one.leaves, one.transposed, one.stacked) for one in modules}
    if not modules or len(modules) > _MOST_SITES or len(kinds) > 1:
        return None
    told = [settings if heads_of is None else {"n_heads": heads_of(one.name)} for one in modules]
    heads = [_heads(one, shapes, own) for one, own in zip(modules, told, strict=True)]
    n_heads = heads[0] if len(set(heads)) == 1 else None
    return Attention(_names(modules[0], shapes), len(modules), _lines(modules, heads), n_heads, None in heads)


def why_no_attention(shapes: Mapping[str, Shape]) -> str:
    """Return the reason why tensors with these names have no queries and keys, or "" if none is known."""
    if any(name.endswith(("A_log", "mixer.D")) for name in shapes):
        return "the names are those of Mamba, a state-space model: it has no queries and keys, and no W_QK"
    if any(re.search(r"\.att\.(receptance|time_\w+)|time_mix", name) for name in shapes):
        return "the names are those of RWKV, whose layers have no queries, and no W_QK"
    return ""


def _modules(shapes: Mapping[str, Shape]) -> Iterable[_Module]:
    for name, shape in shapes.items():
        if not _HARMLESS.fullmatch(name):
            continue
        if name.endswith(".W_Q") and len(shape) == 3:
            found = _by_heads(name.removesuffix(".W_Q"), shapes)
        else:
            found = _fused(name, shapes) or _separate(name, shapes)
        if found is not None:
            yield found


def _by_heads(module: str, shapes: Mapping[str, Shape]) -> _Module | None:
    """Recognise (head, d_model, d_head), with outputs (head, d_head, d_model), as TransformerLens stores them."""
    lead = "._W_" if f"{module}._W_K" in shapes else ".W_"
    leaves = (".W_Q", f"{lead}K", f"{lead}V", ".W_O")
    held = [shapes.get(module + leaf, ()) for leaf in leaves]
    if any(len(shape) != 3 for shape in held):
        return None
    (heads, width, d_head), (key_heads, key_width, _), (_, _, d_value), (_, _, d_output) = held
    rows = heads * d_head, key_heads * d_head, key_heads * d_value
    return _Module(module, "heads", leaves, True, rows, (width, key_width, d_output), heads, key_heads, True)


def _fused(name: str, shapes: Mapping[str, Shape]) -> _Module | None:
    shape = shapes[name]
    for leaf, layout, outputs in _FUSED:
        module = name.removesuffix(leaf)
        if module == name or len(shape) != 2 or not _is_known_order(name, shapes):
            continue
        transposed = leaf == ".c_attn.weight" and shape[1] > shape[0]
        total, width = shape[::-1] if transposed else shape
        output = next((one for one in outputs if len(shapes.get(module + one, ())) == 2), "")
        stored = shapes[module + output] if output else (0, total // 3)
        d_output, queries = stored[::-1] if transposed and output else stored
        if queries >= total or (total - queries) % 2:
            return None
        rows = queries, (total - queries) // 2, (total - queries) // 2
        return _Module(module, layout, (leaf, output), transposed, rows, (width, width, d_output))
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


def _separate(name: str, shapes: Mapping[str, Shape]) -> _Module | None:
    ending = next(one for one in _ENDINGS if name.endswith(one))
    stem = name.removesuffix(ending)
    cut = max(stem.rfind("."), stem.rfind("/"))
    if ending == "" or cut < 0 or (leaves := _SEPARATE.get(stem[cut + 1 :])) is None:
        return None
    module, mark = stem[:cut], stem[cut]
    each = [f"{mark}{leaf}{ending}" for leaf in leaves]
    known = tuple(shapes.get(module + leaf, ()) for leaf in each[:3])
    output = next((leaf for leaf in each[3:] if module + leaf in shapes), "")
    stored = shapes.get(module + output, ()) if output else ()
    transposed = ending != ".weight"
    if transposed and all(len(shape) == 3 for shape in known):  # (inputs, head, d_head), as Flax and Keras store them
        (width, heads, d_head), (key_width, key_heads, _), (_, _, d_value) = known
        d_output = stored[-1] if len(stored) == 3 else 0
        rows = heads * d_head, key_heads * d_head, key_heads * d_value
        names = (*each[:3], output if d_output else "")
        return _Module(module, "separate", names, True, rows, (width, key_width, d_output), heads, key_heads, True)
    if any(len(shape) != 2 for shape in known[:2]):
        return None
    held = [one if len(one) == 2 else (0, 0) for one in (*known, stored)]
    turned = [one[::-1] if transposed else one for one in held]
    (rows_q, width), (rows_k, key_width), (rows_v, _), (d_output, inputs) = turned
    has_output = rows_v > 0 and inputs == rows_q
    if output and not has_output:  # the rows hold more than the queries of heads, for instance a gate
        return None
    names = (*each[:2], each[2] if rows_v else "", output if has_output else "")
    widths = width, key_width, d_output if has_output else 0
    return _Module(module, "separate", names, transposed, (rows_q, rows_k, rows_v), widths)


def _heads(module: _Module, shapes: Mapping[str, Shape], settings: Mapping[str, Any]) -> int | None:
    """Return the number of heads if a shape or the settings show it."""
    if module.n_heads:
        return module.n_heads
    for norm in _NORMS_OF_HEADS:
        size = shapes.get(module.name + norm, ())
        if len(size) == 1 and size[0] and size[0] < module.rows[0] and module.rows[0] % size[0] == 0:
            return module.rows[0] // size[0]
    found = [settings[word] for word in _HEADS if type(settings.get(word)) is int]
    if not found or len(set(found)) > 1 or found[0] < 1 or module.rows[0] % found[0]:
        return None
    d_head = module.rows[0] // found[0]
    key_heads = next((settings[word] for word in _KEY_HEADS if type(settings.get(word)) is int), None)
    fits = module.rows[1] % d_head == 0 and key_heads in (None, module.rows[1] // d_head)
    return found[0] if fits else None


def _names(module: _Module, shapes: Mapping[str, Shape]) -> str:
    """Name the program that the names belong to."""
    leaf = module.leaves[0]
    name = module.name + leaf
    if leaf == ".W_Q":
        return "TransformerLens"
    if leaf == ".c_attn.weight":
        return "GPT-2 of transformers (Conv1D, transposed)" if module.transposed else "nanoGPT (Linear, not transposed)"
    if leaf == ".in_proj_weight":
        return "torch.nn.MultiheadAttention"
    if leaf in (".qkv.weight", ".attn.weight"):
        return "timm" if leaf == ".qkv.weight" and _is_timm(name, shapes) else "litgpt"
    if leaf == ".linear_qkv.weight" or "self_attention.query_key_value" in name:
        return "Megatron"
    if leaf == ".q_proj.weight" and module.leaves[3] == ".output_proj.weight":
        return "torchtune"
    if leaf == ".wq.weight":
        return "Meta's Llama"
    if leaf == ".to_q.weight" and "transformer_blocks" in name:
        return "diffusers"
    return f"{leaf.lstrip('./')} and its kin"


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts layer 10 after layer 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"[./_]", name)]


def _lines(modules: list[_Module], heads: list[int | None]) -> tuple[str, ...]:
    first = modules[0]
    columns: dict[str, list[Any]] = {
        "n_heads": heads,
        "d_query": [one.widths[0] for one in modules],
        "d_key": [one.widths[1] for one in modules],
        "d_output": [one.widths[2] for one in modules],
        "queries": [one.rows[0] for one in modules],
        "keys": [one.rows[1] for one in modules],
        "values": [one.rows[2] for one in modules],
    }
    if set(heads) == {None}:
        fixed = ["n_heads = ...  # put in the number of heads: no tensor shows it, and a wrong one mixes heads"]
        del columns["n_heads"]
    elif None in heads:
        columns["n_heads"], fixed = [one or ... for one in heads], ["# put in the numbers of heads that are missing"]
    else:
        fixed = []
    varying = {name: held for name, held in columns.items() if len(set(held)) > 1}
    value = {name: name if name in varying else str(held[0]) for name, held in columns.items()} | (
        {"n_heads": "n_heads"} if "n_heads" not in columns else {}
    )
    loop, place = _loop(modules, varying)
    n_heads, rows = value["n_heads"], (value["queries"], value["keys"], value["values"])
    body = [] if first.n_heads else [f"d_head = {rows[0]} // {n_heads}", f"n_key_heads = {rows[1]} // d_head"]
    if first.n_heads:
        body = [f"d_head, n_key_heads = {rows[0]} // {n_heads}, {first.n_key_heads}"]
    body += _expressions(first, rows)
    sizes = f", d_value={rows[2]} // n_key_heads" if any(columns["values"]) else ""
    sizes += f", d_output={value['d_output']}" if first.leaves[-1] else ""
    known = ", value=value" * any(columns["values"]) + ", output=output" * bool(first.leaves[-1])
    body += [
        "sites.append(",
        "    Site(",
        f"        place={place}, module=module, n_heads={n_heads}, n_key_heads=n_key_heads, d_head=d_head,",
        f"        d_query={value['d_query']}, d_key={value['d_key']}{sizes},",
        f"        query=query, key=key{known},",
        "    )",
        ")",
    ]
    return (*fixed, "sites = []", *loop, *(f"    {line}" for line in body))


def _loop(modules: list[_Module], varying: Mapping[str, list[Any]]) -> tuple[list[str], str]:
    """Return the lines that begin the loop, and the expression for the place of its site."""
    numbers = [[int(part) for part in re.findall(r"\d+", one.name)] for one in modules]
    skeletons = {re.sub(r"\d+", "\0", one.name) for one in modules}
    if len(skeletons) == 1 and not varying:
        changing = [axis for axis, held in enumerate(zip(*numbers, strict=True)) if len(set(held)) > 1]
        if len(changing) <= 1 and numbers[0]:
            axis = changing[0] if changing else 0
            layers = [one[axis] for one in numbers]
            pieces = re.split(r"(\d+)", modules[0].name)
            pieces[2 * axis + 1] = "{i}"
            over = f"range({len(layers)})" if layers == list(range(len(layers))) else repr(layers)
            return [f"for i in {over}:", f'    module = f"{"".join(pieces)}"'], 'Place("", i)'
    counts: dict[str, int] = {}
    rows = []
    for index, one in enumerate(modules):
        stack = _stack(one.name, modules)
        layer = counts.get(stack, 0)
        counts[stack] = layer + 1
        more = "".join(f", {'...' if held[index] is ... else held[index]}" for held in varying.values())
        rows.append(f'    ("{stack}", {layer}, "{one.name}"{more}),')
    variables = "".join(f", {name}" for name in varying)
    return ["modules = [", *rows, "]", f"for stack, i, module{variables} in modules:"], "Place(stack, i)"


def _stack(name: str, modules: list[_Module]) -> str:
    """Return the stack of a module, "" where there is only one."""
    if any(_CROSS.search(one.name) for one in modules) and _CROSS.search(name):
        return "cross"
    parts = {part for one in modules for part in one.name.split(".")}
    own = set(name.split("."))
    if {"encoder", "decoder"} <= parts:
        return next((stack for stack in ("encoder", "decoder") if stack in own), "")
    return ""


def _expressions(module: _Module, rows: tuple[str, str, str]) -> list[str]:
    turned = ", transposed=True" if module.transposed else ""
    if module.layout in (_CONCATENATED, _IN_GROUPS):
        leaf, output = module.leaves
        lines = [f'qkv = Tensor(f"{{module}}{leaf}"{turned})']
        if module.layout == _CONCATENATED:
            q, k, v = rows
            lines += [
                f"query = take_rows(qkv, range({q}))",
                f"key = take_rows(qkv, range({q}, {q} + {k}))",
                f"value = take_rows(qkv, range({q} + {k}, {q} + {k} + {v}))",
            ]
        else:  # each group holds its query heads, then its key, then its value
            total = " + ".join(rows)
            lines += [
                f"group = {rows[0]} // d_head // n_key_heads + 2",
                f"part = [row // d_head % group for row in range({total})]",
                "query = take_rows(qkv, [row for row, one in enumerate(part) if one < group - 2])",
                "key = take_rows(qkv, [row for row, one in enumerate(part) if one == group - 2])",
                "value = take_rows(qkv, [row for row, one in enumerate(part) if one == group - 1])",
            ]
        return lines + ([f'output = Tensor(f"{{module}}{output}"{turned})'] if output else [])
    if module.layout == "heads":
        lines = [
            f'{part} = Stacked(tuple(Tensor(f"{{module}}{leaf}", transposed=True, index=h) for h in range({count})))'
            for part, leaf, count in zip(
                ("query", "key", "value"),
                module.leaves,
                (module.n_heads, module.n_key_heads, module.n_key_heads),
                strict=False,
            )
        ]
        return [*lines, f'output = Tensor(f"{{module}}{module.leaves[3]}", transposed=True, n_inputs=2)']
    lines = [
        f'{part} = Tensor(f"{{module}}{leaf}"{turned})'
        for part, leaf in zip(("query", "key", "value"), module.leaves, strict=False)
        if leaf
    ]
    inputs = ", n_inputs=2" if module.stacked else ""
    return lines + ([f'output = Tensor(f"{{module}}{module.leaves[3]}"{turned}{inputs})'] if module.leaves[3] else [])
