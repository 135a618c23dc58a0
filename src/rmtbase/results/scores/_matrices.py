"""Choice, reading and scoring of whole weight matrices, by their elements and on request by their spectrum."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from rmtbase import statistics
from rmtbase.errors import ParameterError
from rmtbase.heads.factors import holds_product
from rmtbase.laws import marchenko_pastur
from rmtbase.linalg import appended_rows, matrix_singular_values
from rmtbase.models import FUSED_COMPONENTS, MatrixName, WeightMatrices
from rmtbase.nulls import DRAWS_PER_TEST, EDGE_LEVEL, KURTOSIS, SMALLEST_P_VALUE, Null, without_kurtosis
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.filled import Entries
from rmtbase.results.scores import _element_scores as scoring
from rmtbase.results.scores._element_scores import FIELDS, STATISTICS
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores._super_weights import Tail, search
from rmtbase.results.scores.schema import matrices_schema
from rmtbase.results.scores.words import heavy_tails
from rmtbase.tables import matrices_present

MATRIX_MODES = ("none", "elements", "spectra")

MATRIX_SPECTRAL_STATISTICS = (
    "largest_eigenvalue", "smallest_eigenvalue", "trace_of_square", "normalized_participation_ratio",
    "condition_number", "stable_rank", "log_determinant",
)  # fmt: skip
"""Statistics of a whole matrix's spectrum, at σ̂ = 1 and on λ / max(m, n). All of them follow from the extremes and the
traces, so that the null costs O(min(m, n)) per draw."""

_NULL_DRAWS = 5_000


class _Scored(NamedTuple):
    elements: scoring.Elements
    shape: tuple[int, int]
    spectrum: list[tuple[float, ...]]  # :data:`FIELDS` of each spectral statistic; empty if spectra are not scored
    facts: dict[str, float]  # other facts of the spectrum by the names of their variables
    without_tail: Reason  # why it has no tail


class MatrixScorer:
    """Scorer of matrices, one at a time, for ``/matrices`` or ``/experts``; ``products`` of matrices have no null.

    The null of the spectrum is that of normal elements, moved to first order by the kurtosis of other laws.
    """

    def __init__(
        self, names: Sequence[MatrixName], spectra: bool, null: Null, products: Collection[MatrixName] = ()
    ) -> None:
        if spectra:  # before threads start: SciPy's check for JAX arrays fails during an import of JAX
            import rmtbase.montecarlo  # noqa: F401
        self._names, self._spectra, self._seed, self._initialization = names, spectra, null.seed, null.initialization
        self._products, self._orthogonal = products, null.initialization == "orthogonal"
        self._draws = _null_draws(sum(name.component not in FUSED_COMPONENTS for name in names))
        self.tails: list[Tail] = []
        self._scored: dict[MatrixName, _Scored] = {}

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[scoring.ElementSummary]] = map,
        transposed: bool = False,
    ) -> None:
        """Score one matrix, given in blocks of its rows or of its transpose's rows; a constant matrix scores NaN."""
        summary: scoring.ElementSummary | None = None
        triangle: Float[np.ndarray, "row column"] | None = None
        for block in blocks:
            of_block = scoring.summarized(block, map_spans)
            summary = of_block if summary is None else summary.merged(of_block)
            triangle = appended_rows(triangle, block) if self._spectra else None
        assert summary is not None
        elements = scoring.elements_of(summary.sketch)
        spectrum = ([], {}) if triangle is None else self._spectrum(matrix_singular_values(triangle), shape)
        fused = name.component in FUSED_COMPONENTS  # its elements belong to its parts
        self._scored[name] = _Scored(elements, shape, *spectrum, Reason() if fused else summary.largest.without_tail())
        if not fused:
            law = dict(zip(STATISTICS, elements.statistics.tolist(), strict=True))
            scale = law["weibull_scale"] * summary.sketch.sums.root_mean_square
            core = law["core_sigma"] * elements.sigma
            self.tails.append(Tail(name, shape, transposed, summary.largest, core, law["weibull_shape"], scale))

    def _spectrum(
        self, values: Float[np.ndarray, " rank"], shape: tuple[int, int]
    ) -> tuple[list[tuple[float, ...]], dict[str, float]]:
        rank, long = min(shape), max(shape)
        if values[0] == 0:
            facts = {"outliers_above": 0.0, "outliers_below": 0.0, "marchenko_pastur_distance": np.nan}
            return [(np.nan,) * len(FIELDS)] * len(MATRIX_SPECTRAL_STATISTICS), facts
        # Scaled to σ̂ = 1 (Σλ = m n) and divided by the long dimension, so that the bulk lies between (1 ± √(r/N))².
        standard = values / np.sqrt((values**2).sum() / rank)
        observed = statistics.spectral_statistics(standard, MATRIX_SPECTRAL_STATISTICS)
        eigenvalues, as_of_normal, kurtosis = standard**2, observed, KURTOSIS.get(self._initialization, 0.0)
        if kurtosis:
            eigenvalues = without_kurtosis(long * eigenvalues, kurtosis, (rank, long)) / long
            as_of_normal = statistics.spectral_statistics(np.sqrt(eigenvalues), MATRIX_SPECTRAL_STATISTICS)
        null = matrix_null(long, rank, self._draws, self._seed)
        extremes, rows = statistics.ExtremeMoments(smallest=statistics.inverse_moment_order(shape)), []
        for name, statistic, value in zip(MATRIX_SPECTRAL_STATISTICS, observed, as_of_normal, strict=True):
            sample, order = null[name], statistics.moment_order(statistics.get_statistic(name), extremes, rank)
            mean, std = statistics.drawn_moments(sample.mean(), sample.std(ddof=1), order)
            p_value = statistics.p_value_among_sorted(value, sample)
            z_score = (
                statistics.normal_score(p_value, value > np.median(sample)) if np.isnan(std) else (value - mean) / std
            )
            if kurtosis and statistics.get_statistic(name).on_log_scale and value > 0:
                mean, std = mean * statistic / value, std * statistic / value
            elif kurtosis:
                mean = mean + statistic - value
            rows.append(tuple(map(float, (statistic, mean, std, z_score, p_value))))
        upper = np.quantile(null["largest_eigenvalue"], 1.0 - EDGE_LEVEL)
        lower = np.quantile(null["smallest_eigenvalue"], EDGE_LEVEL)
        law = marchenko_pastur(rank, long, sigma=long**-0.5)
        level = law.cdf(eigenvalues[::-1])
        step = np.arange(rank) / rank
        distance = np.maximum(np.abs(level - step), np.abs(level - step - 1.0 / rank)).max()
        return rows, {
            "outliers_above": float((eigenvalues > upper).sum()),
            "outliers_below": float((eigenvalues < lower).sum()),
            "marchenko_pastur_distance": float(distance),
        }

    @property
    def missing(self) -> list[str]:
        reasons = {name: (matrix.elements.reason, *self._without_null(name)) for name, matrix in self._scored.items()}
        return scoring.missing_lines((str(name), Reason.join(*of_matrix)) for name, of_matrix in reasons.items())

    def _without_null(self, name: MatrixName) -> list[Reason]:
        reasons = [Reason("product_of_matrices")] if name in self._products else []
        return reasons + ([Reason("orthonormal")] if self._orthogonal else [])

    def dataset(self, heavy: Collection[MatrixName] = ()) -> xr.Dataset:
        # places outside the layers come first
        places = sorted(dict.fromkeys(name.place for name in self._names), key=lambda place: place.layer >= 0)
        experts = sorted({name.expert for name in self._names if name.expert is not None})
        components = list(dict.fromkeys(name.component for name in self._names))
        entries: Entries = {}
        for (name, matrix), scores in zip(self._scored.items(), self._scores(), strict=True):
            expert = [] if name.expert is None else [experts.index(name.expert)]
            has_tail = name.component not in FUSED_COMPONENTS and not matrix.without_tail
            entries[(places.index(name.place), *expert, components.index(name.component))] = {
                **matrix.elements.entry(matrix.shape, scores, self._without_null(name)),
                "tail_reason": str(matrix.without_tail),
                "heavy_tail": float(name in heavy) if has_tail else np.nan,
                **matrix.facts,
            }
        statistics = [*STATISTICS, *(MATRIX_SPECTRAL_STATISTICS if self._spectra else ())]
        coordinates = layer_coordinates(places) | ({"expert": experts} if experts else {})
        coordinates |= {"component": components, "statistic": statistics}
        fused = np.isin(components, FUSED_COMPONENTS)
        families = np.flatnonzero(fused), np.flatnonzero(~fused)  # fused matrices are a family of their own
        return scoring.element_table(matrices_schema(self._spectra, bool(experts)), coordinates, entries, families)

    def _scores(self) -> Float[np.ndarray, "matrix statistic field"]:
        matrices = self._scored.values()
        counts = np.array([matrix.elements.count for matrix in matrices])
        observed = np.array([matrix.elements.statistics for matrix in matrices])
        scores = np.empty((*observed.shape, len(FIELDS)))
        for count in np.unique(counts):
            law = (lambda _: None) if self._orthogonal else scoring.element_law(self._initialization, int(count))
            scores[counts == count] = scoring.against_null(observed[counts == count], law)
        if self._spectra:
            scores = np.concatenate([scores, np.array([matrix.spectrum for matrix in matrices])], axis=1)
        without_null = [self._orthogonal or name in self._products for name in self._scored]
        scores[without_null, :, FIELDS.index("observed") + 1 :] = np.nan
        return scores


