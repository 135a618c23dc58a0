"""Plans: frozen, hashed, human-readable descriptions of tables to be simulated."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rmtbase import parameters
from rmtbase.ensembles import Ensemble, make_ensemble
from rmtbase.errors import ParameterError, PlanError
from rmtbase.linalg import PRECISIONS
from rmtbase.montecarlo._elements import BINS, require_element_ensemble
from rmtbase.montecarlo._keys import MAX_DRAWS
from rmtbase.regular_files import open_regular
from rmtbase.shown import in_one_line

_PRODUCTS = ("low_rank_product", "gaussian_chain", "independent_chain")

DRAWS_VERSION = 2
"""Version of the draws: changed whenever a sampler gives other bits for the same key, so that runs never mix them."""

_DRAWS = 10_000
_CHUNK_WORK = 2**32  # draws per chunk times the matrix's longer side and its shorter side's square: a second or two
_CHUNK_ELEMENTS = 2**26  # draws per chunk times the square of the longer side, if elements are measured
_LARGEST_CHUNK, _CHUNK_NUMBERS = 2**16, 2**24  # draws of a chunk, and numbers in its file
_MOST_CHUNKS = 10**6  # files of one folder
_LEAST_SCALE = 1e-30  # of σ_Q σ_K, up to its inverse: the variance of trace_of_square goes as the eighth power

Parameters = Mapping[str, Any]
Pairs = tuple[tuple[float, float], ...]


class Chunk(NamedTuple):
    """Consecutive draws of one case, which are computed, written and, if the run is killed, lost as a whole."""

    case: int
    start: int
    count: int  # type: ignore[assignment]  # hides the tuple's method, which nobody calls

    def __str__(self) -> str:
        return f"draws {self.start} to {self.start + self.count - 1} of case {self.case}"


@in_one_line
@dataclass(frozen=True)
class Case:
    """Case of a plan."""

    ensemble: Ensemble  #: the ensemble to draw
    parameters: Parameters  #: the arguments of the ensemble's factory as they were given, for the record
    draws: int  #: number of draws
    chunk: int  #: draws per chunk
    #: (σ_Q, σ_K) of its rows in a W_QK table, all from one simulation; ((1, 1),) for any other ensemble
    sigmas: Pairs = ((1.0, 1.0),)


@in_one_line
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a simulation. Equal plans give equal numbers, whenever, wherever and in however many parts they run.

    Make one by :func:`make_plan`, which describes the fields, or from a TOML file by :func:`read_plan`. The hash does
    not depend on ``name``, ``title`` and ``description``.
    """

    ensemble: str
    cases: tuple[Case, ...]
    seed: int = 0
    measure: Literal["spectrum", "elements"] = "spectrum"
    normalization: Literal["sqrt_d", "none"] = "none"
    precision: Literal["float64", "float32"] = "float64"
    keep_sample: bool = True
    bins: int = BINS
    range: tuple[float, float] | None = None
    name: str = "baseline"
    title: str = ""
    description: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the fields and no cached properties, so that sending the plan with every chunk is cheap."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def chunks(self) -> list[Chunk]:
        return [chunk for case in range(len(self.cases)) for chunk in self.chunks_of(case)]

    def chunks_of(self, case: int) -> list[Chunk]:
        draws, size = self.cases[case].draws, self.cases[case].chunk
        return [Chunk(case, start, min(size, draws - start)) for start in range(0, draws, size)]

    @property
    def draws(self) -> tuple[int, ...]:
        return tuple(case.draws for case in self.cases)

    @property
    def total_draws(self) -> int:
        return sum(self.draws)

    @property
    def sigmas(self) -> Pairs:
        """(σ_Q, σ_K) of the rows of all cases, each pair once."""
        return tuple(dict.fromkeys(pair for case in self.cases for pair in case.sigmas))

    @property
    def draws_record(self) -> dict[str, Any]:
        """Part of :meth:`record` that determines a draw: all but the numbers of draws and the sizes of chunks."""
        return {key: value for key, value in self.record().items() if key not in ("draws", "chunk")}

    @property
    def is_baseline(self) -> bool:
        """True if the table is one of W_QK, with a row for each σ."""
        return self.measure == "spectrum" and self.ensemble == "low_rank_product"

    def record(self) -> dict[str, Any]:
        """Return everything that determines the numbers, as plain values; stores and tables keep this record."""
        record = {
            "ensemble": self.ensemble,
            "cases": [case.parameters for case in self.cases],
            "draws": self.draws,
            "seed": self.seed,
            "measure": self.measure,
            "normalization": self.normalization,
            "sigmas": self.sigmas,
            "precision": self.precision,
            "keep_sample": self.keep_sample,
            "chunk": [case.chunk for case in self.cases],
        }
        # Left out of other plans, whose hashes are older than these fields.
        if len({case.sigmas for case in self.cases}) > 1:
            record["own_sigmas"] = [case.sigmas for case in self.cases]
        if (self.bins, self.range) != (BINS, None):
            record |= {"bins": self.bins, "range": self.range}
        return json.loads(json.dumps(record | {"draws_version": DRAWS_VERSION}))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of :meth:`record`, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True).encode()).hexdigest()


