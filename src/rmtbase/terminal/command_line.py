"""Parsing of the command line beyond typer: shared options, repeated options and counts."""

import shlex
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import Any

import typer
from typer.core import TyperCommand

SHARED = ("quiet", "verbose", "as_json")  #: Options of ``rmtbase`` that each command also takes

_RUNNING: ContextVar[Any] = ContextVar("running", default=None)  # context of the running command
_OF_MODEL = ("adapter", "base", "minus", "fold")  # options that say which weights of a model are read
_MOST_DIGITS = 30  # of a whole number
_THOUSANDS = {"k": 3, "M": 6}


class Command(TyperCommand):
    """Command that also takes the shared options, and refuses an option that is given twice but takes one value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its own parameters, then the shared ones of ``rmtbase``."""
        params = super().get_params(ctx)
        return params + [param for param in ctx.find_root().command.params if param.name in SHARED]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a repeated option, which would silently overwrite its first value."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            params: list[Any] = self.params
            for param in params:
                is_single = param.param_type_name == "option" and not (param.multiple or param.count or param.is_flag)
                if is_single and (times := order.count(param)) > 1:
                    ctx.fail(f"{param.opts[0]} is given {times} times: expected one value")
        ctx.meta["given"] = [word for word in args if word not in ("-q", "--quiet")]
        left = super().parse_args(ctx, args)
        for name in SHARED:  # their callbacks have already been called
            ctx.params.pop(name, None)
        return left

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command; an error about the command line then names the command whose help to read."""
        before = _RUNNING.set(ctx)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.ctx = error.ctx or ctx
            raise
        finally:
            _RUNNING.reset(before)


def next_command(*options: str, name: str = "", model: str = "") -> str:
    """Return a command to paste: the running one with further options, or another one about the same model."""
    context = _RUNNING.get()
    if context is not None and name in ("", context.info_name):
        words = [context.info_name, *context.meta["given"]]
    elif context is not None and "model" in context.params:
        of_model = (f"--{option}={context.params[option]}" for option in _OF_MODEL if context.params.get(option))
        words = [name, context.params["model"], *of_model]
    else:
        words = [name, *([model] if model or context is None else context.meta["given"])]
    words = list(filter(None, words))
    return shlex.join(["rmtbase", *words, *options] if words else options)


def count(text: str) -> int:
    """Parse a count: 10000, 10_000, 1e4, 10k or 2M."""
    thousands = _THOUSANDS.get(str(text)[-1:], 0)
    value = _whole(text[:-1] if thousands else text, thousands)
    if value is None:
        raise typer.BadParameter(f"{text!r} is no integer: expected a count such as 10000, 10_000, 1e4 or 10k")
    return value


def integer(text: str) -> int:
    """Parse a whole number that is not a count, such as a width or a seed; no suffix, as k may be 1000 or 1024."""
    value = _whole(text)
    if value is None:
        raise typer.BadParameter(f"{text!r} is no integer: expected one such as 4096")
    return value


def number(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number: expected one such as 0.02 or 2e-2") from None


def number_or_pair(text: str) -> float | tuple[float, float]:
    """Parse one number, or two separated by a comma: ``"0.02"`` or ``"0.02,0.03"``."""
    parts = [number(part) for part in str(text).split(",")]
    if len(parts) > 2:
        raise typer.BadParameter(f"{text!r} is no pair of numbers: expected one number, or two such as 0.02,0.03")
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0]


COUNT: dict[str, Any] = {"parser": count, "metavar": "COUNT"}
INTEGER: dict[str, Any] = {"parser": integer, "metavar": "INTEGER"}
NUMBER: dict[str, Any] = {"parser": number, "metavar": "NUMBER"}


def words(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _whole(text: str, thousands: int = 0) -> int | None:
    """Parse a number times 10**thousands as an integer; None if it is not a whole number."""
    try:
        value = Decimal(text)  # also a default value, which is a number already
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() >= _MOST_DIGITS:
        return None
    value = value.scaleb(thousands)
    return int(value) if value == value.to_integral_value() else None