@cache
def matrix_null(long: int, rank: int, draws: int, seed: int) -> dict[str, Float[np.ndarray, " draw"]]:
    """Draw the null of each spectral statistic at σ̂ = 1 on λ / max(m, n), each draw at its own σ̂; ascending."""
    from rmtbase.montecarlo import simulate_gaussian_matrix

    sample = simulate_gaussian_matrix(long, rank, draws, seed)
    unit = sample.trace / rank  # brings every draw to Σλ = rank
    largest, smallest = sample.largest_eigenvalue / unit, sample.smallest_eigenvalue / unit
    square = sample.trace_of_square / unit**2
    null = {
        "largest_eigenvalue": largest,
        "smallest_eigenvalue": smallest,
        "trace_of_square": square,
        "normalized_participation_ratio": rank / square,
        "condition_number": largest / smallest,
        "stable_rank": rank / largest,
        "log_determinant": sample.log_determinant - rank * np.log(unit),
    }
    return {name: np.sort(values) for name, values in null.items()}


def matrix_p_value_floors(matrices: xr.Dataset) -> dict[str, float]:
    """Return the smallest possible p-value of each statistic of ``/matrices`` or ``/experts``."""
    fused = np.isin(matrices["component"].values, FUSED_COMPONENTS)
    draws = _null_draws(int(matrices_present(matrices)[..., ~fused].sum()))
    floors: dict[str, float] = dict.fromkeys(MATRIX_SPECTRAL_STATISTICS, 2 / (draws + 1))
    return floors | dict.fromkeys(STATISTICS, SMALLEST_P_VALUE)


