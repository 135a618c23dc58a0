"""A model's own forward pass without its weights, in which every linear map outputs a signal that identifies its rows.

Parameters have shapes but no values. The output of a linear map is made up: y[t, r] = u[t] · v[r] for token t and row
r; a second pass uses y[t, r] · (1 + i · 2⁻³⁶), with a different number i for each row of each map, so that the ratio of
the values in both passes tells from which row a value comes. Everything in between is neutral (cos = 1, sin = 0, norms,
biases, gains, gates, soft caps) and recorded as a mark; a pass that distinguishes norms puts noise in their place.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from rmtbase.models.forward import _probe_events as events

_MASKED = 1e30  # a score beyond this is masked
_MOST = 2**28  # numbers in a product of activations; about four such arrays exist at once


class ForwardPass(TorchDispatchMode):
    """Single pass; see the module. Its results are in ``linears``, ``products``, ``softmaxes`` and ``outputs``."""

    def __init__(self, names: Mapping[int, str], numbers: events.Numbers, kind: events.PassKind) -> None:
        super().__init__()
        self.linears: dict[str, events.Linear] = {}
        self.products: dict[str, events.Contraction] = {}
        self.softmaxes: dict[str, events.Softmax] = {}
        self.outputs: dict[str, events.Contraction] = {}
        self.modules: list[tuple[str, int]] = [("", 0)]
        self.entered: dict[str, None] = {}
        self.norms = kind.norms or events.NormOutputs()
        self._names = dict(names)  # of parameters, by the storage of their meta tensors
        self._copies: dict[int, events.Copy] = {}
        self._numbers = numbers
        self._tagged, self._neutral, self._real = kind.tagged, kind.neutral, kind.real
        self._origins: dict[int, events.Origin] = {}
        self._held: dict[int, StorageWeakRef] = {}  # so that no new storage reuses the address of a deleted one
        self._met: Counter[str] = Counter()
        self._clock = 0

    def origin(self, *tensors: Tensor) -> events.Origin:
        origins = {
            id(origin): origin for origin in (self._origins.get(_storage(tensor), _NOWHERE) for tensor in tensors)
        }.values()
        if len(origins) == 1:
            return next(iter(origins))
        sets = ("marks", "products", "softmax", "maps")
        return events.Origin(
            content=any(origin.content for origin in origins),
            linear=any(origin.linear for origin in origins),
            born=max((origin.born for origin in origins), default=0),
            **{name: frozenset().union(*(getattr(origin, name) for origin in origins)) for name in sets},
        )

    def declare(self, tensor: Tensor, origin: events.Origin) -> Tensor:
        self._origins[_storage(tensor)] = origin
        self._held.setdefault(_storage(tensor), StorageWeakRef(tensor.untyped_storage()))
        return tensor

    def _key(self, operation: str) -> str:
        key = f"{self.modules[-1][0]}|{operation}"
        self._met[key] += 1
        return f"{key}|{self._met[key]}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self._clock += 1
        if isinstance(kwargs.get("device"), torch.device):
            kwargs["device"] = torch.device("cpu")
        if isinstance(dtype := kwargs.get("dtype"), torch.dtype):
            kwargs["dtype"] = _widened(dtype)
        name = func._schema.name.removeprefix("aten::")
        arguments = events.tensors_in((args, kwargs))
        if name in _ROTATION:  # angles may be learned
            args = arguments = [self._made_up(tensor) for tensor in arguments]
        stored = [tensor.is_meta for tensor in arguments]
        if name in _MULTIPLY and args[-2].is_floating_point():
            return self._multiply(args, kwargs)
        marks: frozenset[events.Mark] = frozenset()
        if all(stored) and stored:
            copied = name == "_to_copy" or (name == "clone" and arguments[0].is_contiguous())
            copied = copied and arguments[0].is_floating_point()  # the same parameter, on any device and in any type
            result = arguments[0].detach() if copied else func(*args, **kwargs)
            if name == "clone" and not copied and _storage(arguments[0]) in self._names and result.is_contiguous():
                self._names[_storage(result)] = self._names[_storage(arguments[0])]
                parameter = arguments[0]
                layout = tuple(parameter.shape), parameter.stride(), int(parameter.storage_offset())
                self._copies[_storage(result)] = events.Copy(*layout)
        elif name == "convolution" and any(stored):
            return self._convolve(func, args, kwargs)
        elif any(stored):
            names = [self._names.get(_storage(tensor)) for tensor in arguments if tensor.is_meta]
            kind = "gain" if name.startswith(("mul", "div")) else "bias"
            marks = frozenset(events.Mark(kind, parameter) for parameter in names if parameter is not None)
            result = self._mixed(func, name, args, kwargs)
        elif name in ("_softmax", "_safe_softmax"):
            return self._softmax(args[0], args[1])
        elif name == "mul" and self._neutral and len(self._rotations(args)) == 1:
            (rotation,) = self._rotations(args)
            (content,) = (factor for factor in args if factor is not rotation)
            result = content * rotation.abs()
        elif name in ("max", "amax") and self.origin(arguments[0]).products:  # subtracted before a softmax
            result = tree_map(lambda tensor: torch.zeros_like(tensor), func(*args, **kwargs))
        elif name in _NEUTRAL and (self._neutral or name not in _ROTATION) and args[0].is_floating_point():
            result = _NEUTRAL[name](*args)
            marks = frozenset({events.Mark(name, self.modules[-1][0])} if name not in _ROTATION else ())
        else:
            result = func(*args, **kwargs)
        origin, before = self.origin(*arguments), {_storage(tensor) for tensor in arguments}
        for tensor in events.tensors_in(result):
            born = self._origins.get(_storage(tensor), _NOWHERE).born if _storage(tensor) in before else self._clock
            carried = replace(origin, marks=origin.marks | marks, born=born)
            if not (tensor.is_floating_point() or tensor.is_complex()):  # a mask or indices
                carried = events.Origin(origin.content, born=born)
            self.declare(tensor, carried)
        return result

    def _mixed(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation on parameters and activations together: biases and gains are neutral, all else is noise."""
        if name in _NORMS:
            return events.contiguous(self.norms.output("", args[0], "")), args[0].new_zeros(1), args[0].new_ones(1)
        if name in ("add", "mul") or (name.rstrip("_") in ("add", "mul", "sub", "div") and not args[0].is_meta):
            values, stored = args[:2] if not args[0].is_meta else args[1::-1]
            result = values.expand(torch.broadcast_shapes(values.shape, stored.shape))
            if stored.ndim == 1:  # a gain or a bias, which may belong to a norm
                result = self.norms.output(self._names.get(_storage(stored), ""), result, "")
            return args[0].copy_(result) if name.endswith("_") else events.contiguous(result)
        small = all(tensor.numel() <= 2**22 for tensor in events.tensors_in((args, kwargs)))
        if small and name not in ("embedding", "_grouped_mm"):
            real_args, real_kwargs = tree_map(self._made_up, (args, kwargs))
            return func(*real_args, **real_kwargs)
        meta_args, meta_kwargs = tree_map(_to_meta, (args, kwargs))
        shapes = func(*meta_args, **meta_kwargs)
        key = self._key(name)
        return tree_map(lambda leaf: events.noise(key, leaf.shape) if isinstance(leaf, Tensor) else leaf, shapes)

    def _rotations(self, factors: Any) -> list[Tensor]:
        tensors = [factor for factor in factors if isinstance(factor, Tensor) and factor.is_complex()]
        return [factor for factor in tensors if len(tensors) == 2 and not self.origin(factor).linear]

    def _made_up(self, leaf: Any) -> Any:
        if not (isinstance(leaf, Tensor) and leaf.is_meta):
            return leaf
        if not leaf.is_floating_point():
            return torch.zeros(leaf.shape, dtype=leaf.dtype)
        name = self._names.get(_storage(leaf), "")
        return self.declare(events.noise(name, leaf.shape), events.Origin(content=False, born=self._clock))

    def _multiply(self, args: Any, kwargs: dict[str, Any]) -> Tensor:
        *added, left, right = args
        added = added[0] if added else None
        vector = right.ndim == 1
        right = right.unsqueeze(-1) if vector else right
        marks: frozenset[events.Mark] = frozenset()
        if added is not None and added.is_meta and _storage(added) in self._names:
            marks = frozenset({events.Mark("bias", self._names[_storage(added)])})
        if left.is_meta and right.is_meta:
            left = self._made_up(left)  # tokens may be parameters: queries of a resampler, positions
        if right.is_meta:
            result = self._linear(left, right, marks)
        elif left.is_meta:
            result = self._linear(right.mT, left.mT, marks).mT
        else:
            result = self._product(left, right)
        if added is not None and not added.is_meta:
            origin = self.origin(result, added)
            result = kwargs.get("beta", 1) * added + kwargs.get("alpha", 1) * result
            self.declare(result, replace(origin, born=self._clock))
        return self.declare(result.squeeze(-1), self.origin(result)) if vector else result

    def _linear(self, values: Tensor, weight: Tensor, marks: frozenset[events.Mark]) -> Tensor:
        """Make up the output for (tokens, inputs) and (inputs, outputs), both possibly with a leading batch axis."""
        shape = (*values.shape[:-1], weight.shape[-1])
        weight_name = self._names.get(_storage(weight))
        key = self._key(f"linear {weight_name or ''}")
        origin = self.origin(values)
        if values.shape[-1] != weight.shape[-2]:
            raise ValueError(f"{values.shape[-1]} inputs of {weight_name or 'a map'} of {weight.shape[-2]}")
        lies = self._lies(weight_name, weight) if weight_name is not None else None
        if weight_name is None or lies is None:
            return self.declare(events.noise(key, shape), events.Origin(content=origin.content, born=self._clock))
        made = events.Origin(origin.content, True, marks, born=self._clock, maps=frozenset({weight_name}))
        if self._real is not None and weight_name in self._real.maps:
            copied = self._copies.get(_storage(weight))

            def laid(flat: Tensor) -> Tensor:
                if copied is not None:
                    flat = flat.as_strided(copied.shape, copied.stride, copied.offset).flatten()
                return flat.as_strided(weight.shape, weight.stride(), weight.storage_offset())

            starts = lies.starts.reshape(-1, 1, weight.shape[-1]) if weight.ndim == 3 else lies.starts
            return self.declare(self._real.apply(weight_name, values, starts, laid, origin), made)
        n_rows = len(lies.starts)
        first = self._numbers.first_of(key, n_rows)
        rows = events.row_values(key, n_rows)
        self.linears[key] = events.Linear(lies, first, rows, values[..., : events.KEPT, :].clone(), origin, marks)
        sent = rows * self._tags(first, n_rows)
        if weight.ndim == 3:
            sent = sent.reshape(-1, 1, weight.shape[-1])
        result = (events.tokens(values.shape[-2])[:, None] * sent).expand(shape).clone()
        return self.declare(result, made)

    def _lies(self, name: str, weight: Tensor) -> events.Weight | None:
        """Return where one or several (inputs, outputs) are in their parameter, or None if steps are not constant."""
        several = weight.ndim == 3 and weight.stride(0) > 0 and weight.shape[0] > 1
        rows = torch.arange(weight.shape[-1]) * weight.stride(-1) + int(weight.storage_offset())
        if several:
            rows = (torch.arange(weight.shape[0]) * weight.stride(0))[:, None] + rows
        n_inputs, step = weight.shape[-2], weight.stride(-2)
        starts = rows.flatten()
        copied = self._copies.get(_storage(weight))
        if copied is not None:
            ends = copied.addresses(starts + (n_inputs - 1) * step)
            starts, second = copied.addresses(starts), copied.addresses(starts + min(1, n_inputs - 1) * step)
            step = int(second[0] - starts[0])
            if not torch.equal(ends - starts, torch.full_like(starts, (n_inputs - 1) * step)):
                return None
        return events.Weight(name, starts, step, n_inputs)

    def _convolve(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        values, weight, bias, *_, groups = args
        shape = func(*tree_map(_to_meta, args), **kwargs).shape
        plain = (
            weight.is_meta and not values.is_meta and groups == 1 and not args[6] and set(weight.shape[2:]) == {1}
        )  # kernels of size 1 are a linear map of the channels
        if plain and shape[2:] == values.shape[2:]:
            marks = frozenset({events.Mark("bias", self._names[_storage(bias)])}) if bias is not None else frozenset()
            channels_last = values.movedim(1, -1).flatten(0, -2)
            self.declare(channels_last, self.origin(values))
            matrix = weight.flatten(1).t()
            result = self._linear(channels_last, matrix, marks)
            moved = result.reshape(values.shape[0], *values.shape[2:], -1).movedim(-1, 1)
            return self.declare(moved.contiguous(), self.origin(result))
        origin, weight_name = self.origin(values), self._names.get(_storage(weight), "")
        marks = origin.marks | {events.Mark(events.CONVOLUTION, weight_name)}
        result = events.noise(self._key(events.CONVOLUTION), shape)
        return self.declare(result, replace(origin, marks=marks, born=self._clock))

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        origins = self.origin(left), self.origin(right)
        both = (left, right.mT) if left.ndim == 3 else (left[None], right[None].mT)
        shape = (*left.shape[:-1], right.shape[-1])
        if (count := prod(shape)) > _MOST:
            raise ValueError(f"a product of shape {tuple(shape)}, too large to be run")
        content = any(origin.content for origin in origins)
        if any(origin.softmax for origin in origins):
            key = self._key("output")
            weights, of_values = both[0][:, : events.KEPT, : events.KEPT], both[1][..., : events.KEPT]
            met = events.Contraction(weights.clone(), of_values.clone(), origins)
            met.first = self._numbers.first_of(key, count)
            met.shape = (both[0].shape[0], shape[-2], shape[-1])
            self.outputs[key] = met
            values = events.row_values(key, count) * self._tags(met.first, count)
            return self.declare(values.reshape(shape), events.Origin(content, True, born=self._clock))
        if not any(origin.linear for origin in origins):
            result = torch.matmul(left, right)  # depends only on positions, for instance angles of rotation
            return self.declare(result, events.Origin(content, born=self._clock))
        key = self._key("product")
        if self._real is not None:
            self._real.met(key, *both)
            result = torch.matmul(left, right)
        else:
            self.products[key] = events.Contraction(events.sampled(both[0]), events.sampled(both[1]), origins)
            n, m = both[0].shape[:2]
            batch = torch.arange(n, dtype=torch.float64)[:, None, None] / (2 * n)
            seen = torch.arange(1, m + 1, dtype=torch.float64)[:, None] + batch
            if self._tagged is not None and key in self._tagged:
                seen = 2 * seen
            result = seen.expand(n, m, shape[-1]).clone().reshape(shape)
        return self.declare(result, events.Origin(content, True, products=frozenset({key}), born=self._clock))

    def _softmax(self, scores: Tensor, axis: int) -> Tensor:
        key = self._key("softmax")
        origin = self.origin(scores)
        shown = torch.where(scores.abs() < _MASKED, scores, 0.0).nan_to_num()
        first = scores[(..., *(slice(events.KEPT),) * min(scores.ndim, 2))].clone()
        self.softmaxes[key] = events.Softmax(first, axis % scores.ndim, origin, tuple(self.modules))
        return self.declare(shown, events.Origin(origin.content, True, softmax=frozenset({key}), born=self._clock))

    def _tags(self, first: int, count: int) -> Tensor:
        numbers = torch.arange(first, first + count, dtype=torch.float64)
        return torch.ones(count, dtype=torch.float64) if self._tagged is None else 1 + numbers * events.TAG


_NOWHERE = events.Origin()
_MULTIPLY = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv"}
_ROTATION = {"cos", "sin", "polar"}
_NORMS = {"native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"}
_NEUTRAL: Mapping[str, Callable[..., Any]] = {
    "cos": lambda x, *_: torch.ones_like(x),
    "sin": lambda x, *_: torch.zeros_like(x),
    "polar": lambda x, *_: torch.complex(x, torch.zeros_like(x)),
    "rsqrt": lambda x, *_: torch.ones_like(x),
    "linalg_vector_norm": lambda x, *_: torch.ones_like(torch.linalg.vector_norm(x, *_)),
    "sigmoid": lambda x, *_: torch.ones_like(x),
    "tanh": lambda x, *_: x.clone(),
    **{norm: lambda x, *_: (events.contiguous(x), x.new_zeros(1), x.new_ones(1)) for norm in _NORMS},
    "_fused_rms_norm": lambda x, *_: (events.contiguous(x), x.new_ones(1)),
}


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _widened(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def _to_meta(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=_widened(leaf.dtype), device="meta")


class _PlainAttention(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.multi_head_attention_forward:  # no mode sees what it calls, unless it needs weights
            return func(*args, **{**(kwargs or {}), "need_weights": True})
        if func is not nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return _attention(*args, **(kwargs or {}))


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *_: Any, **more: Any) -> Tensor:
    """Compute attention without a causal mask, which changes no product; heads follow tokens in memory, as in torch."""
    if more.get("enable_gqa"):
        group = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(group, -3) for tensor in (key, value))
    scale = more.get("scale")
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    result = scores.softmax(-1) @ value
    return result.transpose(-3, -2).contiguous().transpose(-3, -2) if result.ndim > 3 else result


def run(
    module: nn.Module, inputs: Mapping[str, Any], numbers: events.Numbers, kind: events.PassKind, prefix: str = ""
) -> ForwardPass:
    """Run one pass with meta tensors in place of the parameters; the module is restored afterwards in any case."""
    stand_ins: dict[str, Tensor] = {
        name: buffer.detach().to("meta" if buffer.is_meta else "cpu", _widened(buffer.dtype), copy=True)
        for name, buffer in module.named_buffers()
    }
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        dtype = torch.float64 if parameter.is_floating_point() else parameter.dtype
        stand_ins[name] = nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), False)
        names[_storage(stand_ins[name])] = prefix + name
    taken = ForwardPass(names, numbers, kind)
    real_inputs = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            copied = value.detach().to("cpu", _widened(value.dtype), copy=True)
            real_inputs[name] = taken.declare(copied, events.Origin(content=True))
    paths: dict[int, str] = {}
    thread = threading.get_ident()  # other threads may run the same module at the same time

    def enter(submodule: nn.Module, _: Any) -> None:
        if threading.get_ident() != thread:
            return
        if id(submodule) not in paths:  # the pass itself may put a module in the place of another, as BigBird does
            paths.update({id(named): (prefix + path).rstrip(".") for path, named in module.named_modules()})
        if id(submodule) in paths:
            taken.modules.append((paths[id(submodule)], taken._clock))
            taken.entered[paths[id(submodule)]] = None

    def leave(submodule: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        if id(submodule) not in paths or threading.get_ident() != thread:
            return None
        taken.modules.pop()
        values = args[0] if args else next(iter(kwargs.values()), None)
        is_norm = "norm" in type(submodule).__name__.lower() and next(submodule.children(), None) is None
        if not (is_norm and isinstance(values, Tensor) and isinstance(result, Tensor)):
            return None
        if values.shape != result.shape or values.is_meta:
            return None
        origin, name = taken.origin(values), paths[id(submodule)]
        has_others = any(isinstance(leaf, Tensor) and leaf is not values for leaf in tree_leaves((args, kwargs)))
        taken.norms.keep(name, values)
        result = events.contiguous(taken.norms.output(name, values, "" if has_others else name))
        return taken.declare(result, replace(origin, marks=origin.marks | {events.Mark("norm", name)}))

    hooks = nn.modules.module
    with ExitStack() as stack:
        for submodule in [submodule for submodule in module.modules() if submodule.training]:
            submodule.training = False
            stack.callback(setattr, submodule, "training", True)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.no_grad())
        stack.callback(hooks.register_module_forward_pre_hook(enter).remove)
        stack.callback(hooks.register_module_forward_hook(leave, with_kwargs=True).remove)
        stack.enter_context(_PlainAttention())
        stack.enter_context(taken)  # the module's norms are neutral, and the pass knows which module is running
        torch.func.functional_call(module, stand_ins, (), real_inputs)
    of_scores = frozenset().union(*(softmax.origin.products for softmax in taken.softmaxes.values()))
    # Linear attention has many products of no softmax.
    taken.products = {key: product for key, product in taken.products.items() if key in of_scores}
    return taken
