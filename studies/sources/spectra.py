"""Singular values of weight matrices, as the follow-up shows them: over their root mean square, beside fitted laws."""

import numpy as np
from jaxtyping import Float

from rmtbase.laws import marchenko_pastur
from rmtbase.models import Model

QKV = "attention_query_key_value"
COMPONENTS = (QKV, "attention_output", "mlp_in", "mlp_out")
"""The four of the source: queries, keys and values as the rows of one matrix, whether or not they are stored so."""
_ROWS = ("attention_query", "attention_key", "attention_value")
BINS, WIDEST = 60, 6.0
"""Of the histograms: of singular values over their root mean square."""


def layer_spectra(model: Model, layer: int) -> dict[str, Float[np.ndarray, " index"]]:
    """Singular values of every matrix of a layer, descending, with the numbers of its rows and columns in front."""
    found = {}
    for name in COMPONENTS:
        parts = _ROWS if name == QKV else (name,)
        if all(part in model.components and model.has(layer, part) for part in parts):
            matrix = np.vstack([np.asarray(model.matrix(layer, part), dtype=np.float64) for part in parts])
            found[name] = np.concatenate([matrix.shape, np.linalg.svd(matrix, compute_uv=False)])
    return found


class Spectrum:
    """Singular values of one matrix over their root mean square.

    Attributes:
        rows, columns: of the matrix.
        rms: root mean square of the singular values.
        values: over it, descending.
    """

    def __init__(self, held: Float[np.ndarray, " number"]) -> None:
        self.rows, self.columns = int(held[0]), int(held[1])
        values = np.asarray(held[2:], dtype=np.float64)
        self.rms = float(np.sqrt(np.mean(values**2)))
        self.values = values / self.rms

    def density(self) -> Float[np.ndarray, " bin"]:
        """Density in the bins of :func:`edges`; the last bin includes everything beyond it."""
        return np.histogram(np.fmin(self.values, WIDEST), edges())[0] / (self.values.size * np.diff(edges()))

    def near_zero(self) -> float:
        """Share below a tenth of the root mean square."""
        return float(np.mean(self.values < 0.1))

    def largest(self) -> float:
        """Over the root mean square."""
        return float(self.values[0])


def edges() -> Float[np.ndarray, " edge"]:
    """Edges of all histograms, so that axes stay."""
    return np.linspace(0.0, WIDEST, BINS + 1)


def independent_density(rows: int, columns: int, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Limiting density of singular values over their root mean square: the same law for all independent elements."""
    small, large = min(rows, columns), max(rows, columns)
    law = marchenko_pastur(small, large, large**-0.5)
    unit = float(np.sqrt(law.mean()))
    return unit * law.pdf_singular_values(unit * x)


def independent_near_zero(rows: int, columns: int) -> float:
    """Share below a tenth of the root mean square, for independent elements."""
    small, large = min(rows, columns), max(rows, columns)
    law = marchenko_pastur(small, large, large**-0.5)
    return float(law.cdf(0.01 * law.mean()))


def all_spectra(model: Model) -> dict[str, Float[np.ndarray, " index"]]:
    """Compute the singular values of all layers, by ``"LAYER COMPONENT"``, as :func:`layer_spectra` gives them."""
    return {
        f"{layer} {name}": values
        for layer in range(model.n_layers)
        for name, values in layer_spectra(model, layer).items()
    }
