"""Scoring of every head's W_QK and every weight matrix of a model against a null."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import xarray as xr
from numpy.typing import ArrayLike

from rmtbase.models import ArrayModel, require_model
from rmtbase.nulls import Null, find_null
from rmtbase.progress import SILENT, Progress
from rmtbase.results.scores._element_scores import ElementMode
from rmtbase.results.scores._matrices import LAYERS
from rmtbase.results.scores._scores_tree import Scope, scores_tree
from rmtbase.results.scores._why import require_tests, with_why

MatrixMode = Literal["none", "elements", "spectra"]


def score(
    model: Any,
    null: Null | str = "gaussian",
    *,
    circuits: Sequence[str] = ("qk",),
    matrices: MatrixMode = "elements",
    components: Sequence[str] = (LAYERS,),
    elements: ElementMode = "matrices",
    why: Sequence[str] | str = (),
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score every head and weight matrix of a checkpoint against a null, with one matrix at a time in memory.

    Args:
        model: an opened model, or whatever :func:`rmtbase.open_model` opens without options: a folder, a hub id, the
            name of a known model (``"pythia-70m"``), ``"demo"``, a module of transformers. Before scoring, q·k from the
            model's own forward pass is compared with q·k computed from the weights read, unless the model was opened
            with ``proof=False``.
        null: an object of :mod:`rmtbase.nulls`, or its name: ``"gaussian"`` and ``"analytic"``, independent Gaussian
            entries, simulated or by analytic laws; ``"kurtosis"``, independent entries with each head's own kurtosis;
            ``"signs"`` and ``"axes"``, draws made from each head's own matrices. Whole matrices are always compared
            with matrices of the null's ``initialization``.
        circuits: products and factors of each head to score. ``"qk"``, W_QK = W_QᵀW_K, is always scored.
            ``"ov"`` is W_OV = W_OᵀW_V, where W_O (d_value, d_output) is the head's own part; ``"query"``, ``"key"``,
            ``"value"`` and ``"output"`` are its single matrices, with keys and values once for each key head.
        matrices: what to do with whole weight matrices. ``"none"``: leave them out; ``"elements"``: score statistics of
            their elements (``rmtbase.statistics.ELEMENT_STATISTICS``), with histograms and the largest elements;
            ``"spectra"``: also compare their spectra with Marchenko–Pastur, which takes a full SVD of each matrix.
        components: the whole matrices to score: ``"layers"``, matrices of attention, MLPs, shared experts and routers;
            ``"embeddings"``, W_E, W_pos and W_U, in ``/matrices`` at layer -1 (an unembedding tied to the embedding is
            scored once); ``"experts"``, matrices of each expert of a mixture, in ``/experts``; or ``"all"``.
            Embeddings and experts are large and take longer.
        elements: elements to score: ``"matrices"``, only elements of whole matrices; ``"factors"``, also elements of
            each head's W_Q, W_K, W_V and W_O, in ``/heads/elements``; ``"heads"``, also the d_query · d_key elements of
            each W_QK, which takes about ten minutes for a thousand heads of width 4096.
        why: questions to ask about the cause of a difference, in the group ``/why``: some of ``"spectrum"``,
            ``"entries"``, ``"directions"`` and ``"relation"``, or ``"all"``.
        progress: shows the layers read and the draws of a null, and receives notes on the source of the null and on the
            model.

    Returns:
        The tree of a scores file: ``/heads``, ``/matrices`` with ``/super_weights``, and ``/null``; see
        ``rmtbase.results.scores.schema.SCORES``. Each further circuit is a group of the same kind,
        such as ``/circuits/ov``, which ``rmtbase.results.scores.circuit_scores`` returns by itself. The dimension
        ``layer`` of heads runs over layers with attention; for matrices it runs over all layers.

    Raises:
        ParameterError: an unknown null or mode, or a null that does not apply to the model's heads.
        CheckpointError: the checkpoint cannot be read, a head's weights are so small or so large that the squares of
            its eigenvalues leave float64, or q·k of the forward pass differs from q·k computed from the weights read.
        TableError, MissingFileError: a table of the null cannot be read.
    """
    null = find_null(null)
    tests = require_tests(why, null)
    scope = Scope(null, matrices, circuits, components, elements)
    opened = require_model(model, scope.reads(progress))
    tree = scores_tree(opened, "rmtbase.score", scope, progress)
    return with_why(tree, opened, null, tests, progress) if tests else tree