def make_plan(
    ensemble: str,
    cases: Iterable[Parameters],
    draws: int | Sequence[int] = _DRAWS,
    seed: int = 0,
    *,
    measure: Literal["spectrum", "elements"] = "spectrum",
    normalization: Literal["sqrt_d", "none"] | None = None,
    sigma: float | tuple[float, float] | Sequence[float | tuple[float, float]] = 1.0,
    precision: Literal["float64", "float32"] = "float64",
    keep_sample: bool = True,
    chunk: int | None = None,
    bins: int = BINS,
    range: tuple[float, float] | None = None,
    name: str = "baseline",
    title: str = "",
    description: str = "",
) -> Plan:
    """Make a plan from its parts and check them.

    Args:
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        cases: arguments of the ensemble's factory, one mapping for each case. A case that is given twice counts once.
            For spectra of low_rank_product a case may also have its own ``sigma``; one simulation serves every σ.
        draws: number of draws of every case, at least 2; or one number for each case.
        seed: from 0 to 2^63 - 1; with the case's name and a draw's index it determines the draw.
        measure: ``"spectrum"`` for the statistics and eigenvalues of each matrix, ``"elements"`` for the statistics of
            its elements.
        normalization: of W_QK and of chains, ``"sqrt_d"`` (the default, as of laws) or ``"none"``; one matrix of a
            chain is never divided. ``"none"`` for elements and for every other ensemble.
        sigma: standard deviation of the factors of a W_QK table: a number, a pair (σ_Q, σ_K), or a list of either.
        precision: ``"float64"``, or ``"float32"`` with the error that :func:`draw_spectra` states.
        keep_sample: whether the table holds the statistics of every draw, which scoring needs.
        chunk: draws per chunk of each case; by default a second or two of work.
        bins: number of bins of the histogram of elements.
        range: (low, high) of that histogram; by default as :func:`draw_elements`.
        name: name of the table's file.
        title: title for the reader.
        description: purpose of the table, for the reader.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    for key, text in (("name", name), ("title", title), ("description", description)):
        if not isinstance(text, str):
            raise ParameterError(key, text, "text")
    if not name or Path(name).name != name:
        raise ParameterError("name", name, "the name of a file, without folders")
    for key, value, choices in (("measure", measure, ("spectrum", "elements")), ("precision", precision, PRECISIONS)):
        if value not in choices:
            raise ParameterError(key, value, " or ".join(map(repr, choices)))
    if not isinstance(keep_sample, bool | np.bool_):
        raise ParameterError("keep_sample", keep_sample, "true or false")
    if normalization is not None:
        parameters.require_normalization(normalization)
    seed, elements = parameters.require_seed(seed), measure == "elements"
    chosen = _cases(ensemble, elements, sigma_pairs(sigma), chunk, list(cases), draws)
    counts = [case.draws for case in chosen]
    if keep_sample and len(set(counts)) > 1:
        raise ParameterError("draws", counts, "the same for every case of a table that keeps the sample")
    if elements and precision != "float64":
        raise ParameterError("precision", precision, "'float64' where elements are measured")
    divided = ensemble in _PRODUCTS and not elements and any(product_width(case.ensemble) for case in chosen)
    if not divided and normalization == "sqrt_d":
        raise ParameterError("normalization", normalization, f"'none', except for spectra of {', '.join(_PRODUCTS)}")
    if not elements and (bins != BINS or range is not None):
        raise ParameterError("bins", bins, f"{BINS} and no range, unless elements are measured")
    return Plan(
        ensemble=ensemble,
        cases=chosen,
        seed=seed,
        measure=measure,
        normalization=normalization or (parameters.DEFAULT_NORMALIZATION if divided else "none"),
        precision=precision,
        keep_sample=bool(keep_sample),
        bins=parameters.require_bins(bins),
        range=None if range is None else parameters.require_interval("range", range),
        name=name,
        title=title,
        description=description,
    )


def product_width(ensemble: Ensemble) -> int | None:
    """Return the n_0 by which normalization ``sqrt_d`` divides the eigenvalues of a product; None for one matrix."""
    dims = getattr(ensemble, "dims", ())
    return int(dims[0]) if len(dims) > 2 else None


def _cases(
    name: str, elements: bool, pairs: Pairs, chunk: int | None, blocks: list[Parameters], draws: int | Sequence[int]
) -> tuple[Case, ...]:
    if not blocks:
        raise ParameterError("cases", blocks, "at least one case")
    counts = list(draws) if isinstance(draws, Sequence) else [draws] * len(blocks)
    if len(counts) != len(blocks):
        raise ParameterError("draws", draws, f"one number, or one for each of the {len(blocks)} cases")
    for count in counts:
        if parameters.require_draws(count) > MAX_DRAWS:
            raise ParameterError("draws", count, f"at most {MAX_DRAWS}")
    size = None if chunk is None else parameters.require_positive_integer("chunk", chunk)
    is_product, cases = name == "low_rank_product", dict[str, Case]()
    for arguments, count in zip(blocks, map(int, counts), strict=True):
        sigmas = pairs
        if is_product and "sigma" in arguments:
            sigmas = sigma_pairs(arguments["sigma"])
            arguments = {key: value for key, value in arguments.items() if key != "sigma"}
        if (elements or not is_product) and sigmas != ((1.0, 1.0),):
            raise ParameterError("sigma", list(sigmas), "1, except for spectra of low_rank_product")
        if is_product and elements:  # the thin draw has no elements
            arguments = {**arguments, "method": "dense"}
        ensemble = make_ensemble(name, arguments)
        if len(ensemble.matrix_shape) != 2:
            raise ParameterError("ensemble", name, "one whose draw is a single matrix")
        if elements:
            require_element_ensemble(ensemble)
        short, long = sorted(ensemble.matrix_shape)
        usual = min(_CHUNK_WORK // (long * short**2), _CHUNK_NUMBERS // (ensemble.rank + 20))
        usual = int(np.clip(_CHUNK_ELEMENTS // long**2 if elements else usual, 1, _LARGEST_CHUNK))
        case = Case(ensemble, _plain(arguments), count, min(size or usual, count), sigmas)
        first = cases.setdefault(ensemble.name, case)
        if first.draws != count:
            raise ParameterError("draws", count, f"one number for {ensemble.name}, which comes twice")
        cases[ensemble.name] = replace(first, sigmas=tuple(dict.fromkeys(first.sigmas + sigmas)))
    chunks = sum(-(-case.draws // case.chunk) for case in cases.values())
    if chunks > _MOST_CHUNKS:
        expected = f"more draws in each of {chunks:,} chunks: each is a file, and one folder may hold {_MOST_CHUNKS:,}"
        raise ParameterError("chunk", min(case.chunk for case in cases.values()), expected)
    return tuple(cases.values())


_LARGEST, _MOST_CASES = 1 << 20, 10_000  # bytes of a plan's file, and cases of a block
_REQUIRED = {"ensemble": (str, "the name of an ensemble"), "case": (list, "one or more [[case]] tables")}
_KEYS = (*(key for key in inspect.signature(make_plan).parameters if key != "cases"), "case")


def read_plan(path: Path | str) -> Plan:
    """Read a plan from a TOML file.

    The file begins with ``ensemble`` and any keywords of make_plan, followed by one ``[[case]]`` table for each case,
    with the arguments of the ensemble's factory. A list as a value stands for one case per entry, in all combinations;
    if a factory's argument is itself a list (``dims``), a list of lists does. ``draws`` in a case overrides the common
    value, and so does ``sigma`` in a case of low_rank_product: one simulation of a shape serves all its σ. The default
    ``name`` is that of the file.

    Raises:
        PlanError: there is no such file, it is not TOML, or an entry is not valid in a plan.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise PlanError(path, f"more than {_LARGEST:,} bytes; expected a plan")
        table = tomllib.loads(text.decode())
    except OSError as error:
        raise PlanError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, nested, or a number of thousands of digits
        raise PlanError(path, f"is no TOML: {error}") from error
    unknown = [key for key in table if key not in _KEYS]
    if unknown:
        raise PlanError(path, f"unknown key {', '.join(unknown)}; expected some of {', '.join(_KEYS)}")
    for key, (kind, expected) in _REQUIRED.items():
        if not isinstance(table.get(key), kind) or not table[key]:
            raise PlanError(path, f"{key} = {table.get(key)!r}; expected {expected}")
    table.setdefault("name", path.stem)
    blocks, draws = table.pop("case"), table.pop("draws", _DRAWS)
    cases, counts = list[Parameters](), list[int]()
    for block in blocks:
        if not isinstance(block, dict):
            raise PlanError(path, f"case = {block!r}; expected a [[case]] table")
        count = block.pop("draws", draws)
        expanded = _combinations(path, block, {"sigma"} if table["ensemble"] == "low_rank_product" else set())
        cases += expanded
        counts += [count] * len(expanded)
    try:
        return make_plan(cases=cases, draws=counts, **table)
    except ParameterError as error:
        raise PlanError(path, str(error)) from error


