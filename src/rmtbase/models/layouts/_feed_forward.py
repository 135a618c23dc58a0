"""MLPs, mixtures of experts and their routers: found in the layers of a model by names and shapes, without torch.

A *naming scheme* is a set of names for the matrices of y = W_out (act(W_gate x) ∘ W_in x). A module is an MLP if its
matrices have exactly the names of a scheme, and the shapes

    W_in, W_gate: (d_ff, d_model)        W_out: (d_model, d_ff)

where d_model is the width of the layer's residual stream and d_ff may change from layer to layer. A tensor W_in with
2 d_ff rows holds both W_gate and W_in. The experts of a layer are numbered modules of this kind, or stacks (experts, …)
of their matrices, stored as (outputs, inputs) or as (inputs, outputs), which the shapes of W_in and W_out show. These
are mentioned in a note and not read: a module with the names of an MLP but other shapes, a second MLP in a layer, and
gate and inputs in one tensor in an order that was not proved for the type.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._expressions import Expression, Rows, Tensor
from rmtbase.models.layouts._sites import MatrixName, Part, Place, Site
from rmtbase.shown import quoted

_NAMING_SCHEMES: tuple[tuple[str | None, str, str], ...] = (  # gate, in, out
    ("gate_proj", "up_proj", "down_proj"),
    ("w1", "w3", "w2"),
    ("fc1", "fc3", "fc2"),
    ("wi_0", "wi_1", "wo"),
    (None, "up_proj", "down_proj"),
    (None, "gate_up_proj", "down_proj"),
    (None, "input_linear", "output_linear"),
    (None, "fc1", "fc2"),
    (None, "dense1", "dense2"),
    (None, "wi", "wo"),
)
_FUSED = ("gate_up_proj", "input_linear", "fc1")  # tensors that may hold both W_gate and W_in
_EXPERT = re.compile(r"(?P<of>(?:.*\.)?experts)\.(?:expert_)?(?P<number>\d{1,6})")
_SHARED = re.compile(r"shared_experts?|share_expert|shared_mlp|shared_moe")
_BLOCK = re.compile(r"(?:.*\.)?\d{1,6}\.")  # the name of an attention module up to its last number
_ROUTER = re.compile(r"(?:.*\.)?(?:gate|router)(?:\..+)?")
_ALTERNATING = frozenset({"gpt_oss"})
"""Model types in which the rows of W_gate and W_in alternate where both are in one tensor."""
_GATE_FIRST = frozenset(
    [
        *("afmoe", "aria_text", "axk1", "axk2", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3"),
        *("deepseek_v32", "deepseek_v4", "dots3_note_text", "ernie4_5_moe", "exaone_moe", "flex_olmo", "flint"),
        *("glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "granitemoe", "granitemoe_swa", "granitemoeshared"),
        *("hunyuan_v1_moe", "hy_v3", "hy_v4", "kolibri1", "llama4_text", "mellum", "mimo_v2_flash", "minimax"),
        *("minimax_m2", "minimax_m3_vl_text", "mixtral", "olmoe", "openai_privacy_filter", "phimoe"),
        *("qwen2_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next", "qwen3_omni_moe_text"),
        *("qwen3_vl_moe_text", "solar_open"),
    ]
)
"""Model types in which W_gate is above W_in where both are in one tensor; proved for each."""


@dataclass(frozen=True)
class _Layer:
    """Matrices of one layer outside its attention."""

    place: Place  # place of the layer
    d_model: int  # its width
    modules: Mapping[str, Mapping[str, str]]  # names in the checkpoint, by module and by the name within the module
    in_stages: bool  # whether the width changes within its stack, or its layers are not numbered consecutively


@dataclass(frozen=True)
class _Module:
    """Matrices of one MLP, or of a stack of experts."""

    # names of the tensors of the gate, W_in and W_out; None for a gate without a tensor of its own
    names: tuple[str | None, str, str]
    transposed: bool  # whether they are stored as (inputs, outputs)
    fused: bool  # whether the tensor of W_in holds the gate too
    d_ff: int  # rows of W_in
    n_experts: int | None  # number of experts in a stack; None for one MLP

    def matrices(self, kind: str, alternating: bool, index: int | None = None) -> dict[str, Expression]:
        """Return its matrices as expressions: ``KIND_in``, ``KIND_gate`` where it has one, ``KIND_out``."""
        gate, *in_out = (None if name is None else Tensor(name, self.transposed, index) for name in self.names)
        into, out = in_out
        assert into is not None and out is not None
        held: dict[str, Expression] = {f"{kind}_in": into, f"{kind}_out": out}
        if self.fused:
            step, size = (2, 2 * self.d_ff) if alternating else (1, self.d_ff)
            start = 1 if alternating else self.d_ff
            held[f"{kind}_gate"] = Rows(into, ((0, size, step),))
            held[f"{kind}_in"] = Rows(into, ((start, 2 * self.d_ff, step),))
        elif gate is not None:
            held[f"{kind}_gate"] = gate
        return {name: held[name] for name in (f"{kind}_in", f"{kind}_gate", f"{kind}_out") if name in held}


@dataclass(frozen=True)
class FeedForward:
    """Matrices found in the layers beside attention."""

    # the matrices of the MLP, of the router, and of the experts that every token uses, by place
    layers: Mapping[Place, Mapping[str, Expression]]
    experts: Part  # the matrices of each expert, with notes on them
    notes: tuple[str, ...]  # what belongs in ``layers`` but is not read, and why


def find_feed_forward(
    sites: Sequence[Site],
    checkpoint: Checkpoint,
    config: Mapping[str, Any],
    used: Collection[str],
    types: frozenset[str],
) -> FeedForward:
    """Find the MLPs, experts and routers of the layers with sites, and of the layers without attention between them."""
    finder = _Finder(checkpoint, config, types)
    for layer in _layers(sites, checkpoint, used):
        finder.read(layer)
    notes = tuple(told_by_place(finder.left))
    return FeedForward(finder.layers, Part(finder.experts, tuple(told_by_place(finder.experts_left))), notes)


class _Finder:
    """Search for MLPs, experts and routers, one layer at a time."""

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any], types: frozenset[str]) -> None:
        self.checkpoint, self.types = checkpoint, types
        self.alternating = bool(types & _ALTERNATING)
        self.counts = set(_expert_counts(config))
        self.layers: dict[Place, dict[str, Expression]] = {}
        self.experts: dict[MatrixName, Expression] = {}
        self.left: dict[str, list[Place]] = defaultdict(list)
        self.experts_left: dict[str, list[Place]] = defaultdict(list)

    def read(self, layer: _Layer) -> None:
        """Search one layer."""
        numbered: dict[str, dict[int, str]] = defaultdict(dict)
        stacks, shared, plain = [], [], []
        for path, names in layer.modules.items():
            found = _EXPERT.fullmatch(path)
            if found:
                numbered[found["of"]][int(found["number"])] = path
            elif any(map(_SHARED.fullmatch, path.split("."))):
                shared.append(path)
            elif "experts" in path.split(".") or (_naming_scheme(names) and self._is_stacked(names)):
                stacks.append(path)
            else:
                plain.append(path)
        n_experts = self._experts(layer, numbered, stacks)
        self._one(layer, shared, "shared_expert")
        self._one(layer, plain, "mlp")
        if n_experts is not None:
            self._router(layer, n_experts, plain)
        if layer.in_stages and layer.modules and not any(layer.place in told for told in self._told()):
            names = ", ".join(f"{path}.{word}".lstrip(".") for path, held in layer.modules.items() for word in held)
            self.left[f"no matrices: {names}: none of the known names of an MLP"].append(layer.place)

    def _told(self) -> Iterator[Collection[Place]]:
        """Yield the layers that have a matrix or a note."""
        yield self.layers
        yield from (*self.left.values(), *self.experts_left.values())

    def _is_stacked(self, names: Mapping[str, str]) -> bool:
        return all(len(self.checkpoint.shape(name)) == 3 for name in names.values())

    def _one(self, layer: _Layer, paths: Sequence[str], kind: str) -> None:
        """Add the only MLP of a kind in a layer, or a note if there are several or it cannot be read."""
        spelled = [path for path in paths if _naming_scheme(layer.modules[path])]
        read = [self._module(layer, path) for path in spelled]
        if len(spelled) == 1 and isinstance(read[0], _Module):
            self.layers.setdefault(layer.place, {}).update(read[0].matrices(kind, self.alternating))
        elif spelled:
            reasons = [one for one in read if isinstance(one, str)]
            why = reasons[0] if reasons else f"{len(spelled)} MLPs in a layer; expected one"
            told = "no matrices" if layer.in_stages else "not read"
            self.left[f"{told}: {' and '.join(spelled)}: {why}"].append(layer.place)

    def _experts(self, layer: _Layer, numbered: Mapping[str, Mapping[int, str]], stacks: Sequence[str]) -> int | None:
        """Add the experts of a layer and return their number, or None where there are none or none are read."""
        if len(numbered) + len(stacks) == 0:
            return None
        if len(numbered) + len(stacks) > 1:
            paths = " and ".join((*numbered, *stacks))
            self.experts_left[f"not read: {paths}: several mixtures in a layer; expected one"].append(layer.place)
            return None
        found: list[tuple[_Module, int | None]] = []
        for path in stacks or [path for _, path in sorted(numbered[next(iter(numbered))].items())]:
            module = self._module(layer, path)
            if isinstance(module, str):
                self.experts_left[f"not read: {path}: {module}"].append(layer.place)
                return None
            found += [(module, index) for index in (range(module.n_experts) if module.n_experts else (None,))]
        path = stacks[0] if stacks else next(iter(numbered))
        numbers = range(len(found)) if stacks else sorted(numbered[path])
        if list(numbers) != list(range(len(found))) or len(found) not in self.counts:
            why = f"{len(found)} experts, the last {max(numbers)}; expected as many as the configuration says"
            self.experts_left[f"not read: {path}: {why}"].append(layer.place)
            return None
        each = [module.matrices("expert", self.alternating, index) for module, index in found]
        if len({(tuple(one), module.d_ff) for one, (module, _) in zip(each, found, strict=True)}) > 1:
            self.experts_left[f"not read: {path}: experts of several shapes"].append(layer.place)
            return None
        for component in each[0]:
            for number, matrices in enumerate(each):
                self.experts[MatrixName(layer.place, component, number)] = matrices[component]
        return len(found)

    def _router(self, layer: _Layer, n_experts: int, paths: Sequence[str]) -> None:
        """Add the router W_r, (experts, d_model): the only matrix of that shape in a module named gate or router."""
        held = [
            name
            for path in paths
            for word, name in layer.modules[path].items()
            if _ROUTER.fullmatch(f"{path}.{word}" if path else word)
            and self.checkpoint.shape(name) == (n_experts, layer.d_model)
        ]
        if len(held) == 1:
            self.layers.setdefault(layer.place, {})["router"] = Tensor(held[0])
        else:
            found = f"{len(held)} matrices" if held else "no matrix"
            self.left[f"not read: the router: {found} ({n_experts}, {layer.d_model}) called gate or router"].append(
                layer.place
            )

    def _module(self, layer: _Layer, path: str) -> _Module | str:
        """Return a module with the names and shapes of an MLP, or the reason why it is not one."""
        held, d, scheme = layer.modules[path], layer.d_model, _naming_scheme(layer.modules[path])
        if scheme is None:
            return f"{', '.join(held)}; expected the matrices of an MLP"
        gate, into, out = (None if word is None else held[word] for word in scheme)
        assert into is not None and out is not None
        shapes = {name: self.checkpoint.shape(name) for name in (gate, into, out) if name is not None}
        stacked = all(len(shape) == 3 for shape in shapes.values())
        counts = {shape[0] for shape in shapes.values()} if stacked else {None}
        fusable = gate is None and scheme[1] in _FUSED
        fits = []
        for transposed in (False, True) if stacked else (False,):
            flat = {name: shape[1:] if stacked else shape for name, shape in shapes.items()}
            linear = {name: shape[::-1] if transposed else shape for name, shape in flat.items()}
            d_ff = linear[out][-1]
            times = next((one for one in ((1, 2) if fusable else (1,)) if linear[into] == (one * d_ff, d)), 0)
            agree = linear[out] == (d, d_ff) and (gate is None or linear[gate] == linear[into])
            if times and agree and len(counts) == 1:
                fits.append(_Module((gate, into, out), transposed, times == 2, d_ff, next(iter(counts))))
        if len(fits) != 1:
            found = ", ".join(f"{name.rsplit(path, 1)[-1].lstrip('.')} {shape}" for name, shape in shapes.items())
            return f"{found}; expected (d_ff, {d}) and ({d}, d_ff)" + (", which may be either way" if fits else "")
        if fits[0].fused and not self.types & (_ALTERNATING | _GATE_FIRST):
            of = " or ".join(map(quoted, sorted(self.types)))
            return f"gate and inputs are in one tensor, in an order that is not known for {of}"
        return fits[0]


def _naming_scheme(held: Mapping[str, str]) -> tuple[str | None, str, str] | None:
    """Return the naming scheme that matches the names of a module's matrices."""
    return next((one for one in _NAMING_SCHEMES if held.keys() == {word for word in one if word is not None}), None)


