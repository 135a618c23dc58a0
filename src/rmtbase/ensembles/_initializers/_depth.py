"""Initialisers of transformers, whose scale comes from the model's width and depth, whatever the matrix's shape."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from rmtbase.ensembles._element_laws import Normal
from rmtbase.ensembles._initializers._initializer import Initializer, option
from rmtbase.parameters import require_positive_integer, require_positive_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SmallInit(Initializer):
    """N(0, s²) with s = √(2/(5 d_model)): Xavier's for a (4 d_model, d_model) matrix, given to all of them.

    In Pythia up to 1B, and in GPT-NeoX where asked for, the initialiser of the matrices that read the residual stream.

    Source: T. Q. Nguyen and J. Salazar, IWSLT (2019), arXiv:1910.05895.
    """

    name = "small_init"
    d_model: int = option(require_positive_integer)

    def law(self, fan_out: int, fan_in: int) -> Normal:
        """The normal law."""
        return Normal((2 / (5 * self.d_model)) ** 0.5)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WangInit(Initializer):
    """N(0, s²) with s = 2/(n_layers √d_model).

    The partner of ``small_init`` for the matrices that write to the residual stream.

    Source: B. Wang and A. Komatsuzaki, GPT-J-6B (2021); S. Black et al., GPT-NeoX-20B, arXiv:2204.06745 (2022).
    """

    name = "wang_init"
    n_layers: int = option(require_positive_integer)
    d_model: int = option(require_positive_integer)

    def law(self, fan_out: int, fan_in: int) -> Normal:
        """The normal law."""
        return Normal(2 / (self.n_layers * self.d_model**0.5))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScaledNormal(Initializer):
    """N(0, s²) with s = std/√(2 n_layers), one factor 1/√2 for each of a layer's two writes to the residual stream.

    Source: A. Radford et al., Language models are unsupervised multitask learners (2019): GPT-2's output projections.
    """

    name = "scaled_normal"
    n_layers: int = option(require_positive_integer)
    std: float = option(require_positive_number, 0.02)

    def law(self, fan_out: int, fan_in: int) -> Normal:
        """The normal law."""
        return Normal(self.std / (2 * self.n_layers) ** 0.5)
