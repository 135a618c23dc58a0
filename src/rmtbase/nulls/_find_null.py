"""What the heads of a model are scored against, by name, and where the Gaussian null of a shape comes from.

Simulating needs JAX, which is imported by what simulates and by nothing else here.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import xarray as xr

from rmtbase import nulls
from rmtbase.errors import ParameterError, TableError
from rmtbase.heads.stored_rows import StoredRows
from rmtbase.nulls._analytic_null import AnalyticNull
from rmtbase.nulls._atlas_null import AtlasNull
from rmtbase.nulls._fixed_spectrum import FixedSpectrum
from rmtbase.nulls._gaussian_null import GaussianNull
from rmtbase.nulls._head_null import ENTRIES_IN_WORDS, NullModel, SharedNull, head_shape, rank_name
from rmtbase.nulls._initialization import KURTOSIS
from rmtbase.nulls._kurtosis_null import KurtosisNull
from rmtbase.nulls._latent_null import LatentNull
from rmtbase.nulls._null_of_file import null_of_file
from rmtbase.nulls._resampler import RESAMPLINGS, Resampler
from rmtbase.parameters import require_draws, require_seed
from rmtbase.progress import Progress
from rmtbase.statistics import LatentShape
from rmtbase.tables import baseline_shapes, open_table, validate

ANALYTIC = "analytic"
"""The ``baseline`` that asks for the analytic null; a file of that name is given as ``./analytic``."""

DRAWS_PER_TEST = 50  # the smallest q of a lone head is 2 · heads / (draws + 1): 0.04
NULLS = ("gaussian", "kurtosis", *RESAMPLINGS)
"""What heads can be scored against, by name."""

OF_A_TABLE = ("gaussian", "kurtosis")
"""Those that can be taken from a baseline table."""

_DRAWS, _DRAWS_OF_A_HEAD = 10_000, 1_000
_TABLES = ("baseline", "atlas")


def draws_for(n_heads: int) -> int:
    """Null draws with which one head alone among ``n_heads`` can reach q < 0.05: max(10 000, 50 n_heads)."""
    return max(_DRAWS, DRAWS_PER_TEST * n_heads)


def require_null_name(null: object) -> None:
    """Raise unless the null is one that is offered."""
    if not isinstance(null, str) or null not in NULLS:
        *others, last = map(repr, NULLS)
        raise ParameterError("null", null, f"{', '.join(others)} or {last}")


class Wanted(NamedTuple):
    """What a null is wanted for.

    Attributes:
        dims: the shape of the heads, (n_0, …, n_L) of the chain of factors whose product they are: (d_model, d_head,
            d_model) of W_QK, (d_query, d_head, d_key) where queries and keys read different streams, (d_output,
            d_value, d_key) of W_OV, (d_head, d_model) of one factor alone, (d_output, r, d_input) of a low-rank update;
            or that of latent attention.
        n_heads: how many there are.
        draws: of the null, at least; None for those that the heads need.
        seed: of the draws.
        progress: shows the draws, and is told where the null came from.
        entries: the law of the factors' elements under the null, one of :data:`rmtbase.parameters.INITIALIZATIONS`.
        stored: of orthogonal factors, the matrices that they are rows of.
    """

    dims: tuple[int, ...] | LatentShape
    n_heads: int
    draws: int | None
    seed: int
    progress: Progress
    entries: str = "normal"
    stored: StoredRows | None = None

    def note(self, line: str) -> None:
        """Tell of the null of this shape."""
        self.progress.note(f"null of {self.shape or self.dims}: {line}")

    @property
    def shape(self) -> tuple[int, int] | None:
        """(d_model, d_head) where the heads are of a W_QK with these; None of any other."""
        return None if isinstance(self.dims, LatentShape) else head_shape(self.dims)


def find_null(null: str, baseline: xr.Dataset | Path | str | None, wanted: Wanted) -> NullModel:
    """The null of that name for so many heads of exactly this shape, never a neighbour's.

    A note says where it came from, and another where a model has more heads than it has draws for.

    Raises:
        ParameterError: d_head = 1, ``"axes"`` of one factor or ``"signs"`` of more than two, or another argument
            outside its domain.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    dims = wanted.dims.dims if isinstance(wanted.dims, LatentShape) else wanted.dims
    name, rank = rank_name(dims), min(dims)
    if rank < 2:
        scale = "estimated" if null == "gaussian" else "kept"
        raise ParameterError(name, rank, f"at least 2: at {name} = 1 the scale is all there is, and it is {scale}")
    if null == "axes" and len(dims) == 2:
        what = "no permutation of its rows changes the singular values of one factor"
        raise ParameterError("null", null, f"'gaussian' or 'signs': {what}")
    if null == "signs" and len(dims) > 3:
        what = "W_Q and W_K are products of matrices, whose elements have no independent signs"
        raise ParameterError("null", null, f"'gaussian' or 'axes': {what}")
    require_seed(wanted.seed)
    if wanted.entries == "orthogonal":
        return _orthogonal_null(null, baseline, wanted)
    if wanted.draws is not None:
        wanted = wanted._replace(draws=require_draws(wanted.draws))
    if null == "kurtosis" and (isinstance(wanted.dims, LatentShape) or len(dims) > 3):
        what = "W_Q and W_K are products of matrices, whose elements are not independent"
        raise ParameterError("null", null, f"'gaussian' or 'axes': {what}")
    if null == "gaussian":
        return _independent_null(baseline, wanted)
    if null == "kurtosis":
        if wanted.entries != "normal":
            raise ParameterError("initialization", wanted.entries, "none with the null of each head's own kurtosis")
        return KurtosisNull(_gaussian_null(baseline, wanted))  # type: ignore[arg-type]  # of no latent attention
    if baseline is not None:
        raise ParameterError("baseline", baseline, f"none: the {null} null of a head is made of its own matrices")
    found = Resampler(null, draws=wanted.draws or _DRAWS_OF_A_HEAD, seed=require_seed(wanted.seed))
    wanted.progress.note(f"null of each head: {found.draws} draws from its own matrices ({null}), seed {found.seed}")
    both = " by one statistic, nor {:.2g} by all together (k heads: a k-th of it)"
    _tell_if_coarse(found, DRAWS_PER_TEST * wanted.n_heads, both, wanted)
    return found


