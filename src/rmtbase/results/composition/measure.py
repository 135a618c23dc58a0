"""Composition of all pairs of heads: how much of an earlier head's output a later head reads, against chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float64

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import read_factors
from rmtbase.heads.residual_streams import READINGS, earlier_sites, unknown_streams
from rmtbase.laws import HaarTrace
from rmtbase.linalg import available_cores, single_threaded_blas, without_noise
from rmtbase.models import WeightMatrices, require_model
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.progress import SILENT, Progress
from rmtbase.results.attributes import file_attributes, tell_of_large
from rmtbase.results.composition.schema import COMPOSITION_SCHEMA, KINDS_OF_COMPOSITION
from rmtbase.shown import shown
from rmtbase.statistics import benjamini_hochberg, benjamini_yekutieli, holm
from rmtbase.tables import CIRCUITS, describe

_HELD = 2**29  # bytes of earlier heads that are held in memory
_WRITES_NOTHING, _READS_NOTHING, _SAME = range(1, 4)  # indices of NOT_TESTABLE_PAIRS
_AT_ONCE = 2**25  # entries of one product of the directions of two sites


class _Directions(NamedTuple):
    """Singular directions on one side of a circuit, for all heads of a site."""

    vectors: Float64[np.ndarray, "head rank width"]  # unit vectors as rows; zero beyond the rank of the circuit
    share: Float64[np.ndarray, "head rank"]  # squared singular values over their sum; zeros for heads without weights


def composition(
    model: Any, kinds: Sequence[str] = tuple(KINDS_OF_COMPOSITION), progress: Progress = SILENT
) -> xr.Dataset:
    """Compare what every later head of a model reads with what every earlier head writes.

    The composition score is C = ‖A B‖_F / (‖A‖_F ‖B‖_F), with B = W_OV of the earlier head and A = W_QKᵀ (``"q"``),
    W_QK (``"k"``) or W_OV (``"v"``) of the later head. Under the null, the directions of the two heads are unrelated:
    the product is A O B with O Haar-distributed on O(d), and all singular values are kept. The mean and variance of C²
    are exact; p-values are numerical and err upwards (:class:`rmtbase.laws.HaarTrace`), and none is below 1e-16. If
    heads are independent Gaussian matrices, as at initialization, C has the same law given their singular values, so
    the p-values also hold under that null. At width 256 the level is also kept for uniform, Laplace, Rademacher,
    Student-t₅ and orthogonal matrices. If all heads read and write some coordinates of the stream more strongly than
    others, all of them compose: with a spread of 10 % in such gains, 19 % of pairs have p < 0.05.

    The overlap of the two subspaces is the mean cos² of their principal angles. It ignores the singular values:
    its law is the same, with all of them equal.

    A pair is two heads that share a residual stream, one of them in an earlier layer. In a decoder these are heads
    of its self-attention and the queries of its cross-attention; keys and values of cross-attention read what the
    encoder wrote. Matrices are raw, as in :func:`rmtbase.score`: W_QK is the content part, and gains of norms in
    between are left out unless folded in.

    Pairs that share a head are dependent, so ``q_value`` is by Benjamini and Yekutieli, over all pairs and kinds. The
    table also has q-values by Benjamini and Hochberg, and Holm's family-wise p-values.

    Each pair of layers takes one product of matrices of directions: 2 d d_head² operations for each pair of heads and
    kind. As many earlier layers are held in memory at a time as fit into half a gigabyte.

    Args:
        model: a folder, a hub id, ``"demo"``, or an opened model.
        kinds: some of ``"q"``, ``"k"``, ``"v"``.
        progress: shows the layers, and receives the notes on the model.

    Returns:
        A dataset with the dims kind, earlier and later; the last two run over all heads, labelled ``"L3H7"`` or
        ``"decoder L3H7"``. Values are NaN where the later head does not read what the earlier one wrote. The variables
        are described in ``rmtbase.results.composition.schema.COMPOSITION_SCHEMA``.

    Raises:
        ParameterError: an unknown or repeated kind, or a model in which no two heads share a stream, or whose outputs
            are not known.
        CheckpointError: the checkpoint cannot be read; its subclasses say what is wrong.

    Source: N. Elhage et al., A Mathematical Framework for Transformer Circuits (2021), for the scores.
    """
    names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not names or len(set(names)) < len(names) or not set(names) <= set(KINDS_OF_COMPOSITION):
        raise ParameterError("kinds", kinds, f"distinct ones of {', '.join(KINDS_OF_COMPOSITION)}")

    def reads(opened: WeightMatrices) -> tuple[set[str], tuple[()]]:
        _readers(opened, names)
        circuits = {"ov", *(READINGS[kind].circuit for kind in names)}
        read = {f"attention_{factor.name}" for name in circuits for factor in CIRCUITS[name].factors}
        tell_of_large(opened, read, progress, 0, np.square)
        return read, ()

    model = require_model(model, reads)
    earlier, warnings = _readers(model, names)
    for line in model.notes_now:
        progress.detail(line)
    for line in warnings:
        progress.note(line)
    pairs = _Pairs(model, names)
    with single_threaded_blas(), ThreadPoolExecutor(available_cores()) as pool:
        pairs.read(earlier, pool, progress)
        pairs.judge(earlier, progress)
    table = describe(pairs.dataset(), COMPOSITION_SCHEMA)
    call = {"function": "rmtbase.results.composition.composition", "kinds": list(names)}
    null = {"null": "random rotation of the later head against the earlier one, both spectra kept"}
    return table.assign_attrs(file_attributes("composition", model, null, model.notes, warnings, call))


def _readers(model: WeightMatrices, kinds: Sequence[str]) -> tuple[dict[tuple[int, str], list[int]], list[str]]:
    """Find the earlier sites that each site reads by each kind, with warnings."""
    earlier, lines = dict[tuple[int, str], list[int]](), list(unknown_streams(model))
    for site, kind in product(range(len(model.sites)), kinds):
        width, earlier[site, kind] = getattr(model.sites[site], READINGS[kind].width), []
        for writer in earlier_sites(model, site, kind):
            at, reader = model.sites[writer], model.sites[site].place
            if at.d_output == width:
                earlier[site, kind].append(writer)
            else:
                lines.append(f"{at.place} writes {at.d_output} numbers, of which {reader} reads {width}: no pairs")
    warnings = list(dict.fromkeys(lines))
    if not any(earlier.values()):
        fault = "; ".join(warnings) or f"{len(model.sites)} layers of attention"
        expected = "two layers whose heads share a residual stream, and whose values and outputs are known"
        raise ParameterError("model", f"{shown(model.name)}: {fault}", expected)
    return earlier, warnings


class _Pairs:
    """Variables of a model's pairs of heads while they are filled in."""

    def __init__(self, model: WeightMatrices, kinds: Sequence[str]) -> None:
        self.model, self.kinds = model, tuple(kinds)
        counts = [site.n_heads for site in model.sites]
        firsts = np.cumsum([0, *counts])
        self.heads = [slice(first, first + count) for first, count in zip(firsts, counts, strict=False)]
        self.values: dict[str, np.ndarray] = {}
        for name, variable in COMPOSITION_SCHEMA.items():
            sizes = [len(kinds) if dim == "kind" else firsts[-1] for dim in variable.dims]
            if name.endswith("not_testable"):
                self.values[name] = np.zeros(sizes, np.int8)
            elif variable.domain.kinds != "iu":  # not a coordinate
                self.values[name] = np.full(sizes, np.nan)
        self.written: dict[int, Float64[np.ndarray, "head rank"]] = {}
        self.shares: dict[tuple[int, str], Float64[np.ndarray, "head rank"]] = {}

    def read(self, earlier: Mapping[tuple[int, str], list[int]], pool: Executor, progress: Progress) -> None:
        """Fill in squared scores and sums of squared cosines of all pairs; each core takes two sites at a time."""
        blocks = list(self._blocks(sorted({writer for writers in earlier.values() for writer in writers})))
        later = sorted({site for (site, _), writers in earlier.items() if writers})
        advance = progress.bar("comparing layers", len(blocks) * len(later))
        for block in blocks:
            written = {writer: _directions(self.model, writer, "ov")[0] for writer in block}
            self.written |= {writer: directions.share for writer, directions in written.items()}
            for site in later:
                directions_of = cache(partial(_directions, self.model, site))
                meetings = []
                for kind in self.kinds:
                    if writers := [writer for writer in earlier[site, kind] if writer in written]:
                        read = directions_of(READINGS[kind].circuit)[READINGS[kind].side]
                        self.shares[site, kind] = read.share
                        meetings += [(kind, (site, read), (writer, written[writer])) for writer in writers]
                for _ in pool.map(lambda meeting: self._meet(*meeting), meetings):
                    pass
                advance(1)

    def _blocks(self, writers: Sequence[int]) -> Iterator[list[int]]:
        """Split the writing sites into blocks that fit into memory."""
        block, size = list[int](), 0
        for writer in writers:
            at = self.model.sites[writer]
            needed = 8 * at.n_heads * (at.d_value or 0) * (at.d_output or 0)
            if block and size + needed > _HELD:
                yield block
                block, size = [], 0
            block.append(writer)
            size += needed
        yield block

    def _meet(self, kind: str, later: tuple[int, _Directions], earlier: tuple[int, _Directions]) -> None:
        """Fill in Σ p_i q_j cos²_ij and Σ cos²_ij of each pair of heads, cos_ij between their directions i and j."""
        (site, reads), (writer, writes) = later, earlier
        n_earlier, rank, width = writes.vectors.shape
        written = writes.vectors.reshape(-1, width)
        step = max(1, _AT_ONCE // max(1, written.shape[0] * reads.vectors.shape[1]))
        place = self.kinds.index(kind), self.heads[writer]
        first = self.heads[site].start
        for start in range(0, len(reads.vectors), step):
            vectors, share = reads.vectors[start : start + step], reads.share[start : start + step]
            cosines = vectors.reshape(-1, width) @ written.T
            squares = np.square(cosines, out=cosines).reshape(*vectors.shape[:2], n_earlier * rank)
            both = np.stack([share, np.ones_like(share)], axis=1) @ squares
            by_head = both.reshape(len(vectors), 2, n_earlier, rank)
            heads = slice(first + start, first + start + len(vectors))
            self.values["score"][(*place, heads)] = np.einsum("aej,ej->ea", by_head[:, 0], writes.share)
            self.values["overlap"][(*place, heads)] = by_head[:, 1].sum(axis=-1).T

    def judge(self, earlier: Mapping[tuple[int, str], list[int]], progress: Progress) -> None:
        """Turn the sums into scores and overlaps with p-values, then all p-values into q-values."""
        advance = progress.bar("p-values", len(self.shares))
        for (site, kind), share in self.shares.items():
            width = getattr(self.model.sites[site], READINGS[kind].width)
            at = self.kinds.index(kind)
            self.values["effective_rank_read"][at, self.heads[site]] = _participation(share)
            for writer in earlier[site, kind]:
                place = at, self.heads[writer], self.heads[site]
                self._judge(place, "score", HaarTrace(self.written[writer], share, width))
                written, read = ((spectrum > 0.0).astype(float) for spectrum in (self.written[writer], share))
                smaller = np.minimum.outer(written.sum(axis=1), read.sum(axis=1))
                self._judge(place, "overlap", HaarTrace(written, read, width), smaller)
            advance(1)
        for writer, share in self.written.items():
            self.values["effective_rank_written"][self.heads[writer]] = _participation(share)
        for name, adjusted, p in (
            ("q_value", benjamini_yekutieli, "p_value"),
            ("q_value_independent", benjamini_hochberg, "p_value"),
            ("holm_p_value", holm, "p_value"),
            ("q_value_below", benjamini_yekutieli, "p_value_below"),
            ("overlap_q_value", benjamini_yekutieli, "overlap_p_value"),
        ):
            self.values[name] = adjusted(self.values[p])

    def _judge(
        self, place: tuple[int, slice, slice], name: str, law: HaarTrace, smaller: np.ndarray | None = None
    ) -> None:
        """Turn the sums of ``law`` into scores, or overlaps of subspaces of which ``smaller`` is the size, and test."""
        sums, start = self.values[name][place], "" if smaller is None else "overlap_"
        with np.errstate(divide="ignore", invalid="ignore"):
            values_of = {
                name: np.sqrt(sums) if smaller is None else sums / smaller,
                f"expected_{name}": np.sqrt(law.mean()) if smaller is None else law.mean() / smaller,
                f"{start}z_score": np.where(law.std() > 0.0, (sums - law.mean()) / law.std(), np.nan),
                f"{start}p_value": np.maximum(law.sf(sums), SMALLEST_P_VALUE),
            }
        if smaller is None:
            values_of["p_value_below"] = np.maximum(law.cdf(sums), SMALLEST_P_VALUE)
        writes, reads = np.any(law.first, axis=1, keepdims=True), np.any(law.second, axis=1)  # heads with weights
        for variable, values in values_of.items():
            self.values[variable][place] = np.where(writes & reads, values, np.nan)
        reason = np.where(writes, np.where(reads, _SAME, _READS_NOTHING), _WRITES_NOTHING)
        missing = np.isnan(self.values[f"{start}p_value"][place])
        self.values[f"{start}not_testable"][place] = np.where(missing, reason, 0)

    def dataset(self) -> xr.Dataset:
        """Make a dataset of all variables, labelled by the names of heads as in TransformerLens, after their stack."""
        heads = [(site.place, head) for site in self.model.sites for head in range(site.n_heads)]
        coords: dict[str, object] = {"kind": list(self.kinds)}
        for dim in ("earlier", "later"):
            coords[dim] = [f"{place.stack} L{place.layer}H{head}".lstrip() for place, head in heads]
            coords[f"{dim}_layer"] = dim, [place.layer for place, _ in heads]
            coords[f"{dim}_head"] = dim, [head for _, head in heads]
            if any(place.stack for place, _ in heads):
                coords[f"{dim}_stack"] = dim, [place.stack for place, _ in heads]
        variables = {name: (COMPOSITION_SCHEMA[name].dims, values) for name, values in self.values.items()}
        return xr.Dataset(variables, coords)


def _participation(share: Float64[np.ndarray, "head rank"]) -> Float64[np.ndarray, " head"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(share.any(axis=1), 1.0 / (share**2).sum(axis=1), np.nan)


def _directions(model: WeightMatrices, site: int, circuit: str) -> tuple[_Directions, _Directions]:
    """Compute left and right singular directions of a circuit, for all heads of a site, from thin factorisations.

    With Aᵀ = O_A R_A and Bᵀ = O_B R_B, AᵀB = O_A (R_A R_Bᵀ) O_Bᵀ, and O_A and O_B rotate the singular vectors of the
    small core.
    """
    factored, layer, factors = CIRCUITS[circuit], model.layers.index(model.sites[site].place), []
    for factor, weights in zip(factored.factors, read_factors(model, site, factored), strict=True):
        w = np.swapaxes(weights.astype(np.float64), 1, 2)
        largest = np.abs(w).max(axis=(1, 2), keepdims=True)
        w = w / np.where(largest > 0.0, largest, 1.0)
        present = np.sqrt(np.mean(np.square(w), axis=(1, 2))) * largest[:, 0, 0]
        o, r = np.linalg.qr(w)  # R is zero where W is no more than rounding
        least = model.least_sigma(layer, f"attention_{factor.name}")
        factors.append((o, np.where((present > least)[:, None, None], r, 0.0)))
    (left_basis, left_r), (right_basis, right_r) = factors
    repeats = len(left_r) // len(right_r)  # several heads may read one key head
    right_basis, right_r = (np.repeat(matrix, repeats, axis=0) for matrix in (right_basis, right_r))
    u, s, vh = np.linalg.svd(left_r @ np.swapaxes(right_r, 1, 2), full_matrices=False)
    s = without_noise(s)
    nonzero = (s > 0.0)[..., None]
    with np.errstate(invalid="ignore"):
        share = np.nan_to_num(s**2 / (s**2).sum(axis=1, keepdims=True))
    turned = np.swapaxes(u, 1, 2) @ np.swapaxes(left_basis, 1, 2), vh @ np.swapaxes(right_basis, 1, 2)
    first, second = (_Directions(np.where(nonzero, vectors, 0.0), share) for vectors in turned)
    return first, second
