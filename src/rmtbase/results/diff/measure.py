"""Change from one checkpoint to another: how much, of which rank, and along old directions or new ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Float64
from scipy.optimize import brentq
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import read_factors, sites_of
from rmtbase.laws import HaarTrace
from rmtbase.linalg import available_cores, without_noise
from rmtbase.models import Model, difference, open_model
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.attributes import file_attributes, tell_of_large
from rmtbase.results.diff.schema import CHANGES_SCHEMA, PRODUCTS, SIDES
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.signal._sign_flips import SignFlips, sign_flips
from rmtbase.results.signal._spectral_signal import require_level
from rmtbase.statistics import benjamini_yekutieli
from rmtbase.tables import CIRCUITS, describe

_TURNED = "attention_output"  # its heads are columns
_NOTE = (
    "directions of the changes are counted against up to {} random sign flips of each change, which include the "
    "rounding of the stored weights"
)
_ALIKE = 1e-20  # variance of a head's sum below which all heads have the same one; the mean of each value is 1
_ROUNDING = 1e-9  # relative distance from the largest or smallest possible sum at which it is that sum
_AT_THE_MEAN = 1e-4  # |r| below which r + ln(u/r)/r is its limit

Entry = dict[str, Any]

_FACTORS = {f"attention_{name}": CIRCUITS[name].factors[0] for name in ("query", "key", "value", "output")}


def diff(
    before: Model | Path | str,
    after: Model | Path | str,
    components: Sequence[str] | None = None,
    level: float = 0.05,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Compare every weight matrix of two checkpoints of one model, and each head's part of it.

    The change ΔW = W' - W is described by its norm over W's; the cosine between ΔW and W, negative where weights have
    shrunk; its effective rank; and the number of its directions that stand out of noise, at ``level``. Directions are
    counted against random sign flips of the change, as :func:`rmtbase.results.signal.signal` does with
    ``null="signs"``, because rounding makes the noise of weights other than normal.

    The old directions, on the side of inputs (rows of W) and of outputs, are W's k strongest, where k is its effective
    rank (ΣS²)²/ΣS⁴ rounded up. The share of ‖ΔW‖_F² along them is compared with that under a random rotation of ΔW,
    whose mean is k/n for n dimensions and whose law is :class:`rmtbase.laws.HaarTrace`. A change that is independent of
    the old matrix has uniform p-values, whatever its spectrum. One that replaces W by an independent matrix is not: it
    removes W, so it lies along the old directions, at a cosine of -0.7 if the norms are equal.

    Each head's share of its matrix's change, ‖ΔW_i‖_F²/‖ΔW‖_F², is compared with its law if the head has no part in it:
    for each of the d_head positions within a head, which head has which row (of W_O, column) is random, independently
    of the other positions. This holds for rows of any law and scales along the positions, for two heads or more.

    For W_QK and W_OV of every head, ‖ΔW‖_F / ‖W‖_F and the cosine between W' and W say which heads changed most; unlike
    the parts, these products do not depend on how a head splits them into two matrices.

    ``after`` may be a low-rank adapter as PEFT saves it: its updates are added to ``before``. ΔW = s B A has as many
    directions as its rank r, whatever was learned, so directions are not tested. The shares of heads are, at any rank:
    head i's part is s B_i A, and given A the null says that at each position within a head the rows of B are
    exchangeable between heads. A small p-value does not say why an update prefers a head; larger gradients through the
    base's weights are enough.

    Args:
        before: a folder, a hub id, ``"demo"``, or an opened model.
        after: another checkpoint of the same architecture and shape, or an adapter of ``before``.
        components: names of the weight matrices; all that both have if None.
        level: level of the tests for directions beyond noise.
        progress: shows the matrices, and receives the notes on the models.

    Returns:
        A tree with ``/matrices`` (layer, component) and, where attention is among them, ``/heads`` (layer, head,
        component); its variables are described in ``rmtbase.results.diff.schema.CHANGES_SCHEMA``.

    Raises:
        ParameterError: the models differ in architecture or shape, or a component does not exist.
        CheckpointError: a checkpoint cannot be read, or the adapter was made for another model.
    """
    level = require_level(level)
    first, second = open_model(before), open_model(after)
    is_adapter = second.is_of_updates and not first.is_of_updates
    try:
        models = difference(first.with_updates(second) if is_adapter else second, first)
    except ParameterError as error:  # other architecture or shape; ``difference`` names the wrong argument
        raise ParameterError("before", error.found, error.expected) from None
    names = list(models.components if components is None else components)
    distinct = names and len(set(names)) == len(names) and set(names) <= set(models.components)
    if isinstance(components, str) or not distinct:
        raise ParameterError("components", components, f"distinct ones of {', '.join(models.components)}")
    tell_of_large(models, names, progress, 2, np.square)
    models.require_finite(names)
    signs = sign_flips(level)
    notes = tuple(dict.fromkeys((*models.less.notes, *models.of.notes)))
    notes = notes if is_adapter else (*notes, _NOTE.format(signs.draws))
    for line in notes:
        progress.detail(line)
    advance = progress.bar("comparing matrices", models.n_layers * len(names))
    with_heads = {}  # by component the sites whose heads have a part of it
    for name, factor in _FACTORS.items():
        sizes = [(getattr(site, factor.rank), getattr(site, factor.width)) for site in models.sites]
        with_heads[name] = [at for at, pair in enumerate(sizes) if None not in pair]
    factors = [name for name in names if with_heads.get(name)]
    n_heads = max((max(site.n_heads, site.n_key_heads) for site in models.sites), default=0)
    matrices: Entries = {}
    heads: Entries = {}
    for layer, place in enumerate(models.layers):
        for k, name in enumerate(names):
            if models.has(layer, name):
                old, change = models.less.matrix(layer, name).astype(np.float64), models.matrix(layer, name)
                rounding, reason = 0.0, Reason("low_rank_update")
                if not is_adapter:
                    rounding = models.rounding(layer, name)
                    reason = Reason("one_way_rounding") if models.rounds_one_way(layer, name) else Reason()
                matrices[layer, k] = _entry(old, change, rounding, reason, signs)
                for at in with_heads.get(name, ()):
                    if models.sites[at].place == place:
                        old_parts, parts = (models.by_head(at, _FACTORS[name].name, matrix) for matrix in (old, change))
                        shares = _shares(parts)
                        for head, pair in enumerate(zip(old_parts, parts, strict=True)):
                            old_part, part = (matrix.T for matrix in pair) if name == _TURNED else pair
                            entry = _entry(old_part, part, rounding, reason, signs)
                            heads[at, head, factors.index(name)] = entry | shares[head]
            advance(1)
    missing = set()
    for circuit in PRODUCTS:
        both = {f"attention_{factor.name}" for factor in circuit.factors} <= {*names}
        sites = set(sites_of(models.of, circuit)) & set(sites_of(models.less, circuit)) if both else set()
        for at in sites:
            products = _products(*(read_factors(model, at, circuit) for model in (models.less, models.of)))
            for head, product in enumerate(products):
                entry = {f"{variable}_{circuit.name}": value for variable, value in product.items()}
                heads[at, head] = heads.get((at, head), {}) | entry
        if not sites:
            missing.add(circuit.name)
    groups = {"/matrices": _table("/matrices", {**layer_coordinates(models.layers), "component": names}, matrices)}
    if factors:
        coordinates = layer_coordinates([site.place for site in models.sites])
        coordinates |= {"head": np.arange(n_heads), "component": factors}
        groups["/heads"] = _table("/heads", coordinates, heads, missing)
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    call = {"function": "rmtbase.results.diff.diff", "components": list(names), "level": level}
    compared = {"before": models.less, "after": models.of} | ({"adapter": second} if is_adapter else {})
    call |= {key: [model.name, model.revision] for key, model in compared.items()}
    tree.attrs = file_attributes("changes", models, {"level": level}, notes, models.warnings, call)
    return tree


