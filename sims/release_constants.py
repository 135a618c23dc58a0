"""Make the record of a set of constants, with which it is released; once it is, only enclosures may be added.

    python sims/release_constants.py v1 --date 2026-11-23
    python sims/release_constants.py v1 --check

All digits are computed anew at two precisions, and enclosed in ball arithmetic where :mod:`enclosures` has the
definition; digits that do not agree with the enclosure are an error. ``docs/constants-releases.md`` has the rules.
"""

import argparse
import json
from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from enclosures import ENCLOSURES, decimal_bounds

from rmtbase.constants import Constant, ConstantFunction, ConstantSet, encloses
from rmtbase.constants._digits import agreed_digits
from rmtbase.constants._record import released
from rmtbase.constants._registry import set_named
from rmtbase.tables import write_bytes

RELEASED_DIGITS, ENCLOSED_DIGITS = 100, 110
SHAPES = ((768, 64), (4096, 128))
"""Of which the values of the functions are recorded."""


def record(of_set: ConstantSet, day: str) -> dict[str, Any]:
    """Record that is stored for the constants that came with a set: the words that it has, and all numbers anew."""
    constants, functions = of_set.record.get("constants", {}), of_set.record.get("functions", {})
    return {
        **of_set.record,
        "set": of_set.name,
        "date": day,
        "constants": {name: words | _constant(of_set.find(name)) for name, words in constants.items()},
        "functions": {name: words | _function(of_set.find(name)) for name, words in functions.items()},
    }


def _constant(constant: Constant) -> dict[str, Any]:
    stored = {
        "id": constant.id,
        "digits": agreed_digits(constant.compute, min(RELEASED_DIGITS, constant.most_digits)),
        "uncertainty": _uncertainty(constant),
    }
    if constant.id in ENCLOSURES:
        stored["enclosure"] = list(decimal_bounds(ENCLOSURES[constant.id], ENCLOSED_DIGITS))
        if not encloses(stored["enclosure"], stored["digits"]):
            raise SystemExit(f"{constant.id}: {stored['digits']} does not lie in {stored['enclosure']}")
    return stored


def _function(function: ConstantFunction) -> dict[str, Any]:
    return {"id": function.id, "values": [_value(function, *shape) for shape in SHAPES]}


def _value(function: ConstantFunction, d_model: int, d_head: int) -> dict[str, Any]:
    """Value of a function at one shape, to the digits that its error allows."""
    arguments: dict[str, Any] = {name: {"d_model": d_model, "d_head": d_head}[name] for name in function.parameters}
    constant = function(**arguments)
    return arguments | {"digits": constant.rounded()[0], "uncertainty": _uncertainty(constant)}


def _uncertainty(constant: Constant) -> dict[str, Any]:
    """Uncertainty of a constant as numbers, to two digits."""
    return {
        "kind": constant.error_kind,
        "absolute": float(f"{constant.error:.1e}"),
        "relative": float(f"{constant.relative_error:.1e}"),
    }


def changed(stored: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """Names of constants and functions of which two records released something else."""
    before, after = released(stored), released(made)
    return [
        name
        for part in ("constants", "functions")
        for name in sorted({*before[part], *after[part]})
        if before[part].get(name) != after[part].get(name)
    ]


def main() -> None:
    """Parse the command line; write or check the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", help="as v1")
    parser.add_argument(
        "--date",
        help="of its release, as 2026-11-23; today if not given",
        type=date.fromisoformat,
        default=date.today(),
    )
    parser.add_argument("--check", action="store_true", help="compute all anew and write nothing")
    options = parser.parse_args()
    of_set = set_named(options.set)
    made = record(of_set, of_set.date or options.date.isoformat())
    if of_set.date and (names := changed(of_set.record, made)):
        raise SystemExit(f"{of_set.name} is released and would change: {', '.join(names)}; they come with a new set")
    if not options.check:
        path = Path(str(files("rmtbase.constants") / f"{of_set.name}.json"))
        write_bytes((json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode(), path)
    enclosed = sum("enclosure" in entry for entry in made["constants"].values())
    print(f"{of_set.name}, {made['date']}: {len(made['constants'])} numbers, {enclosed} of them enclosed; ", end="")
    print(f"{len(made['functions'])} functions of the shape; {'checked' if options.check else 'written'}")


if __name__ == "__main__":
    main()
