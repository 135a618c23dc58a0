"""Initial standard deviations of weights by recipe, for matrices that read or write the residual stream."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer

RECIPES = {
    "A": "small_init and wang_init, of Pythia up to 1B: √(2/(5 d)) and 2/(L √d)",
    "B": "normal and scaled_normal, GPT-NeoX's defaults, of Pythia-6.9B: 0.02 and 0.02/√(2 L)",
}
"""The two recipes of the Pythia models, by the letters of arXiv:2605.18898, appendix A.3."""

_STD = 0.02


class InitialSigmas(NamedTuple):
    """Standard deviations σ of initial weights.

    Attributes:
        reads: σ of matrices that read the residual stream (queries, keys, values, input projections of an MLP).
        writes: σ of matrices that write to it (output projections of attention and of an MLP).
    """

    reads: float
    writes: float

    @property
    def ratio(self) -> float:
        """Ratio of ``reads`` to ``writes``: L/√10 for recipe A, √(2 L) for B."""
        return self.reads / self.writes


@cache
def initial_sigmas(recipe: str, n_layers: int, d_model: int) -> InitialSigmas:
    """Compute σ by a recipe for a model of L layers and width d, from the initializers of :mod:`rmtbase.ensembles`.

    Raises:
        ParameterError: no recipe has that name, or a size is not a positive integer.
    """
    from rmtbase.ensembles import INITIALIZERS, Initializer

    sizes = {
        "n_layers": require_positive_integer("n_layers", n_layers),
        "d_model": require_positive_integer("d_model", d_model),
    }
    if recipe == "A":
        drawn = ("small_init", {"d_model": sizes["d_model"]}), ("wang_init", sizes)
    elif recipe == "B":
        drawn = ("normal", {"std": _STD}), ("scaled_normal", {"n_layers": sizes["n_layers"], "std": _STD})
    else:
        raise ParameterError("recipe", recipe, f"one of {', '.join(RECIPES)}")
    recipes = (INITIALIZERS[name].from_options(options) for name, options in drawn)
    return InitialSigmas(*(one.law(1, 1).std for one in recipes if isinstance(one, Initializer)))
