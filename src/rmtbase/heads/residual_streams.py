"""Residual streams through which heads of a model read what other heads wrote."""

from typing import NamedTuple

from rmtbase.heads.read_sites import sites_of
from rmtbase.models import Site, WeightMatrices
from rmtbase.tables import CIRCUITS

_CROSS = "cross"


class Reading(NamedTuple):
    """Side of a later head's circuit."""

    circuit: str  # name of the circuit: ``"qk"`` or ``"ov"``
    side: int  # 0 for the left factor, 1 for the right factor, of (W_Q, W_K) or (W_O, W_V)
    width: str  # name of the dimension of that side


READINGS = {"q": Reading("qk", 0, "d_query"), "k": Reading("qk", 1, "d_key"), "v": Reading("ov", 1, "d_key")}
"""Side by which the later head reads, for each kind of composition."""


def earlier_sites(model: WeightMatrices, site: int, kind: str) -> list[int]:
    """Find the earlier sites whose heads write into the stream that a kind of composition reads at a site.

    In a decoder's stream a layer's self-attention comes before its cross-attention. The queries of cross-attention read
    the decoder's stream; its keys and values read the output of the whole encoder.
    """
    reading, later = READINGS[kind], model.sites[site]
    of_cross = "decoder" if kind == "q" else "encoder"
    stream = of_cross if later.place.stack == _CROSS else later.place.stack
    if site not in sites_of(model, CIRCUITS[reading.circuit]):
        return []
    in_stream = [index for index in sites_of(model, CIRCUITS["ov"]) if _written(model, model.sites[index]) == stream]
    if stream != _written(model, later):
        return in_stream
    orders = [(at.place.layer, at.place.stack == _CROSS) for at in model.sites]
    return [index for index in in_stream if orders[index] < orders[site]]


def unknown_streams(model: WeightMatrices) -> list[str]:
    """Tell which sites cannot be paired because their streams or matrices are not known, one line for each."""
    writers = sites_of(model, CIRCUITS["ov"])
    lines = []
    for index, site in enumerate(model.sites):
        if index not in writers:
            lines.append(f"{site.place}: its values or outputs are not known, so that its heads write nothing here")
        elif _written(model, site) is None:
            lines.append(f"{site.place}: no decoder, so that the residual stream of its cross-attention is not known")
    return lines


def _written(model: WeightMatrices, site: Site) -> str | None:
    if site.place.stack != _CROSS:
        return site.place.stack
    return "decoder" if any(other_site.place.stack == "decoder" for other_site in model.sites) else None
