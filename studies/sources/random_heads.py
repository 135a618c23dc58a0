"""Heads that learned nothing, at a model's own shapes and through its own pipeline: the null of what is said of heads.

Groups of heads that share a key head are drawn with independent Gaussian entries and scored by
:func:`rmtbase.score_heads` as the model's heads are. Untrained models with the model's layers and heads are then put
together of them, so that any number made of the heads of a model, a maximum or a trend along layers among them, has
the same number of untrained models beside it. Entries have one σ, as those of untrained weights have; of heads of one
σ everything below is free of it.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from rmtbase.tables import heads_present
from studies.sources.heads import scoring
from studies.sources.recipe import HeadShape, Run

DRAWS = 999
"""Untrained models that are put together."""
HEADS = (256, 1024)
"""Heads that are drawn, at least: quick, and else."""
_SEED = 20


@dataclass(frozen=True)
class RandomHeads:
    """Random heads, and the untrained models that are put together of them.

    Attributes:
        shape: of the heads of a layer.
        tree: scores of the random heads.
        place: head of each head of each untrained model, counted along (layer, head) of ``tree``, (draw, layer, head).
    """

    shape: HeadShape
    tree: xr.DataTree
    place: np.ndarray

    @property
    def widening(self) -> float:
        """Factor by which a level of the untrained models is wider, since its mean is only that of the drawn heads."""
        heads = self.tree["heads"].dataset
        return float(np.sqrt(1.0 + np.prod(self.place.shape[1:]) / (heads.sizes["layer"] * heads.sizes["head"])))

    def values(self, of_random: np.ndarray, there: np.ndarray, of_keys: bool = False) -> np.ndarray:
        """Values of the untrained models where the model has heads, (draw, head), from those of the random heads.

        Those of keys stand, once for each key head, at the first heads of a layer.
        """
        n_heads, n_key_heads = self.shape.n_heads, self.shape.n_key_heads
        if not of_keys or n_heads == n_key_heads:
            return of_random.ravel()[self.place[:, there]]
        group = self.place[..., :: n_heads // n_key_heads]
        group = group // n_heads * n_key_heads + group % n_heads // (n_heads // n_key_heads)
        return of_random[:, :n_key_heads].ravel()[group[:, there[:, :n_key_heads]]]


def random_heads(run: Run, tree: xr.DataTree) -> RandomHeads | None:
    """Put untrained models together for a model's scores; None if its heads have no shape in common."""
    shape = shape_of(tree)
    if shape is None:
        return None
    heads = tree["heads"].dataset
    drawn = run.random_scores(shape, _layers(run.quick, shape), **scoring(run))
    return RandomHeads(shape, drawn, _places(shape, drawn["heads"].dataset.sizes["layer"], heads.sizes["layer"]))


def shape_of(tree: xr.DataTree) -> HeadShape | None:
    """Shape that all heads of a model have; None if they have several, or shared factors of another kind."""
    names = ("d_model", "d_head", "n_heads", "n_key_heads")
    if not all(name in tree.attrs for name in names):
        return None
    shape = HeadShape(*(int(tree.attrs[name]) for name in names))
    whole = heads_present(tree["heads"].to_dataset())
    if whole.shape[1] != shape.n_heads or shape.n_heads % shape.n_key_heads:
        return None
    return shape


def _layers(quick: bool, shape: HeadShape) -> int:
    """Layers of random heads: no fewer heads than :data:`HEADS`."""
    return -(-(HEADS[0] if quick else HEADS[1]) // shape.n_heads)


def _places(shape: HeadShape, random_layers: int, layers: int) -> np.ndarray:
    """Choose a group of random heads for each key head of each layer, with replacement, (draw, layer, head)."""
    size = shape.n_heads // shape.n_key_heads
    groups = random_layers * shape.n_key_heads
    chosen = np.random.default_rng(_SEED).integers(0, groups, (DRAWS, layers, shape.n_key_heads))
    return (chosen[..., None] * size + np.arange(size)).reshape(DRAWS, layers, shape.n_heads)
