"""Names for the way in which the heads of a layer share keys."""

from __future__ import annotations

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import has_latent_keys
from rmtbase.models import FUSED_COMPONENTS, MatrixName, WeightMatrices
from rmtbase.parameters import require_positive_integer
from rmtbase.results.scores.schema import heads_schema
from rmtbase.tables import CIRCUITS, describe


def attention_class(n_heads: int, n_key_heads: int, fused: bool = False, latent: bool = False) -> str:
    """Name the sharing of keys: "MHA" (none), "GQA" (groups), "MQA" (all heads), "latent" (a shared projection).

    ``fused`` adds that queries, keys and values are stored as one matrix: "MHA, fused".

    Raises:
        ParameterError: a number is not a positive integer, or ``n_heads`` is not a multiple of ``n_key_heads``.

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
    """Add ``attention``, the :func:`attention_class` of the stored matrices, to the scores of a model's heads.

    It is an attribute if it is the same in all layers, and otherwise a coordinate of the heads.
    """
    found = []
    for site in model.sites:
        fused = any(MatrixName(site.place, one) in model.parts.get("fused", ()) for one in FUSED_COMPONENTS)
        latent = has_latent_keys(site, model.stored_shape)
        found.append(attention_class(site.n_heads, site.n_key_heads, fused, latent))
    if len(set(found)) == 1:
        return heads, {"attention": found[0]}
    return describe(heads.assign_coords(attention=("layer", found)), heads_schema(CIRCUITS["qk"])), {}
