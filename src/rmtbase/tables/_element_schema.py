"""What a table of the elements of random matrices holds."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from rmtbase.errors import TableError
from rmtbase.tables._schema import BASELINE_SCHEMA, Variable, check_attributes, check_variables

_SHARED = (
    *("draws", "mean", "std", "standard_error", "std_standard_error", "quantile"),
    *("analytic_mean", "analytic_std", "analytic_method", "sample"),
)

ELEMENTS_SCHEMA: dict[str, Variable] = {
    **{name: BASELINE_SCHEMA[name] for name in _SHARED},
    "name": Variable(("case",), "ensemble with its parameters, as it keys the draws"),
    "n_rows": Variable(("case",), "rows of the matrix"),
    "n_columns": Variable(("case",), "columns of the matrix"),
    "bin_edge": Variable(("case", "edge"), "edges of the histogram bins in w"),
    "density": Variable(("case", "bin"), "Monte Carlo density of the elements, bin average", "1/w"),
    "density_standard_error": Variable(
        ("case", "bin"), "standard error of the density, from the spread between draws", "1/w"
    ),
    "density_law": Variable(("case", "bin"), "bin average of the law of one element, NaN where none is offered", "1/w"),
    "share_outside": Variable(("case",), "share of the elements that lie in no bin"),
}
"""The variables of a table of elements w, as the ensemble draws them: of W_QK the raw product at sigma = 1."""

_ATTRIBUTES = ("provenance", "draws", "seed")
_WORDS = ("name", "analytic_method")


def validate_elements(dataset: xr.Dataset, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a table of elements of the schema's major version."""
    check_attributes(dataset.attrs, "elements", _ATTRIBUTES, path)
    schema = {name: ELEMENTS_SCHEMA[name] for name in ELEMENTS_SCHEMA if name != "sample" or name in dataset}
    check_variables(dataset, schema, path)
    for name in schema:
        if name not in _WORDS and dataset[name].dtype.kind not in "fiu":
            raise TableError(path, f"variable {name!r} of type {dataset[name].dtype}", "numbers")
