"""Scoring a model: every head's W_QK, and every weight matrix, against what learned nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, single_threaded_blas, triangle
from rmtbase.models import Model, open_model
from rmtbase.nulls import Heads, NullModel
from rmtbase.progress import SILENT, Progress
from rmtbase.scoring._find_null import Wanted, find_null, require_null_name
from rmtbase.scoring._heads import IN_RANGE, first_out_of_range, heads_dataset, sigma_estimate
from rmtbase.scoring._matrices import MATRIX_MODES, MatrixScorer
from rmtbase.shown import shown
from rmtbase.tables import SCHEMA_VERSION, provenance, software_version

_HEADS_PER_PART = 4


def score(
    model: Model | Path | str,
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    revision: str | None = None,
    matrices: Literal["none", "elements", "spectra"] = "elements",
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score every head and weight matrix of a checkpoint against the null. One matrix at a time is in memory.

    The Gaussian null is that of normal initialisation: see :func:`score_heads` for what it does to other ones.

    Args:
        model: a folder, a hub id, the name of a known model (``"pythia-70m"``), ``"demo"`` for the bundled model, or an
            opened model.
        baseline: a baseline table to take the null from; without one, or where it lacks the model's shape, the null is
            simulated or taken from the cache. ``"analytic"``: from the laws, without draws, for d_head ≥ 8
            (:class:`rmtbase.nulls.AnalyticNull`); spectra of whole matrices are still compared with simulated ones.
        null: ``"gaussian"``, or ``"permutation"`` or ``"haar"``, each head against a null of its own; see
            :func:`score_heads`. Whole matrices are compared with Gaussian ones whichever it is.
        revision: of the hub id or the bundled model.
        matrices: what to do with whole weight matrices: ``"none"``, ``"elements"`` (element-wise moments), or
            ``"spectra"`` (also the spectrum against Marchenko–Pastur: a full SVD of each).
        draws: null draws, at least; see :func:`score_heads`.
        seed: of the null draws.
        progress: shows the layers read and the draws of a null that is simulated, and is told where the null came from
            and what was recorded about the model.

    Returns:
        The tree of a scores file: ``/heads``, ``/matrices`` and ``/null``; see ``rmtbase.tables.SCORES_SCHEMA``.

    Raises:
        ParameterError: an unknown null, mode or revision, d_head < 8 with the analytic null, or a baseline for a null
            made of a head's own matrices.
        CheckpointError: the checkpoint cannot be read as it stands (its subclasses say what is wrong), or a head's
            weights are so small or so large that the squares of its eigenvalues leave float64.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    require_null_name(null)
    if matrices not in MATRIX_MODES:
        raise ParameterError("matrices", matrices, f"one of {', '.join(MATRIX_MODES)}")
    model = open_model(model, revision)
    n_heads = model.n_layers * model.n_heads
    found = find_null(null, baseline, Wanted(model.d_model, model.d_head, n_heads, draws, seed, progress))
    scorer = None if matrices == "none" else MatrixScorer(model.components, model.n_layers, matrices == "spectra", seed)
    with single_threaded_blas():
        heads = _read_heads(model, scorer, progress)
        constant = scorer.constant if scorer is not None else []
        warnings = [*model.warnings, *_zero_heads(heads), *constant]
        for line in (*model.notes, *warnings):
            progress.note(line)
        scores, null_group = found.score_heads(heads, progress)
    key_head = np.array([model.key_head(head) for head in range(model.n_heads)])
    groups = {"/heads": heads_dataset(scores, heads, key_head).assign_coords(layer=np.arange(model.n_layers))}
    groups["/null"] = null_group()
    if scorer is not None:
        groups["/matrices"] = scorer.dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = _attributes(model, found, matrices, warnings)
    return tree


def _read_heads(model: Model, scorer: MatrixScorer | None, progress: Progress) -> Heads:
    """The spectra of all heads, and the scores of all matrices, layer by layer in one pass through the checkpoint."""
    advance = progress.bar("reading layers", model.n_layers)
    layers = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for layer in range(model.n_layers):
            read = _read_layer(model, layer, pool)
            _require_range(model, layer, read)
            layers.append(read)
            if scorer is not None:
                for component in model.components:
                    scorer.add(layer, component, model.matrix(layer, component))
            advance(1)
    values, sigma_q, sigma_k = (np.stack(part) for part in zip(*layers, strict=True))
    return Heads(values, sigma_q, sigma_k, lambda layer: (model.queries(layer), model.keys(layer)))


class _Layer(NamedTuple):
    singular_values: Float[np.ndarray, "head d_head"]
    sigma_q: Float[np.ndarray, " head"]
    sigma_k: Float[np.ndarray, " head"]


def _read_layer(model: Model, layer: int, pool: ThreadPoolExecutor) -> _Layer:
    queries = model.queries(layer)
    sigma_q = _sigma_of_weights(queries, model.least_sigma(layer, "attention_query"))
    r_q = _in_parts(pool, triangle, queries)
    del queries  # before the keys are read: the two are never held together
    keys = model.keys(layer)
    group = model.n_heads // model.n_key_heads
    sigma_k = np.repeat(_sigma_of_weights(keys, model.least_sigma(layer, "attention_key")), group)
    r_k = np.repeat(_in_parts(pool, triangle, keys), group, axis=0)
    values = _in_parts(pool, core_singular_values, core_of_triangles(r_q, r_k))
    values[(sigma_q == 0) | (sigma_k == 0)] = 0.0
    return _Layer(values, sigma_q, sigma_k)


def _sigma_of_weights(factors: Float[np.ndarray, "head d_head d_model"], least: float) -> Float[np.ndarray, " head"]:
    """Each head's σ̂; 0 where its weights are so small that what is stored of them is rounding, and not their shape."""
    sigma = sigma_estimate(factors)
    return np.where(sigma < least, 0.0, sigma)


def _require_range(model: Model, layer: int, read: _Layer) -> None:
    """Heads of zeros have no scale: they are recorded, and not scored."""
    present = (read.sigma_q > 0) & (read.sigma_k > 0)
    beyond = first_out_of_range(read.sigma_q, read.sigma_k, model.d_head * model.d_model, present)
    if beyond is not None:
        (head,), norms = beyond
        raise CheckpointError(model.path, f"layer {layer} head {head} has {norms}; expected {IN_RANGE}")


def _in_parts(
    pool: ThreadPoolExecutor, solve: Callable[[np.ndarray], np.ndarray], stack: Float[np.ndarray, "head ..."]
) -> Float[np.ndarray, "head ..."]:
    """``solve`` over a stack, a few heads at a time: for one small matrix NumPy does not let go of the interpreter."""
    parts = np.array_split(stack, max(1, len(stack) // _HEADS_PER_PART))
    return np.concatenate(list(pool.map(solve, parts)))


def _zero_heads(heads: Heads) -> list[str]:
    return [
        f"layer {layer} head {head}: {which} is zeros, or rounding to them, so the head has no shape and is not scored"
        for which, sigma in (("W_Q", heads.sigma_q), ("W_K", heads.sigma_k))
        for layer, head in zip(*np.nonzero(sigma == 0), strict=True)
    ]


def _attributes(model: Model, null: NullModel, matrices: str, warnings: list[str]) -> dict[str, object]:
    call = {
        "function": "rmtbase.score",
        "model": model.name,
        "revision": model.revision,
        "matrices": matrices,
        "null_draws": null.draws,
        "null_source": null.source,
    }
    weights = {"architecture": model.architecture, "query_key_sha256": model.fingerprint()}
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
