"""Registry of the ensembles that a plan can name."""

import inspect
from collections.abc import Callable, Mapping

from rmtbase.ensembles._ensemble import Ensemble
from rmtbase.ensembles._gaussian_chain import gaussian_chain, gaussian_matrix, low_rank_product
from rmtbase.ensembles._independent_chain import independent_chain
from rmtbase.ensembles._independent_matrix import initialized_matrix, logistic_matrix, student_t_matrix
from rmtbase.ensembles._latent_attention import latent_attention
from rmtbase.ensembles._orthogonal_blocks import orthogonal_blocks, random_subspaces
from rmtbase.ensembles._residual_path import residual_path
from rmtbase.errors import ParameterError

ENSEMBLES: dict[str, Callable[..., Ensemble]] = {
    factory.__name__: factory
    for factory in (
        *(gaussian_chain, gaussian_matrix, low_rank_product, residual_path, independent_chain, initialized_matrix),
        *(logistic_matrix, student_t_matrix, random_subspaces, orthogonal_blocks, latent_attention),
    )
}
"""Name in a plan → factory; the plan's parameters are its keyword arguments."""


def make_ensemble(name: str, parameters: Mapping[str, object]) -> Ensemble:
    if not isinstance(name, str) or name not in ENSEMBLES:
        raise ParameterError("ensemble", name, "one of " + ", ".join(sorted(ENSEMBLES)))
    factory = ENSEMBLES[name]
    signature = inspect.signature(factory).parameters
    accepted = {key: parameter for key, parameter in signature.items() if parameter.kind is not parameter.VAR_KEYWORD}
    has_options = len(accepted) < len(signature)  # the factory checks these itself
    for parameter, value in parameters.items():
        if parameter not in accepted and not has_options:
            raise ParameterError(parameter, value, f"a parameter of {name}: {', '.join(accepted)}")
    missing = [key for key, entry in accepted.items() if entry.default is entry.empty and key not in parameters]
    if missing:
        raise ParameterError("parameters", dict(parameters), f"{', '.join(missing)} too, which {name} needs")
    return factory(**parameters)
