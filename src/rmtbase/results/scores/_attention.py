"""How the heads of a layer share their keys."""

from __future__ import annotations

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import has_latent_keys
from rmtbase.models import FUSED_COMPONENTS, MatrixName, WeightMatrices
from rmtbase.parameters import require_positive_integer
from rmtbase.results.scores.schema import heads_schema
from rmtbase.tables import CIRCUITS, describe


def attention_class(n_heads: int, n_key_heads: int, fused: bool = False, latent: bool = False) -> str:
    """How heads share keys: "MHA", each its own; "GQA", several one; "MQA", all one; "latent", by a shared projection.

    ``fused`` adds that queries, keys and values are stored as one matrix: "MHA, fused".

    Raises:
        ParameterError: numbers that are no positive integers, or heads that are no multiple of key heads.

    Source: J. Ainslie et al., EMNLP (2023); DeepSeek-AI, arXiv:2405.04434 (2024) for latent attention.
    """
    heads, keys = require_positive_integer("n_heads", n_heads), require_positive_integer("n_key_heads", n_key_heads)
    if heads % keys:
        raise ParameterError("n_heads", heads, f"a multiple of n_key_heads = {keys}")
    if latent:
        kind = "latent"
    elif keys == heads:
        kind = "MHA"
    else:
        kind = "MQA" if keys == 1 else "GQA"
    return f"{kind}, fused" if fused else kind


def with_attention(heads: xr.Dataset, model: WeightMatrices) -> tuple[xr.Dataset, dict[str, str]]:
    """The scores of a model's heads, and ``attention``, the :func:`attention_class` of all by what is stored of them.

    Where layers differ it is a coordinate of the heads, and no attribute.
    """
    found = []
    for site in model.sites:
        fused = any(MatrixName(site.place, one) in model.parts.get("fused", ()) for one in FUSED_COMPONENTS)
        latent = has_latent_keys(site, model.stored_shape)
        found.append(attention_class(site.n_heads, site.n_key_heads, fused, latent))
    if len(set(found)) == 1:
        return heads, {"attention": found[0]}
    return describe(heads.assign_coords(attention=("layer", found)), heads_schema(CIRCUITS["qk"])), {}
