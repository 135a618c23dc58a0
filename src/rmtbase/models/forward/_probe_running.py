"""Execution of a module's forward pass, with explicit attention and neutral norms; all changes are undone."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from rmtbase.models.forward._probe_events import Mark, Numbers, Origin, PassKind, contiguous
from rmtbase.models.forward._probe_forward import ForwardPass, widened

_PLAIN = PassKind()


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
    *_: Any,
    scale: float | None = None,
    enable_gqa: bool = False,
    **__: Any,
) -> Tensor:
    """Compute attention without a causal mask, which changes no product; heads follow tokens in memory, as in torch."""
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(group, -3) for tensor in (key, value))
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
        result = taken.norms.output(name, values, "" if has_others else name)
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


def run(
    module: nn.Module, inputs: Mapping[str, Any], numbers: Numbers, kind: PassKind = _PLAIN, prefix: str = ""
) -> ForwardPass:
    """Run one pass with meta tensors in place of the parameters; the module is restored afterwards in any case."""
    stand_ins: dict[str, Tensor] = {
        name: buffer.detach().to("meta" if buffer.is_meta else "cpu", widened(buffer.dtype), copy=True)
        for name, buffer in module.named_buffers()
    }
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        dtype = torch.float64 if parameter.is_floating_point() else parameter.dtype
        stand_ins[name] = nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), False)
        names[stand_ins[name].untyped_storage()._cdata] = prefix + name
    taken = ForwardPass(names, numbers, kind)
    real_inputs = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            copied = value.detach().to("cpu", widened(value.dtype), copy=True)
            real_inputs[name] = taken.declare(copied, Origin(content=True))
    training = [submodule for submodule in module.modules() if submodule.training]
    for submodule in training:
        submodule.training = False
    try:
        with running(module, taken, prefix):
            torch.func.functional_call(module, stand_ins, (), real_inputs)
    finally:
        for submodule in training:
            submodule.training = True
    of_scores = frozenset().union(*(softmax.origin.products for softmax in taken.softmaxes.values()))
    # Linear attention has many products of no softmax.
    taken.products = {key: product for key, product in taken.products.items() if key in of_scores}
    return taken
