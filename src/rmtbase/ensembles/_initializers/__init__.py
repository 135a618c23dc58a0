"""Initialisers of weight matrices, by name."""

from rmtbase.ensembles._initializers._depth import ScaledNormal, SmallInit, WangInit
from rmtbase.ensembles._initializers._fan import KaimingNormal, KaimingUniform, TorchLinear, XavierNormal, XavierUniform
from rmtbase.ensembles._initializers._initializer import Initializer, Recipe
from rmtbase.ensembles._initializers._orthogonal import Orthogonal
from rmtbase.ensembles._initializers._plain import Normal, TruncatedNormal, Uniform

__all__ = ["INITIALIZERS", "Initializer", "Orthogonal", "Recipe"]

INITIALIZERS: dict[str, type[Initializer] | type[Orthogonal]] = {
    recipe.name: recipe
    for recipe in (
        Normal,
        TruncatedNormal,
        Uniform,
        XavierUniform,
        XavierNormal,
        KaimingUniform,
        KaimingNormal,
        TorchLinear,
        SmallInit,
        WangInit,
        ScaledNormal,
        Orthogonal,
    )
}
"""Every initialiser, by the name that a user gives it."""
