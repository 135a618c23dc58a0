"""A plan: the frozen, hashed, human-readable description of a table to be simulated."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rmtbase.ensembles import Ensemble, make_ensemble
from rmtbase.errors import ParameterError, PlanError
from rmtbase.linalg import PRECISIONS
from rmtbase.montecarlo._draws._elements import require_element_ensemble
from rmtbase.montecarlo._draws._keys import MAX_DRAWS
from rmtbase.montecarlo._plans._chunks import Chunks
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


@dataclass(frozen=True)
class Plan:
    """What is to be simulated. Equal plans give equal numbers, whenever, wherever and in however many parts they run.

    Made by :func:`make_plan`, or from a TOML file by :func:`read_plan`.

    Attributes:
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        cases: the parameters of each case, arguments of the ensemble's factory.
        draws: of each case.
        seed: with the case's name and a draw's index it fixes the draw.
        measure: ``"spectrum"``: the statistics and eigenvalues of each matrix; ``"elements"``: of its elements.
        normalization: of a W_QK table, ``"sqrt_d"`` or ``"none"``; ``"none"`` for every other ensemble.
        sigmas: (σ_Q, σ_K) of the rows of a W_QK table: one simulation serves all; ((1, 1),) for every other ensemble.
        own_sigmas: those of each case, where not every case has all of them; else empty.
        precision: ``"float64"``, or ``"float32"`` with the error that :func:`draw_spectra` states.
        keep_sample: whether the table holds the statistics of every draw, as scoring needs.
        chunk: draws per chunk, of each case.
        name, title, description: for the reader; the hash does not depend on them.
    """

    ensemble: str
    cases: tuple[Parameters, ...]
    draws: tuple[int, ...]
    seed: int
    measure: str
    normalization: str
    sigmas: tuple[tuple[float, float], ...]
    precision: str
    keep_sample: bool
    chunk: tuple[int, ...]
    own_sigmas: tuple[tuple[tuple[float, float], ...], ...] = ()
    name: str = "baseline"
    title: str = ""
    description: str = ""

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

    def case_sigmas(self, case: int) -> tuple[tuple[float, float], ...]:
        """(σ_Q, σ_K) of each row that a case has in the table."""
        return self.own_sigmas[case] if self.own_sigmas else self.sigmas

    @property
    def total_draws(self) -> int:
        """Draws of all cases together."""
        return sum(self.draws)

    def record(self) -> dict[str, Any]:
        """All that determines the numbers, as plain values."""
        fields = asdict(self)
        for words in ("name", "title", "description"):
            del fields[words]
        if not self.own_sigmas:  # as plans were recorded, and hashed, before cases could have their own
            del fields["own_sigmas"]
        return json.loads(json.dumps(fields | {"draws_version": DRAWS_VERSION}))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of :meth:`record`, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True).encode()).hexdigest()


def make_plan(
    ensemble: str,
    cases: Iterable[Parameters],
    draws: int | Sequence[int] = 10_000,
    seed: int = 0,
    *,
    measure: str = "spectrum",
    normalization: str | None = None,
    sigma: object = 1.0,
    precision: str = "float64",
    keep_sample: bool = True,
    chunk: int | None = None,
    name: str = "baseline",
    title: str = "",
    description: str = "",
) -> Plan:
    """A plan from its parts, all of them checked.

    Args:
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        cases: arguments of the ensemble's factory, one mapping for each case. A case that comes twice counts once. For
            spectra of low_rank_product ``sigma`` too, in place of that below: one simulation serves every σ of a shape.
        draws: of every case, at least 2; or one number for each case.
        seed: from 0 to 2^63 - 1.
        measure: ``"spectrum"`` or ``"elements"``.
        normalization: ``"sqrt_d"`` (the default for W_QK) or ``"none"`` (the only one for any other ensemble).
        sigma: σ of the elements of W_Q and W_K, a pair for (σ_Q, σ_K), a list for several. W_QK only.
        precision: ``"float64"`` or ``"float32"``.
        keep_sample: whether the table holds every draw's statistics.
        chunk: draws per chunk; by default a second or two of work.
        name: of the table's file.
        title: of the table.
        description: of the table.

    Raises:
        ParameterError: any of them outside its domain.
    """
    for field, value, known in (("measure", measure, MEASURES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise ParameterError(field, value, " or ".join(map(repr, known)))
    if not isinstance(keep_sample, bool | np.bool_):
        raise ParameterError("keep_sample", keep_sample, "true or false")
    for field, value in (("name", name), ("title", title), ("description", description)):
        if not isinstance(value, str):
            raise ParameterError(field, value, "text")
    if not name or Path(name).name != name:
        raise ParameterError("name", name, "the name of a file, without folders")
    product = ensemble == "low_rank_product"
    given = list(cases)
    if not given:
        raise ParameterError("cases", given, "at least one case")
    each = list(draws) if isinstance(draws, Sequence) else [draws] * len(given)
    if len(each) != len(given):
        raise ParameterError("draws", draws, f"one number, or one for each of the {len(given)} cases")
    scaled = product and measure == "spectrum"
    shared = sigma_pairs(sigma)
    unique: dict[str, tuple[Parameters, int, int]] = {}
    pairs: dict[str, dict[tuple[float, float], None]] = {}  # of each case, in order and each once
    for parameters, count in zip(given, each, strict=True):
        own = shared
        if product and "sigma" in parameters:
            own = sigma_pairs(parameters["sigma"])
            parameters = {key: value for key, value in parameters.items() if key != "sigma"}
            _require_unscaled(scaled, own)
        if measure == "elements" and product:  # the thin draw has none
            parameters = {**parameters, "method": "dense"}
        one = make_ensemble(ensemble, parameters)
        if len(one.matrix_shape) != 2:
            raise ParameterError("ensemble", ensemble, "one whose draw is a single matrix")
        if measure == "elements":
            require_element_ensemble(one)
        number = require_draws(count)
        if number > MAX_DRAWS:
            raise ParameterError("draws", number, f"at most {MAX_DRAWS}")
        if unique.get(one.name, (None, number))[1] != number:
            raise ParameterError("draws", each, f"one number for {one.name}, which comes twice")
        size = _chunk_draws(one, measure) if chunk is None else require_positive_integer("chunk", chunk)
        unique[one.name] = (_plain(parameters), number, min(size, number))
        pairs.setdefault(one.name, {}).update(dict.fromkeys(own))
    if keep_sample and len({count for _, count, _ in unique.values()}) > 1:
        raise ParameterError("draws", each, "the same for every case of a table that keeps the sample")
    if measure == "elements" and precision != "float64":
        raise ParameterError("precision", precision, "'float64' where elements are measured")
    if normalization is None:
        normalization = "sqrt_d" if scaled else "none"
    require_normalization(normalization)
    if not scaled and normalization != "none":
        raise ParameterError("normalization", normalization, "'none' but for spectra of low_rank_product")
    _require_unscaled(scaled, shared)
    own_sigmas = tuple(map(tuple, pairs.values()))
    sigmas = tuple(dict.fromkeys(pair for own in own_sigmas for pair in own))
    parameters, counts, sizes = zip(*unique.values(), strict=True)
    return Plan(
        ensemble=ensemble,
        cases=parameters,
        draws=counts,
        seed=require_seed(seed),
        measure=measure,
        normalization=normalization,
        sigmas=sigmas,
        own_sigmas=own_sigmas if len(set(own_sigmas)) > 1 else (),
        precision=precision,
        keep_sample=bool(keep_sample),
        chunk=sizes,
        name=name,
        title=title,
        description=description,
    )


def _require_unscaled(scaled: bool, pairs: Sequence[tuple[float, float]]) -> None:
    if not scaled and list(pairs) != [(1.0, 1.0)]:
        raise ParameterError("sigma", pairs, "1 but for spectra of low_rank_product")


_LARGEST = 1 << 20  # bytes of a plan
_MOST_CASES = 10_000
_TOP = (
    "name",
    "title",
    "description",
    "ensemble",
    "draws",
    "seed",
    "measure",
    "normalization",
    "sigma",
    "precision",
    "keep_sample",
    "chunk",
    "case",
)  # fmt: skip


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
    blocks, draws = table.pop("case"), table.pop("draws", 10_000)
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


def _chunk_draws(ensemble: Ensemble, measure: str) -> int:
    short, long = sorted(ensemble.matrix_shape)
    if measure == "elements":
        draws = _CHUNK_ELEMENTS // long**2
    else:
        draws = min(_CHUNK_WORK // (long * short**2), _CHUNK_NUMBERS // (ensemble.rank + 20))
    return int(np.clip(draws, 1, _LARGEST_CHUNK))
