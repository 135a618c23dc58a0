"""Every constant at its own digits and at 30, its words and references, and the functions of the shape."""

import mpmath
from entries import Entries, public

WORDS = (
    "symbol",
    "description",
    "definition",
    "method",
    "references",
    "uncertainty",
    "parents",
    "most_digits",
    "published",
)
SHAPES = ((768, 64), (64, 64), (20, 8))


def collect(entries: Entries) -> None:
    """Collect all entries of this section."""
    for constant in public("constants.constants")():
        _one(entries, constant.name, constant)
        entries.take(f"{constant.name}.words", lambda one=constant: {word: getattr(one, word) for word in WORDS})
        entries.take(f"{constant.name}.bibtex", lambda one=constant: one.bibtex())
        entries.take(f"{constant.name}.reference", lambda one=constant: one.reference)
    for function in public("constants.functions")():
        for d_model, d_head in SHAPES:
            shape = {name: {"d_model": d_model, "d_head": d_head}[name] for name in function.parameters}
            name = f"{function.name}({', '.join(map(str, shape.values()))})"
            entries.take(f"{name}.value", lambda one=function, shape=shape: one(**shape).value)
            entries.take(f"{name}.digits", lambda one=function, shape=shape: one(**shape).digits(20))
            entries.take(f"{name}.uncertainty", lambda one=function, shape=shape: one(**shape).uncertainty)
    everything = (*public("constants.constants")(), *public("constants.functions")())
    entries.take("as_json", lambda: public("constants.as_json")(everything, 20))
    entries.take("as_latex", lambda: public("constants.as_latex")(everything, 20))
    entries.take("bibliography", lambda: public("constants.bibliography")())
    entries.take(
        "groups", lambda: {title: [one.name for one in group] for title, group in public("constants.groups")().items()}
    )


def _one(entries: Entries, name: str, constant: object) -> None:
    entries.take(f"{name}.value", lambda: constant.value)
    digits = min(30, constant.most_digits)
    entries.take(f"{name}.digits({digits})", lambda: constant.digits(digits))
    with mpmath.workdps(digits + 10):  # not the table's, but what it is made from
        entries.take(f"{name}.computed", lambda: mpmath.nstr(constant.compute(), digits))
