"""Safe display of external text: paths, names of tensors, headers, and messages of other libraries.

A foreign name may contain terminal control codes, marks that reverse the reading direction, bytes that are not text, or
a megabyte of characters. All text for people passes through here; HTML and CSV are also escaped where they are written.
"""

import dataclasses
import html
import math
from collections.abc import Collection
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound="type[Any]")

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
_NAME = 300  # characters of one name; a longer one keeps its beginning and its end
_LINE = 2000  # characters of one message
_OBJECT = 150  # characters of one object
_FIELD = 48  # characters of one of its fields
_NUMBER = 8  # characters of a number that is shown with all its digits


def shown(value: object, longest: int = _NAME) -> str:
    r"""Convert a value to harmless text, cut in the middle, with escapes (``\x1b``) for what cannot be printed."""
    text = str(value)
    left_out = len(text) - longest
    if left_out > 0:
        # Cut before escaping, so that a megabyte of control codes is not escaped only to be discarded.
        ending = longest // 3
        text = f"{text[: longest - ending]}[… {left_out:,} characters …]{text[-ending:]}"
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def as_latex(value: object, longest: int = _NAME) -> str:
    r"""Convert a value to text for LaTeX: harmless as :func:`shown`, with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in shown(value, longest))


def quoted(value: object, longest: int = _NAME) -> str:
    """Return the ``repr`` of a value, cut and escaped as by :func:`shown`, for messages that name a passed value."""
    return shown(repr(value), longest)


def one_line(text: str, longest: int = _LINE) -> str:
    """Convert a message of any origin to one line: white space becomes single spaces, the rest as :func:`shown`."""
    return shown(" ".join(text.split()), longest)


def json_safe(value: Any) -> Any:
    """Convert a value and all that it holds for JSON, which has neither NaN (becomes null) nor infinity (a text)."""
    if isinstance(value, dict):
        return {name: json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    value = value.item() if hasattr(value, "dtype") else value
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def in_one_line(kind: Kind) -> Kind:
    """Decorate a dataclass or named tuple so that its ``repr`` is one short line, also in a notebook."""
    decorated: Any = kind
    decorated.__repr__, decorated._repr_html_ = _line, lambda instance: f"<code>{html.escape(repr(instance))}</code>"
    return kind


def _line(instance: Any) -> str:
    if dataclasses.is_dataclass(instance):
        names = [field.name for field in dataclasses.fields(instance) if field.repr]
    else:
        names = getattr(instance, "_fields", ())
    kind, text = type(instance).__qualname__, ""
    for name in names:
        shown_field = f"{', ' if text else ''}{name}={_brief(getattr(instance, name))}"
        if len(kind) + len(text) + len(shown_field) > _OBJECT - 5:  # 5 for ", …" and the brackets
            text += ", …" if text else "…"
            break
        text += shown_field
    return f"{kind}({text})"


def _brief(value: Any) -> str:
    if getattr(value, "shape", ()) and hasattr(value, "dtype"):
        return f"<{' × '.join(map(str, value.shape))} {value.dtype}>"
    if isinstance(value, float):
        exact = repr(float(value))
        return exact if len(exact) <= _NUMBER else f"{value:.6g}"
    if isinstance(value, str):
        return quoted(value if len(value) <= _FIELD else f"{value[: _FIELD - 1]}…")
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields") or type(value).__repr__ is object.__repr__:
        return f"{type(value).__qualname__}(…)"
    if isinstance(value, Collection) and len(repr(value)) > _FIELD:
        return f"<{len(value)} item{'' if len(value) == 1 else 's'}>"
    return quoted(value, _FIELD)


def percent(share: float) -> str:
    """Format a share in percent, with a decimal below 10 % and above 99.5 %."""
    return f"{share:.1%}" if 0.0 < abs(share) < 0.0995 or 0.995 <= share < 1.0 else f"{share:.0%}"


def last_place(error: float, other_error: float = 0.0) -> int | None:
    """Power of ten of the second digit of an error, or of the larger of two; None unless it is positive and finite."""
    if not (error > 0 and math.isfinite(error)):
        return None
    widest = max(error, other_error) if other_error > 0 and math.isfinite(other_error) else error
    return math.floor(math.log10(widest)) - 1


def to_place(value: float, place: int, beside: float | None = None) -> str:
    """Format a number to the digit 10^place, with an exponent where ``beside`` has it; "" for NaN."""
    if math.isnan(value):
        return ""
    size = abs(value if beside is None else beside)
    if not value or not size or 1e-3 <= size < 1e6 or math.isinf(size):
        return f"{value:.{max(0, -place)}f}"
    return f"{value:.{max(0, math.floor(math.log10(abs(value))) - place)}e}"
