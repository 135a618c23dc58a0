"""Which heads of a model read what which others wrote: the residual streams that they share."""

from __future__ import annotations

from typing import NamedTuple

from rmtbase.heads.read_sites import sites_of
from rmtbase.models import Site, WeightMatrices
from rmtbase.tables import CIRCUITS

_CROSS = "cross"


class Reading(NamedTuple):
    """A side of a later head's circuit.

    Attributes:
        circuit: which it is of: ``"qk"`` or ``"ov"``.
        side: 0 for the left factor, 1 for the right one, of (W_Q, W_K) and (W_O, W_V).
        width: the name of its size.
    """

    circuit: str
    side: int
    width: str


READINGS = {"q": Reading("qk", 0, "d_query"), "k": Reading("qk", 1, "d_key"), "v": Reading("ov", 1, "d_key")}
"""By the kind of composition, what the later head reads by."""


def earlier_sites(model: WeightMatrices, site: int, kind: str) -> list[int]:
    """The sites whose heads write into the stream that a kind of composition reads at a site, before it does.

    Of a decoder's stream a layer's self-attention comes before its cross-attention, whose queries read that stream, and
    whose keys and values read what all of the encoder has left.
    """
    reading, later = READINGS[kind], model.sites[site]
    stream = _read(later, kind)
    if stream is None or site not in sites_of(model, CIRCUITS[reading.circuit]):
        return []
    return [
        index
        for index in sites_of(model, CIRCUITS["ov"])
        if _written(model, model.sites[index]) == stream
        and (stream != _written(model, later) or _order(model.sites[index]) < _order(later))
    ]


def unknown_streams(model: WeightMatrices) -> list[str]:
    """What is to be told of sites no pairs of which can be made, since their streams or matrices are not known."""
    writers = sites_of(model, CIRCUITS["ov"])
    found = []
    for index, site in enumerate(model.sites):
        if index not in writers:
            found.append(f"{site.place}: its values or outputs are not known, so that its heads write nothing here")
        elif _written(model, site) is None:
            found.append(f"{site.place}: no decoder, so that the residual stream of its cross-attention is not known")
    return found


def _written(model: WeightMatrices, site: Site) -> str | None:
    """The stream that a site writes to."""
    if site.place.stack != _CROSS:
        return site.place.stack
    return "decoder" if any(one.place.stack == "decoder" for one in model.sites) else None


def _read(site: Site, kind: str) -> str | None:
    """The stream that a site reads from."""
    if site.place.stack != _CROSS:
        return site.place.stack
    return "decoder" if kind == "q" else "encoder"


def _order(site: Site) -> tuple[int, bool]:
    """Within a stream."""
    return site.place.layer, site.place.stack == _CROSS
