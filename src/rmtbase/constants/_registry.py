"""Every constant by its name."""

from __future__ import annotations

import difflib

from rmtbase.constants import _element, _product, _residual_path, _square, _tracy_widom, _weibull
from rmtbase.constants._constant import Constant, ConstantFunction
from rmtbase.errors import ParameterError

_CLOSE = 0.5  # of difflib's similarity

_GROUPS: dict[str, tuple[Constant | ConstantFunction, ...]] = {
    "Edge fluctuations: the Tracy-Widom laws": _tracy_widom.CONSTANTS,
    "Square shapes, in units of d σ² (factor) and d σ_Q²σ_K² (product, divided by √d)": _square.BULK,
    "Square Gaussian matrices: smallest singular value and condition number": _square.HARD_EDGE,
    "One element of W_QK": _element.CONSTANTS,
    "The Weibull fit of untrained weights": _weibull.CONSTANTS,
    "Residual-path products": _residual_path.CONSTANTS,
    "Functions of the shape, of W_QK: at σ = 1 and divided by √d_model, or as asked for": (
        *_product.FUNCTIONS,
        *_element.FUNCTIONS,
    ),
}
_ENTRIES = {entry.name: entry for entries in _GROUPS.values() for entry in entries}


def groups() -> dict[str, tuple[Constant | ConstantFunction, ...]]:
    """Headings and the constants and functions under them."""
    return dict(_GROUPS)


def constants() -> tuple[Constant, ...]:
    """Every pure number."""
    return tuple(entry for entry in _ENTRIES.values() if isinstance(entry, Constant))


def functions() -> tuple[ConstantFunction, ...]:
    """Every function of the shape."""
    return tuple(entry for entry in _ENTRIES.values() if isinstance(entry, ConstantFunction))


def find(name: str) -> Constant | ConstantFunction:
    """The constant or function of that name.

    Raises:
        ParameterError: for an unknown name; it lists the nearest ones.
    """
    if not isinstance(name, str):
        raise ParameterError("name", name, "the name of a constant; `rmtbase constants` lists them")
    if name in _ENTRIES:
        return _ENTRIES[name]
    near = difflib.get_close_matches(name, _ENTRIES, cutoff=_CLOSE) or [known for known in _ENTRIES if name in known]
    advice = f"perhaps {', '.join(near)}" if name and near else "`rmtbase constants` lists them"
    raise ParameterError("name", name, f"the name of a constant; {advice}")