def _orthogonal_null(null: str, baseline: xr.Dataset | Path | str | None, wanted: Wanted) -> SharedNull:
    """Of rows of orthogonal matrices: fixed where all rows are orthonormal, else drawn as what they are."""
    if null != "gaussian":
        raise ParameterError(
            "initialization", wanted.entries, f"none with the {null} null, which keeps parts of the head"
        )
    if baseline is not None:
        expected = "none: heads of orthogonal matrices have a law of their own, which no table holds"
        raise ParameterError("baseline", baseline, expected)
    if isinstance(wanted.dims, LatentShape) or len(wanted.dims) > 3:
        expected = "another: W_Q and W_K are products of matrices, whose rows are not orthonormal where these' are"
        raise ParameterError("initialization", wanted.entries, expected)
    assert wanted.stored is not None  # which is found where this initialization is asked for
    dims = wanted.dims if len(wanted.dims) == 3 else (min(wanted.dims), max(wanted.dims))
    widths = dims[::2] if len(dims) == 3 else dims[1:]
    rows, fused = wanted.stored
    if all(count <= width for count, width in zip(rows, widths, strict=True)):
        wanted.note("fixed by orthonormal rows, no draws: no statistic of the spectrum can be tested")
        return FixedSpectrum(dims)
    from rmtbase.nulls._simulated_null import cached_orthogonal_null

    draws = draws_for(wanted.n_heads) if wanted.draws is None else require_draws(wanted.draws)
    found = cached_orthogonal_null(dims, rows, fused, draws, wanted.seed, wanted.progress)
    _tell_if_coarse(found, draws_for(wanted.n_heads), "", wanted)
    return found


def _independent_null(
    baseline: xr.Dataset | Path | str | None, wanted: Wanted
) -> SharedNull | LatentNull | KurtosisNull:
    """Of independent entries: where their law is not the normal one drawn as what it is, or from a given table by κ."""
    if isinstance(wanted.dims, LatentShape) and wanted.entries != "normal":
        wanted.note("of Gaussian entries: latent attention of another initialization has no null of its own")
    if wanted.entries == "normal" or isinstance(wanted.dims, LatentShape):
        return _gaussian_null(baseline, wanted)
    if baseline is None:
        found = _simulated(wanted)
        _tell_if_coarse(found, draws_for(wanted.n_heads), "", wanted)
        return found
    found = _gaussian_null(baseline, wanted)
    assert isinstance(found, SharedNull)  # that of latent attention is not asked for here
    words = ENTRIES_IN_WORDS[wanted.entries]
    wanted.note(f"of Gaussian entries, and moved by the kurtosis of {words} ones, {KURTOSIS[wanted.entries]:.3g}")
    return KurtosisNull(found, words, KURTOSIS[wanted.entries])


