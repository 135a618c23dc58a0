"""Classes of weight matrices by role and by Weibull shape k, and of attention by how keys are shared and stored."""

from __future__ import annotations

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._scores_tree import attention_class as attention_class
from rmtbase.tables import layer_names

EXPERT = "expert_"
"""Prefix of the components of experts where these stand beside the other matrices."""


FUSED = ("attention_query_key_value", "attention_query_key", "attention_key_value")
"""Fused projections: several components stored in one matrix."""
_MLP_READS, _MLP_WRITES = ("mlp_gate", "mlp_in", "expert_mlp_gate", "expert_mlp_in"), ("mlp_out", "expert_mlp_out")
READS = ("attention_query", "attention_key", "attention_value", *FUSED, *_MLP_READS)
"""Components that read the residual stream; Pythia's recipes draw all of them at one σ."""
WRITES = ("attention_output", *_MLP_WRITES)
"""Components that write to the residual stream; Pythia's recipes draw them at another σ."""
TRANSMISSION = (
    "attention_output",
    "mlp_gate",
    "mlp_in",
    "mlp_out",
    "expert_mlp_gate",
    "expert_mlp_in",
    "expert_mlp_out",
)
"""The Transmission Class: every MLP and expert matrix, and attention's output projection (arXiv:2605.18898, 2.2)."""
SELECTION = ("attention_query", "attention_key", "attention_query_key_value", "attention_query_key")
"""The Selection Class: queries, keys and the fused projection, as in section 2.2 and Fig. 4 of the paper. Values are in
neither class in section 2.2, and in the Transmission Class in Fig. 4; here they are in neither."""


_PUBLISHED = ((0.76, 0.99, "deep_selection"), (1.10, 1.16, "mild_selection"), (1.186, 1.204, "transmission"))
_FUSED = (1.05, 1.18, "transitional")


def published_class(shape: float, fused: bool = False) -> str:
    """Classify a Weibull shape k by the published ranges for medians of trained models.

    k in [0.76, 0.99] is "deep_selection", in [1.10, 1.16] "mild_selection", in [1.186, 1.204] "transmission"; a fused
    projection with k in [1.05, 1.18] is "transitional". Any other k has no published class; the result then names its
    neighbours, as in "below_deep_selection".

    Source: T. Ding, arXiv:2605.18898 (2026), 3.1 and 4.3.
    """
    if not shape > 0:
        raise ParameterError("shape", shape, "a positive number")
    below = ""
    for low, high, name in (_FUSED,) if fused and _FUSED[0] <= shape <= _FUSED[1] else _PUBLISHED:
        if shape < low:
            return f"between_{below}_and_{name}" if below else f"below_{name}"
        if shape <= high:
            return name
        below = name
    return f"above_{below}"


def attention_classes(scores: xr.DataTree) -> dict[str, str]:
    """Return the :func:`attention_class` of each layer that has attention, by the layer's name.

    Raises:
        ParameterError: it is not a scores tree.
    """
    require_scores(scores)
    heads = scores["heads"].to_dataset()
    names = layer_names(heads)
    if "attention" in heads.coords:
        return dict(zip(names, heads["attention"].values.tolist(), strict=True))
    return dict.fromkeys(names, str(scores.attrs["attention"]))
