"""A plan: the frozen, hashed, human-readable description of a table to be simulated."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmtbase.ensembles import Ensemble, make_ensemble
from rmtbase.errors import ParameterError, PlanError
from rmtbase.linalg import PRECISIONS
from rmtbase.montecarlo._chunks import Chunks
from rmtbase.montecarlo._elements import require_element_ensemble
from rmtbase.montecarlo._keys import MAX_DRAWS
from rmtbase.parameters import (
    require_draws,
    require_normalization,
    require_positive_integer,
    require_positive_number,
    require_seed,
)
from rmtbase.regular_files import open_regular

MEASURES = ("spectrum", "elements")

DRAWS_VERSION = 2
"""Changes whenever a sampler gives other bits for the same key, so that no run mixes the draws of two versions."""

_CHUNK_WORK = 2**32  # draws per chunk times the matrix's longer side and its shorter side's square: a second or two
_CHUNK_ELEMENTS = 2**26  # draws per chunk times the square of the longer side, where it is elements that are counted
_LARGEST_CHUNK = 2**16
_CHUNK_NUMBERS = 2**24  # of a chunk's file
_LEAST_SCALE = 1e-30  # beyond it the variance of trace_of_square, which goes as the eighth power, leaves float64

Parameters = Mapping[str, Any]
Pairs = tuple[tuple[float, float], ...]
Check = Callable[[str, Any], Any]


def _one_of(*choices: str) -> Check:
    def require(name: str, value: object) -> object:
        if value not in choices:
            raise ParameterError(name, value, " or ".join(map(repr, choices)))
        return value

    return require


def _require_boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(name, value, "true or false")
    return bool(value)


def _require_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ParameterError(name, value, "text")
    return value


def _require_file_name(name: str, value: object) -> str:
    if not _require_text(name, value) or Path(str(value)).name != value:
        raise ParameterError(name, value, "the name of a file, without folders")
    return str(value)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _part(check: Check | None = None, default: object = None, *, key: str = "", recorded: bool = True) -> Any:
    """A field that :func:`make_plan` and a plan's file may set.

    Args:
        check: of what is given; None where that takes the other fields, too.
        default: what stands for what is not given.
        key: under which it is given, if that is not the field's name.
        recorded: whether the numbers depend on it.
    """
    metadata = {"check": check or (lambda name, value: value), "default": default, "key": key, "recorded": recorded}
    return dataclasses.field(metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be simulated. Equal plans give equal numbers, whenever, wherever and in however many parts they run.

    Made by :func:`make_plan`, or from a TOML file by :func:`read_plan`. Its fields are what either may be given: by
    them both are checked, and the record is written.

    Attributes:
        name, title, description: of the table's file, and for the reader; the hash does not depend on them.
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        cases: the parameters of each case, arguments of the ensemble's factory.
        draws: of each case.
        seed: from 0 to 2^63 - 1; with the case's name and a draw's index it fixes the draw.
        measure: ``"spectrum"``: the statistics and eigenvalues of each matrix; ``"elements"``: of its elements.
        normalization: of a W_QK table, ``"sqrt_d"`` (its default) or ``"none"``; ``"none"`` for every other ensemble.
        sigmas: (σ_Q, σ_K) of the rows of a W_QK table: one simulation serves all; ((1, 1),) for every other ensemble.
            Given as ``sigma``: a number, a pair, or a list of either.
        precision: ``"float64"``, or ``"float32"`` with the error that :func:`draw_spectra` states.
        keep_sample: whether the table holds the statistics of every draw, as scoring needs.
        chunk: draws per chunk, of each case. Given as one number; by default a second or two of work.
        own_sigmas: those of each case, where not every case has all of them; else empty. Follows from the cases.
    """

    name: str = _part(_require_file_name, "baseline", recorded=False)
    title: str = _part(_require_text, "", recorded=False)
    description: str = _part(_require_text, "", recorded=False)
    ensemble: str = _part()
    cases: tuple[Parameters, ...] = _part()
    draws: tuple[int, ...] = _part(default=10_000)
    seed: int = _part(lambda name, value: require_seed(value), 0)
    measure: str = _part(_one_of(*MEASURES), "spectrum")
    normalization: str = _part(_optional(lambda name, value: require_normalization(value)))
    sigmas: tuple[tuple[float, float], ...] = _part(lambda name, value: sigma_pairs(value), 1.0, key="sigma")
    precision: str = _part(_one_of(*PRECISIONS), "float64")
    keep_sample: bool = _part(_require_boolean, True)
    chunk: tuple[int, ...] = _part(_optional(require_positive_integer))
    own_sigmas: tuple[Pairs, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not what is derived from it, so that it is sent with every chunk at no cost."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def ensembles(self) -> tuple[Ensemble, ...]:
        """The ensemble of each case."""
        return tuple(make_ensemble(self.ensemble, case) for case in self.cases)

    @cached_property
    def chunks(self) -> Chunks:
        """Every chunk, in order; made when it is asked for."""
        return Chunks.all(self.draws, self.chunk)

    def case_sigmas(self, case: int) -> Pairs:
        """(σ_Q, σ_K) of each row that a case has in the table."""
        return self.own_sigmas[case] if self.own_sigmas else self.sigmas

    @property
    def total_draws(self) -> int:
        """Draws of all cases together."""
        return sum(self.draws)

    @property
    def is_baseline(self) -> bool:
        """Whether its table is one of W_QK, with a row for each σ."""
        return self.measure == "spectrum" and self.ensemble == "low_rank_product"

    def record(self) -> dict[str, Any]:
        """All that determines the numbers, as plain values."""
        recorded = {field.name: getattr(self, field.name) for field in fields(self) if field.metadata.get("recorded")}
        if self.own_sigmas:  # plans without are known by hashes from before cases could have their own
            recorded["own_sigmas"] = self.own_sigmas
        return json.loads(json.dumps(recorded | {"draws_version": DRAWS_VERSION}))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of :meth:`record`, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True).encode()).hexdigest()