def _layers(sites: Sequence[Site], checkpoint: Checkpoint, used: Collection[str]) -> Iterator[_Layer]:
    """Yield the layers with sites, each once, and those between them, without the tensors that are used.

    Layers in stages are not numbered consecutively. Such a layer is identified by the name of its attention up to the
    last number, it has the width of the attention's input, and there are no layers in between.
    """
    stacks: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        stacks[site.place.stack].append(site)
    every = {found[0] for site in sites if (found := _BLOCK.match(site.module))}
    seen: set[str] = set()
    for stack, of_stack in stacks.items():
        prefix, widths = _prefix(of_stack), {site.d_query for site in of_stack}
        attention = {site.module for site in of_stack}
        if prefix is None:
            blocks: dict[str, Site] = {}
            for site in of_stack:
                found = _BLOCK.match(site.module)
                if found and found[0] not in seen:
                    blocks.setdefault(found[0], site)
            seen.update(blocks)
            for block, site in blocks.items():
                within = [other.removesuffix(".") for other in every if other.startswith(block) and other != block]
                held = _modules(checkpoint, used, re.escape(block), {*attention, *within}).get("", {})
                yield _Layer(site.place, site.d_query, held, in_stages=True)
        elif prefix not in seen:
            seen.add(prefix)
            of_layer = {site.place.layer: site.d_query for site in of_stack}
            numbered = _modules(checkpoint, used, rf"{re.escape(prefix)}(?P<layer>\d{{1,6}})\.", attention)
            for number, held in sorted((int(number), held) for number, held in numbered.items()):
                width = of_layer.get(number, min(widths) if len(widths) == 1 else None)
                if width is not None:
                    yield _Layer(Place(stack, number), width, held, in_stages=len(widths) > 1)