def _null_draws(n_matrices: int) -> int:
    return max(_NULL_DRAWS, DRAWS_PER_TEST * n_matrices)


LAYERS, FUSED, EMBEDDINGS, EXPERTS, ALL = "layers", "fused", "embeddings", "experts", "all"
COMPONENTS = (LAYERS, EMBEDDINGS, EXPERTS)
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
        of_layers = []
        for layer, place in enumerate(model.layers if LAYERS in parts else ()):
            of_layers += [MatrixName(place, name) for name in model.components if model.has(layer, name)]
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
        for label, group, names in self._reads:
            advance = progress.bar(label, len(names)) if names else SILENT.bar(label, 0)
            for name in names:
                counts, blocks = Counter[str](), self._model.blocks(name)
                counted = _counted(blocks, counts) if name in self._outside else blocks
                shape, transposed = self._model.shape(name), self._model.is_transposed(name)
                self._scorers[group].add(name, counted, shape, transposed=transposed)
                for kind, words in _ROWS.items():
                    if counts[kind]:
                        of_rows = f"{counts[kind]} of {counts['rows']} stored rows {words}"
                        self.notes.append(f"{name}: {of_rows}; they are scored with the others")
                advance(1)

    @property
    def missing(self) -> list[str]:
        return [line for scorer in self._scorers.values() for line in scorer.missing]

    def datasets(self) -> dict[str, xr.Dataset]:
        if not self._scorers:
            return {}
        extremes = search([tail for scorer in self._scorers.values() for tail in scorer.tails])
        if words := heavy_tails(list(map(str, extremes.heavy)), extremes.searched):
            self.notes.append(f"super-weights: {words}")
        groups = {group: scorer.dataset(extremes.heavy) for group, scorer in self._scorers.items()}
        return groups | {"/super_weights": extremes.super_weights}


def products_of(model: WeightMatrices) -> frozenset[MatrixName]:
    expressions = ((site.place, *item) for site in model.sites for item in site.expressions().items())
    return frozenset(MatrixName(place, name) for place, name, expression in expressions if holds_product(expression))


def _distinct(model: WeightMatrices, names: Iterable[MatrixName]) -> tuple[tuple[MatrixName, ...], list[str]]:
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
