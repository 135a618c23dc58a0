"""Models whose sizes are known without a file or a network: data in ``known_models.csv``, one line each."""

from __future__ import annotations

import csv
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_NEAR = 6  # names that an error lists


class KnownModel(NamedTuple):
    """The sizes of a published model, as its configuration on the hub gives them.

    Attributes:
        name: its short name, in lower case.
        hub_id: its name on the hub.
        n_layers: layers with attention; of the encoder, where there is a decoder too.
        n_heads: query heads of a layer.
        n_key_heads: key heads of a layer.
        d_model: width of the residual stream.
        d_head: head dimension, which need not be d_model / n_heads.
    """

    name: str
    hub_id: str
    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int


@cache
def known_models() -> tuple[KnownModel, ...]:
    """Every known model, family by family."""
    text = files("rmtbase.models").joinpath("known_models.csv").read_text(encoding="utf-8")
    lines = csv.DictReader(text.splitlines())
    return tuple(
        KnownModel(line["name"], line["hub_id"], *(int(line[size]) for size in KnownModel._fields[2:]))
        for line in lines
    )


def find_known(name: str) -> KnownModel | None:
    """The known model of that name or hub id, with or without its owner, in upper or lower case."""
    asked = name.lower()
    for named in (
        lambda known: (known.name, known.hub_id.lower()),
        lambda known: (known.hub_id.lower().partition("/")[2],),
    ):
        for known in known_models():
            if asked in named(known):
                return known
    return None


def names_near(name: str) -> str:
    """Names of known models that come near, for an error."""
    names = [known.name for known in known_models()]
    asked = name.lower().rpartition("/")[2][:100]
    begin_alike = [known for known in names if asked and known.startswith(asked)]
    near = get_close_matches(asked, names, n=_NEAR, cutoff=0.5)
    return ", ".join(list(dict.fromkeys((*near, *begin_alike)))[:_NEAR] or ["gpt2", "pythia-70m", "llama-3.1-8b"])