def _modules(
    checkpoint: Checkpoint, used: Collection[str], before: str, others: Collection[str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the unused matrices outside ``others`` whose names begin with a pattern, by layer, module and name."""
    inside = re.compile(rf"{before}(?P<local>.+)", re.DOTALL)
    modules: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for name in checkpoint.names:
        found = inside.fullmatch(name)
        if not found or name in used or len(checkpoint.shape(name)) not in (2, 3):
            continue
        module, _, word = found["local"].removesuffix(".weight").rpartition(".")
        if word.endswith("bias"):  # the biases of a stack of experts have the shape (experts, outputs)
            continue
        whole = f"{name.removesuffix(found['local'])}{module}"
        if not any(whole == one or whole.startswith(f"{one}.") for one in others):
            modules[found.groupdict().get("layer", "")][module][word] = name
    return modules


def _prefix(sites: Sequence[Site]) -> str | None:
    """Return the common prefix of all sites' names in front of the number of the layer, or None if there is none."""
    parts = [site.module.split(".") for site in sites]
    for place in range(min(map(len, parts))):
        numbers = [own[place] == str(site.place.layer) for own, site in zip(parts, sites, strict=True)]
        before = {tuple(own[:place]) for own in parts}
        if all(numbers) and len(before) == 1:
            return "".join(f"{part}." for part in parts[0][:place])
    return None


def _expert_counts(config: Mapping[str, Any]) -> Iterator[int]:
    """Yield the numbers that the configuration gives under keys with "expert" in them."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _expert_counts(value)
        elif "expert" in str(key):
            yield from (one for one in (value if isinstance(value, list) else [value]) if type(one) is int)


def told_by_place(left: Mapping[str, Sequence[Place]]) -> Iterator[str]:
    """Yield notes, each with the layers that it concerns."""
    for words, places in left.items():
        yield f"{words} ({places[0]}" + (f" and {len(places) - 1} more)" if len(places) > 1 else ")")
