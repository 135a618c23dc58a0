"""Statistics of the elements of each head's matrices and of its W_QK, against those of random matrices."""

from __future__ import annotations

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
from rmtbase.parameters import require_independent_entries
from rmtbase.results.scores._element_scores import (
    FIELDS,
    OF_PRODUCT,
    STATISTICS,
    Elements,
    ElementSummary,
    Law,
    against_null,
    bin_coordinates,
    element_law,
    elements_of,
    missing_lines,
    summarized,
)
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores.schema import head_elements_schema
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS, Circuit, Factor, describe

ElementMode = Literal["matrices", "factors", "heads"]
ELEMENT_MODES = ("matrices", "factors", "heads")

_BLOCK = 1 << 20  # elements of W_QK computed at a time
_CIRCUITS = (*(CIRCUITS[name] for name in ("query", "key", "value", "output")), CIRCUITS["qk"])


def require_element_mode(elements: object, initialization: str) -> ElementMode:
    """Return ``elements``, or raise :class:`ParameterError` if it is not a mode, or needs another initialization."""
    if elements not in ELEMENT_MODES:
        raise ParameterError("elements", elements, f"one of {', '.join(ELEMENT_MODES)}")
    if elements != "matrices":
        require_independent_entries(initialization, f"elements={elements!r}")
    return elements


def head_elements(elements: ElementMode, initialization: str, sites: Sequence[Site]) -> HeadElements | None:
    """Return the scorer of the elements of heads, if they are requested."""
    return None if elements == "matrices" else HeadElements(sites, elements == "heads", initialization)


