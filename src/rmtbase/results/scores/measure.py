"""Scoring a model: every head's W_QK, and every weight matrix, against what learned nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.models import ArrayModel, Model, WeightMatrices, open_model
from rmtbase.nulls import OF_A_TABLE, require_null_name
from rmtbase.parameters import require_flag, require_independent_entries
from rmtbase.progress import SILENT, Progress
from rmtbase.results.scores._head_elements import ElementMode, ElementOptions
from rmtbase.results.scores._matrices import MATRIX_MODES
from rmtbase.results.scores._read_matrices import LAYERS, require_components
from rmtbase.results.scores._scores_tree import scores_tree
from rmtbase.results.scores._why import require_tests, with_why

if TYPE_CHECKING:
    import torch

MatrixMode = Literal["none", "elements", "spectra"]


def score(
    model: WeightMatrices | Path | str | Mapping[str, Any] | torch.nn.Module,
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    revision: str | None = None,
    matrices: MatrixMode = "elements",
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
    *,
    circuits: Sequence[str] = ("qk",),
    components: Sequence[str] = (LAYERS,),
    elements: ElementMode = "matrices",
    initialization: str = "normal",
    family: str | None = None,
    config: Any = None,
    name: str | None = None,
    fold: Iterable[str] | str = (),
    proof: bool = True,
    why: Sequence[str] | str = (),
) -> xr.DataTree:
    """Score every head and weight matrix of a checkpoint against the null. One matrix at a time is in memory.

    The Gaussian null is that of normal initialisation, unless ``initialization`` names another.

    Args:
        model: a folder, a hub id, the name of a known model (``"pythia-70m"``), ``"demo"`` for the bundled model, a
            module of transformers, a state dict with its ``family`` and ``config``, or an opened model; see
            :func:`rmtbase.models.open_model`. The heads of any other model go into :func:`score_heads`.
        baseline: a baseline table to take the null from; without one, or where it lacks the model's shape, the null is
            simulated or taken from the cache. ``"analytic"``: from the laws, without draws, for d_head ≥ 8
            (:class:`rmtbase.nulls.AnalyticNull`); spectra of whole matrices are still compared with simulated ones.
        null: ``"gaussian"`` or ``"kurtosis"``; or ``"signs"`` or ``"axes"``, each head against a null of its own; see
            :func:`score_heads`. Whole matrices are compared with Gaussian ones whichever it is.
        revision: of the hub id or the bundled model; of a model in memory what it shall be called by.
        matrices: what to do with whole weight matrices: ``"none"``, ``"elements"`` (the statistics of
            ``rmtbase.statistics.ELEMENT_STATISTICS``, histograms and super-weights), or ``"spectra"`` (also the
            spectrum against Marchenko–Pastur: a full SVD of each).
        draws: null draws, at least; see :func:`score_heads`.
        seed: of the null draws.
        progress: shows the layers read and the draws of a null that is simulated, and is told where the null came from
            and what was recorded about the model.
        circuits: what to score of each head: ``"qk"``, W_QK = W_QᵀW_K, which always is; ``"ov"``, W_OV = W_OᵀW_V with
            W_O (d_value, d_output) the head's own part, what it writes of what it reads; ``"query"``, ``"key"``,
            ``"value"``, ``"output"``, each of its matrices by itself, of keys and values one for each key head.
        components: which whole matrices, where some are wanted: ``"layers"``, those of attention, MLPs, shared experts
            and routers; ``"embeddings"``, W_E, W_pos and W_U, in ``/matrices`` at layer -1, an unembedding that is the
            embedding once; ``"experts"``, those of each expert of a mixture, in ``/experts``; ``"all"`` that there are.
            Experts are most of a mixture's weights, and embeddings the largest of its matrices: each takes its time.
        elements: of which matrices the elements are scored: ``"matrices"``, of whole ones, as far as ``matrices`` says;
            ``"factors"``, also of each head's W_Q, W_K, W_V and W_O, in ``/heads/elements``; ``"heads"``, also of each
            W_QK, d_query · d_key of them, made in blocks of rows: some ten minutes for a thousand heads of width 4096.
        initialization: the law of the elements of untrained matrices: ``"normal"``, ``"uniform"``, or
            ``"truncated_normal"``, cut at two standard deviations (``trunc_normal_`` of torch and transformers cuts at
            -2 and 2 instead, and with std 0.02 its elements are normal), or ``"orthogonal"`` for orthonormal rows or
            columns; see :func:`score_heads`.
        family: of a model in memory, how its tensors are laid out: ``"gpt2"``, say. A module of transformers says so.
        config: of a model in memory, its number of heads: ``{"n_head": 12}``. A module of transformers says so.
        name: what to call a model in memory.
        fold: what to fold into queries, keys and values of a model that is opened here: some of ``"biases"`` and
            ``"norms"``.
        proof: whether to prove first that the heads are read rightly, where torch and transformers are installed: q·k
            of the model's own forward pass, with its weights and fresh noise, is xᵀ W_QK x′, to rounding. A note says
            so, or why not. ``RMTBASE_PROOF=0`` in the environment turns it off, too.
        why: which questions to ask about the cause of a difference, in the group ``/why``: some of
            :data:`rmtbase.results.scores.QUESTIONS` (``"spectrum"``, ``"entries"``, ``"directions"``, ``"relation"``),
            or ``"all"``, with the same ``draws`` and ``seed``.

    What the raw matrices lack is folded in by ``open_model(…).fold(("biases", "norms"))``, which is a model to score.

    Returns:
        The tree of a scores file: ``/heads``, ``/matrices`` with ``/super_weights``, and ``/null``; see
        ``rmtbase.results.scores.schema.SCORES_SCHEMA``. Queries, keys and values that are one stored tensor are scored
        as such beside their parts. Every further circuit is a group of the same kind, ``/circuits/ov`` say, which
        ``rmtbase.results.scores.circuit_scores`` gives by itself. The dimension ``layer`` of heads is over the layers
        with attention, that of matrices over all.

    Raises:
        ParameterError: a model in memory of no family, an unknown null, mode or revision, d_head < 8 with the analytic
            null, or a baseline for a null made of a head's own matrices.
        CheckpointError: the checkpoint cannot be read as it stands (its subclasses say what is wrong), or a head's
            weights are so small or so large that the squares of its eigenvalues leave float64, or its q·k is not what
            is read of it.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    _require_modes(null, matrices)
    of_heads = ElementOptions.of(elements, initialization)
    if isinstance(model, Model) or not isinstance(model, WeightMatrices):
        model = open_model(model, revision, family=family, config=config, name=name, fold=fold)
        model = model.prove() if require_flag("proof", proof) else model
    wanted, tests = require_components(model, components, matrices != "none"), require_tests(why)
    tree = scores_tree(
        model, "rmtbase.score", baseline, null, matrices, circuits, wanted, of_heads, draws, seed, progress
    )
    return _with_why(tree, model, tests, baseline, null, of_heads, draws, seed, progress)


