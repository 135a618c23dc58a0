"""A model of three stacks whose heads differ in number and shape; one was given a direction, and one is all zeros."""

from dataclasses import dataclass

import numpy as np

from rmtbase.errors import CheckpointError
from rmtbase.models import Place, Site, WeightMatrices

STACKS = {
    # stack: (layers, heads, key heads, d_head, d_query, d_key)
    "encoder": (1, 4, 4, 8, 32, 32),
    "decoder": (2, 6, 2, 8, 48, 48),
    "cross": (2, 6, 6, 9, 48, 32),
}
PLANTED = (Place("decoder", 1), 3)
ZERO = (Place("encoder", 0), 1)
PLAIN = Place("decoder", 2)
"""A layer without attention."""


@dataclass(frozen=True, kw_only=True)
class Translator(WeightMatrices):
    """Random weights, made anew whenever they are read."""

    learned: bool = True
    seed: int = 0

    def has(self, layer, component):
        place = self.layers[layer]
        if component == "mlp_in":
            return place.stack != "cross"
        return place != PLAIN

    def matrix(self, layer, component):
        place = self.layers[layer]
        rng = np.random.default_rng([self.seed, layer, self.components.index(component)])
        if component == "mlp_in":
            return 0.02 * rng.standard_normal((64, 32))
        n_heads, n_key_heads, d_head, d_query, d_key = STACKS[place.stack][1:]
        heads = n_key_heads if component in ("attention_key", "attention_value") else n_heads
        width = d_query if component in ("attention_query", "attention_output") else d_key
        weights = 0.02 * rng.standard_normal((heads, d_head, width))
        if component in ("attention_query", "attention_output") and self.learned:
            if place == PLANTED[0]:
                weights[PLANTED[1]] += 0.3 * np.outer(rng.standard_normal(d_head), rng.standard_normal(width))
            if place == ZERO[0]:
                weights[ZERO[1]] = 0.0
        whole = weights.reshape(-1, width)
        return whole.T if component == "attention_output" else whole

    def least_sigma(self, layer, component):
        return 1e-30

    def refused(self, site, head, found, expected):
        return CheckpointError(self.name, f"{self.sites[site].place} head {head} has {found}; expected {expected}")

    def site_digest(self, site):
        return f"{self.seed} {site}".encode()


def translator(learned=True, repeats=1, stacks=tuple(STACKS)):
    """The model, or some of its stacks; with ``repeats`` times as many layers in each."""
    sites = [
        Site(
            place=Place(stack, layer), n_heads=n_heads, n_key_heads=n_key_heads, d_head=d_head, d_query=d_query,
            d_key=d_key, d_value=d_head, d_output=d_query,
        )
        for stack, (layers, n_heads, n_key_heads, d_head, d_query, d_key) in STACKS.items()
        for layer in range(layers * repeats)
        if stack in stacks
    ]  # fmt: skip
    places = [site.place for site in sites]
    if "decoder" in stacks and repeats == 1:
        places.insert(1 + max(index for index, place in enumerate(places) if place.stack == "decoder"), PLAIN)
    names = ("attention_query", "attention_key", "attention_value", "attention_output", "mlp_in")
    return Translator(
        name="translator", revision=None, architecture="translator", sites=tuple(sites), layers=tuple(places),
        components=names, notes=("rotary: content part",), learned=learned,
    )  # fmt: skip
