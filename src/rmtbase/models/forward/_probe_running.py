"""Execution of a module's forward pass, with explicit attention and neutral norms; all changes are undone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from rmtbase.models.forward._probe_events import Mark, NormOutputs, Numbers, RealMaps, contiguous
from rmtbase.models.forward._probe_forward import ForwardPass


class _PlainAttention(TorchFunctionMode):
    """Explicit attention in place of torch's own functions for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.multi_head_attention_forward:  # no mode sees what it calls, unless it needs weights
            return func(*args, **{**(kwargs or {}), "need_weights": True})
        if func is not nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return _attention(*args, **(kwargs or {}))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention without a causal mask, which changes no product; heads follow tokens in memory, as in torch."""
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = (one.repeat_interleave(group, -3) for one in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    result = scores.softmax(-1) @ value
    return result.transpose(-3, -2).contiguous().transpose(-3, -2) if result.ndim > 3 else result


@contextmanager
def running(module: nn.Module, taken: ForwardPass, prefix: str = "") -> Iterator[None]:
    """Prepare a module for a forward pass: its norms are neutral, and the pass knows which module is running."""
    paths: dict[int, str] = {}
    thread = threading.get_ident()  # other threads may run the same module at the same time

    def enter(one: nn.Module, _: Any) -> None:
        if threading.get_ident() != thread:
            return
        if id(one) not in paths:  # the pass itself may put a module in the place of another, as BigBird does
            paths.update({id(each): (prefix + path).rstrip(".") for path, each in module.named_modules()})
        if id(one) in paths:
            taken.modules.append((paths[id(one)], taken._clock))
            taken.entered[paths[id(one)]] = None

    def leave(one: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        if id(one) not in paths or threading.get_ident() != thread:
            return None
        taken.modules.pop()
        given = args[0] if args else next(iter(kwargs.values()), None)
        if not (is_norm(one) and isinstance(given, Tensor) and isinstance(result, Tensor)):
            return None
        if given.shape != result.shape or given.is_meta:
            return None
        origin, name = taken.origin(given), paths[id(one)]
        others = (each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each is not given)
        taken.norms.keep(name, given)
        result = taken.norms.output(name, given, "" if any(True for _ in others) else name)
        return taken.declare(contiguous(result), replace(origin, marks=origin.marks | {Mark("norm", name)}))

    hooks = nn.modules.module
    with ExitStack() as stack:
        before = torch.get_default_dtype()
        stack.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float64)
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.no_grad())
        for handle in (
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, with_kwargs=True),
        ):
            stack.callback(handle.remove)
        stack.enter_context(_PlainAttention())
        stack.enter_context(taken)
        yield


def is_norm(module: nn.Module) -> bool:
    """Return True if a module is a norm by its class name and contains no other module."""
    return "norm" in type(module).__name__.lower() and next(module.children(), None) is None


def run(
    module: nn.Module,
    inputs: Mapping[str, Any],
    numbers: Numbers,
    *,
    tagged: frozenset[str] | None = None,
    neutral: bool = True,
    real: RealMaps | None = None,
    norms: NormOutputs | None = None,
    prefix: str = "",
) -> ForwardPass:
    """Run one pass with meta tensors in place of the parameters; the module is restored afterwards in any case.

    Names of parameters and modules in the result have the prefix. Buffers are copied, since a pass may write to them.
    """
    stand_ins: dict[str, Tensor] = {
        name: one.detach().clone() if one.is_meta else one.detach().to("cpu", copy=True)
        for name, one in module.named_buffers()
    }
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        dtype = torch.float64 if parameter.is_floating_point() else parameter.dtype
        stand_ins[name] = nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), False)
        names[stand_ins[name].untyped_storage()._cdata] = prefix + name
    taken = ForwardPass(names, numbers, tagged=tagged, neutral=neutral, real=real, norms=norms)
    given = {
        name: one.detach().to("cpu", copy=True) if isinstance(one, Tensor) else one for name, one in inputs.items()
    }
    for tensor in given.values():
        if isinstance(tensor, Tensor):
            taken.declare_input(tensor)
    training = [one for one in module.modules() if one.training]
    for one in training:
        one.training = False
    try:
        with running(module, taken, prefix):
            torch.func.functional_call(module, stand_ins, (), given)
    finally:
        for one in training:
            one.training = True
    of_scores = frozenset().union(*(one.origin.products for one in taken.softmaxes.values()))
    taken.products = {key: one for key, one in taken.products.items() if key in of_scores}  # linear attention has many
    return taken
