"""What an initialiser is: named options, and from them and the matrix's shape the law of the elements."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from rmtbase.ensembles._element_laws import ElementLaw
from rmtbase.errors import ParameterError

Check = Callable[[str, object], Any]


def option(check: Check, default: object = dataclasses.MISSING, *, static: bool = False) -> Any:
    """A dataclass field for an option: how it is checked, its default, and whether a compilation depends on it."""
    metadata = {"check": check, "static": static}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def one_of(*choices: str) -> Check:
    """The check that an option is one of these words."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ParameterError(name, value, "one of " + ", ".join(map(repr, choices)))
        return value

    return check


@dataclasses.dataclass(frozen=True)
class Recipe(ABC):
    """How a new weight matrix is drawn. The fields are the recipe's options."""

    name: ClassVar[str]

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The recipe with these options, checked.

        Raises:
            ParameterError: an option that it does not have, lacks, or that is outside its domain.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in options.items():
            if name not in fields:
                raise ParameterError(name, value, f"an option of {cls.name}: {', '.join(fields) or 'it has none'}")
        for name, field in fields.items():
            if name not in options and field.default is dataclasses.MISSING:
                raise ParameterError(name, None, f"a value, which {cls.name} needs")
        return cls(**{name: fields[name].metadata["check"](name, value) for name, value in options.items()})

    @property
    def label(self) -> str:
        """The name and every option, ``xavier_normal gain=1.0`` say."""
        options = (f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))
        return " ".join([self.name, *options])


class Initializer(Recipe):
    """A recipe whose elements are independent."""

    @abstractmethod
    def law(self, fan_out: int, fan_in: int) -> ElementLaw:
        """The law of one element of a matrix of shape (fan_out, fan_in)."""
