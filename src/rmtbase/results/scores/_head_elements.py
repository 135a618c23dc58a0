"""Statistics of the elements of each head's matrices and of its W_QK, against those of random matrices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import reduce
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import holds_product
from rmtbase.laws import product_element_null
from rmtbase.models import Site
from rmtbase.reasons import Reason
from rmtbase.results.filled import Entries
from rmtbase.results.scores._element_scores import (
    STATISTICS,
    Elements,
    ElementSummary,
    Law,
    against_null,
    element_law,
    element_table,
    elements_of,
    missing_lines,
    summarized,
)
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores.schema import head_elements_schema
from rmtbase.tables import CIRCUITS, Circuit, Factor

ElementMode = Literal["matrices", "factors", "heads"]
ELEMENT_MODES = ("matrices", "factors", "heads")

_BLOCK = 1 << 20  # elements of W_QK computed at a time
_CIRCUITS = (*(CIRCUITS[name] for name in ("query", "key", "value", "output")), CIRCUITS["qk"])


class HeadElements:
    """Scorer of the elements of each head's W_Q, W_K, W_V and W_O, if a site has them, and of its W_QK."""

    def __init__(self, sites: Sequence[Site], products: bool, initialization: str) -> None:
        self._sites, self._initialization = sites, initialization
        self._circuits = _CIRCUITS if products else _CIRCUITS[:-1]
        self._elements: dict[tuple[int, Circuit], list[Elements]] = {}

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> dict[Circuit, list[Future[Elements]]]:
        """Begin with a site, one head at a time; W_QK is computed in blocks of its rows."""

        def summary(*matrices: Shaped[np.ndarray, "rank width"]) -> Elements:
            return elements_of(reduce(ElementSummary.merged, map(summarized, element_blocks(*matrices))).sketch)

        submitted: dict[Circuit, list[Future[Elements]]] = {}
        for circuit in self._circuits:
            if not set(circuit.factors) <= set(factors):
                continue
            matrices = [factors[factor] for factor in circuit.factors]
            n_heads = len(matrices[0])
            submitted[circuit] = [
                pool.submit(summary, *(heads[head * len(heads) // n_heads] for heads in matrices))
                for head in range(n_heads)
            ]
        return submitted

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[Elements]]]) -> None:
        for circuit, heads in submitted.items():
            self._elements[site, circuit] = [head.result() for head in heads]

    def missing(self) -> list[str]:
        """List the heads that lack statistics or their nulls, with the reasons."""
        return missing_lines(
            (
                f"{self._sites[site].place} {circuit.noun} {head}, {circuit.symbol}",
                Reason.join(elements.reason, _law(self._sites[site], circuit, self._initialization)[1]),
            )
            for (site, circuit), heads in self._elements.items()
            for head, elements in enumerate(heads)
        )

    def dataset(self) -> xr.Dataset:
        """Return the group ``/heads/elements``; NaN where a layer lacks a head, a key head or a matrix."""
        circuits = [circuit for circuit in self._circuits if any(key[1] == circuit for key in self._elements)]
        entries: Entries = {}
        for (index, circuit), heads in self._elements.items():
            site = self._sites[index]
            law_of, without_null = _law(site, circuit, self._initialization)
            scores = against_null(np.array([elements.statistics for elements in heads]), law_of)
            for head, elements in enumerate(heads):
                entry = elements.entry(_shape(site, circuit), scores[head], [without_null])
                entries[index, head, circuits.index(circuit)] = entry
        coordinates = {
            **layer_coordinates([site.place for site in self._sites]),
            "head": np.arange(max(site.n_heads for site in self._sites)),
            "component": [circuit.symbol for circuit in circuits],
            "element_statistic": list(STATISTICS),
        }
        families = [[component] for component in range(len(circuits))]
        return element_table(head_elements_schema(), coordinates, entries, families)


def element_blocks(*factors: Shaped[np.ndarray, "rank width"]) -> Iterator[Shaped[np.ndarray, "row column"]]:
    """Yield one matrix, or the product AᵀB of two in blocks of its rows.

    The product is computed in float32. Rounding changes an element, a sum of d_head products, by about 1e-7 σ, and a
    statistic of 16.8 million elements by less than 0.02 of its standard error (``benchmarks/inventory.py``).
    """
    if len(factors) == 1:
        yield from factors
        return
    left, right = (np.asarray(factor, dtype=np.float32) for factor in factors)
    height = max(1, _BLOCK // right.shape[1])
    yield from (left[:, start : start + height].T @ right for start in range(0, left.shape[1], height))


def _shape(site: Site, circuit: Circuit) -> tuple[int, int]:
    sizes = [getattr(site, name) for name in circuit.dims]
    return sizes[0], sizes[-1]


def _law(site: Site, circuit: Circuit, initialization: str) -> tuple[Callable[[str], Law | None], Reason]:
    """Return the law of each statistic of a head's matrix, and the reason if there is no law."""

    def unknown(name: str) -> None:
        return None

    if any(holds_product(getattr(site, factor.name)) for factor in circuit.factors):
        return unknown, Reason("product_of_matrices")
    rows, columns = _shape(site, circuit)
    if len(circuit.factors) == 1:
        return element_law(initialization, rows * columns), Reason()
    dims: Any = tuple(getattr(site, name) for name in circuit.dims)
    try:
        product_element_null(STATISTICS[0], *dims, distribution=initialization)
    except ParameterError as error:
        return unknown, Reason("unknown_null", {"error": str(error)})
    return lambda name: product_element_null(name, *dims, distribution=initialization), Reason()
