"""How what comes from outside is shown: paths, names of tensors, headers, and the messages of other libraries.

A name in a file that somebody else made may hold terminal control codes, marks that turn the reading direction, line
breaks, bytes that are no text, or a megabyte. Whatever is printed, raised or written for people to read goes through
here; HTML and CSV are escaped besides, where they are written. An object of this library is shown as one short line.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Collection
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound="type[Any]")

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
_NAME = 300  # characters of one name: the beginning and the end of a longer one are kept
_LINE = 2000  # of one message
_OBJECT = 150  # of one object
_FIELD = 48  # of one of its fields
_NUMBER = 8  # of a number that keeps all its digits


def shown(value: object, longest: int = _NAME) -> str:
    r"""A value as harmless text: what cannot be printed stands as its escape (``\x1b``, ``\u202e``, ``\udcff``).

    A text of more than ``longest`` characters keeps its beginning and its end, with the number left out between.
    """
    text = str(value)
    left_out = len(text) - longest
    if left_out > 0:
        # Cut before escaping: a megabyte of control codes need not be written out to be thrown away.
        ending = longest // 3
        text = f"{text[: longest - ending]}[… {left_out:,} characters …]{text[-ending:]}"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def as_latex(value: object, longest: int = _NAME) -> str:
    r"""A value as text of a LaTeX document: harmless as :func:`shown`, and every sign of LaTeX's own escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in shown(value, longest))


def quoted(value: object, longest: int = _NAME) -> str:
    """The ``repr`` of a value, cut and escaped as :func:`shown` does: how messages name what was passed."""
    return shown(repr(value), longest)


def one_line(text: str, longest: int = _LINE) -> str:
    """A message of any origin as one line: every run of white space is one space, the rest as :func:`shown`."""
    return shown(" ".join(text.split()), longest)


def in_one_line(kind: Kind) -> Kind:
    """Decorate a dataclass or named tuple so that it is shown as one short line, in a notebook too.

    Arrays are named by their shape, collections by what they hold, objects inside by their class, and what exceeds the
    line is cut: all of it is in the fields.
    """
    decorated: Any = kind
    decorated.__repr__, decorated._repr_html_ = _line, _line_in_html
    return kind


def _line(one: Any) -> str:
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one) if field.repr]
    else:
        names = getattr(one, "_fields", ())
    kind, text = type(one).__qualname__, ""
    for name in names:
        more = f"{', ' if text else ''}{name}={_brief(getattr(one, name))}"
        if len(kind) + len(text) + len(more) > _OBJECT - 5:  # of which ", …" and the brackets
            text += ", …" if text else "…"
            break
        text += more
    return f"{kind}({text})"


def _line_in_html(one: Any) -> str:
    return f"<code>{html.escape(repr(one))}</code>"


def _brief(value: Any) -> str:
    """A field's value: whole where that is short."""
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
