"""Learned part of one matrix or product, factored into its directions with shrunken singular values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.heads.direction_tokens import (
    DirectionReading,
    NearestByChance,
    direction_tokens,
    nearest_by_chance,
    sides_in_stream,
)
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import head_factors, sites_of
from rmtbase.linalg import product_svd, without_noise
from rmtbase.models import WeightMatrices
from rmtbase.nulls import Null, find_null, mean_kurtosis, own_kurtosis
from rmtbase.parameters import require_dims, require_real_array
from rmtbase.results.signal._noise import noise_of
from rmtbase.results.signal._sign_flips import sign_flips, signal_of_counts
from rmtbase.results.signal._spectral_signal import SpectralSignal, require_level, spectral_signal
from rmtbase.results.signal.rows import SignalRow
from rmtbase.tables import CIRCUITS

_LEAST = 1e-75  # for the largest singular value: its fourth power and that of its inverse must be doubles


class LearnedPart(NamedTuple):
    """Learned part Ŝ = left · diag(values) · right, nearest in ‖·‖_F to what was learned along the directions found."""

    left: Float[np.ndarray, "d_left direction"]  #: orthonormal columns: singular vectors of W on the side of its rows
    values: Float[np.ndarray, " direction"]  #: :attr:`SpectralSignal.shrunken`; 0 for a direction at the threshold
    right: Float[np.ndarray, "direction d_right"]  #: orthonormal rows: singular vectors of W on the side of its columns
    signal: SpectralSignal  #: the directions and the noise in numbers


def learned_part(
    a: ArrayLike,
    b: ArrayLike | None = None,
    dims: tuple[int, ...] | None = None,
    level: float = 0.05,
    excess_kurtosis: float = 0.0,
    signs: bool = False,
) -> LearnedPart:
    """Estimate the learned part of W = AᵀB, or of W = A without B; the d × d product is never formed.

    Args:
        a: first factor (h, d_left), for example W_Q; without ``b``, the matrix (rows, columns).
        b: second factor (h, d_right), for example W_K.
        dims: dims of the noise's chain, needed where the factors are products themselves (see
            :func:`spectral_signal`); (d_left, h, d_right) or (rows, columns) if None.
        level: level of each test.
        excess_kurtosis: excess kurtosis of the entries of the noise, as in :func:`spectral_signal`.
        signs: whether to count directions against random sign flips of the factors, as ``null="signs"`` of
            :func:`signal` does.

    Raises:
        ParameterError: a factor is not a matrix, not finite or zero, the factors differ in their number of rows, or
            values are so large or small that eigenvalues leave float64; and as in :func:`spectral_signal`.
    """
    factors = []
    for name, array in ({"a": a} | ({} if b is None else {"b": b})).items():
        factors.append(require_real_array(name, array).astype(np.float64))
        if factors[-1].ndim != 2 or not factors[-1].size or not np.isfinite(factors[-1]).all():
            raise ParameterError(name, factors[-1].shape, "a matrix of finite numbers")
    if len(factors) == 1:
        shape, (left, s, right) = factors[0].shape, np.linalg.svd(factors[0], full_matrices=False)
    else:
        shape = (factors[0].shape[1], len(factors[0]), factors[1].shape[1])
        if len(factors[1]) != shape[1]:
            raise ParameterError("b", factors[1].shape, f"{shape[1]} rows, as a has")
        left, s, right = product_svd(*factors)
    dims = shape if dims is None else require_dims(dims)
    if not _LEAST < s[0] < 1.0 / _LEAST:
        name = "a" if b is None else "aᵀb"
        size = "zeros, of which nothing can be said" if s[0] == 0.0 else f"a largest singular value of {s[0]:.3g}"
        raise ParameterError(name, size, f"one between {_LEAST:g} and {1.0 / _LEAST:g} (rescale the weights)")
    s = without_noise(s[: min(dims)])
    if signs:
        counted = signal_of_counts(s[None] ** 2, dims, [sign_flips(require_level(level)).count(*factors)])
        signal = SpectralSignal(**{field.name: getattr(counted, field.name)[0] for field in fields(counted)})
    else:
        signal = spectral_signal(s**2, dims, level, excess_kurtosis)
    k = signal.shrunken.shape[-1]
    return LearnedPart(left[:, :k], signal.shrunken, right[:k], signal)


def learned_part_of(
    model: WeightMatrices,
    layer: int,
    what: str,
    head: int | None = None,
    level: float = 0.05,
    null: Null | str = "gaussian",
) -> LearnedPart:
    """Estimate the learned part of one head's circuit, or of a whole matrix, of an opened model."""
    noise = noise_of(find_null(null), require_level(level))
    if what not in CIRCUITS:
        if head is not None:
            raise ParameterError("what", what, f"one of {', '.join(CIRCUITS)}, of a head")
        factors = [model.matrix(layer, what)]
        dims = factors[0].shape
    else:
        circuit = CIRCUITS[what]
        site = {model.layers.index(at.place): place for place, at in enumerate(model.sites)}.get(layer, -1)
        if site not in sites_of(model, circuit):
            raise ParameterError("layer", layer, f"the index of a layer whose heads have {circuit.symbol}")
        n_heads = getattr(model.sites[site], circuit.heads)
        if head is None or not 0 <= head < n_heads:
            raise ParameterError("head", head, f"0 to {n_heads - 1}")
        dims = null_shape(model, site, circuit)
        if not isinstance(dims, tuple):
            expected = "a product whose noise has a law: here a part of the keys is rotated by itself"
            raise ParameterError("what", what, expected)
        factors = head_factors(model, site, circuit, head)
    kurtosis = noise.entry_kurtosis
    if kurtosis is None:
        kurtosis = float(mean_kurtosis(dims, [own_kurtosis(matrix) for matrix in factors]))
    signs = noise.flips is not None
    return learned_part(*factors, dims=dims, level=level, excess_kurtosis=kurtosis, signs=signs)


def read_directions(
    model: WeightMatrices,
    rows: Iterable[SignalRow],
    level: float,
    directions: int,
    embeddings: WeightMatrices | None = None,
    names: Mapping[int, str] | None = None,
    null: Null | str = "gaussian",
) -> Iterator[DirectionReading]:
    """Read the strongest directions of each row as tokens, on every side that lies in the residual stream."""
    source, by_chance = embeddings or model, dict[bool, NearestByChance]()
    places = {(place.stack, place.layer): layer for layer, place in enumerate(model.layers)}
    for row in rows:
        if not (sides := sides_in_stream(row.what)):
            continue
        part = learned_part_of(model, places[row.stack, row.layer], row.what, row.head, level, null)
        for side, written in sides.items():
            vectors = (part.left.T if side == "left" else part.right)[:directions]
            scores = direction_tokens(source, vectors, written)
            if written not in by_chance:
                by_chance[written] = nearest_by_chance(source, written)
            for k, p_value in enumerate(scores.p_value.tolist()):
                place, ends = (row.stack, row.layer, row.what, row.head), scores.named(k, names or {})
                yield DirectionReading(*place, k, side, written, *ends, p_value, by_chance[written])