def sigma_pairs(sigma: object) -> Pairs:
    """(σ_Q, σ_K) from a number, a pair, or a list of either; each pair once."""
    pairs = []
    for entry in [sigma] if isinstance(sigma, tuple) else listed(sigma):
        pair = tuple(entry) if isinstance(entry, tuple | list) else (entry, entry)
        if len(pair) != 2:
            raise ParameterError("sigma", entry, "a number, or a pair (sigma_q, sigma_k)")
        pair = tuple(parameters.require_positive_number("sigma", value) for value in pair)
        if not _LEAST_SCALE <= pair[0] * pair[1] <= 1 / _LEAST_SCALE:
            raise ParameterError("sigma", entry, f"sigma_q * sigma_k from {_LEAST_SCALE:g} to {1 / _LEAST_SCALE:g}")
        pairs.append(pair)
    return tuple(dict.fromkeys(pairs))


def listed(value: object) -> list:
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not values:
        raise ParameterError("d_model, d_head or sigma", values, "at least one value")
    return values


def _combinations(path: Path, block: dict[str, Any], unexpanded: set[str]) -> list[Parameters]:
    def choices(key: str, value: Any) -> list[Any]:
        entries = value[0] if key == "dims" and isinstance(value, list) and value else value
        return value if isinstance(entries, list) and value and key not in unexpanded else [value]

    columns = [choices(key, value) for key, value in block.items()]
    if (count := math.prod(map(len, columns))) > _MOST_CASES:
        raise PlanError(path, f"a [[case]] of {count:,} combinations; expected at most {_MOST_CASES:,}")
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*columns)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