def _table(group: str, coordinates: dict[str, Any], entries: Entries, missing: Collection[str] = ()) -> xr.Dataset:
    schema = CHANGES_SCHEMA[group]
    names = [name for name, variable in schema.items() if variable.part not in missing]
    table = filled(schema, coordinates, entries, names)
    for side in (*SIDES, "head"):
        if f"q_value_{side}" in table:
            q_value = benjamini_yekutieli(table[f"p_value_{side}"].values)
            table[f"q_value_{side}"] = table[f"p_value_{side}"].dims, q_value
    return describe(table, schema)


def _entry(
    old: Float64[np.ndarray, "row column"],
    change: Float64[np.ndarray, "row column"],
    rounding: float,
    reason: Reason,
    signs: SignFlips,
) -> Entry:
    entry: Entry = dict(_numbers(old, change, rounding))
    nothing = Reason("zeros_before") if not old.any() else Reason() if change.any() else Reason("unchanged")
    for side, width in zip(SIDES, (change.shape[1], change.shape[0]), strict=True):
        if f"p_value_{side}" not in entry:
            entry[f"reason_{side}"] = str(nothing or Reason("full_rank", {"width": width}))
    entry["reason"] = str(nothing or reason)
    if entry["reason"]:
        return entry
    with ThreadPoolExecutor(available_cores()) as pool:
        counted = signs.count(change, map_draws=pool.map)
    entry["n_directions"] = counted.number
    if counted.p_value.size:
        return entry | {"first_p_value": counted.p_value[0]}
    return entry | {"reason": str(counted.reason)}


