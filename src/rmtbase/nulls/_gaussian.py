"""Nulls of independent entries: simulated, from the atlas, from a table, analytic, or of each head's kurtosis."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError, TableError, UnreadableTableError
from rmtbase.nulls._analytic_null import AnalyticNull, FixedSpectrum
from rmtbase.nulls._atlas_null import AtlasNull, atlas_case
from rmtbase.nulls._head_null import ENTRIES_IN_WORDS, HeadNull, NullModel
from rmtbase.nulls._kurtosis_null import KURTOSIS, KurtosisNull, kurtosis_range, mean_kurtosis, own_kurtosis
from rmtbase.nulls._latent_null import LatentNull
from rmtbase.nulls._null import HeadShape, Null, draws_for, tell_if_coarse
from rmtbase.nulls._null_of_file import cached_null, null_from_cache, null_of_file
from rmtbase.nulls._sample_null import GaussianNull, OrthogonalNull, case_of_shape
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.statistics import LatentShape
from rmtbase.tables import baseline_shapes, digest_of, open_table, validate

_TABLES = ("baseline", "atlas")


@dataclass(frozen=True, kw_only=True)
class Gaussian(Null):
    """Independent entries, Gaussian unless ``initialization`` names another law; draws are divided by their own σ̂.

    Draws come from the shipped atlas if it holds the shape with this seed and enough draws, else from the cache, else
    they are simulated. For other laws every entry is simulated.

    Args:
        initialization: ``"normal"``, ``"uniform"``, ``"truncated_normal"`` (cut at two standard deviations) or
            ``"orthogonal"`` (orthonormal rows or columns, :func:`rmtbase.ensembles.orthogonal_blocks`).
        draws: least number of draws. If None, all draws of the atlas, or ``max(10 000, 50 · heads)`` for other shapes.
        seed: seed of the draws.
    """

    name: ClassVar[str] = "gaussian"

    @property
    def entry_law(self) -> str | None:
        return None if self.initialization == "orthogonal" else self.initialization

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if self.initialization == "orthogonal" and shape.is_of_products:
            reason = "W_Q and W_K are products of matrices, whose rows are not orthonormal even if theirs are"
            raise ParameterError("initialization", self.initialization, f"another: {reason}")

    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        if self.initialization == "orthogonal":
            return self._orthogonal(shape, progress)
        if self.initialization != "normal" and isinstance(shape.dims, LatentShape):
            reason = "latent attention of another initialization has no null of its own"
            shape.detail(progress, f"of Gaussian entries: {reason}")
        elif self.initialization != "normal":
            return self._of_initialization(shape, progress)
        return self.of_normal_entries(shape, progress)

    def of_normal_entries(self, shape: HeadShape, progress: Progress) -> HeadNull | LatentNull:
        null = self._held(shape, progress) or self._simulated(shape, progress, "normal")
        tell_if_coarse(null, draws_for(shape.n_heads), shape, progress)
        return null

    def _of_initialization(self, shape: HeadShape, progress: Progress) -> NullModel:
        null = self._simulated(shape, progress, self.initialization)
        tell_if_coarse(null, draws_for(shape.n_heads), shape, progress)
        return null

    def _moved(self, shape: HeadShape, progress: Progress) -> NullModel:
        null = self.of_normal_entries(shape, progress)
        assert isinstance(null, HeadNull)  # latent attention has no null of another initialization
        words, kurtosis = ENTRIES_IN_WORDS[self.initialization], KURTOSIS[self.initialization]
        shape.detail(progress, f"of Gaussian entries, and moved by the kurtosis of {words} ones, {kurtosis:.3g}")
        return KurtosisNull(null, self.initialization, kurtosis)

    def _held(self, shape: HeadShape, progress: Progress) -> HeadNull | None:
        """Null of normal entries from the shipped atlas; None if it lacks the shape, seed or enough draws."""
        of_product = shape.of_product
        if of_product is None:
            return None
        try:
            case = atlas_case(*of_product)
            if case is None or int(case.attrs["seed"]) != self.seed or int(case["draws"]) < (self.draws or 0):
                return None
            null = AtlasNull(*of_product, case)
        except TableError as error:
            from rmtbase.montecarlo import CacheWarning

            fault = "an atlas that cannot be read" if isinstance(error, UnreadableTableError) else "damaged atlas"
            warnings.warn(f"{fault}, not used; install rmtbase again: {error}", CacheWarning, stacklevel=2)
            return None
        shape.detail(progress, f"from {null.source} ({null.draws} draws)")
        return null

    def _simulated(self, shape: HeadShape, progress: Progress, entries: str) -> HeadNull | LatentNull:
        draws = self.draws or draws_for(shape.n_heads)
        if isinstance(shape.dims, LatentShape):
            shape.detail(progress, f"{draws} draws, made at the ratios of the heads' keys, seed {self.seed}")
            return LatentNull(shape.dims, draws, self.seed)
        return cached_null(shape.dims, draws, self.seed, progress, entries=entries)

    def _orthogonal(self, shape: HeadShape, progress: Progress) -> HeadNull:
        assert shape.stored is not None and not isinstance(shape.dims, LatentShape)  # by needs_stored_rows, and judged
        dims = shape.dims if len(shape.dims) == 3 else (min(shape.dims), max(shape.dims))
        widths = dims[::2] if len(dims) == 3 else dims[1:]
        rows, fused = shape.stored
        if all(count <= width for count, width in zip(rows, widths, strict=True)):
            shape.detail(progress, "fixed by orthonormal rows, no draws: no statistic of the spectrum can be tested")
            return FixedSpectrum(dims)
        from rmtbase.montecarlo import cached_table

        draws = self.draws or draws_for(shape.n_heads)
        file = cached_table("orthogonal_blocks", {"dims": dims, "rows": rows, "fused": fused}, draws, self.seed)
        null = null_from_cache(
            file, dims, lambda table: OrthogonalNull.from_spectra(table, dims, "simulated", "orthogonal"), progress
        )
        tell_if_coarse(null, draws_for(shape.n_heads), shape, progress)
        return null


@dataclass(frozen=True)
class Table(Gaussian):
    """Independent Gaussian entries, with draws from a given baseline table or atlas.

    Shapes that the table lacks get the null of :class:`Gaussian`, and a note says so. With another initialization the
    draws are shifted by the kurtosis of its entries to first order (:func:`rmtbase.laws.eigenvalue_displacement`).

    Args:
        table: a baseline or an atlas, as a dataset or the path of its file.
        initialization, draws, seed: as for :class:`Gaussian`, for shapes that the table lacks.
    """

    table: xr.Dataset | Path | str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initialization == "orthogonal":
            expected = "none: heads of orthogonal matrices have a law of their own, which no table holds"
            table = "a dataset" if isinstance(self.table, xr.Dataset) else str(self.table)
            raise ParameterError("table", table, expected)

    _of_initialization = Gaussian._moved

    def options(self) -> dict[str, Any]:
        table = self.table if isinstance(self.table, xr.Dataset) else open_table(self.table, *_TABLES)
        return {**super().options(), "table": digest_of(table)}

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        self._given(shape, SILENT)

    def _held(self, shape: HeadShape, progress: Progress) -> HeadNull | None:
        return self._given(shape, progress) or super()._held(shape, progress)

    def _given(self, shape: HeadShape, progress: Progress) -> HeadNull | None:
        of_product = shape.of_product
        if isinstance(self.table, xr.Dataset):
            source = "the baseline dataset"
            validate(self.table, source, *_TABLES)
            null, shapes = _in_table(self.table, of_product, source), baseline_shapes(self.table)
        else:
            path, source, shapes = self.table, str(self.table), []

            def read() -> HeadNull | None:
                table = open_table(path, *_TABLES)
                assert isinstance(table, xr.Dataset)  # both kinds of file hold one
                shapes.extend(baseline_shapes(table))
                return _in_table(table, of_product, source)

            null = null_of_file(Path(path), of_product or (), read)
        if null is None:
            listed, needed = ", ".join(f"({d}, {h})" for d, h in sorted(set(shapes))), of_product or shape.dims
            progress.note(f"{source} holds {listed}, but not {needed}: the null of that shape is taken separately")
        else:
            shape.detail(progress, f"{null.draws} draws from {source}")
        return null


@dataclass(frozen=True, kw_only=True)
class Analytic(Gaussian):
    """Independent Gaussian entries, computed from the laws without draws, for d_head ≥ 8: see :class:`AnalyticNull`.

    With another initialization every eigenvalue is shifted by the kurtosis of its entries to first order. Spectra of
    whole matrices are still compared with simulated ones.
    """

    name: ClassVar[str] = "analytic"
    _of_initialization = Gaussian._moved

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initialization == "orthogonal":
            expected = "one of independent entries: the laws are not those of orthogonal matrices"
            raise ParameterError("initialization", self.initialization, expected)

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if isinstance(shape.dims, LatentShape):
            reason = "latent attention with a separately rotated part of the key has no law, and is simulated"
            raise ParameterError("null", self.name, f"another: {reason}")
        AnalyticNull(dims=shape.dims)

    def of_normal_entries(self, shape: HeadShape, progress: Progress) -> AnalyticNull:
        assert not isinstance(shape.dims, LatentShape)  # judged
        null = AnalyticNull(dims=shape.dims)
        shape.detail(progress, "analytic, no draws")
        if null.unknown:
            progress.note(f"without a law at this shape, and not scored: {', '.join(null.unknown)}")
        return null


def _in_table(table: xr.Dataset, of_product: tuple[int, int] | None, source: str) -> GaussianNull | AtlasNull | None:
    if of_product is None:
        return None
    if table.attrs["kind"] == "baseline":
        return GaussianNull.from_baseline(table, *of_product, source)
    case = case_of_shape(table, *of_product)
    return None if case is None else AtlasNull(*of_product, case, source)


@dataclass(frozen=True, kw_only=True)
class Kurtosis(Null):
    """Independent entries of any law, with the excess kurtosis of each head's own entries, to first order in it.

    Heads whose kurtosis lies outside :func:`kurtosis_range` are not scored. :class:`Signs` is exact for those.

    Args:
        base: null of normal entries that is moved: a :class:`Gaussian`, :class:`Table` or :class:`Analytic`; by default
            a :class:`Gaussian` with these draws and this seed.
        draws, seed: as for :class:`Gaussian`; if a base is given, its draws and seed are used.
    """

    name: ClassVar[str] = "kurtosis"
    base: Gaussian | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        initial = self.initialization if self.base is None else self.base.initialization
        if initial != "normal":
            raise ParameterError("initialization", initial, "none with the null of each head's own kurtosis")

    @property
    def independent(self) -> Gaussian:
        """Null of normal entries that is moved."""
        return Gaussian(draws=self.draws, seed=self.seed) if self.base is None else self.base

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> Sequence[Any]:
        """Return the excess kurtosis of each factor of each head, (head, factor)."""
        kurtoses = np.stack(np.broadcast_arrays(*(own_kurtosis(factor) for factor in factors)), axis=-1)
        return list(kurtoses.reshape(-1, len(factors)))

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> Sequence[Any]:
        """Return the mean excess kurtosis of the A_i, and that of B, (group, factor)."""
        return list(np.stack([own_kurtosis(factor).mean(axis=1) for factor in (each, shared)], axis=-1))

    def unscored(self, dims: tuple[int, ...], prepared: Sequence[Any] | None) -> dict[int, Reason]:
        if prepared is None:
            return {}
        kurtosis, (low, high) = mean_kurtosis(dims, list(np.array(prepared).T)), kurtosis_range(dims)
        limits = {"low": low, "high": high, "dims": "x".join(map(str, dims))}
        return {
            head: Reason("kurtosis_out_of_range", {"kurtosis": float(kurtosis[head]), **limits})
            for head in np.flatnonzero((kurtosis < low) | (kurtosis > high)).tolist()
        }

    def options(self) -> dict[str, Any]:
        return {**self.independent.options(), "name": self.name}

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if shape.is_of_products:
            reason = "W_Q and W_K are products of matrices, whose elements are not independent"
            raise ParameterError("null", self.name, f"'gaussian' or 'axes': {reason}")
        self.independent.require_shape(shape)

    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        base = self.independent.of_normal_entries(shape, progress)
        assert isinstance(base, HeadNull)  # latent attention is refused above
        return KurtosisNull(base)