_PARTS = {field.metadata["key"] or field.name: field.metadata for field in fields(Plan) if field.metadata}


def make_plan(
    ensemble: str, cases: Iterable[Parameters], draws: int | Sequence[int] = 10_000, seed: int = 0, **options: Any
) -> Plan:
    """A plan from its parts, all of them checked.

    Args:
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        cases: arguments of the ensemble's factory, one mapping for each case. A case that comes twice counts once. For
            spectra of low_rank_product ``sigma`` too, in place of that of all: one simulation serves every σ.
        draws: of every case, at least 2; or one number for each case.
        seed: from 0 to 2^63 - 1.
        options: any of ``measure``, ``normalization``, ``sigma``, ``precision``, ``keep_sample``, ``chunk``, ``name``,
            ``title`` and ``description``, as :class:`Plan` has them.

    Raises:
        ParameterError: any of them outside its domain.
    """
    for key, value in options.items():
        if key not in _PARTS:
            raise ParameterError(key, value, f"one of {', '.join(_PARTS)}")
    given = {"draws": draws, "seed": seed, **options}
    plan = {key: part["check"](key, given.get(key, part["default"])) for key, part in _PARTS.items()}
    each, several = _each_with_draws(cases, draws), {}
    is_product, elements = ensemble == "low_rank_product", plan["measure"] == "elements"
    scaled = is_product and not elements
    for parameters, count in each:
        sigma = plan["sigma"]
        if is_product and "sigma" in parameters:
            sigma = sigma_pairs(parameters["sigma"])
            parameters = {key: value for key, value in parameters.items() if key != "sigma"}
            _require_unscaled(scaled, sigma)
        if elements and is_product:  # the thin draw has none
            parameters = {**parameters, "method": "dense"}
        one = make_ensemble(ensemble, parameters)
        if len(one.matrix_shape) != 2:
            raise ParameterError("ensemble", ensemble, "one whose draw is a single matrix")
        if elements:
            require_element_ensemble(one)
        number = require_draws(count)
        if number > MAX_DRAWS:
            raise ParameterError("draws", number, f"at most {MAX_DRAWS}")
        size = min(plan["chunk"] or _chunk_draws(one, elements), number)
        first = several.setdefault(one.name, _Case(_plain(parameters), number, size, {}))
        if first.draws != number:
            raise ParameterError("draws", [count for _, count in each], f"one number for {one.name}, which comes twice")
        first.sigmas.update(dict.fromkeys(sigma))
    counts = tuple(case.draws for case in several.values())
    if plan["keep_sample"] and len(set(counts)) > 1:
        raise ParameterError(
            "draws", [count for _, count in each], "the same for every case of a table that keeps the sample"
        )
    if elements and plan["precision"] != "float64":
        raise ParameterError("precision", plan["precision"], "'float64' where elements are measured")
    plan["normalization"] = plan["normalization"] or ("sqrt_d" if scaled else "none")
    if not scaled and plan["normalization"] != "none":
        raise ParameterError("normalization", plan["normalization"], "'none' but for spectra of low_rank_product")
    _require_unscaled(scaled, plan.pop("sigma"))
    own = tuple(tuple(case.sigmas) for case in several.values())
    return Plan(
        **plan
        | {
            "ensemble": ensemble,
            "cases": tuple(case.parameters for case in several.values()),
            "draws": counts,
            "sigmas": tuple(dict.fromkeys(pair for pairs in own for pair in pairs)),
            "chunk": tuple(case.chunk for case in several.values()),
            "own_sigmas": own if len(set(own)) > 1 else (),
        }
    )


