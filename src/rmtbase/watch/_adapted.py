"""Weights of a module with adapters, as its forward pass uses them."""

from __future__ import annotations

import sys
from typing import Any

from rmtbase.errors import CheckpointError


def adapted_weights(model: Any) -> dict[str, Any] | None:
    """Return the arguments of :func:`rmtbase.models.open_model` for a module of peft, or None without adapters.

    A weight W with low-rank updates becomes W + Σ s B A, over the adapters that are active and not merged. Each such
    weight is copied; the module is not changed.

    Raises:
        CheckpointError: an adapter's update is not of this form, as with DoRA.
    """
    if "peft" not in sys.modules or not callable(getattr(model, "named_modules", None)):
        return None
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper
    from transformers import PreTrainedModel

    base = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if base is None:
        return None
    wrapped: dict[str, Any] = {
        name: one for name, one in base.named_modules() if isinstance(one, (BaseTunerLayer, ModulesToSaveWrapper))
    }
    if not wrapped:
        return None
    tensors = {
        name: one
        for name, one in base.state_dict().items()
        if not any(name.startswith(f"{place}.") for place in wrapped)
    }
    with torch.no_grad():
        for place, layer in wrapped.items():
            in_effect = _updated(place, layer) if isinstance(layer, BaseTunerLayer) else _saved(layer)
            tensors |= {f"{place}.{name}": one for name, one in in_effect.items()}
    return {"model": tensors, "family": base.config.model_type, "config": base.config, "name": type(base).__name__}


def _updated(place: str, layer: Any) -> dict[str, Any]:
    """Return the tensors of a layer, with its low-rank updates added."""
    tensors = dict(layer.get_base_layer().state_dict())
    for adapter in () if layer.disable_adapters else layer.active_adapters:
        if adapter in layer.merged_adapters:
            continue
        if getattr(layer, "lora_variant", {}).get(adapter) or not hasattr(layer, "get_delta_weight"):
            raise CheckpointError(place, f"its adapter {adapter!r} adds no low-rank update; merge it to look at it")
        tensors["weight"] = tensors["weight"] + layer.get_delta_weight(adapter).to(tensors["weight"].dtype)
    return tensors


def _saved(wrapper: Any) -> dict[str, Any]:
    """Return the tensors of a module that is trained as a whole beside the adapters."""
    inner = wrapper.original_module
    for adapter in () if wrapper.disable_adapters else wrapper.active_adapters:
        inner = wrapper.modules_to_save[adapter]
    return dict(inner.state_dict())
