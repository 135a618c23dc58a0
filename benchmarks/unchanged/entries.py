"""Entries that one installation gives: a name, and an array or a text."""

import dataclasses
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import stated
import xarray as xr

PROBABILITIES = np.array([1e-12, 1e-6, 1e-3, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999, 1 - 1e-6])
_POINTWISE = ("pdf", "cdf", "sf", "logpdf", "logcdf", "logsf", "pdf_singular_values", "p_value", "z_score")
_QUANTILES = ("ppf", "isf")
_POWERS = ("moment", "cumulant", "free_cumulant", "expect_power")
_PLACES = re.compile(r" at 0x[0-9a-f]+")
_CODE = re.compile(r'(?P<source>(?P<mark>"|&#34;)source(?P=mark): ?(?P=mark))[0-9a-f]{16}(?P=mark)')


def public(name: str) -> Any:
    """Find the object with a public name below ``rmtbase``, wherever this installation has it."""
    for candidate in (name, stated.moved(name)):
        packages = candidate.split(".")
        for depth in range(len(packages) - 1, 0, -1):
            try:
                return reduce(getattr, packages[depth:], import_module(f"rmtbase.{'.'.join(packages[:depth])}"))
            except (ImportError, AttributeError):
                continue
    raise AttributeError(f"rmtbase.{name} is nowhere, and not in stated.MOVED")


