"""Reading a model, layer by layer: the spectrum and the scale of every head by every circuit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from rmtbase.errors import ParameterError
from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, triangle
from rmtbase.models import WeightMatrices
from rmtbase.progress import Progress
from rmtbase.scoring._heads import sigma_estimate
from rmtbase.scoring._matrices import MatrixScorer
from rmtbase.tables import CIRCUITS, Circuit, Factor

_HEADS_PER_PART = 4
_LEAST = 1e-60  # beyond it, or its inverse, squares of eigenvalues leave float64, whatever the shape
_READS: dict[str, Callable[[WeightMatrices, int], Float[np.ndarray, "head rank width"]]] = {
    "query": lambda model, site: model.queries(site),
    "key": lambda model, site: model.keys(site),
    "value": lambda model, site: model.values(site),
    "output": lambda model, site: model.outputs(site),
}


class SiteSpectra(NamedTuple):
    """The heads of one site by one circuit.

    Attributes:
        singular_values: descending; all zero where a factor is.
        sigmas: σ̂ of each of the circuit's factors.
    """

    singular_values: Float[np.ndarray, "head rank"]
    sigmas: tuple[Float[np.ndarray, " head"], ...]


class _Reduced(NamedTuple):
    """One factor of all heads of a site: its triangles, and its scales."""

    triangles: Float[np.ndarray, "head _ _"]
    sigma: Float[np.ndarray, " head"]


def require_circuits(model: WeightMatrices, wanted: Sequence[str]) -> tuple[Circuit, ...]:
    """The circuits of those names, W_QK first, which is always among them.

    Raises:
        ParameterError: a name that is none, or a circuit of matrices that the model's sites do not have.
    """
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in CIRCUITS:
            raise ParameterError("circuits", name, f"some of {', '.join(CIRCUITS)}")
        if not sites_of(model, CIRCUITS[name]):
            held = (other for other, circuit in CIRCUITS.items() if sites_of(model, circuit))
            raise ParameterError("circuits", name, f"some of {', '.join(held)}, which is all that {model.name} has")
    return tuple(CIRCUITS[name] for name in dict.fromkeys(("qk", *names)))


def sites_of(model: WeightMatrices, circuit: Circuit) -> list[int]:
    """The sites whose heads have all the matrices of a circuit."""
    return [
        index
        for index, site in enumerate(model.sites)
        if all(
            getattr(site, factor.rank) is not None
            and getattr(site, factor.width) is not None
            and model.has(model.layers.index(site.place), f"attention_{factor.name}")
            for factor in circuit.factors
        )
    ]


def read_factors(
    model: WeightMatrices, site: int, circuit: Circuit
) -> tuple[Float[np.ndarray, "factor_head rank width"], ...]:
    """The matrices that a circuit is made of, of all heads of a site."""
    return tuple(_READS[factor.name](model, site) for factor in circuit.factors)


def read_sites(
    model: WeightMatrices, circuits: Sequence[Circuit], scorer: MatrixScorer | None, progress: Progress
) -> dict[Circuit, dict[int, SiteSpectra]]:
    """The spectra of all heads, and the scores of all matrices, in one pass through the checkpoint, layer by layer.

    Returns:
        For each circuit, by the index of a site, what :func:`read_factors` would give there, as spectra.
    """
    advance = progress.bar("reading layers", len(model.layers))
    places = {site.place: index for index, site in enumerate(model.sites)}
    has = {circuit: frozenset(sites_of(model, circuit)) for circuit in circuits}
    found: dict[Circuit, dict[int, SiteSpectra]] = {circuit: {} for circuit in circuits}
    with ThreadPoolExecutor(available_cores()) as pool:
        for layer, place in enumerate(model.layers):
            if place in places:
                site = places[place]
                here = [circuit for circuit in circuits if site in has[circuit]]
                reduced = dict(_reduced(model, site, layer, here, pool))
                for circuit in here:
                    spectra = _spectra(circuit, [reduced[factor] for factor in circuit.factors], pool)
                    _require_range(model, site, circuit, spectra)
                    found[circuit][site] = spectra
            if scorer is not None:
                for component in model.components:
                    if model.has(layer, component):
                        scorer.add(layer, component, model.matrix(layer, component))
            advance(1)
    return found


def _reduced(
    model: WeightMatrices, site: int, layer: int, circuits: Sequence[Circuit], pool: ThreadPoolExecutor
) -> Iterator[tuple[Factor, _Reduced]]:
    """Each factor that some circuit needs, one after the other: two are never held together."""
    for factor in dict.fromkeys(factor for circuit in circuits for factor in circuit.factors):
        weights = _READS[factor.name](model, site)
        sigma = _sigma_of_weights(weights, model.least_sigma(layer, f"attention_{factor.name}"))
        yield factor, _Reduced(_in_parts(pool, triangle, weights), sigma)
        del weights


def _spectra(circuit: Circuit, factors: Sequence[_Reduced], pool: ThreadPoolExecutor) -> SiteSpectra:
    n_heads = max(len(one.sigma) for one in factors)
    each = [_Reduced(*(np.repeat(part, n_heads // len(part), axis=0) for part in one)) for one in factors]
    core = core_of_triangles(*(one.triangles for one in each)) if len(each) > 1 else each[0].triangles
    values = _in_parts(pool, core_singular_values, core)
    sigmas = tuple(one.sigma for one in each)
    values[np.any([sigma == 0 for sigma in sigmas], axis=0)] = 0.0
    return SiteSpectra(values, sigmas)


def _sigma_of_weights(factors: Float[np.ndarray, "head rank width"], least: float) -> Float[np.ndarray, " head"]:
    """Each head's σ̂; 0 where its weights are so small that what is stored of them is rounding, and not their shape."""
    sigma = sigma_estimate(factors)
    return np.where(sigma < least, 0.0, sigma)


