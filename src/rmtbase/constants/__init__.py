"""Constants of the null, each with its conditions, definition, digits, uncertainty and references.

    >>> from rmtbase import constants
    >>> constants.square_product_upper_edge.value
    6.75
    >>> constants.tracy_widom_1_mean.digits(30)
    '-1.20653357458202481442705273238'
    >>> constants.product_upper_edge(768, 64).digits(12)
    '1564.22613785'
    >>> constants.product_upper_edge(d_model=2048, d_head=128, sigma=0.02, normalization="sqrt_d") * 1000
    0.6131453...

A pure number is a :class:`Constant`, which acts as a number in every expression; a number that depends on the shape is
a :class:`ConstantFunction`. All are attributes of this module, the newest of dated sets such as its attribute ``v1``.
:func:`find` looks one up by its name, or in any set by its permanent identifier. This package does not import jax.
"""

from typing import Any

from rmtbase.arguments import check_public
from rmtbase.constants._bibliography import Reference, bibliography, bibtex, citation_file, software
from rmtbase.constants._chain import chain_constants
from rmtbase.constants._constant import KINDS_OF_ERROR, Constant, ConstantFunction
from rmtbase.constants._digits import PrecisionError
from rmtbase.constants._export import (
    as_identified,
    as_json,
    as_latex,
    as_latex_sentence,
    as_sentence,
    of_one_draw,
    shown_enclosure,
)
from rmtbase.constants._record import encloses
from rmtbase.constants._registry import ConstantSet, constant_set, constants, current_set, find, functions, groups, sets
from rmtbase.constants._typeset import Conditions
from rmtbase.errors import ParameterError

__all__ = [
    "Conditions", "Constant", "ConstantFunction", "ConstantSet", "PrecisionError", "Reference", "as_json",
    "as_sentence", "bibliography", "bibtex", "chain_constants", "constant_set", "constants", "find", "functions",
    "groups", "sets", "software",
]  # fmt: skip

check_public(globals())


def __getattr__(name: str) -> Any:
    if name in sets():
        return sets()[name]
    try:
        return find(name)
    except ParameterError as error:
        raise AttributeError(f"module 'rmtbase.constants' has no attribute {name!r}: {error.expected}") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *sets(), *(entry.name for entry in (*constants(), *functions()))})