def score_heads(
    w_q: ArrayLike | Iterable[Any],
    w_k: ArrayLike | Iterable[Any],
    null: Null | str = "gaussian",
    *,
    model: str = "arrays",
    revision: str | None = None,
    circuits: Sequence[str] = ("qk",),
    matrices: MatrixMode = "none",
    elements: ElementMode = "matrices",
    why: Sequence[str] | str = (),
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score heads given as arrays against the null of their shape, as :func:`score` does for a checkpoint.

    The arrays may come from NumPy, JAX or torch (also parameters, on any device, in half precision). One layer at a
    time is held in float64. :func:`rmtbase.models.split_qkv` splits fused weights.

    The p-values are calibrated for the null's ``initialization``. Independent entries of another law, with excess
    kurtosis κ, shift sums over the spectrum by about as much as their spread at any size, and the log-determinant by
    -κ/√2 standard deviations. For example, 13 % of untrained heads with uniform entries (κ = -1.2, as in
    ``torch.nn.Linear``) at (768, 64) have p < 0.05 by the log-determinant against the null of normal entries, measured
    in studies/calibration. That null also rejects all heads whose factors are products with a shared matrix, as in
    multi-head latent attention.

    The p-values of all heads of one shape come from the same sample. With the shipped atlas they are valid and of the
    right size, but take only about 270 different values, so they are not uniform.

    Args:
        w_q: query factors, so that q = W_Q x: (head, d_head, d_model) for one layer, (layer, head, d_head, d_model), or
            one array (head, d_head, d_model) for each layer: a list, a ``torch.nn.ParameterList``, a generator.
        w_k: key factors, given in the same way, (key_head, d_head, d_model) for a layer. With fewer key heads than
            heads (grouped queries), query head i reads key head i // (heads / key heads).
        null: as in :func:`score`. With orthogonal initialization the heads of a layer fill a stored matrix of
            orthonormal rows, or of orthonormal columns where it has more rows than columns, as
            ``torch.nn.init.orthogonal_`` draws it. Orthonormal rows of W_Q and of W_K fix the spectrum of W_QK. Such a
            spectrum has no p-values, as ``warnings`` then say; any other spectrum gets the smallest p-value.
        model: name of the model in the scores and their report.
        revision: revision of the model, if it has one.
        circuits: as in :func:`score`, but only circuits of queries and keys.
        matrices: as in :func:`score`; all queries of a layer are one matrix, and all keys another.
        elements: as in :func:`score`.
        why: as in :func:`score`.
        progress: as in :func:`score`.

    Returns:
        The tree of a scores file, as from :func:`score`: ``tree["heads"]`` has dims layer, head, statistic,
        probability, index, and q-values over the heads of all layers. ``observed`` belongs to the raw product; the null
        is rescaled to each head's own σ.

    Raises:
        ParameterError: wrong shapes, a value that is not finite, a factor that is zero, factors so small or so large
            that the squares of their eigenvalues leave float64, an unknown null, d_head = 1 (whose only statistic is
            its scale), or d_head < 8 with the analytic null.
        TableError, MissingFileError: a table of the null cannot be read.
    """
    null = find_null(null)
    scope = Scope(null, matrices, circuits, elements=elements)
    tests = require_tests(why, null)
    arrays = ArrayModel.from_factors(w_q, w_k, model, revision)
    tree = scores_tree(arrays, "rmtbase.score_heads", scope, progress)
    return with_why(tree, arrays, null, tests, progress) if tests else tree