def _require_range(model: WeightMatrices, site: int, circuit: Circuit, spectra: SiteSpectra) -> None:
    """Heads of zeros have no scale: they are recorded, and not scored."""
    at = model.sites[site]
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.prod(
            [
                sigma * np.sqrt(getattr(at, factor.rank) * getattr(at, factor.width))
                for factor, sigma in zip(circuit.factors, spectra.sigmas, strict=True)
            ],
            axis=0,
        )
    present = model.heads_have_weights or np.all([sigma > 0 for sigma in spectra.sigmas], axis=0)
    head = first_out_of_range(norms, present)
    if head is not None:
        what = " ".join(f"‖{factor.symbol}‖" for factor in circuit.factors)
        norm = "product of norms" if len(circuit.factors) > 1 else "norm"
        expected = f"a {norm} between {_LEAST:g} and {1.0 / _LEAST:g}: rescale the weights"
        raise model.refused(site, head, f"{what} = {norms[head]:.2g}", expected)


def first_out_of_range(norms: Float[np.ndarray, " head"], present: Bool[np.ndarray, " head"] | bool) -> int | None:
    """The first of the heads ``present`` whose spectrum's statistics cannot be held in float64.

    No eigenvalue is over Π‖W‖_F²; of W_Q and W_K at right angles, what is left is under 1e-16 of that. So the product
    of the norms decides, and every shape has the same limits.
    """
    beyond = np.flatnonzero(~((norms > _LEAST) & (norms < 1.0 / _LEAST)) & present)
    return int(beyond[0]) if beyond.size else None


def _in_parts(
    pool: ThreadPoolExecutor, solve: Callable[[np.ndarray], np.ndarray], stack: Float[np.ndarray, "head ..."]
) -> Float[np.ndarray, "head ..."]:
    """``solve`` over a stack, a few heads at a time: for one small matrix NumPy does not let go of the interpreter."""
    parts = np.array_split(stack, max(1, len(stack) // _HEADS_PER_PART))
    return np.concatenate(list(pool.map(solve, parts)))
