"""How what comes from outside is shown: paths, names of tensors, headers, and the messages of other libraries.

A name in a file that somebody else made may hold terminal control codes, marks that turn the reading direction, line
breaks, bytes that are no text, or a megabyte. Whatever is printed, raised or written for people to read goes through
here; HTML and CSV are escaped besides, where they are written.
"""

from __future__ import annotations

_NAME = 300  # characters of one name: the beginning and the end of a longer one are kept
_LINE = 2000  # of one message


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


def quoted(value: object, longest: int = _NAME) -> str:
    """The ``repr`` of a value, cut and escaped as :func:`shown` does: how messages name what was passed."""
    return shown(repr(value), longest)


def one_line(text: str, longest: int = _LINE) -> str:
    """A message of any origin as one line: every run of white space is one space, the rest as :func:`shown`."""
    return shown(" ".join(text.split()), longest)
