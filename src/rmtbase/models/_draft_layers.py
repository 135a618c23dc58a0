"""Layers that predict several tokens ahead, beside those of the model: left out, and noted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rmtbase.models._checkpoint import Checkpoint

_BESIDE = re.compile(r"mtp\..+|medusa_head\..+", re.DOTALL)
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d{1,9})\..+", re.DOTALL)


def without_draft_layers(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint without what drafts tokens: layers after the model's own, as many as the configuration says.

    DeepSeek and those after it number them on (``num_nextn_predict_layers``); others name them ``mtp``. The heads of
    Medusa have no attention.
    """
    n_layers, n_more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    follow = range(n_layers, n_layers + n_more) if type(n_layers) is int and type(n_more) is int else range(0)
    beyond = {name for name in checkpoint.names if (found := _LAYER.fullmatch(name)) and int(found[1]) in follow}
    beside = {name for name in checkpoint.names if _BESIDE.fullmatch(name)}
    if not beyond | beside:
        return checkpoint
    numbers = sorted({int(found[1]) for name in beyond if (found := _LAYER.fullmatch(name))})
    called = [f"layer {number}" for number in numbers] + sorted({name.partition(".")[0] for name in beside})
    return checkpoint.replaced(beyond | beside, {}, f"drafts of further tokens are left out: {', '.join(called[:6])}")
