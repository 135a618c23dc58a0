"""Captions of a page's figures: what each shows, and how to read it."""

from functools import cache
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.reasons import packaged_texts
from rmtbase.tables import Circuit


class Caption(NamedTuple):
    title: str  # subject of the figure
    reading: str  # explanation of how to read it
    description: str  # alternative text for readers who cannot see it


_SINGLE = {"query": "queries", "key": "keys", "value": "values", "output": "outputs"}


@cache
def _texts() -> dict[str, Any]:
    return packaged_texts("rmtbase.results.scores.page", "captions.toml")


def captions(scores: xr.DataTree, by_statistic: str) -> dict[str, Caption]:
    words = _texts()["words"]["simulated"] | _texts()["words"].get(scores.attrs["null_method"], {})
    named = {
        name: Caption(**{part: text.format(**words) for part, text in texts.items()})
        for name, texts in _texts()["captions"].items()
    }
    if by_statistic:
        named["heads-by-statistic"] = named["heads-by-statistic"]._replace(description=by_statistic)
    return named


def of_circuit(circuit: Circuit) -> Caption:
    texts = _texts()["circuit"]
    return Caption(**{part: text.format(noun=circuit.noun, symbol=circuit.symbol) for part, text in texts.items()})


def circuit_words(circuit: Circuit) -> tuple[str, str]:
    """Return the title of a further circuit's section, and a sentence about the circuit."""
    if circuit.name not in _SINGLE:
        return "What heads write", "says what a head writes for what it reads, whatever it attends to."
    sides = _SINGLE[circuit.name]
    shows = f"shows a direction that training gave only to the {sides}"
    return f"{sides.capitalize()} by themselves", f"{shows}, long before it can be seen in a product of two matrices."
