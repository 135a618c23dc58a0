"""Scoring a model: every head's W_QK, and every weight matrix, against what learned nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.linalg import available_cores, single_threaded_blas
from rmtbase.models import ArrayModel, Model, WeightMatrices, open_model
from rmtbase.nulls import Heads, NullModel
from rmtbase.progress import SILENT, Progress
from rmtbase.scoring._find_null import Wanted, find_null, require_null_name
from rmtbase.scoring._heads import IN_RANGE, first_out_of_range, heads_dataset
from rmtbase.scoring._matrices import MATRIX_MODES, MatrixScorer
from rmtbase.scoring._spectra import Side, Spectra, product_spectra
from rmtbase.shown import shown
from rmtbase.tables import SCHEMA_VERSION, provenance, software_version

if TYPE_CHECKING:
    import torch

MatrixMode = Literal["none", "elements", "spectra"]


def score(
    model: Model | Path | str | Mapping[str, Any] | torch.nn.Module,
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    revision: str | None = None,
    matrices: MatrixMode = "elements",
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
    *,
    family: str | None = None,
    config: Any = None,
    name: str | None = None,
) -> xr.DataTree:
    """Score every head and weight matrix of a checkpoint against the null. One matrix at a time is in memory.

    The Gaussian null is that of normal initialisation: see :func:`score_heads` for what it does to other ones.

    Args:
        model: a folder, a hub id, the name of a known model (``"pythia-70m"``), ``"demo"`` for the bundled model, a
            module of transformers, a state dict with its ``family`` and ``config``, or an opened model; see
            :func:`rmtbase.models.open_model`. The heads of any other model go into :func:`score_heads`.
        baseline: a baseline table to take the null from; without one, or where it lacks the model's shape, the null is
            simulated or taken from the cache. ``"analytic"``: from the laws, without draws, for d_head ≥ 8
            (:class:`rmtbase.nulls.AnalyticNull`); spectra of whole matrices are still compared with simulated ones.
        null: ``"gaussian"``, or ``"permutation"`` or ``"haar"``, each head against a null of its own; see
            :func:`score_heads`. Whole matrices are compared with Gaussian ones whichever it is.
        revision: of the hub id or the bundled model; of a model in memory what it shall be called by.
        matrices: what to do with whole weight matrices: ``"none"``, ``"elements"`` (element-wise moments), or
            ``"spectra"`` (also the spectrum against Marchenko–Pastur: a full SVD of each).
        draws: null draws, at least; see :func:`score_heads`.
        seed: of the null draws.
        progress: shows the layers read and the draws of a null that is simulated, and is told where the null came from
            and what was recorded about the model.
        family: of a model in memory, how its tensors are laid out: ``"gpt2"``, say. A module of transformers says so.
        config: of a model in memory, its number of heads: ``{"n_head": 12}``. A module of transformers says so.
        name: what to call a model in memory.

    Returns:
        The tree of a scores file: ``/heads``, ``/matrices`` and ``/null``; see ``rmtbase.tables.SCORES_SCHEMA``.

    Raises:
        ParameterError: a model in memory of no family, an unknown null, mode or revision, d_head < 8 with the analytic
            null, or a baseline for a null made of a head's own matrices.
        CheckpointError: the checkpoint cannot be read as it stands (its subclasses say what is wrong), or a head's
            weights are so small or so large that the squares of its eigenvalues leave float64.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    _require_modes(null, matrices)
    opened = open_model(model, revision, family=family, config=config, name=name)
    return _scores_tree(opened, "rmtbase.score", baseline, null, matrices, draws, seed, progress)


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
) -> xr.DataTree:
    """Score heads given as arrays against the null of their shape, as :func:`score` does those of a checkpoint.

    Arrays are taken as they are: of NumPy, of torch (parameters, of any device and of half precision, too) or of JAX.
    One layer at a time is held in float64. Fused weights are cut by :func:`rmtbase.models.split_qkv`.

    The p-values are calibrated for normal initialisation. Independent entries of another law with excess kurtosis κ₄
    move sums over the spectrum by an amount of the order of their spread at any size, the log-determinant by -κ₄/√2
    standard deviations: of untrained heads of uniform entries (κ₄ = -1.2, as by ``torch.nn.Linear``) at (768, 64) 13 %
    have p < 0.05 by the log-determinant and 8 % by the omnibus test, measured in studies/calibration. Nor is it the
    null of heads whose factors are products with a shared matrix, as in multi-head latent attention: all are flagged.

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
        null: ``"gaussian"``: i.i.d. Gaussian factors, every draw at its own estimate of σ, as the head is. Or each head
            against its own: ``"permutation"``, the elements of W_Q and of W_K in random order (keeps their
            distribution, heavy tails too); ``"haar"``, W_Qᵀ O W_K with O a random rotation of the head's space (keeps
            the singular values of W_Q and W_K, and asks whether they are aligned). These take no ``baseline``.
        draws: null draws, at least: those of the shipped atlas if it holds so many of the shape with this seed, or else
            simulated. If None all of the atlas; for a shape that it lacks ``max(10 000, 50 · heads)``, so that one head
            alone can reach q < 0.05; 1000 of each head where each has a null of its own.
        seed: of the null draws.
        progress: shows the layers read and the draws of a null that is simulated, and is told where the null came from
            and what was recorded.
        model: what the scores and their report call the model.
        revision: of the model, if it has one.
        matrices: as in :func:`score`, of all queries and all keys of a layer as one matrix each.

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
    arrays = ArrayModel.of(w_q, w_k, model, revision)
    return _scores_tree(arrays, "rmtbase.score_heads", baseline, null, matrices, draws, seed, progress)


def _require_modes(null: str, matrices: str) -> None:
    require_null_name(null)
    if matrices not in MATRIX_MODES:
        raise ParameterError("matrices", matrices, f"one of {', '.join(MATRIX_MODES)}")


def _scores_tree(
    model: WeightMatrices,
    function: str,
    baseline: xr.Dataset | Path | str | None,
    null: str,
    matrices: str,
    draws: int | None,
    seed: int,
    progress: Progress,
) -> xr.DataTree:
    """The scores of a model; ``function`` is the call that provenance names."""
    n_heads = model.n_layers * model.n_heads
    found = find_null(null, baseline, Wanted(model.d_model, model.d_head, n_heads, draws, seed, progress))
    scorer = None if matrices == "none" else MatrixScorer(model.components, model.n_layers, matrices == "spectra", seed)
    with single_threaded_blas():  # with more the last bits would be those of the machine's cores
        heads, ways = _read_heads(model, scorer, progress)
        constant = scorer.constant if scorer is not None else []
        warnings = [*model.warnings, *_zero_heads(heads), *constant]
        for line in (*model.notes, *warnings):
            progress.note(line)
        scores, null_group = found.score_heads(heads, progress)
    key_head = np.array([model.key_head(head) for head in range(model.n_heads)])
    groups = {"/heads": heads_dataset(scores, heads, key_head), "/null": null_group()}
    if scorer is not None:
        groups["/matrices"] = scorer.dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = _attributes(model, function, found, matrices, warnings, ways)
    return tree


def _read_heads(model: WeightMatrices, scorer: MatrixScorer | None, progress: Progress) -> tuple[Heads, dict[str, int]]:
    """The spectra of all heads, and the scores of all matrices, layer by layer in one pass through the checkpoint.

    And how many factors were factorised in which way.
    """
    advance = progress.bar("reading layers", model.n_layers)
    layers = []
    with ThreadPoolExecutor(available_cores()) as pool:
        warned = pool.submit(lambda: model.warnings)  # kept by the model: its digests are made meanwhile
        for layer, read in enumerate(product_spectra(map(partial(_sides, model), range(model.n_layers)), pool)):
            _require_range(model, layer, read)
            layers.append(read)
            if scorer is not None:
                for component in model.components:
                    scorer.add(layer, component, model.matrix(layer, component))
            advance(1)
        warned.result()
    *each, orthogonal = zip(*layers, strict=True)
    values, sigma_q, sigma_k = map(np.stack, each)
    flags = np.concatenate([one for both in orthogonal for one in both])
    ways = {"gram_matrix": int((~flags).sum()), "orthogonal": int(flags.sum())}
    return Heads(values, sigma_q, sigma_k, lambda layer: (model.queries(layer), model.keys(layer))), ways


def _sides(model: WeightMatrices, layer: int) -> tuple[Side, Side]:
    return (
        Side(partial(model.queries, layer), model.least_sigma(layer, "attention_query")),
        Side(partial(model.keys, layer), model.least_sigma(layer, "attention_key")),
    )


def _require_range(model: WeightMatrices, layer: int, read: Spectra) -> None:
    """Heads of zeros have no scale: they are recorded, and not scored."""
    present = model.heads_have_weights or (read.sigma_left > 0) & (read.sigma_right > 0)
    beyond = first_out_of_range(read.sigma_left, read.sigma_right, model.d_head * model.d_model, present)
    if beyond is not None:
        (head,), norms = beyond
        raise model.refused(layer, head, norms, IN_RANGE)


def _zero_heads(heads: Heads) -> list[str]:
    return [
        f"layer {layer} head {head}: {which} is zeros, or rounding to them, so the head has no shape and is not scored"
        for which, sigma in (("W_Q", heads.sigma_q), ("W_K", heads.sigma_k))
        for layer, head in zip(*np.nonzero(sigma == 0), strict=True)
    ]


def _attributes(
    model: WeightMatrices, function: str, null: NullModel, matrices: str, warnings: list[str], ways: dict[str, int]
) -> dict[str, object]:
    call = {
        "function": function,
        "model": model.name,
        "revision": model.revision,
        "matrices": matrices,
        "null_draws": null.draws,
        "null_source": null.source,
    }
    weights = {"architecture": model.architecture, "query_key_sha256": model.fingerprint(), "factorised": ways}
    return {
        "schema_version": SCHEMA_VERSION,
        "rmtbase_version": software_version(),
        "kind": "scores",
        "model": shown(model.name),  # netCDF holds no text that is not UTF-8
        "revision": shown(model.revision or ""),
        "family": shown(model.architecture),
        "null": null.description,
        "null_method": null.method,
        "table": shown(null.source),
        "normalization": "none",
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "n_key_heads": model.n_key_heads,
        "d_model": model.d_model,
        "d_head": model.d_head,
        "null_draws": null.draws,
        "p_value_floor": null.p_value_floor,
        "edge_level": null.edge_level,
        "notes": json.dumps(model.notes),
        "warnings": json.dumps(warnings),
        "provenance": provenance(call, weights=weights, null=null.record()),
    }
