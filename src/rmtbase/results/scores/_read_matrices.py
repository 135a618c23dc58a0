"""Choice of the matrices to score, and reading of those that do not belong to a layer's pass."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import holds_product
from rmtbase.models import MatrixName, WeightMatrices
from rmtbase.nulls import Null
from rmtbase.progress import Progress
from rmtbase.results.scores._matrices import MatrixScorer
from rmtbase.results.scores._super_weights import SearchedTails
from rmtbase.results.scores.words import heavy_tails

LAYERS, FUSED, EMBEDDINGS, EXPERTS = "layers", "fused", "embeddings", "experts"
COMPONENTS = (LAYERS, EMBEDDINGS, EXPERTS)
ALL = "all"
_ROWS = {"zero": "are exactly zero", "copies": "are copies of another row, and were not trained apart"}


def require_components(model: WeightMatrices, components: Sequence[str] | str, scored: bool = True) -> tuple[str, ...]:
    """Return the named parts in the order of :data:`COMPONENTS`; ``"all"`` means all that the model has."""
    names = [components] if isinstance(components, str) else list(components)
    if not scored:
        if names != [LAYERS]:
            raise ParameterError("components", components, "none: with matrices = 'none' no whole matrix is scored")
        return ()
    parts = [LAYERS, *(part for part in model.parts if part in COMPONENTS)]
    offered = f"some of {', '.join(COMPONENTS)}, or {ALL}"
    for name in names:
        if name not in (*COMPONENTS, ALL):
            raise ParameterError("components", name, offered)
        if name not in (*parts, ALL):
            why = "".join(f"; {note}" for note in model.part_notes(name)[:1])
            raise ParameterError("components", name, f"some of {', '.join(parts)}, which is all that is read{why}")
    if not names:
        raise ParameterError("components", "nothing", offered)
    return tuple(part for part in COMPONENTS if part in parts and {part, ALL} & set(names))


class MatrixScores:
    """Scores of a model's matrices, made part by part: those of ``layers`` as they are read, others by :meth:`read`."""

    def __init__(self, model: WeightMatrices, parts: Sequence[str], spectra: bool, null: Null) -> None:
        of_layers = [
            MatrixName(place, component)
            for layer, place in enumerate(model.layers)
            for component in model.components
            if LAYERS in parts and model.has(layer, component)
        ]
        outside, self.notes = _distinct(model, model.parts[EMBEDDINGS]) if EMBEDDINGS in parts else ((), [])
        fused = model.parts.get(FUSED, ()) if LAYERS in parts else ()
        experts = model.parts[EXPERTS] if EXPERTS in parts else ()
        groups = {"/matrices": (*of_layers, *fused, *outside), "/experts": experts}
        products = products_of(model)
        self._model, self._outside = model, outside
        self._scorers = {
            group: MatrixScorer(names, spectra, null, products) for group, names in groups.items() if names
        }
        self._reads = (
            ("reading fused matrices", "/matrices", fused),
            ("reading embeddings", "/matrices", outside),
            ("reading experts", "/experts", experts),
        )
        self.layers = self._scorers["/matrices"] if of_layers else None
        self.notes += [note for part in parts for note in model.part_notes(part)]
        if parts and EXPERTS in model.parts and EXPERTS not in parts:
            count = len({(name.place, name.expert) for name in model.parts[EXPERTS]})
            self.notes.append(f"{count} experts, {len(model.parts[EXPERTS])} matrices: not scored, unless asked for")

    def read(self, progress: Progress) -> None:
        """Score fused matrices, matrices outside the layers, and experts, reading each by itself."""
        for label, group, names in self._reads:
            advance = progress.bar(label, len(names)) if names else None
            for name in names:
                counts, blocks = Counter[str](), self._model.blocks(name)
                counted = _counted(blocks, counts) if name in self._outside else blocks
                shape, transposed = self._model.shape(name), self._model.is_transposed(name)
                self._scorers[group].add(name, counted, shape, transposed=transposed)
                for kind, words in _ROWS.items():
                    if counts[kind]:
                        of_rows = f"{counts[kind]} of {counts['rows']} stored rows {words}"
                        self.notes.append(f"{name}: {of_rows}; they are scored with the others")
                assert advance is not None
                advance(1)

    @property
    def missing(self) -> list[str]:
        return [line for scorer in self._scorers.values() for line in scorer.missing]

    def datasets(self) -> dict[str, xr.Dataset]:
        """Return ``/matrices`` and ``/experts``, if they were scored, and ``/super_weights`` of all matrices."""
        if not self._scorers:
            return {}
        tails = SearchedTails([tail for scorer in self._scorers.values() for tail in scorer.tails])
        if words := heavy_tails(list(map(str, tails.heavy)), len(tails.searched)):
            self.notes.append(f"super-weights: {words}")
        groups = {group: scorer.dataset(tails.heavy) for group, scorer in self._scorers.items()}
        return groups | {"/super_weights": tails.super_weights()}


def products_of(model: WeightMatrices) -> frozenset[MatrixName]:
    """Return the matrices of heads that are products of stored ones, as in latent attention."""
    return frozenset(
        MatrixName(site.place, component)
        for site in model.sites
        for component, expression in site.expressions().items()
        if holds_product(expression)
    )


def _distinct(model: WeightMatrices, names: Iterable[MatrixName]) -> tuple[tuple[MatrixName, ...], list[str]]:
    """Drop matrices that are stored a second time, byte for byte, and note which they are."""
    first: dict[bytes, MatrixName] = {}
    notes = []
    for name in names:
        stored = first.setdefault(model.digest(name), name)
        if stored is not name:
            notes.append(f"{name}: the same to the byte as {stored}, and scored as that")
    return tuple(first.values()), notes


def _counted(
    blocks: Iterable[Shaped[np.ndarray, "row column"]], counts: Counter[str]
) -> Iterator[Shaped[np.ndarray, "row column"]]:
    """Pass the blocks through, counting their rows, those that are zero, and those that copy an earlier row."""
    seen: set[int] = set()
    for block in blocks:
        nonzero = block[block.any(axis=1)]
        counts["rows"] += len(block)
        counts["zero"] += len(block) - len(nonzero)
        for row in np.ascontiguousarray(nonzero):
            key = hash(row.tobytes())
            counts["copies"] += key in seen
            seen.add(key)
        yield block
