"""MLPs, mixtures of experts and their routers: found in the layers of a model by names and shapes, without torch.

A module is an MLP y = W_out (act(W_gate x) ∘ W_in x) if its matrices have exactly the names of a *naming scheme*, and
the shapes W_in, W_gate: (d_ff, d_model), W_out: (d_model, d_ff), where d_ff may change from layer to layer; W_in with
2 d_ff rows holds both W_gate and W_in. Experts are numbered modules of this kind, or stacks (experts, …) of their
matrices, whose shapes show whether they are (outputs, inputs). What does not fit is mentioned in a note and not read.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._expressions import Expression, Rows, Tensor
from rmtbase.models.layouts._sites import MatrixName, Part, Place, Site, nested_settings
from rmtbase.shown import quoted
from rmtbase.words import listing

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
)  # model types in which W_gate is above W_in where both are in one tensor; proved for each


@dataclass(frozen=True)
class _Layer:
    place: Place  # place of the layer
    d_model: int  # its width
    modules: Mapping[str, Mapping[str, str]]  # names in the checkpoint, by module and by the name within the module
    in_stages: bool  # whether the width changes within its stack, or its layers are not numbered consecutively


@dataclass(frozen=True)
class _Module:
    # names of the tensors of the gate, W_in and W_out; None for a gate without a tensor of its own
    names: tuple[str | None, str, str]
    transposed: bool  # whether they are stored as (inputs, outputs)
    fused: bool  # whether the tensor of W_in holds the gate too
    d_ff: int  # rows of W_in
    n_experts: int | None  # number of experts in a stack; None for one MLP

    def matrices(self, kind: str, alternating: bool, index: int | None = None) -> dict[str, Expression]:
        gate, into, out = (None if name is None else Tensor(name, self.transposed, index) for name in self.names)
        assert into is not None and out is not None
        matrices: dict[str, Expression] = {f"{kind}_in": into, f"{kind}_out": out}
        if self.fused:
            step, size = (2, 2 * self.d_ff) if alternating else (1, self.d_ff)
            start = 1 if alternating else self.d_ff
            matrices[f"{kind}_gate"] = Rows(into, ((0, size, step),))
            matrices[f"{kind}_in"] = Rows(into, ((start, 2 * self.d_ff, step),))
        elif gate is not None:
            matrices[f"{kind}_gate"] = gate
        return {name: matrices[name] for name in (f"{kind}_in", f"{kind}_gate", f"{kind}_out") if name in matrices}


class _NotRead(Exception):  # noqa: N818
    """Error: something in a layer is not read; the message is what and why."""


class FeedForward:
    def __init__(
        self,
        sites: Sequence[Site],
        checkpoint: Checkpoint,
        config: Mapping[str, Any],
        used: Collection[str],
        types: frozenset[str],
    ) -> None:
        self.checkpoint, self.types, self.counts = checkpoint, types, set[Any]()
        self.alternating = bool(types & _ALTERNATING)
        for _, key, value in nested_settings(config):
            if "expert" in key:
                self.counts |= {
                    count for count in (value if isinstance(value, list) else [value]) if type(count) is int
                }
        self.layers: dict[Place, dict[str, Expression]] = {}
        self._experts: dict[MatrixName, Expression] = {}
        self._left: dict[str, list[Place]] = defaultdict(list)
        self._experts_left: dict[str, list[Place]] = defaultdict(list)
        for layer in _layers(sites, checkpoint, used):
            self._read(layer)
        self.experts = Part(self._experts, tuple(told_by_place(self._experts_left)))
        self.notes = tuple(told_by_place(self._left))

    def _read(self, layer: _Layer) -> None:
        numbered: dict[str, dict[int, str]] = defaultdict(dict)
        stacks, shared, plain = [], [], []
        for path, names in layer.modules.items():
            match = _EXPERT.fullmatch(path)
            are_stacks = all(len(self.checkpoint.shape(name)) == 3 for name in names.values())
            if match:
                numbered[match["of"]][int(match["number"])] = path
            elif any(map(_SHARED.fullmatch, path.split("."))):
                shared.append(path)
            elif "experts" in path.split(".") or (_naming_scheme(names) and are_stacks):
                stacks.append(path)
            else:
                plain.append(path)
        n_experts = None
        try:
            n_experts = self._read_experts(layer, numbered, stacks) if numbered or stacks else None
        except _NotRead as reason:
            self._experts_left[f"not read: {reason}"].append(layer.place)
        self._one(layer, shared, "shared_expert")
        self._one(layer, plain, "mlp")
        if n_experts is not None:
            routers = [
                name
                for path in plain
                for word, name in layer.modules[path].items()
                if _ROUTER.fullmatch(f"{path}.{word}" if path else word)
                and self.checkpoint.shape(name) == (n_experts, layer.d_model)
            ]
            if len(routers) == 1:
                self.layers.setdefault(layer.place, {})["router"] = Tensor(routers[0])
            else:
                described = f"{len(routers)} matrices" if routers else "no matrix"
                outcome = f"not read: the router: {described} ({n_experts}, {layer.d_model}) called gate or router"
                self._left[outcome].append(layer.place)
        told = (self.layers, *self._left.values(), *self._experts_left.values())
        if layer.in_stages and layer.modules and not any(layer.place in places for places in told):
            paths = [f"{path}.{word}" for path, tensors in layer.modules.items() for word in tensors]
            names = ", ".join(path.lstrip(".") for path in paths)
            self._left[f"no matrices: {names}: none of the known names of an MLP"].append(layer.place)

    def _one(self, layer: _Layer, paths: Sequence[str], kind: str) -> None:
        spelled = [path for path in paths if _naming_scheme(layer.modules[path])]
        if not spelled:
            return
        try:
            modules = [self._module(layer, path) for path in spelled]
            if len(modules) > 1:
                raise _NotRead(f"{len(spelled)} MLPs in a layer; expected one")
            self.layers.setdefault(layer.place, {}).update(modules[0].matrices(kind, self.alternating))
        except _NotRead as reason:
            outcome = "no matrices" if layer.in_stages else "not read"
            self._left[f"{outcome}: {' and '.join(spelled)}: {reason}"].append(layer.place)

    def _read_experts(self, layer: _Layer, numbered: Mapping[str, Mapping[int, str]], stacks: Sequence[str]) -> int:
        if len(numbered) + len(stacks) > 1:
            raise _NotRead(f"{' and '.join((*numbered, *stacks))}: several mixtures in a layer; expected one")
        mixture = stacks[0] if stacks else next(iter(numbered))
        modules: list[tuple[_Module, int | None]] = []
        for path in stacks or [path for _, path in sorted(numbered[mixture].items())]:
            try:
                module = self._module(layer, path)
            except _NotRead as reason:
                raise _NotRead(f"{path}: {reason}") from reason
            modules += [(module, index) for index in (range(module.n_experts) if module.n_experts else (None,))]
        numbers = range(len(modules)) if stacks else sorted(numbered[mixture])
        if list(numbers) != list(range(len(modules))) or len(modules) not in self.counts:
            found = f"{len(modules)} experts, the last {max(numbers)}"
            raise _NotRead(f"{mixture}: {found}; expected as many as the configuration says")
        experts = [module.matrices("expert", self.alternating, index) for module, index in modules]
        if len({(tuple(matrices), module.d_ff) for matrices, (module, _) in zip(experts, modules, strict=True)}) > 1:
            raise _NotRead(f"{mixture}: experts of several shapes")
        for component in experts[0]:
            for number, matrices in enumerate(experts):
                self._experts[MatrixName(layer.place, component, number)] = matrices[component]
        return len(modules)

    def _module(self, layer: _Layer, path: str) -> _Module:
        tensors, d, scheme = layer.modules[path], layer.d_model, _naming_scheme(layer.modules[path])
        if scheme is None:
            raise _NotRead(f"{', '.join(tensors)}; expected the matrices of an MLP")
        gate, into, out = (None if word is None else tensors[word] for word in scheme)
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
            times = next((factor for factor in ((1, 2) if fusable else (1,)) if linear[into] == (factor * d_ff, d)), 0)
            agree = linear[out] == (d, d_ff) and (gate is None or linear[gate] == linear[into])
            if times and agree and len(counts) == 1:
                fits.append(_Module((gate, into, out), transposed, times == 2, d_ff, next(iter(counts))))
        if len(fits) != 1:
            described = ", ".join(f"{name.rsplit(path, 1)[-1].lstrip('.')} {shape}" for name, shape in shapes.items())
            either = ", which may be either way" if fits else ""
            raise _NotRead(f"{described}; expected (d_ff, {d}) and ({d}, d_ff){either}")
        if fits[0].fused and not self.types & (_ALTERNATING | _GATE_FIRST):
            types = " or ".join(map(quoted, sorted(self.types)))
            raise _NotRead(f"gate and inputs are in one tensor, in an order that is not known for {types}")
        return fits[0]


def _naming_scheme(tensors: Mapping[str, str]) -> tuple[str | None, str, str] | None:
    words = tensors.keys()
    return next((scheme for scheme in _NAMING_SCHEMES if words == set(scheme) - {None}), None)


def _layers(sites: Sequence[Site], checkpoint: Checkpoint, used: Collection[str]) -> Iterator[_Layer]:
    stacks: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        stacks[site.place.stack].append(site)
    every = {match[0] for site in sites if (match := _BLOCK.match(site.module))}
    seen: set[str] = set()
    for stack, of_stack in stacks.items():
        prefix, widths = _prefix(of_stack), {site.d_query for site in of_stack}
        attention = {site.module for site in of_stack}
        if prefix is None:
            blocks: dict[str, Site] = {}
            for site in of_stack:
                match = _BLOCK.match(site.module)
                if match and match[0] not in seen:
                    blocks.setdefault(match[0], site)
            seen.update(blocks)
            for block, site in blocks.items():
                within = [inner.removesuffix(".") for inner in every if inner.startswith(block) and inner != block]
                modules = _modules(checkpoint, used, re.escape(block), {*attention, *within}).get("", {})
                yield _Layer(site.place, site.d_query, modules, in_stages=True)
        elif prefix not in seen:
            seen.add(prefix)
            of_layer = {site.place.layer: site.d_query for site in of_stack}
            numbered = _modules(checkpoint, used, rf"{re.escape(prefix)}(?P<layer>\d{{1,6}})\.", attention)
            for number, modules in sorted((int(number), modules) for number, modules in numbered.items()):
                width = of_layer.get(number, min(widths) if len(widths) == 1 else None)
                if width is not None:
                    yield _Layer(Place(stack, number), width, modules, in_stages=len(widths) > 1)


def _modules(
    checkpoint: Checkpoint, used: Collection[str], before: str, excluded: Collection[str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the unused matrices outside ``others`` whose names begin with a pattern, by layer, module and name."""
    inside = re.compile(rf"{before}(?P<local>.+)", re.DOTALL)
    modules: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for name in checkpoint.names:
        match = inside.fullmatch(name)
        if not match or name in used or len(checkpoint.shape(name)) not in (2, 3):
            continue
        module, _, word = match["local"].removesuffix(".weight").rpartition(".")
        if word.endswith("bias"):  # the biases of a stack of experts have the shape (experts, outputs)
            continue
        path = f"{name.removesuffix(match['local'])}{module}"
        if not any(path == prefix or path.startswith(f"{prefix}.") for prefix in excluded):
            modules[match.groupdict().get("layer", "")][module][word] = name
    return modules


def _prefix(sites: Sequence[Site]) -> str | None:
    """Return the common prefix of all sites' names in front of the number of the layer, or None if there is none."""
    parts = [site.module.split(".") for site in sites]
    for place in range(min(map(len, parts))):
        are_numbers = all(words[place] == str(site.place.layer) for words, site in zip(parts, sites, strict=True))
        if are_numbers and len({tuple(words[:place]) for words in parts}) == 1:
            return "".join(f"{part}." for part in parts[0][:place])
    return None


def told_by_place(left: Mapping[str, Sequence[Place]]) -> Iterator[str]:
    for words, places in left.items():
        yield f"{words} ({listing(places, 1)})"
