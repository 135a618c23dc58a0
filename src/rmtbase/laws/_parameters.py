"""Keywords of every law of a Gaussian chain, and the single place that reads them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

from scipy.special import digamma, polygamma

from rmtbase.errors import ParameterError
from rmtbase.parameters import (
    DEFAULT_NORMALIZATION,
    require_dims,
    require_head_shape,
    require_normalization,
    require_positive_number,
    require_sigmas,
)
from rmtbase.shown import quoted


def as_float(value: Fraction) -> float:
    """Return the nearest double, or ±∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def own_variance_moment(power: int, dims: tuple[int, ...]) -> Fraction:
    """E Π_l (σ̂_l²)^power at σ = 1, σ̂_l² = |X_l|_F²/N_l: N_l σ̂_l² is χ² of N_l, independent of X_l's direction."""
    entries = [n * m for n, m in pairwise(dims)]
    return Fraction(math.prod(n + 2 * i for n in entries for i in range(power)), math.prod(entries) ** power)


def own_variance_log_cumulants(dims: tuple[int, ...]) -> tuple[float, float, float]:
    halves = [0.5 * m * n for m, n in pairwise(dims)]
    return (
        math.fsum(float(digamma(x)) - math.log(x) for x in halves),
        math.fsum(float(polygamma(1, x)) for x in halves),
        math.fsum(float(polygamma(2, x)) for x in halves),
    )


P = ParamSpec("P")
T = TypeVar("T")


class ProductKeywords(TypedDict, total=False):
    """Scale of W_QK = W_Qᵀ W_K, with W_Q and W_K of shape (d_head, d_model).

    Args:
        sigma_q, sigma_k: standard deviations of the elements of W_Q and of W_K; each defaults to 1.
        sigma: standard deviation of both, instead of ``sigma_q`` and ``sigma_k``.
        normalization: ``"sqrt_d"``: W_QK is divided by √d_model; ``"none"``: the raw product.
    """

    sigma_q: float | None
    sigma_k: float | None
    sigma: float | None
    normalization: str


class ChainKeywords(ProductKeywords, total=False):
    """Chain W = X_1 ... X_L, with X_l of shape (n_{l-1}, n_l) and entries N(0, σ_l²), given in one of two ways.

    Args:
        d_model, d_head: dimensions of W_QK = W_Qᵀ W_K, the chain (d_model, d_head, d_model); also accepted as two
            positional numbers.
        sigma_q, sigma_k: standard deviations of the entries of W_Q and of W_K; each defaults to 1.
        dims: (n_0, ..., n_L) of any chain; also accepted by position, except for a pair, which could mean either.
        sigmas: the L standard deviations of any chain; each defaults to 1.
        sigma: standard deviation of every factor, for either way.
        normalization: ``"sqrt_d"``: W is divided by √n_0 (√d_model); ``"none"``: the raw product. A single matrix,
            dims=(n, m), is always raw.
    """

    d_model: int | None
    d_head: int | None
    dims: Sequence[int] | None
    sigmas: Sequence[float] | None


_OF_PRODUCT = ("d_model", "d_head", "sigma_q", "sigma_k")
_OF_CHAIN = ("dims", "sigmas")
_WAYS = (
    "d_model= and d_head= (with sigma_q=, sigma_k=) for W_QK, or dims= (with sigmas=) for any chain; in either, sigma= "
    "for all its factors"
)


@dataclass(frozen=True, init=False)
class ChainParameters:
    """Checked dimensions, standard deviations and normalization of a chain: the fields of every law of a chain."""

    dims: tuple[int, ...]
    sigmas: tuple[float, ...]
    normalization: str

    def __init__(self, *shape: Any, **chain: Unpack[ChainKeywords]) -> None:
        dims, sigmas, normalization = _read(shape, chain)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "sigmas", sigmas)
        object.__setattr__(self, "normalization", normalization)

    @property
    def rank(self) -> int:
        return min(self.dims)

    @property
    def keywords(self) -> ChainKeywords:
        return {"dims": self.dims, "sigmas": self.sigmas, "normalization": self.normalization}

    @property
    def _variance_factor(self) -> Fraction:
        return variance_factor(self.dims, self.sigmas, self.normalization)


def variance_factor(dims: Sequence[int], sigmas: Sequence[float], normalization: str) -> Fraction:
    """Return Π σ_l², divided by n_0 for ``sqrt_d``: the factor of the eigenvalues relative to σ = 1."""
    factor = math.prod((Fraction(sigma) ** 2 for sigma in sigmas), start=Fraction(1))
    return factor / dims[0] if normalization == "sqrt_d" else factor