class _Case(NamedTuple):
    parameters: Parameters
    draws: int
    chunk: int
    sigmas: dict[tuple[float, float], None]  # in order and each once


def _each_with_draws(cases: Iterable[Parameters], draws: int | Sequence[int]) -> list[tuple[Parameters, int]]:
    given = list(cases)
    if not given:
        raise ParameterError("cases", given, "at least one case")
    counts = list(draws) if isinstance(draws, Sequence) else [draws] * len(given)
    if len(counts) != len(given):
        raise ParameterError("draws", draws, f"one number, or one for each of the {len(given)} cases")
    return list(zip(given, counts, strict=True))


def _require_unscaled(scaled: bool, pairs: Sequence[tuple[float, float]]) -> None:
    if not scaled and list(pairs) != [(1.0, 1.0)]:
        raise ParameterError("sigma", pairs, "1 but for spectra of low_rank_product")


_LARGEST = 1 << 20  # bytes of a plan
_MOST_CASES = 10_000
_TOP = (*(key for key in _PARTS if key != "cases"), "case")


def read_plan(path: Path | str) -> Plan:
    """The plan in a TOML file.

    At the top ``ensemble`` and any of make_plan's keywords; then one ``[[case]]`` table for each case, with the
    arguments of the ensemble's factory. A list as a value stands for one case each, all combinations; where a factory's
    argument is itself a list (``dims``), a list of lists does. ``draws`` in a case overrides that of the top, and so
    does ``sigma`` in a case of low_rank_product: one simulation of a shape serves all its σ. Without a ``name`` it is
    the file's.

    Raises:
        PlanError: there is no such file, it is not TOML, or it holds what no plan has.
    """
    path = Path(path)
    try:
        table = tomllib.loads(_text(path))
    except OSError as error:
        raise PlanError(path, f"cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise PlanError(path, "is nested too deeply; expected a plan") from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise PlanError(path, f"is no TOML: {error}") from error
    unknown = [key for key in table if key not in _TOP]
    if unknown:
        raise PlanError(path, f"unknown key {', '.join(unknown)}; expected some of {', '.join(_TOP)}")
    for key, kind, words in (
        ("ensemble", str, "the name of an ensemble"),
        ("case", list, "one or more [[case]] tables"),
    ):
        if not isinstance(table.get(key), kind) or not table[key]:
            raise PlanError(path, f"{key} = {table.get(key)!r}; expected {words}")
    blocks, draws = table.pop("case"), table.pop("draws", _PARTS["draws"]["default"])
    cases: list[Parameters] = []
    counts: list[int] = []
    for block in blocks:
        if not isinstance(block, dict):
            raise PlanError(path, f"case = {block!r}; expected a [[case]] table")
        count = block.pop("draws", draws)
        expanded = _combinations(path, block, whole=("sigma",) if table["ensemble"] == "low_rank_product" else ())
        cases += expanded
        counts += [count] * len(expanded)
    options: dict[str, Any] = {"name": path.stem} | table
    try:
        return make_plan(options.pop("ensemble"), cases, counts, **options)
    except ParameterError as error:
        raise PlanError(path, str(error)) from error


def sigma_pairs(sigma: object) -> list[tuple[float, float]]:
    """(σ_Q, σ_K) from a number, a pair, or a list of either; each pair once.

    Raises:
        ParameterError: a σ that is not positive and finite, or a product σ_Q σ_K outside [1e-30, 1e30].
    """
    given = [sigma] if isinstance(sigma, tuple) else listed(sigma)
    pairs = []
    for one in given:
        pair = tuple(one) if isinstance(one, tuple | list) else (one, one)
        if len(pair) != 2:
            raise ParameterError("sigma", one, "a number, or a pair (sigma_q, sigma_k)")
        pair = tuple(require_positive_number("sigma", value) for value in pair)
        if not _LEAST_SCALE <= pair[0] * pair[1] <= 1 / _LEAST_SCALE:
            raise ParameterError("sigma", one, f"sigma_q * sigma_k from {_LEAST_SCALE:g} to {1 / _LEAST_SCALE:g}")
        pairs.append(pair)
    return list(dict.fromkeys(pairs))


def listed(value: object) -> list:
    """A value as a list of at least one; arrays are flattened."""
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not values:
        raise ParameterError("d_model, d_head or sigma", values, "at least one value")
    return values


def _text(path: Path) -> str:
    with open_regular(path) as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise PlanError(path, f"more than {_LARGEST:,} bytes; expected a plan")
    return text.decode()


def _combinations(path: Path, block: dict[str, Any], whole: Sequence[str]) -> list[Parameters]:
    """The cases of a block; the values of ``whole`` stay as they are, lists or not."""
    choices = [[value] if key in whole else _choices(key, value) for key, value in block.items()]
    if (count := math.prod(map(len, choices))) > _MOST_CASES:
        raise PlanError(path, f"a [[case]] of {count:,} combinations; expected at most {_MOST_CASES:,}")
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*choices)]


def _choices(key: str, value: object) -> list:
    is_list = isinstance(value, list) and bool(value)
    if key == "dims":
        return list(value) if is_list and isinstance(value[0], list) else [value]  # type: ignore[index]
    return list(value) if is_list else [value]  # type: ignore[arg-type]


def _plain(parameters: Parameters) -> Parameters:
    """The parameters with NumPy's numbers and tuples as Python's own, so that equal plans have equal hashes."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    return {key: plain(value) for key, value in parameters.items()}


def _chunk_draws(ensemble: Ensemble, elements: bool) -> int:
    short, long = sorted(ensemble.matrix_shape)
    if elements:
        draws = _CHUNK_ELEMENTS // long**2
    else:
        draws = min(_CHUNK_WORK // (long * short**2), _CHUNK_NUMBERS // (ensemble.rank + 20))
    return int(np.clip(draws, 1, _LARGEST_CHUNK))