def _gaussian_null(baseline: xr.Dataset | Path | str | None, wanted: Wanted) -> SharedNull | LatentNull:
    """Analytic where ``baseline`` is :data:`ANALYTIC`.

    A given table (a baseline or an atlas) that lacks the shape is left as it is, and a note says so. Then the atlas
    shipped with rmtbase serves, if it holds the shape with this seed and, where draws are asked for, at least as many.
    Else the cache, or a simulation.
    """
    if baseline is not None and not isinstance(baseline, xr.Dataset | Path | str):
        raise ParameterError("baseline", baseline, f"a baseline or atlas (a dataset or a file), or {ANALYTIC!r}")
    if isinstance(baseline, str) and baseline == ANALYTIC:
        if isinstance(wanted.dims, LatentShape):
            expected = "none: latent attention has no law where a part of its key is rotated, and is simulated"
            raise ParameterError("baseline", baseline, expected)
        analytic = AnalyticNull(dims=wanted.dims)
        wanted.note("analytic, no draws")
        if analytic.unknown:
            wanted.progress.note(f"without a law at this shape, and not scored: {', '.join(analytic.unknown)}")
        return analytic
    found = (None if baseline is None else _given(baseline, wanted)) or _from_atlas(wanted) or _simulated(wanted)
    _tell_if_coarse(found, draws_for(wanted.n_heads), "", wanted)
    return found


def _given(baseline: xr.Dataset | Path | str, wanted: Wanted) -> SharedNull | None:
    """From the table that the caller named."""
    shape = wanted.shape
    if isinstance(baseline, xr.Dataset):
        source = "the baseline dataset"
        validate(baseline, source, *_TABLES)
        found, held = _in_table(baseline, shape, source), baseline_shapes(baseline)
    else:
        source, held = str(baseline), []

        def read() -> SharedNull | None:
            table = open_table(baseline, *_TABLES)
            assert isinstance(table, xr.Dataset)  # as all but scores
            held.extend(baseline_shapes(table))
            return _in_table(table, shape, source)

        found = null_of_file(Path(baseline), shape or (), read)
    if found is None:
        there, needed = ", ".join(f"({d}, {h})" for d, h in sorted(set(held))), shape or wanted.dims
        wanted.progress.note(f"{source} holds {there} and not {needed}, which is needed: that case is taken separately")
    else:
        wanted.note(f"{found.draws} draws from {source}")
    return found


def _in_table(table: xr.Dataset, shape: tuple[int, int] | None, source: str) -> GaussianNull | AtlasNull | None:
    """The null of a shape from a baseline or an atlas that holds it."""
    if shape is None:
        return None
    of_shape = GaussianNull.from_baseline if table.attrs["kind"] == "baseline" else AtlasNull.from_atlas
    return of_shape(table, *shape, source)


def _from_atlas(wanted: Wanted) -> SharedNull | None:
    """From the atlas shipped with rmtbase."""
    shape = wanted.shape
    if shape is None:
        return None
    try:
        case = nulls.atlas_case(*shape)
        if case is None or int(case.attrs["seed"]) != wanted.seed or int(case["draws"]) < (wanted.draws or 0):
            return None
        found = AtlasNull(*shape, case)
    except TableError as error:
        from rmtbase.montecarlo import CacheWarning

        warnings.warn(f"damaged atlas, not used; install rmtbase again: {error}", CacheWarning, stacklevel=2)
        return None
    wanted.note(f"from {found.source} ({found.draws} draws)")
    return found


def _simulated(wanted: Wanted) -> SharedNull | LatentNull:
    from rmtbase.nulls._simulated_null import cached_null

    draws = wanted.draws or draws_for(wanted.n_heads)
    if isinstance(wanted.dims, LatentShape):
        wanted.note(f"{draws} draws, made at the ratios of the heads' keys, seed {wanted.seed}")
        return LatentNull(wanted.dims, draws, wanted.seed)
    return cached_null(wanted.dims, draws, wanted.seed, wanted.progress, entries=wanted.entries)


def _tell_if_coarse(null: NullModel, enough: int, tests: str, wanted: Wanted) -> None:
    """Say where no head by itself could be found; ``tests`` says by which test, and takes half that q."""
    smallest = 2 * wanted.n_heads / (null.draws + 1)
    if smallest > 0.05:
        wanted.progress.note(
            f"with {null.draws} null draws and {wanted.n_heads} heads a lone head cannot reach q below {smallest:.2g}"
            f"{tests.format(smallest / 2)}; {enough} draws would let it reach 0.05"
        )