def takes(keywords: type) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to list the keywords behind ``**name: Unpack[keywords]``; others raise a TypeError."""

    def spelt_out(function: Callable[P, T]) -> Callable[P, T]:
        signature = _with_keywords(inspect.signature(function), keywords)
        names = [name for name, entry in signature.parameters.items() if entry.kind is not entry.VAR_POSITIONAL]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in names:
                    near = get_close_matches(name, names, 1)
                    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names)}"
                    raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}; {hint}")
            return function(*args, **kwargs)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.__doc__ = "\n\n".join(inspect.cleandoc(part.__doc__ or "") for part in (function, keywords)).strip()
        return checked

    return spelt_out


def _with_keywords(signature: inspect.Signature, keywords: type) -> inspect.Signature:
    parameters = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    by_name = [entry for entry in parameters if entry.kind is entry.KEYWORD_ONLY]
    listed = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULT_NORMALIZATION if name == "normalization" else None,
            annotation=keywords.__annotations__[name].__forward_arg__,
        )
        for name in (*_OF_PRODUCT, *_OF_CHAIN, "sigma", "normalization")
        if name in keywords.__annotations__
    ]
    return signature.replace(parameters=[*(entry for entry in parameters if entry not in by_name), *listed, *by_name])


def _read(shape: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    arguments = {name: value for name, value in keywords.items() if value is not None}
    normalization = require_normalization(keywords.get("normalization", DEFAULT_NORMALIZATION))
    arguments |= _by_position(shape, arguments)
    _refuse_mixtures(arguments)
    sigma = require_positive_number("sigma", arguments["sigma"]) if "sigma" in arguments else None
    if "dims" in arguments:
        dims = require_dims(arguments["dims"])
        count = len(dims) - 1
        if count == 1:  # X and Xᵀ have the same eigenvalues but would be divided by different numbers
            if keywords.get("normalization", "none") == "sqrt_d":
                expected = f"none for one {dims[0]}×{dims[1]} matrix, which has no d_model: divide sigma, "
                expected += f"by √{max(dims)} for a bulk of order 1"
                raise ParameterError("normalization", "sqrt_d", expected)
            normalization = "none"
        sigmas = require_sigmas(arguments.get("sigmas"), count) if sigma is None else (sigma,) * count
        return dims, sigmas, normalization
    width, head = require_head_shape(arguments["d_model"], arguments["d_head"])
    default = 1.0 if sigma is None else sigma
    sigmas = tuple(require_positive_number(name, arguments.get(name, default)) for name in ("sigma_q", "sigma_k"))
    return (width, head, width), sigmas, normalization


def _by_position(shape: tuple[Any, ...], by_name: Mapping[str, Any]) -> dict[str, Any]:
    if not shape:
        return {}
    is_chain = isinstance(shape[0], Iterable) and getattr(shape[0], "ndim", 1) > 0
    names = _OF_CHAIN if is_chain else _OF_PRODUCT[:2]
    if len(shape) > len(names):
        raise TypeError(f"{len(shape)} arguments by position where {' and '.join(names)} may be; give the rest by name")
    named = dict(zip(names, shape, strict=False))
    for name in named.keys() & by_name.keys():
        raise TypeError(f"{name} is given twice, by position and by name")
    if is_chain:
        named["dims"] = require_dims(named["dims"])
        if len(named["dims"]) == 2:
            n, m = named["dims"]
            width, head = max(n, m), min(n, m)
            product = f"d_model={width}, d_head={head} for W_QK = W_QᵀW_K (the chain ({width}, {head}, {width}))"
            raise ParameterError(
                "the pair by position", (n, m), f"{product}, or dims=({n}, {m}) for one {n}×{m} matrix"
            )
    return {name: value for name, value in named.items() if value is not None}


def _refuse_mixtures(arguments: Mapping[str, Any]) -> None:
    of_product, of_chain = ([name for name in names if name in arguments] for names in (_OF_PRODUCT, _OF_CHAIN))
    if of_product and of_chain:
        raise ParameterError(of_chain[0], arguments[of_chain[0]], f"none beside {', '.join(of_product)}: {_WAYS}")
    if of_chain and "dims" not in arguments:
        raise ParameterError("dims", None, f"the dimensions (n_0, ..., n_L) beside sigmas: {_WAYS}")
    if not of_product and not of_chain:
        raise ParameterError("dims", None, _WAYS)
    for name, partner in (("d_model", "d_head"), ("d_head", "d_model")):
        if not of_chain and name not in arguments:
            beside = f"{partner} = {quoted(arguments[partner])}" if partner in arguments else ", ".join(of_product)
            raise ParameterError(name, None, f"a positive integer beside {beside}: {_WAYS}")
    for name in ("sigma_q", "sigma_k", "sigmas"):
        if "sigma" in arguments and name in arguments:
            raise ParameterError("sigma", arguments["sigma"], f"none beside {name}: it sets that of every factor")