def score_heads(
    w_q: ArrayLike | Iterable[Any],
    w_k: ArrayLike | Iterable[Any],
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
    *,
    model: str = "arrays",
    revision: str | None = None,
    matrices: MatrixMode = "none",
    circuits: Sequence[str] = ("qk",),
    elements: ElementMode = "matrices",
    initialization: str = "normal",
    why: Sequence[str] | str = (),
) -> xr.DataTree:
    """Score heads given as arrays against the null of their shape, as :func:`score` does those of a checkpoint.

    Arrays are taken as they are: of NumPy, of torch (parameters, of any device and of half precision, too) or of JAX.
    One layer at a time is held in float64. Fused weights are cut by :func:`rmtbase.models.split_qkv`.

    The p-values are calibrated for the ``initialization`` that is named, and for normal entries if none is. Independent
    entries of another law with excess kurtosis κ move sums over the spectrum by an amount of the order of their spread
    at any size, the log-determinant by -κ/√2 standard deviations: of untrained heads of uniform entries (κ = -1.2, as
    by ``torch.nn.Linear``) at (768, 64) 13 % have p < 0.05 by the log-determinant against the null of normal ones,
    measured in studies/calibration. Nor is it the null of heads whose factors are products with a shared matrix, as in
    multi-head latent attention: all are flagged.

    p-values of heads of one shape are read off one sample; from the shipped atlas they take some 270 values, valid and
    right in size but not uniform (:class:`rmtbase.nulls.AtlasNull`).

    Args:
        w_q: query factors, so that q = W_Q x: (head, d_head, d_model) for one layer, (layer, head, d_head, d_model), or
            one array (head, d_head, d_model) for each layer: a list, a ``torch.nn.ParameterList``, a generator.
        w_k: key factors, given in the same way, (key_head, d_head, d_model) for a layer. Fewer key heads than heads
            means grouped queries: query head i reads key head i // (heads / key heads).
        baseline: a baseline table or an atlas (a dataset or file) to take the null from. Where it lacks the shape, and
            where there is none, the null is that of the shipped atlas, or of the cache, or simulated. ``"analytic"``:
            from the laws, without draws, for d_head ≥ 8 (:class:`rmtbase.nulls.AnalyticNull`).
        null: ``"gaussian"``: factors of i.i.d. entries, Gaussian unless ``initialization`` says otherwise, every draw
            at its own estimate of σ, as the head is. ``"kurtosis"``: of i.i.d. entries of any law with the excess
            kurtosis that the head's own have, to first order in it; heads whose kurtosis is outside the range where the
            level holds (:func:`rmtbase.nulls.kurtosis_range`, at most 1) have no scores; ``"signs"`` is exact
            for those. Or each head against its own: ``"signs"``, every element of W_Q and W_K with a random sign
            (exact for independent elements symmetric about 0, of any law, with any gains of rows and columns);
            ``"axes"``, W_Qᵀ P W_K with P a random signed permutation of the head axes (keeps W_Q and W_K, and asks
            whether they are related; exact where the rows of one are exchangeable, whatever their gains). ``baseline``
            is for the first two only.
        draws: null draws, at least: those of the shipped atlas if it holds so many of the shape with this seed, or else
            simulated. If None all of the atlas; for a shape that it lacks ``max(10 000, 50 · heads)``, so that one head
            alone can reach q < 0.05; 1000 of each head where each has a null of its own.
        seed: of the null draws.
        progress: shows the layers read and the draws of a null that is simulated, and is told where the null came from
            and what was recorded.
        model: what the scores and their report call the model.
        revision: of the model, if it has one.
        matrices: as in :func:`score`, of all queries and all keys of a layer as one matrix each.
        circuits: as in :func:`score`, of those that queries and keys make.
        elements: as in :func:`score`.
        initialization: as in :func:`score`. Heads are then drawn with such entries, which takes some 10 ms a draw at
            (768, 64); with a ``baseline``, or ``"analytic"``, its draws or laws are moved by the entries' kurtosis to
            first order (:func:`rmtbase.laws.eigenvalue_displacement`). ``"orthogonal"``: the heads of a layer fill a
            stored matrix of orthonormal rows, or where it has more rows than columns of orthonormal columns, as
            ``torch.nn.init.orthogonal_`` draws it (:func:`rmtbase.ensembles.orthogonal_blocks`). Orthonormal rows of
            W_Q and of W_K fix the spectrum of W_QK: then nothing of it can be tested, and ``warnings`` say so;
            heads with another spectrum are rejected.
        why: as in :func:`score`.

    Returns:
        The tree of a scores file, as :func:`score` gives it: ``tree["heads"]`` has dims layer, head, statistic,
        probability, index, and q-values over the heads of all layers. ``observed`` is of the raw product; the null is
        brought to each head's own σ.

    Raises:
        ParameterError: wrong shapes, a value that is not finite, a factor that is zero, factors so small or so large
            that the squares of their eigenvalues leave float64, an unknown null, d_head = 1 (whose only statistic is
            its scale), d_head < 8 with the analytic null, or a baseline for a null made of a head's own matrices.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    _require_modes(null, matrices)
    of_heads = ElementOptions.of(elements, initialization)
    arrays = ArrayModel.of(w_q, w_k, model, revision)
    wanted, tests = () if matrices == "none" else (LAYERS,), require_tests(why)
    tree = scores_tree(
        arrays, "rmtbase.score_heads", baseline, null, matrices, circuits, wanted, of_heads, draws, seed, progress
    )
    return _with_why(tree, arrays, tests, baseline, null, of_heads, draws, seed, progress)


def _with_why(
    tree: xr.DataTree,
    model: WeightMatrices,
    tests: Sequence[str],
    baseline: xr.Dataset | Path | str | None,
    null: str,
    elements: ElementOptions,
    draws: int | None,
    seed: int,
    progress: Progress,
) -> xr.DataTree:
    """The scores with the group ``/why``, where tests are asked for."""
    if tests:
        require_independent_entries(elements.initialization, "why")

    def scores_by(name: str, told: Progress) -> xr.DataTree:
        table = baseline if null in OF_A_TABLE else None
        return scores_tree(model, "why", table, name, "none", ("qk",), (), elements, draws, seed, told)

    entries = elements.initialization
    return with_why(tree, null, model, tests, scores_by, entries, draws, seed, progress) if tests else tree


def _require_modes(null: str, matrices: str) -> None:
    require_null_name(null)
    if matrices not in MATRIX_MODES:
        raise ParameterError("matrices", matrices, f"one of {', '.join(MATRIX_MODES)}")
