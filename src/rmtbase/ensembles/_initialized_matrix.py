"""Weight matrices at initialization."""

from __future__ import annotations

from dataclasses import dataclass

from rmtbase.ensembles._element_laws import ElementLaw
from rmtbase.ensembles._ensemble import as_pytree
from rmtbase.ensembles._full_matrix import IndependentMatrix
from rmtbase.ensembles._initializers import INITIALIZERS, Initializer, Orthogonal
from rmtbase.ensembles._orthogonal_matrix import OrthogonalMatrix
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer


@as_pytree
@dataclass(frozen=True)
class InitializedMatrix(IndependentMatrix):
    """Matrix (fan_out, fan_in) with independent elements drawn by an initialiser, whose numbers are data."""

    initializer: Initializer

    @property
    def name(self) -> str:
        return f"initialized_matrix {self.n_rows}x{self.n_columns} {self.initializer.label}"

    @property
    def law(self) -> ElementLaw:
        return self.initializer.law(self.n_rows, self.n_columns)


def initialized_matrix(
    n_rows: int, n_columns: int, initializer: str = "normal", **options: object
) -> InitializedMatrix | OrthogonalMatrix:
    """Ensemble of weight matrices (n_rows, n_columns) drawn by an initialiser, stored as torch.nn.Linear stores them.

    ================  ======================================================  =================================
    initializer       law of an element                                       options
    ================  ======================================================  =================================
    normal            N(mean, std²)                                           mean = 0, std = 1
    truncated_normal  N(0, std²) cut off at ±bound · std, std that of the     std = 1, bound = 2,
                      normal law (``parent``) or of the ``elements``          std_of = "parent"
    uniform           U(−bound, bound)                                        bound
    xavier_uniform    U(−b, b), b = gain √(6/(fan_in + fan_out))              gain = 1
    xavier_normal     N(0, s²), s = gain √(2/(fan_in + fan_out))              gain = 1
    kaiming_uniform   U(−b, b), b = gain(nonlinearity, a) √(3/fan)            a = 0, mode = "fan_in",
    kaiming_normal    N(0, s²), s = gain(nonlinearity, a)/√fan                nonlinearity = "leaky_relu"
    torch_linear      U(−b, b), b = 1/√fan_in: torch.nn.Linear's default,     none
                      which is kaiming_uniform with a = √5
    small_init        N(0, s²), s = √(2/(5 d_model))                          d_model
    wang_init         N(0, s²), s = 2/(n_layers √d_model)                     n_layers, d_model
    scaled_normal     N(0, s²), s = std/√(2 n_layers): GPT-2's projections    n_layers, std = 0.02
    orthogonal        gain · Q, Q Haar on the Stiefel manifold                gain = 1
    ================  ======================================================  =================================

    Names, options and defaults are those of torch.nn.init if it has the scheme. Each initialiser's docstring gives its
    source.

    Args:
        n_rows: fan_out, the number of output features.
        n_columns: fan_in, the number of input features.
        initializer: a name from the table.
        options: options of that initialiser.

    Raises:
        ParameterError: a dimension is not a positive integer, the initialiser is unknown, or one of its options is
            unknown, missing or outside its domain.
    """
    shape = require_positive_integer("n_rows", n_rows), require_positive_integer("n_columns", n_columns)
    if not isinstance(initializer, str) or initializer not in INITIALIZERS:
        raise ParameterError("initializer", initializer, "one of " + ", ".join(INITIALIZERS))
    recipe = INITIALIZERS[initializer].from_options(options)
    return OrthogonalMatrix(*shape, recipe) if isinstance(recipe, Orthogonal) else InitializedMatrix(*shape, recipe)
