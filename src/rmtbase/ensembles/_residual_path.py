"""Ensemble of residual paths: Π (I + σ G_l/√d), with the direct path, without it, or the paths of one order."""

from __future__ import annotations

import math
from typing import Literal

from rmtbase.ensembles._residual_product import ResidualProduct
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_integer, require_positive_integer, require_positive_number

_LARGEST = 1e70  # limit of singular values, and its inverse the lower one: their fourth powers then fit in float64


def residual_path(
    d_model: int,
    depth: int,
    sigma: float = 1.0,
    part: Literal["path", "update", "order"] = "path",
    order: int | None = None,
) -> ResidualProduct:
    """Ensemble P = Π_{l=1..depth} (I + σ G_l/√d_model), G_l with i.i.d. standard normal elements, or a part of it.

    The product is formed in double precision. Singular values below d_model ε s_1 are rounding noise, and tables of
    spectra have NaN in their place: at σ = 1 and d_model = 512, three of them at depth 16 and 44 at depth 32.

    Args:
        d_model: width of the residual stream.
        depth: L, the number of residual blocks.
        sigma: σ; the standard deviation of a block's elements is σ/√d_model.
        part: ``"path"`` is P, ``"update"`` is P - I, ``"order"`` the sum of the products of exactly ``order`` blocks.
        order: k, from 0 to depth, with ``part="order"``; otherwise None.

    Raises:
        ParameterError: d_model or depth is not a positive integer; σ is not a positive number; the part is unknown; the
            order is missing, superfluous or not among 0, …, depth; or singular values could leave [1e-70, 1e70], within
            which their fourth powers fit in float64.
    """
    d_model = require_positive_integer("d_model", d_model)
    depth = require_positive_integer("depth", depth)
    sigma = require_positive_number("sigma", sigma)
    if part not in ("path", "update", "order"):
        raise ParameterError("part", part, "'path', 'update' or 'order'")
    if part != "order" and order is not None:
        raise ParameterError("order", order, f"none, or part = 'order' (part = {part!r})")
    order = require_integer("order", order, 0, depth) if part == "order" else None
    smallest = _LARGEST ** (-1.0 / max(1 if order is None else order, 1))
    if sigma < smallest:
        raise ParameterError("sigma", sigma, f"at least {smallest:.3g}: below it singular values underflow")
    if depth * math.log1p(2.0 * sigma) > math.log(_LARGEST):  # ‖I + A‖ is about 1 + 2 σ at most
        raise ParameterError("sigma", sigma, f"less at depth {depth}: singular values up to (1 + 2 sigma)^depth = 1e70")
    return ResidualProduct(d_model, depth, sigma, part, order)
