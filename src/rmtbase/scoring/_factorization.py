"""What the matrices of a head are products of: the shape that their null has, and the scales of those factors.

W_Q = W_UQ W_DQ of latent attention, or the update BA of a low-rank adapter, is a product before W_QK is one, and random
factors make another spectrum than random products: the null is that of the chain of all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rmtbase.models import Expression, Product, Stacked, WeightMatrices
from rmtbase.nulls import LatentShape
from rmtbase.tables import Circuit


class Factorization(NamedTuple):
    """A matrix of all heads of a site as a product.

    Attributes:
        parts: the factors, the one of each head first, that which acts first last; the matrix alone where it is none.
        rotated: of latent keys the rows of each head that are no product, shared by all heads.
    """

    parts: tuple[Expression, ...]
    rotated: Expression | None = None


def factorization(matrix: Expression) -> Factorization:
    """The factors of a matrix: of W_UQ W_DQ both, of latent keys [W_UK W_DKV; W_KR] head after head all three."""
    if isinstance(matrix, Product):
        return Factorization(matrix.of)
    if isinstance(matrix, Stacked):
        above, below = matrix.of[::2], matrix.of[1::2]
        products = [one for one in above if isinstance(one, Product) and len(one.of) == 2]
        if len(products) == len(above) == len(below) and len({one.of[1] for one in products}) == len(set(below)) == 1:
            return Factorization((Stacked(tuple(one.of[0] for one in products)), products[0].of[1]), below[0])
    return Factorization((matrix,))


def null_shape(model: WeightMatrices, site: int, circuit: Circuit) -> tuple[int, ...] | LatentShape:
    """The shape that the null of a circuit at a site is wanted for: dims of a chain, or those of latent attention."""
    at, sides = model.sites[site], _sides(model, site, circuit)
    plain = tuple(getattr(at, name) for name in circuit.dims)
    inner = [[model.shape_of(part)[1] for part in side.parts[:-1]] for side in sides]
    if not any(inner):
        return plain
    rotated = sides[-1].rotated
    if rotated is not None and len(sides) > 1 and len(inner[0]) < 2 and at.d_query == at.d_key:
        d_rope = model.shape_of(rotated)[0]
        return LatentShape(at.d_key, inner[1][0], at.d_head - d_rope, d_rope, inner[0][0] if inner[0] else None)
    if len(plain) == 2:
        return plain[0], *inner[0], plain[1]
    return plain[0], *reversed(inner[0]), plain[1], *inner[1], plain[2]


class NullScales(NamedTuple):
    """The scales of the heads of a site that the null is brought to.

    Attributes:
        sigmas: σ̂ of every factor of the chain.
        rope_ratio: of latent attention, :meth:`rmtbase.nulls.LatentShape.rope_ratio`; None of any other.
    """

    sigmas: tuple[Float[np.ndarray, " head"], ...]
    rope_ratio: Float[np.ndarray, " head"] | None


def null_scales(model: WeightMatrices, site: int, circuit: Circuit) -> NullScales:
    """The estimates of σ of all factors of a circuit that is more than its two matrices. Reads them once more."""
    at, shape = model.sites[site], null_shape(model, site, circuit)
    n_heads = max(getattr(at, factor.heads) for factor in circuit.factors)
    sigmas: list[Float[np.ndarray, " head"]] = []
    for factor, side in zip(circuit.factors, _sides(model, site, circuit), strict=True):
        heads = getattr(at, factor.heads)
        for place, part in enumerate(side.parts):
            matrix = model.evaluate(part)
            each = matrix.reshape(heads, -1, matrix.shape[-1]) if place == 0 else matrix[None]
            estimate = _sigma(each)
            sigmas.append(np.repeat(estimate, n_heads // len(estimate)))
    if not isinstance(shape, LatentShape):
        return NullScales(tuple(sigmas), None)
    rotated = _sides(model, site, circuit)[-1].rotated
    assert rotated is not None  # as of every latent shape
    sigma_kr = _sigma(model.evaluate(rotated))
    return NullScales(tuple(sigmas), shape.rope_ratio(sigmas[-2], sigmas[-1], sigma_kr))


def _sigma(matrices: Float[np.ndarray, "... m n"]) -> Float[np.ndarray, "..."]:
    """σ̂ = √(‖W‖_F² / (m n)), accumulated in float64."""
    m, n = matrices.shape[-2:]
    return np.sqrt(np.einsum("...ij,...ij->...", matrices, matrices, dtype=np.float64) / (m * n))


def _sides(model: WeightMatrices, site: int, circuit: Circuit) -> list[Factorization]:
    """Of each factor of a circuit; none of a model whose weights are not stored by name."""
    found = [getattr(model.sites[site], factor.name) for factor in circuit.factors]
    return [Factorization(()) if one is None else factorization(one) for one in found]
