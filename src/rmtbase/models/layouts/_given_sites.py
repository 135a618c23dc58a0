"""Checks of sites that a user gives for tensors with any names."""

from __future__ import annotations

from collections.abc import Sequence

from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, ShapeError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._sites import STACKS, Site


def require_sites(sites: Sequence[Site], checkpoint: Checkpoint) -> None:
    """Require that every site has queries and keys of the sizes that it states, over tensors that exist."""
    expected = "a Site for each layer, each at a place of its own, with queries and keys"
    if not sites or not all(isinstance(site, Site) for site in sites):
        raise ParameterError("sites", f"{len(sites)} of {sorted({type(site).__name__ for site in sites})}", expected)
    for number, site in enumerate(sites):
        if site.place in [other.place for other in sites[:number]] or site.place.stack not in STACKS:
            raise ParameterError("sites", f"sites[{number}] at {site.place!r}", f"{expected}; stacks: {STACKS}")
        if site.query is None or site.key is None:
            raise ParameterError("sites", f"sites[{number}] without queries or without keys", expected)
        if min(site.n_heads, site.n_key_heads, site.d_head) < 1 or site.n_heads % site.n_key_heads:
            found = f"sites[{number}] with {site.n_heads} heads of {site.d_head} on {site.n_key_heads} key heads"
            raise ParameterError("sites", found, "a number of heads that is a multiple of the key heads")
        _require_shapes(site, checkpoint)


def _require_shapes(site: Site, checkpoint: Checkpoint) -> None:
    d_value = site.d_value or 0
    wanted = {
        "attention_query": (site.n_heads * site.d_head, site.d_query),
        "attention_key": (site.n_key_heads * site.d_head, site.d_key),
        "attention_value": (site.n_key_heads * d_value, site.d_key),
        "attention_output": (site.d_output, site.n_heads * d_value),
    }
    for component, expression in site.expressions().items():
        for name in expression.tensors():
            if name not in checkpoint:
                raise MissingTensorError(checkpoint.path, name, "given")
            checkpoint.require_supported(name)
        names = ", ".join(dict.fromkeys(expression.tensors()))
        try:
            found = expression.shape(checkpoint.shape)
        except ValueError as error:
            raise CheckpointError(checkpoint.path, f"{site.place} {component}: {error}; expected a matrix") from error
        if found != wanted[component]:
            because = f"{component} of {site.place}: heads, head size and widths of its site"
            raise ShapeError(checkpoint.path, names, found, wanted[component], because)
