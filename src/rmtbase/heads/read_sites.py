"""Read a model layer by layer: the spectrum and the scale of every head by every circuit.

Other threads than the caller's do all the work. A site's factors are read while the heads of the previous site are
being solved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.linalg import solve_triangular

from rmtbase import linalg
from rmtbase.errors import ParameterError
from rmtbase.models import MatrixName, Site, WeightMatrices
from rmtbase.progress import Progress
from rmtbase.tables import CIRCUITS, Circuit, Factor

_FACTORS = tuple(CIRCUITS[name].factors[0] for name in ("query", "key", "value", "output"))
_HEADS_PER_PART = 4  # at least
_PARTS_PER_CORE = 2  # parts of a site, at most: each needs memory of its own
_LEAST = 1e-60  # below it, or above its inverse, squares of eigenvalues leave float64, whatever the shape
_SINGULAR = 1e-10  # smallest ratio of the diagonal of a triangle with which the row space is known
_SINGLE = 1e-12  # smallest norm of rows, and the inverse of the largest, whose products are taken in float32


class HeadTaker(Protocol):
    """Consumer of the factors of each site's heads while they are read."""

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> Mapping[Circuit, Sequence[Future[Any]]]:
        """Begin work on the heads of one site."""
        ...

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[Any]]]) -> None:
        """Wait for the work on one site, and keep its results."""


class Preparation(Protocol):
    """Interface by which ``rmtbase.nulls.Null`` computes what it needs from each head's factors while they are read."""

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> Sequence[Any] | None:
        """Return one entry for each head, or None if the spectrum is enough.

        Heads are ordered by group, then by member. A factor shared by a group has one member.
        """
        ...

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> Sequence[Any] | None:
        """Return one entry for each product [A_1 ... A_g]ᵀB of heads that share B, with σ̂ of the A_i, or None."""
        ...


class MatrixTaker(Protocol):
    """Consumer of every matrix of the layers as it is read, such as a ``MatrixScorer``."""

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[Any]] = map,
    ) -> None:
        """Take one matrix, in blocks of rows."""
        ...


@dataclass(frozen=True)
class HeadWork:
    """Work on each head besides its spectrum."""

    preparation: Preparation | None = None  # computes what a null needs
    joint: bool = False  # whether heads that share a matrix are also solved as one
    # whether heads are also solved with equal axes, and the relation of their keys to their queries is measured
    how_much: bool = False


@dataclass(frozen=True)
class Takers:
    """Consumers of the matrices that are read."""

    matrices: MatrixTaker | None = None  # of all matrices of the layers
    heads: HeadTaker | None = None  # of the factors of each head


class GroupSpectra(NamedTuple):
    """Spectra of heads of one site that share a matrix, as one product [A_1 ... A_g]ᵀB, each A_i at their common σ̂."""

    singular_values: Float[np.ndarray, "group rank"]  # singular values, descending; all zero where a factor is zero
    # share of each head in the square of each singular value: ‖block of A_i‖² of its left singular vector
    shares: Float[np.ndarray, "group rank member"]
    # what else the null needs from each group, see :class:`Preparation`; None if nothing
    prepared: list[Any] | None = None


class KeyShares(NamedTuple):
    """Shares of each W_QK that read the row space of W_Q, of projector P; NaN where W_Q has no full rank."""

    share: Float[np.ndarray, "..."]  # ‖W_QK P‖²/‖W_QK‖²
    query_columns: Float[np.ndarray, "..."]  # Σ_j P_jj², with P taken as if the rows of W_Q were orthogonal
    # Σ_j of the squared share of ‖W_QK‖² in column j, with the same approximation
    key_columns: Float[np.ndarray, "..."]


class SiteSpectra(NamedTuple):
    """Spectra of the heads of one site by one circuit."""

    singular_values: Float[np.ndarray, "head rank"]  # singular values, descending; all zero where a factor is zero
    sigmas: tuple[Float[np.ndarray, " head"], ...]  # σ̂ of each of the circuit's factors
    # spectra of heads that share a matrix; None if none do, or if they were not requested
    groups: GroupSpectra | None = None
    # what else the null needs from each head, see :class:`Preparation`; None if nothing
    prepared: list[Any] | None = None
    # singular values with each row of each factor scaled to norm 1; None where the circuit has no head axes, or if they
    # were not requested
    equal_axes: Float[np.ndarray, "head rank"] | None = None
    # how much of each W_QK reads the row space of W_Q; None where queries and keys read different streams, or if it was
    # not requested
    key_shares: KeyShares | None = None