def _shares(change: Float64[np.ndarray, "factor_head rank width"]) -> list[Entry]:
    heads, squares = len(change), (change**2).sum(axis=2)
    if not squares.any():
        return [{"reason_head": str(Reason("unchanged"))}] * heads
    share, p_value = squares.sum(axis=1) / squares.sum(), share_p_values(squares)
    reason = Reason("one_head" if heads == 1 else "equal_rows") if np.isnan(p_value).any() else Reason()
    common = {"expected_share_head": 1.0 / heads, "reason_head": str(reason)}
    return [{"share_head": share[head], "p_value_head": p_value[head], **common} for head in range(heads)]


def _products(
    before: Sequence[Float64[np.ndarray, "factor_head rank width"]],
    after: Sequence[Float64[np.ndarray, "factor_head rank width"]],
) -> list[Entry]:
    """Compute the change of AᵀB of every head: A'ᵀB' - AᵀB = ΔAᵀB + A'ᵀΔB."""
    heads = max(map(len, before))
    (a, b), (new_a, new_b) = (
        [np.repeat(factor.astype(np.float64), heads // len(factor), axis=0) for factor in factors]
        for factors in (before, after)
    )
    change = np.concatenate([new_a - a, new_a], axis=1), np.concatenate([b, new_b - b], axis=1)
    norms = []
    for pair in ((a, b), (new_a, new_b), change):  # from the triangles of Aᵀ and Bᵀ: their own rounding, not its root
        r_a, r_b = (np.linalg.qr(factor.swapaxes(1, 2))[1] for factor in pair)
        norms.append(np.linalg.norm(r_a @ r_b.swapaxes(1, 2), axis=(1, 2)))
    old, new, moved = norms
    common = ((a @ new_a.swapaxes(1, 2)) * (b @ new_b.swapaxes(1, 2))).sum(axis=(1, 2))  # tr (AᵀB)ᵀ A'ᵀB'
    with np.errstate(divide="ignore", invalid="ignore"):
        values = moved / old, np.clip(common / old / new, -1.0, 1.0)
    relative, similarity = (np.where((old > 0) & np.isfinite(value), value, np.nan) for value in values)
    return [{"relative_change": relative[head], "similarity": similarity[head]} for head in range(heads)]


def _numbers(
    old: Float64[np.ndarray, "row column"], change: Float64[np.ndarray, "row column"], rounding: float
) -> dict[str, float]:
    """Compute all numbers of a change but its directions; of no change, only its norm."""
    norms = [float(np.linalg.norm(matrix)) for matrix in (old, change)]
    numbers: dict[str, float] = {"n_rows": old.shape[0], "n_columns": old.shape[1]}
    if norms[0] == 0.0:
        return numbers
    numbers["relative_change"] = norms[1] / norms[0]
    if norms[1] == 0.0:
        return numbers
    numbers["cosine"] = float(np.vdot(old / norms[0], change / norms[1]))
    numbers["rounding_share"] = rounding**2 * change.size / norms[1] ** 2
    (u_old, s_old, v_old), (u, s, v) = (
        np.linalg.svd(matrix / norm, full_matrices=False) for matrix, norm in zip((old, change), norms, strict=True)
    )
    s_old, s = without_noise(s_old), without_noise(s)
    numbers["effective_rank"] = _participation(s)
    k = math.ceil(_participation(s_old) - 1e-9)
    numbers["n_old_directions"] = k
    k_directions = min(k, int((s_old > 0.0).sum()))
    for side, new, before in (("in", v, v_old), ("out", u.T, u_old.T)):
        n = new.shape[1]
        share = float(s**2 @ ((new @ before[:k_directions].T) ** 2).sum(axis=1))
        law = HaarTrace(s[None] ** 2, np.ones((1, k)), n)
        numbers |= {f"old_share_{side}": min(share, 1.0), f"expected_share_{side}": k / n}
        if law.std()[0, 0] > 0.0:
            numbers[f"z_score_{side}"] = float((share - law.mean()[0, 0]) / law.std()[0, 0])
            numbers[f"p_value_{side}"] = float(law.sf(share)[0, 0])
    return numbers


def _participation(s: Float[np.ndarray, " r"]) -> float:
    squares = s**2
    return float(squares.sum() ** 2 / (squares**2).sum())


def share_p_values(squares: Float64[np.ndarray, "head row"]) -> Float64[np.ndarray, " head"]:
    """Probability that a head has as large a sum if each of its values is drawn from those of all heads in that row.

    Its cumulant generating function is K(θ) = Σ_k ln mean_j exp(θ w_jk). Where K'(θ) = x, the normal score of x is
    r + ln(u/r)/r with r² = 2(θx - K), of the sign of θ, and u = θ √K''. No p-value is below heads^-rows, that of one
    outcome; tails are measured in ``tests/scoring/test_head_shares.py``. NaN where all heads are alike.

    Source: J. Robinson, J. R. Stat. Soc. B 44, 91 (1982); R. Lugannani and S. Rice, Adv. Appl. Probab. 12, 475 (1980).
    """
    w = squares / squares.mean()
    heads, rows = w.shape
    variance = w.var(axis=0).sum()
    if variance <= _ALIKE:
        return np.full(heads, np.nan)
    skewness = ((w - w.mean(axis=0)) ** 3).mean(axis=0).sum() / variance**1.5
    p_value = np.array([_upper_tail(x, w, skewness) for x in w.sum(axis=1).tolist()])
    return np.maximum(p_value, float(heads) ** -rows)


def _upper_tail(x: float, w: Float64[np.ndarray, "head row"], skewness: float) -> float:
    """P(sum ≥ x) by the formula of Lugannani and Rice; the mean of the sum is the number of rows."""
    most, least = w.max(axis=0), w.min(axis=0)
    if x >= most.sum() * (1.0 - _ROUNDING):
        return float(np.prod((w == most).mean(axis=0)))
    if x <= least.sum() * (1.0 + _ROUNDING):
        return 1.0
    end = 1.0 if x > w.shape[1] else -1.0
    while (_tilted(end, w)[1] - x) * end < 0.0:
        end *= 2.0
    theta = float(brentq(lambda at: _tilted(at, w)[1] - x, 0.0, end))  # type: ignore[arg-type]
    k, _, variance = _tilted(theta, w)
    root = math.copysign(math.sqrt(max(2.0 * (theta * x - k), 0.0)), theta)
    if abs(root) < _AT_THE_MEAN:
        return float(ndtr(-root - skewness / 6.0))
    return float(ndtr(-root - math.log(theta * math.sqrt(variance) / root) / root))


def _tilted(theta: float, w: Float64[np.ndarray, "head row"]) -> tuple[float, float, float]:
    shift = (theta * w).max(axis=0)
    weight = np.exp(theta * w - shift)
    total = weight.sum(axis=0)
    mean = (weight * w).sum(axis=0) / total
    variance = (weight * (w - mean) ** 2).sum(axis=0) / total
    return float((shift + np.log(total / len(w))).sum()), float(mean.sum()), float(variance.sum())
