"""Weight matrices of a torch module, drawn anew by an initialiser."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_seed

if TYPE_CHECKING:
    import torch

Options = Mapping[str, Any]
_CONFIGURED = "initializer_range"  # the standard deviation, as configurations of transformers name it


def initialize(
    module: torch.nn.Module, initializer: str | Mapping[str, Options] | None = None, *, seed: int = 0, **options: Any
) -> tuple[str, ...]:
    """Draw the weight matrices of a torch module anew, in place, so that it has learned nothing.

    Matrices are the parameters with two dimensions or more. Biases, gains of norms and buffers stay as they are. A
    shared matrix, such as tied embeddings, is drawn once. Queries, keys and values in one stored matrix are drawn as
    one. The kernel of a convolution is a matrix (outputs, inputs · kernel size); any other parameter with more than two
    dimensions, such as the weights of experts, is a stack of matrices.

    A draw depends only on the seed, the initialiser, and the name and shape of the parameter. It is made in float32 by
    :func:`rmtbase.ensembles.initialized_matrix`, and rounded to the parameter's dtype.

    Args:
        module: a module on any device.
        initializer: for all matrices, a name of ``rmtbase.ensembles.INITIALIZERS``. For some of them, or with options
            that differ, a mapping from patterns of names (:mod:`fnmatch`) to the arguments of each, such as
            ``{"*.c_proj.weight": {"initializer": "scaled_normal", "n_layers": 12}, "*": {"std": 0.02}}``: the first
            pattern that matches a name counts, and matrices that match none stay as they are. By default the law
            N(0, s²) with s the ``initializer_range`` of the module's configuration.
        seed: seed of the draws.
        options: options of the initialiser.

    Returns:
        The names of the parameters that were drawn.

    Raises:
        ParameterError: an initialiser or option is unknown, options are given beside a mapping or without an
            initialiser, a pattern matches no matrix, the configuration has no ``initializer_range``, or a matrix does
            not hold floating-point numbers. The module is then unchanged.
    """
    import jax
    import torch

    from rmtbase.ensembles import initialized_matrix
    from rmtbase.linalg import reproducible_jax

    rules: Mapping[str, Options]  # the arguments of ``initialized_matrix`` for each pattern of names
    std = getattr(getattr(module, "config", None), _CONFIGURED, None)
    if isinstance(initializer, str):
        rules = {"*": {"initializer": initializer, **options}}
    elif options:
        raise ParameterError("options", ", ".join(options), "none, unless initializer is the name of one")
    elif initializer is not None:
        rules = initializer
    elif std is not None:
        rules = {"*": {"initializer": "normal", "std": std}}
    else:
        raise ParameterError("initializer", None, f"one, as the module has no configuration with {_CONFIGURED}")
    drawn = [matrix for matrix in _matrices(module) if _rule(rules, matrix.name) is not None]
    for pattern in rules:
        if not any(_rule(rules, matrix.name) == pattern for matrix in drawn):
            raise ParameterError("initializer", pattern, "a pattern of a matrix that none before it matches")
    ensembles = []
    for matrix in drawn:
        shape = matrix.parameter.shape
        n_rows, n_columns = (shape[0], math.prod(shape[1:])) if matrix.is_kernel else shape[-2:]
        sizes = (n_columns, n_rows) if matrix.is_transposed else (n_rows, n_columns)
        ensembles.append(initialized_matrix(*sizes, **rules[str(_rule(rules, matrix.name))]))
    with reproducible_jax("float32"), torch.no_grad():
        of_seed = jax.random.key(require_seed(seed))
        for matrix_set, ensemble in zip(drawn, ensembles, strict=True):
            key = jax.random.fold_in(of_seed, zlib.crc32(matrix_set.name.encode()))
            weights = matrix_set.parameter.detach()
            is_stack = weights.ndim > 2 and not matrix_set.is_kernel
            for number, matrix in enumerate(weights.flatten(0, -3) if is_stack else [weights]):
                context = ensemble.row_context(jax.random.fold_in(key, number))
                values = torch.from_numpy(np.array(ensemble.rows(context, 0, ensemble.n_rows)))
                matrix.copy_((values.T if matrix_set.is_transposed else values).reshape(matrix.shape))
    return tuple(matrix.name for matrix in drawn)


class _Matrix(NamedTuple):
    name: str  # its name in the module
    parameter: torch.nn.Parameter
    is_kernel: bool  # True for the kernel of a convolution
    is_transposed: bool  # True if it is stored as (inputs, outputs)


def _matrices(module: torch.nn.Module) -> Iterator[_Matrix]:
    import torch

    for name, parameter in module.named_parameters():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        kind = type(owner).__name__
        if parameter.ndim < 2 or last.endswith("bias") or "norm" in kind.lower():
            continue
        if not parameter.is_floating_point() or parameter.is_meta:
            described = f"{name} of {parameter.dtype} on {parameter.device}"
            raise ParameterError("module", described, "matrices that hold floating-point numbers")
        is_kernel = isinstance(owner, torch.nn.modules.conv._ConvNd)
        yield _Matrix(name, parameter, is_kernel, kind == "Conv1D" and not is_kernel)  # of transformers


def _rule(rules: Mapping[str, Options], name: str) -> str | None:
    return next((pattern for pattern in rules if fnmatchcase(name, pattern)), None)