def _joined(parts: Sequence[Any]) -> Any:
    """Join arrays and lists end to end, and records field by field; None if all are None."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    first = present[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(present)
    if isinstance(first, list):
        return [entry for part in present for entry in part]
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in present]) for name in first}
    fields = map(_joined, zip(*present, strict=True))
    return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)


class _Solved(NamedTuple):
    """Spectra of some heads of one site by every circuit, and a mask of the orthogonally factorized factors."""

    spectra: dict[Circuit, SiteSpectra]
    orthogonal: Bool[np.ndarray, " factor"]


def require_circuits(model: WeightMatrices, names: Sequence[str]) -> tuple[Circuit, ...]:
    """Return the named circuits, after W_QK, which is always among them."""
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in CIRCUITS:
            raise ParameterError("circuits", name, f"some of {', '.join(CIRCUITS)}")
        if not sites_of(model, CIRCUITS[name]):
            available = ", ".join(key for key, circuit in CIRCUITS.items() if sites_of(model, circuit))
            raise ParameterError("circuits", name, f"some of {available}, which is all that {model.name} has")
    return tuple(CIRCUITS[name] for name in dict.fromkeys(("qk", *names)))


def sites_of(model: WeightMatrices, circuit: Circuit) -> list[int]:
    """Find the sites whose heads have all matrices of a circuit."""
    return [
        index
        for index, site in enumerate(model.sites)
        if all(
            _is_known(site, factor) and model.has(model.layers.index(site.place), f"attention_{factor.name}")
            for factor in circuit.factors
        )
    ]


def _is_known(site: Site, factor: Factor) -> bool:
    return getattr(site, factor.rank) is not None and getattr(site, factor.width) is not None


def read_factors(
    model: WeightMatrices, site: int, circuit: Circuit
) -> tuple[Float[np.ndarray, "factor_head rank width"], ...]:
    """Read the matrices of a circuit, for all heads of a site."""
    layer = model.layers.index(model.sites[site].place)
    names = [factor.name for factor in circuit.factors]
    return tuple(model.by_head(site, name, model.matrix(layer, f"attention_{name}")) for name in names)


def head_factors(
    model: WeightMatrices, site: int, circuit: Circuit, head: int
) -> tuple[Float[np.ndarray, "rank width"], ...]:
    """Read the matrices of a circuit for one head of a site, with those of its key head where heads share them."""
    n_heads = getattr(model.sites[site], circuit.heads)
    return tuple(heads[head // (n_heads // len(heads))] for heads in read_factors(model, site, circuit))


class Spectra(NamedTuple):
    """Spectra of the heads of all sites."""

    by_circuit: dict[Circuit, dict[int, SiteSpectra]]  # by the index of a site
    ways: dict[str, int]  # factors by the way in which they were factorized: see ``linalg.triangles``


@contextmanager
def read_sites(
    model: WeightMatrices, circuits: Sequence[Circuit], takers: Takers, work: HeadWork, progress: Progress
) -> Iterator[Future[Spectra]]:
    """Read the spectra of all heads during a ``with`` block, and give all takers their matrices.

    One pass through the checkpoint does all of this while the block does something else. Work that is not finished at
    the end of the block is abandoned. A KeyboardInterrupt does not wait for the threads: they may be drawing a null or
    compiling, and end by themselves.
    """
    pool, reader, waits = ThreadPoolExecutor(linalg.available_cores()), ThreadPoolExecutor(1), True
    try:
        yield reader.submit(_read_layers, model, circuits, takers, work, progress, pool)
    except BaseException as error:
        waits = isinstance(error, Exception)
        model.give_up_hashing()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # so that the reader cannot go on
        for threads in (reader, pool):
            threads.shutdown(wait=waits)


def _read_layers(
    model: WeightMatrices,
    circuits: Sequence[Circuit],
    takers: Takers,
    work: HeadWork,
    progress: Progress,
    pool: Executor,
) -> Spectra:
    advance = progress.bar("reading layers", len(model.layers))
    places = {site.place: index for index, site in enumerate(model.sites)}
    has = {circuit: frozenset(sites_of(model, circuit)) for circuit in circuits}
    by_circuit: dict[Circuit, dict[int, SiteSpectra]] = {circuit: {} for circuit in circuits}
    ways = {"gram_matrix": 0, "orthogonal": 0}

    def keep(site: int, parts: Sequence[Future[_Solved]], taken: Mapping[Circuit, Sequence[Future[Any]]]) -> None:
        solved: _Solved = _joined([part.result() for part in parts])
        orthogonal = solved.orthogonal
        for circuit, spectra in solved.spectra.items():
            _require_range(model, site, circuit, spectra)
            by_circuit[circuit][site] = spectra
        ways["orthogonal"] += int(orthogonal.sum())
        ways["gram_matrix"] += int((~orthogonal).sum())
        if takers.heads is not None:
            takers.heads.keep(site, taken)

    warned = pool.submit(lambda: model.warnings)  # hashes tensors in the meantime; the model keeps the result
    before: tuple[Any, ...] = ()  # the site being solved while the next one is read
    for layer, place in enumerate(model.layers):
        site = places.get(place, -1)
        present = [circuit for circuit in circuits if site in has[circuit]]
        solved = {factor for circuit in present for factor in circuit.factors}
        read = _FACTORS if takers.heads is not None and site >= 0 else solved
        factors = {f"attention_{factor.name}": factor for factor in read if _is_known(model.sites[site], factor)}
        heads: dict[Factor, Shaped[np.ndarray, "factor_head rank width"]] = {}
        for component in model.components:
            if model.has(layer, component) and (takers.matrices is not None or component in factors):
                matrix = model.stored_matrix(layer, component)
                if component in factors:
                    heads[factors[component]] = model.by_head(site, factors[component].name, matrix)
                if takers.matrices is not None:
                    takers.matrices.add(MatrixName(place, component), [matrix], matrix.shape, pool.map)
        if heads:
            of_circuits = {factor: heads[factor] for factor in heads if factor in solved}
            least = [model.least_sigma(layer, f"attention_{factor.name}") for factor in of_circuits]
            # A few heads at a time, with their key heads: for one small matrix NumPy does not release the GIL.
            groups, n_heads = min(map(len, of_circuits.values())), max(map(len, of_circuits.values()))
            n_parts = min(groups, max(1, n_heads // _HEADS_PER_PART), _PARTS_PER_CORE * linalg.available_cores())
            by_group = [matrices.reshape(groups, -1, *matrices.shape[1:]) for matrices in of_circuits.values()]
            parts = [
                pool.submit(_solve, present, work, dict(zip(of_circuits, zip(part, least, strict=True), strict=True)))
                for part in zip(*(np.array_split(matrices, n_parts) for matrices in by_group), strict=True)
            ]
            taken = {} if takers.heads is None else takers.heads.submit(site, heads, pool)
            if before:
                keep(*before)
            before = site, parts, taken
        advance(1)
    if before:
        keep(*before)
    warned.result()
    return Spectra(by_circuit, ways)


def _solve(
    circuits: Sequence[Circuit],
    work: HeadWork,
    factors: Mapping[Factor, tuple[Shaped[np.ndarray, "group head rank width"], float]],
) -> _Solved:
    reduced = {factor: linalg.triangles(np.asarray(weights)) for factor, (weights, _) in factors.items()}
    scales = {
        factor: _sigma(reduced[factor].r, weights.shape[-1], least) for factor, (weights, least) in factors.items()
    }
    spectra, preparation = {}, work.preparation
    for circuit in circuits:
        r_factors = [reduced[factor].r for factor in circuit.factors]
        values = linalg.core_singular_values(_core(*r_factors) if len(r_factors) > 1 else r_factors[0])
        heads = values.shape[:2]
        sigmas = tuple(np.broadcast_to(scales[factor], heads).reshape(-1) for factor in circuit.factors)
        values = values.reshape(-1, values.shape[-1])
        values[np.any([sigma == 0 for sigma in sigmas], axis=0)] = 0.0
        groups = None
        if work.joint and len(r_factors) > 1 and r_factors[0].shape[1] > r_factors[1].shape[1] == 1:
            sigmas_of_heads, sigma_shared = (scales[factor] for factor in circuit.factors)
            groups = _group(r_factors[0], r_factors[1][:, 0], sigmas_of_heads, sigma_shared[:, 0])
        weights = [factors[factor][0] for factor in circuit.factors]
        prepared = None if preparation is None else preparation.prepare(weights)
        prepared = None if prepared is None else list(prepared)
        if preparation is not None and groups is not None:
            of_groups = preparation.prepare_groups(weights[0], weights[1], scales[circuit.factors[0]])
            groups = groups._replace(prepared=None if of_groups is None else list(of_groups))
        equal, key_shares = None, None
        if work.how_much and circuit.head_axes:
            unit = [np.swapaxes(linalg.equal_rows(np.swapaxes(r, -1, -2)), -1, -2) for r in r_factors]
            equal = linalg.core_singular_values(_core(*unit) if len(unit) > 1 else unit[0]).reshape(values.shape)
            if len(r_factors) > 1 and weights[0].shape[-1] == weights[1].shape[-1]:
                shares = _key_shares(weights[0], weights[1], r_factors[0], r_factors[1])
                key_shares = KeyShares(*(share.reshape(-1) for share in shares))
        spectra[circuit] = SiteSpectra(values, sigmas, groups, prepared, equal, key_shares)
    return _Solved(spectra, np.concatenate([triangle.orthogonal.reshape(-1) for triangle in reduced.values()]))


def _key_shares(
    w_q: Shaped[np.ndarray, "group member rank width"],
    w_k: Shaped[np.ndarray, "group one rank width"],
    r_q: Float[np.ndarray, "group member rank rows"],
    r_k: Float[np.ndarray, "group one rank rows"],
) -> KeyShares:
    """Measure how much of each W_QK reads the row space of W_Q.

    With W_Qᵀ = O R, P = O Oᵀ and W_QK P = O R (W_K O) Oᵀ, where W_K O = W_K W_Qᵀ R⁻¹.
    """
    shares = KeyShares(*(np.full(r_q.shape[:2], np.nan) for _ in KeyShares._fields))
    if r_q.shape[-2] < r_q.shape[-1]:  # more rows than columns
        return shares
    for place in np.ndindex(*r_q.shape[:2]):
        r, r_key = r_q[place], r_k[place[0], 0]
        diagonal = np.abs(np.diagonal(r))
        if not (diagonal.min() > _SINGULAR * diagonal.max() and r_key.any()):
            continue
        q, k = w_q[place], w_k[place[0], 0]
        scale_q, scale_k = np.abs(r).max(), np.abs(r_key).max()
        in_single = np.result_type(q, k, np.float32) == np.float32 and min(scale_q, scale_k) > _SINGLE
        dtype = np.float32 if in_single and max(scale_q, scale_k) < 1.0 / _SINGLE else np.float64
        q, k = q.astype(dtype) / dtype(scale_q), k.astype(dtype) / dtype(scale_k)
        r, r_key = r / scale_q, r_key / scale_k
        crossed = solve_triangular(r, q @ k.T, trans=1, check_finite=False)
        inside, norm = np.linalg.norm(r @ crossed.T), np.linalg.norm(r @ r_key.T)
        norms = np.sum(r * r, axis=0)
        of_query = (1.0 / norms) @ q**2
        of_key = norms @ k**2
        shares.share[place] = min((inside / norm) ** 2, 1.0)
        shares.query_columns[place] = np.sum(of_query**2)
        shares.key_columns[place] = np.sum((of_key / of_key.sum()) ** 2)
    return shares


def _group(
    triangle_rows: Float[np.ndarray, "group member rank rows"],
    shared: Float[np.ndarray, "group rank rows"],
    sigmas: Float[np.ndarray, "group member"],
    sigma: Float[np.ndarray, " group"],
) -> GroupSpectra:
    """Solve a group from the triangles of the A_i, RᵀR = A_i A_iᵀ, and of B.

    ‖A_iᵀ y‖ = ‖R_i y‖ with y = B v for a right singular vector v.
    """
    nonzero = (sigmas > 0.0).all(axis=1) & (sigma > 0.0)
    together = np.sqrt(np.mean(sigmas**2, axis=1, keepdims=True))
    weights = np.divide(together, sigmas, out=np.zeros(sigmas.shape), where=nonzero[:, None])
    scaled = weights[..., None, None] * triangle_rows
    stacked = np.moveaxis(scaled, -1, 1).reshape(len(scaled), scaled.shape[-1], -1)  # [A_1 ... A_g], rotated
    _, values, right = np.linalg.svd(linalg.core_of_triangles(linalg.triangles(stacked).r, shared))
    read = np.einsum("gji,gkj->gik", shared, right[:, : values.shape[1]])
    energy = np.sum(np.einsum("gmij,gjk->gmik", scaled, read) ** 2, axis=2).swapaxes(1, 2)
    total = energy.sum(axis=-1, keepdims=True)
    shares = np.divide(energy, total, out=np.full(energy.shape, np.nan), where=total > 0.0)
    return GroupSpectra(linalg.without_noise(values) * nonzero[:, None], shares)


def _core(
    r_q: Float[np.ndarray, "group member rank rows"], r_k: Float[np.ndarray, "group member rank rows"]
) -> Float[np.ndarray, "group member rank rank"]:
    """Compute the cores R_Q R_Kᵀ, with zeros where one leaves float64: such heads are refused by their norms."""
    with np.errstate(over="ignore", invalid="ignore"):
        core = r_q @ np.swapaxes(r_k, -1, -2)
    beyond = ~np.isfinite(core).all(axis=(-1, -2))
    if beyond.any():
        core[beyond] = 0.0
    return core


def _sigma(r: Float[np.ndarray, "... _ rank"], width: int, least: float) -> Float[np.ndarray, "..."]:
    """Estimate σ̂ = √(‖W‖_F² / (rank · width)) of factors from their triangles, which have the same norms.

    0 where weights are so small that their stored values hold only rounding.
    """
    exponent = np.frexp(np.abs(r).max(axis=(-1, -2)))[1]  # a power of two changes no bit, and lets no square overflow
    unit = np.ldexp(r, -exponent[..., None, None])
    sigma = np.ldexp(np.sqrt(np.einsum("...ij,...ij->...", unit, unit) / (r.shape[-1] * width)), exponent)
    return np.where(sigma < least, 0.0, sigma)


def _require_range(model: WeightMatrices, site: int, circuit: Circuit, spectra: SiteSpectra) -> None:
    at = model.sites[site]
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = (getattr(at, factor.rank) * getattr(at, factor.width) for factor in circuit.factors)
        norms = np.prod([sigma * np.sqrt(size) for sigma, size in zip(spectra.sigmas, sizes, strict=True)], axis=0)
    present = model.heads_have_weights or np.all([sigma > 0 for sigma in spectra.sigmas], axis=0)
    # No eigenvalue exceeds Π‖W‖_F²; if W_Q and W_K are orthogonal to each other, rounding leaves less than 1e-16 of
    # that. So the product of the norms decides, and every shape has the same limits.
    beyond = np.flatnonzero(~((norms > _LEAST) & (norms < 1.0 / _LEAST)) & present)
    if beyond.size:
        head = int(beyond[0])
        symbols = " ".join(f"‖{factor.symbol}‖" for factor in circuit.factors)
        norm = "product of norms" if len(circuit.factors) > 1 else "norm"
        expected = f"a {norm} between {_LEAST:g} and {1.0 / _LEAST:g}: rescale the weights"
        size = {0.0: "under 1e-308", np.inf: "over 1e308"}.get(float(norms[head]), f"= {norms[head]:.2g}")
        raise model.refused(site, head, f"{symbols} {size}", expected)