class Entries:
    """All that one section found in one installation.

    ``before`` is what the other installation gave, where it was asked first: laws are evaluated at the same places.
    """

    def __init__(self, before: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
        self.values: dict[str, np.ndarray] = {}
        self.before = before

    def take(self, name: str, compute: Callable[[], Any]) -> None:
        """Add what ``compute`` returns, taken apart, or what it raises, which is compared as well."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.add(name, compute())
        except Exception as error:
            self.add(f"{name}/raises", f"{type(error).__name__}: {error}")

    def add(self, name: str, value: Any) -> None:
        """Add a value: numbers and texts as they are, anything else part by part."""
        if isinstance(value, xr.Dataset | xr.DataTree):
            self._table(name, value)
        elif isinstance(value, Mapping):
            for key, part in value.items():
                self.add(f"{name}/{key}", part)
        elif hasattr(value, "_fields"):
            for key in value._fields:
                self.add(f"{name}/{key}", getattr(value, key))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                if not field.name.startswith("_"):
                    self.add(f"{name}/{field.name}", getattr(value, field.name))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and not _numeric(value):
            self.add(f"{name}/length", len(value))
            for place, part in enumerate(value):
                self.add(f"{name}/{place}", part)
        else:
            self._leaf(name, value)

    def call(self, function: str, *arguments: Any, **options: Any) -> None:
        """Add what a public function returns for these arguments."""
        self.take(_called(function, arguments, options), lambda: public(function)(*arguments, **options))

    def law(
        self,
        function: str,
        *arguments: Any,
        more: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        """Add a distribution with all its public methods; ``more`` are calls that the general rule does not know."""
        self.law_of(_called(function, arguments, options), lambda: public(function)(*arguments, **options), more)

    def law_of(
        self, name: str, make: Callable[[], Any], more: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
    ) -> None:
        """Add a distribution that no function of a package returns."""
        try:
            law = make()
        except Exception as error:
            self.add(f"{name}/raises", f"{type(error).__name__}: {error}")
            return
        points = self.before.get(f"{name}/places")
        points = self._points(law) if points is None else points
        self.add(f"{name}/places", points)
        for attribute in (one for one in dir(law) if not one.startswith("_") and one not in more):
            self._attribute(f"{name}.{attribute}", law, attribute, points)
        for label, call in more.items():
            self.take(f"{name}.{label}", lambda call=call: call(law))

    def _attribute(self, name: str, law: Any, attribute: str, points: np.ndarray) -> None:
        bound = getattr(law, attribute, None)
        if not callable(bound):
            self.take(name, lambda: getattr(law, attribute))
        elif attribute in _POINTWISE:
            self.take(name, lambda: bound(points))
            self.take(f"{name}(scalar)", lambda: bound(float(points[len(points) // 2])))
        elif attribute in _QUANTILES:
            self.take(name, lambda: bound(PROBABILITIES))
        elif attribute in _POWERS:
            for power in range(7):
                self.take(f"{name}({power})", lambda power=power: bound(power))
        elif attribute == "expect":
            self.take(f"{name}(arctan)", lambda: bound(np.arctan))
            self.take(f"{name}(square)", lambda: bound(np.square))
        elif not _needs(bound):
            self.take(name, bound)
        else:
            print(f"  {name}{inspect.signature(bound)} is not called", file=sys.stderr)

    def _points(self, law: Any) -> np.ndarray:
        """Places to evaluate a law: round numbers near quantiles and edges, and outside."""
        places = [-1.0, 0.0, 1.0, np.inf, -np.inf, np.nan]
        try:
            places += [float(f"{x:.3g}") for x in np.ravel(law.ppf(PROBABILITIES))]
            places += [float(f"{x * 1.001:.3g}") for x in np.ravel(law.support)]
        except Exception:
            places += list(np.linspace(0.1, 5, 9))
        return np.array(places)

    def _table(self, name: str, table: xr.Dataset | xr.DataTree) -> None:
        groups = (
            {node.path: node.to_dataset(inherit=False) for node in table.subtree} if _is_tree(table) else {"": table}
        )
        for group, dataset in groups.items():
            for key, value in dataset.attrs.items():
                self.add(f"{name}{group}@{key}", attribute(str(key), value))
            for key, variable in dataset.variables.items():
                self.add(f"{name}{group}/{key}", variable.values)
                self.add(f"{name}{group}/{key}@dims", " ".join(map(str, variable.dims)))
                for label, value in variable.attrs.items():
                    self.add(f"{name}{group}/{key}@{label}", value)

    def _leaf(self, name: str, value: Any) -> None:
        if name.endswith("/numerics/source"):  # a digest of the code
            value = "(not compared)"
        if isinstance(value, bytes):
            value = np.frombuffer(value, np.uint8)
        try:
            array = np.asarray(value)
        except Exception:
            array = np.asarray(None)
        if array.dtype.kind == "O":
            texts = [_text(one) for one in array.ravel()] if array.shape else [_text(value)]
            array = np.array([_PLACES.sub("", one) for one in texts]).reshape(array.shape)
        self.values[name] = array

    def save(self, path: Path) -> None:
        """Write them where the comparison reads them."""
        arrays = {f"{place:07d}": value for place, value in enumerate(self.values.values())}
        np.savez(path, names=np.array(list(self.values)), **arrays)


def attribute(key: str, value: Any) -> Any:
    """Return an attribute of a file without what may differ: versions of software, and digests over them."""
    if key in ("sha256", "rmtbase_version"):
        return "(not compared)"
    if key == "provenance":
        record = json.loads(value)
        record.pop("software", None)
        return without_code(json.dumps(record, sort_keys=True, indent=1))
    return value


def without_code(text: str) -> str:
    """Remove from a JSON text the digest of the code that it names."""
    return _CODE.sub(r"\g<source>(not compared)\g<mark>", text)


def load(path: Path) -> dict[str, np.ndarray]:
    """Load the entries of a file."""
    with np.load(path) as file:
        names = [str(name) for name in file["names"]]
        return {name: file[f"{place:07d}"] for place, name in enumerate(names)}


def _called(function: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> str:
    shown = [_shown(one) for one in arguments] + [f"{name}={_shown(one)}" for name, one in options.items()]
    return f"{function}({', '.join(shown)})"


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or (f"<{value.shape}>" if isinstance(value, np.ndarray) else f"{value!r}")


def _text(value: Any) -> str:
    if type(value).__module__.startswith("rmtbase.") and type(value).__repr__ is object.__repr__:
        return "an object of rmtbase's own"  # whose module is nobody's business
    return f"{value.numerator:x}/{value.denominator:x}" if isinstance(value, Fraction) else str(value)


def _numeric(value: Sequence[Any]) -> bool:
    return bool(value) and all(isinstance(one, bool | int | float | complex | np.number) for one in value)


def _is_tree(table: object) -> bool:
    return isinstance(table, xr.DataTree)


def _needs(method: Callable[..., Any]) -> bool:
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        for one in inspect.signature(method).parameters.values()
    )
