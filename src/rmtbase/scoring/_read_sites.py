"""Reading a model, layer by layer: the spectrum and the scale of every head by every circuit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from rmtbase.errors import ParameterError
from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, triangles
from rmtbase.models import WeightMatrices
from rmtbase.progress import Progress
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
    """One factor of heads: its triangles, its scales, and which triangles were had by orthogonal transformations."""

    triangles: Float[np.ndarray, "head _ _"]
    sigma: Float[np.ndarray, " head"]
    orthogonal: Bool[np.ndarray, " head"]


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
) -> ReadSites:
    """The spectra of all heads, and the scores of all matrices, in one pass through the checkpoint, layer by layer.

    A layer is read while those before it are being solved: no more than the factors of two are held. A head's values
    are the same to the bit in whatever company.
    """
    advance = progress.bar("reading layers", len(model.layers))
    places = {site.place: index for index, site in enumerate(model.sites)}
    has = {circuit: frozenset(sites_of(model, circuit)) for circuit in circuits}
    found = ReadSites({circuit: {} for circuit in circuits}, {"gram_matrix": 0, "orthogonal": 0})
    with ThreadPoolExecutor(available_cores()) as pool:
        warned = pool.submit(lambda: model.warnings)  # kept by the model: its digests are made meanwhile
        before: _Submitted | None = None

        def finish(submitted: _Submitted | None) -> None:
            if submitted is not None:
                for circuit, spectra in submitted.spectra(pool):
                    _require_range(model, submitted.site, circuit, spectra)
                    found.spectra[circuit][submitted.site] = spectra
                found.count(submitted)

        for layer, place in enumerate(model.layers):
            if place in places:
                site = places[place]
                here = [circuit for circuit in circuits if site in has[circuit]]
                submitted = _Submitted(site, here, dict(_submit(model, site, layer, here, pool)))
                finish(before)
                before = submitted
            if scorer is not None:
                for component in model.components:
                    if model.has(layer, component):
                        scorer.add(layer, component, model.matrix(layer, component))
            advance(1)
        finish(before)
        warned.result()
    return found


class ReadSites(NamedTuple):
    """What was read of all sites.

    Attributes:
        spectra: for each circuit, by the index of a site, what :func:`read_factors` would give there, as spectra.
        ways: how many factors were factorised in which way, see :func:`rmtbase.linalg.triangles`.
    """

    spectra: dict[Circuit, dict[int, SiteSpectra]]
    ways: dict[str, int]

    def count(self, submitted: _Submitted) -> None:
        """Add the factors of a site."""
        for futures in submitted.factors.values():
            for part in futures:
                orthogonal = part.result().orthogonal
                self.ways["orthogonal"] += int(orthogonal.sum())
                self.ways["gram_matrix"] += int((~orthogonal).sum())


class _Submitted(NamedTuple):
    """A site whose factors are being reduced, some heads at a time."""

    site: int
    circuits: Sequence[Circuit]
    factors: Mapping[Factor, list[Future[_Reduced]]]

    def spectra(self, pool: Executor) -> Iterator[tuple[Circuit, SiteSpectra]]:
        """Of each circuit, when all are there."""
        whole = {
            factor: _Reduced(*map(np.concatenate, zip(*(part.result() for part in parts), strict=True)))
            for factor, parts in self.factors.items()
        }
        for circuit in self.circuits:
            yield circuit, _spectra([whole[factor] for factor in circuit.factors], pool)


def _submit(
    model: WeightMatrices, site: int, layer: int, circuits: Sequence[Circuit], pool: Executor
) -> Iterator[tuple[Factor, list[Future[_Reduced]]]]:
    """Each factor that some circuit needs, read and given to the pool."""
    for factor in dict.fromkeys(factor for circuit in circuits for factor in circuit.factors):
        weights = _READS[factor.name](model, site)
        least = model.least_sigma(layer, f"attention_{factor.name}")
        yield factor, [pool.submit(_reduce, part, least) for part in _parts(weights)]


def _reduce(factors: Float[np.ndarray, "head rank width"], least: float) -> _Reduced:
    """The triangles of some heads, and σ̂ = √(‖W‖_F² / (d h)), which they have: 0 where what is stored is rounding."""
    r, orthogonal = triangles(factors)
    sigma = np.sqrt(np.einsum("...ij,...ij->...", r, r) / (factors.shape[-2] * factors.shape[-1]))
    return _Reduced(r, np.where(sigma < least, 0.0, sigma), orthogonal)


def _spectra(factors: Sequence[_Reduced], pool: Executor) -> SiteSpectra:
    n_heads = max(len(one.sigma) for one in factors)
    each = [_Reduced(*(np.repeat(part, n_heads // len(part), axis=0) for part in one)) for one in factors]
    core = core_of_triangles(*(one.triangles for one in each)) if len(each) > 1 else each[0].triangles
    values = np.concatenate(list(pool.map(core_singular_values, _parts(core))))
    sigmas = tuple(one.sigma for one in each)
    values[np.any([sigma == 0 for sigma in sigmas], axis=0)] = 0.0
    return SiteSpectra(values, sigmas)


def _parts(stack: Float[np.ndarray, "head ..."]) -> list[Float[np.ndarray, "head ..."]]:
    """A few heads at a time: for one small matrix NumPy does not let go of the interpreter."""
    return np.array_split(stack, max(1, len(stack) // _HEADS_PER_PART))


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