class HeadElements:
    """Scorer of the elements of each head's W_Q, W_K, W_V and W_O, if a site has them, and of its W_QK.

    The null of the first four has independent elements of one law. The null of W_QK is the product of two such
    matrices, whose elements are dependent if they share a row or a column. Each null has the matrix's own standard
    deviation.
    """

    def __init__(self, sites: Sequence[Site], products: bool, initialization: str) -> None:
        self._sites, self._initialization = sites, initialization
        self._circuits = _CIRCUITS if products else _CIRCUITS[:-1]
        self._found: dict[tuple[int, Circuit], list[Elements]] = {}

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> dict[Circuit, list[Future[Elements]]]:
        """Begin with a site, one head at a time; W_QK is computed in blocks of its rows."""
        submitted: dict[Circuit, list[Future[Elements]]] = {}
        for circuit in self._circuits:
            held = [factors[factor] for factor in circuit.factors if factor in factors]
            if len(held) < len(circuit.factors):
                continue
            shared = [len(held[0]) // len(one) for one in held]
            submitted[circuit] = [
                pool.submit(_elements, *(one[head // of] for one, of in zip(held, shared, strict=True)))
                for head in range(len(held[0]))
            ]
        return submitted

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[Elements]]]) -> None:
        """Wait for a site, and keep its results."""
        for circuit, heads in submitted.items():
            self._found[site, circuit] = [head.result() for head in heads]

    def missing(self) -> list[str]:
        """List the heads that lack statistics or their nulls, with the reasons."""
        return missing_lines(
            (f"{self._sites[site].place} {circuit.noun} {head}, {circuit.symbol}", reason)
            for (site, circuit), each in self._found.items()
            for head, reason in enumerate(self._reasons(site, circuit, each))
        )

    def _reasons(self, site: int, circuit: Circuit, each: Sequence[Elements]) -> list[str]:
        """Give the reason why statistics, or their nulls, are missing, for each head."""
        _, why = _law(self._sites[site], circuit, self._initialization)
        return ["; ".join(filter(None, (one.reason, why))) for one in each]

    def dataset(self) -> xr.Dataset:
        """Return the group ``/heads/elements``; NaN where a layer lacks a head, a key head or a matrix."""
        held = [circuit for circuit in self._circuits if any(one == circuit for _, one in self._found)]
        n_heads = max(site.n_heads for site in self._sites)
        shape = len(self._sites), n_heads, len(held)
        scores = np.full((*shape, len(STATISTICS), len(FIELDS)), np.nan)
        facts = {name: np.full(shape, np.nan) for name in ("sigma", "n_rows", "n_columns")}
        bins = bin_coordinates()
        histograms = {"histogram": "bin", "log_magnitude_histogram": "magnitude_bin"}
        counts = {name: np.full((*shape, bins[dim].size), np.nan) for name, dim in histograms.items()}
        reason = np.full(shape, "", dtype=object)
        for (index, circuit), each in self._found.items():
            site, at = self._sites[index], (index, slice(len(each)), held.index(circuit))
            facts["sigma"][at] = [one.sigma for one in each]
            facts["n_rows"][at], facts["n_columns"][at] = _shape(site, circuit)
            for name, values in counts.items():
                values[at] = [getattr(one, name) for one in each]
            reason[at] = self._reasons(index, circuit, each)
            law_of, _ = _law(site, circuit, self._initialization)
            scores[at] = against_null(np.array([one.statistics for one in each]), law_of)
        dims = ("layer", "head", "component")
        of_statistic = (*dims, "element_statistic")
        variables: dict[str, tuple] = {name: (of_statistic, scores[..., k]) for k, name in enumerate(FIELDS)}
        p_value = scores[..., FIELDS.index("p_value")]
        q_value = benjamini_hochberg(p_value.reshape(-1, *p_value.shape[2:]), axis=0)
        variables["q_value"] = of_statistic, q_value.reshape(p_value.shape)
        variables |= {name: (dims, values) for name, values in facts.items()} | {"reason": (dims, reason.astype(str))}
        variables |= {name: ((*dims, dim), counts[name]) for name, dim in histograms.items()}
        names = {"component": [circuit.symbol for circuit in held], "element_statistic": list(STATISTICS)}
        heads = {"head": np.arange(n_heads)}
        coordinates = layer_coordinates([site.place for site in self._sites]) | heads | names | bins
        return describe(xr.Dataset(variables, coords=coordinates), head_elements_schema())


def _elements(*factors: Shaped[np.ndarray, "rank width"]) -> Elements:
    """Summarize the elements of one matrix, or of the product AᵀB of two."""
    return elements_of(reduce(ElementSummary.merged, map(summarized, element_blocks(*factors))).sketch)


def element_blocks(*factors: Shaped[np.ndarray, "rank width"]) -> Iterator[Shaped[np.ndarray, "row column"]]:
    """Yield one matrix, or the product AᵀB of two in blocks of its rows.

    The product is computed in float32. Rounding changes an element, a sum of d_head products, by about 1e-7 σ, and a
    statistic of 16.8 million elements by less than 0.02 of its standard error (``benchmarks/inventory.py``).
    """
    if len(factors) == 1:
        yield from factors
        return
    left, right = (np.asarray(one, dtype=np.float32) for one in factors)
    height = max(1, _BLOCK // right.shape[1])
    yield from (left[:, start : start + height].T @ right for start in range(0, left.shape[1], height))


def _shape(site: Site, circuit: Circuit) -> tuple[int, int]:
    """Return the shape of one head's matrix."""
    sizes = [getattr(site, name) for name in circuit.dims]
    return sizes[0], sizes[-1]


def _law(site: Site, circuit: Circuit, initialization: str) -> tuple[Callable[[str], Law | None], str]:
    """Return the law of each statistic of a head's matrix, and the reason if there is no law."""
    if any(holds_product(getattr(site, factor.name)) for factor in circuit.factors):
        return lambda name: None, OF_PRODUCT
    rows, columns = _shape(site, circuit)
    if len(circuit.factors) == 1:
        return element_law(initialization, rows * columns), ""
    dims: Any = tuple(getattr(site, name) for name in circuit.dims)
    try:
        product_element_null(STATISTICS[0], *dims, distribution=initialization)
    except ParameterError as unknown:
        return lambda name: None, f"no null is known: {unknown}"
    return lambda name: product_element_null(name, *dims, distribution=initialization), ""
