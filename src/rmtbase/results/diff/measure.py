"""Change from one checkpoint to another: how much, of which rank, and along old directions or new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float, Float64
from scipy.special import betaincc

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import read_factors, sites_of
from rmtbase.laws import HaarTrace
from rmtbase.linalg import available_cores, without_noise
from rmtbase.models import ONE_WAY, Difference, Model, Site, difference, open_model
from rmtbase.progress import SILENT, Progress
from rmtbase.results.attributes import file_attributes
from rmtbase.results.diff._head_shares import share_p_values
from rmtbase.results.diff.schema import CHANGES_SCHEMA, PRODUCTS, UNCHANGED
from rmtbase.results.large_matrices import tell_of_large
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.signal._sign_flips import SignFlips, sign_flips
from rmtbase.results.signal._spectral_signal import require_level
from rmtbase.statistics import benjamini_yekutieli
from rmtbase.tables import CIRCUITS, describe

_SIDES = ("in", "out")
_FILLED = "old directions or the change fill all {} dimensions, so that every rotation has the same share"
_TURNED = "attention_output"  # its heads are columns
_LOW_RANK = "a low-rank update, whose directions are as many as its rank whatever it learned"
_ONE_HEAD = "one head, which has all of the change"
_ALL_ALIKE = "every row of the change is as large in all heads"
_NOTE = (
    "directions of the changes are counted against up to {} random sign flips of each change, which include the "
    "rounding of the stored weights"
)
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
    ``null="signs"``, because rounding makes the noise of weights other than normal. In a change without directions,
    one is found with probability ``level``.

    Further variables say whether the change lies along old directions, on the side of inputs (rows of W) and of
    outputs. The old directions are W's k strongest, where k is its effective rank (ΣS²)²/ΣS⁴ rounded up. The share of
    ‖ΔW‖_F² along them is compared with the share under a random rotation of ΔW, whose mean is k/n for n dimensions and
    whose law is :class:`rmtbase.laws.HaarTrace`. A change that is independent of the old matrix has uniform p-values,
    whatever its spectrum. A change that replaces W by an independent matrix is not independent of W: it removes W, so
    it lies along the old directions, at a cosine of -0.7 if the norms are equal. Also given are the largest absolute
    cosine of the first direction of ΔW with any of W's r directions, and its p-value: for a random direction
    P(largest > c) is nearly 1 - (1 - P(β > c²))^r, where β has the law Beta(1/2, (n - 1)/2).

    Each head's share of its matrix's change, ‖ΔW_i‖_F²/‖ΔW‖_F², is compared with its law if the head has no part in it:
    for each of the d_head positions within a head, which head has which row (of W_O, column) is random, independently
    of the other positions. This holds for rows of any law and of any scales along the positions, such as those of
    rotary frequencies, and needs no more than two heads: see :func:`rmtbase.results.diff._head_shares.share_p_values`.

    For W_QK and W_OV of every head, ‖ΔW‖_F / ‖W‖_F and the cosine between W' and W say which heads changed most; unlike
    the parts, these products do not depend on how a head splits them into two matrices.

    ``after`` may be a low-rank adapter as PEFT saves it: its updates are added to ``before``, and its layers and heads
    are those of the base. ΔW = s B A has as many directions as its rank r, whatever was learned, so directions are not
    tested. The shares of heads are, at every rank from 1 on: head i's part is s B_i A, and given A the null says that
    at each position within a head the rows of B are exchangeable between heads. This is an update that prefers no
    head, and not the initialization: there B is zero, and nothing can be tested. A small p-value does not say why an
    update prefers a head; larger gradients through the base's weights are enough.

    One matrix at a time is in memory, with full decompositions of it and of its change. A head's W_O is
    (d_output, d_value), as in the whole matrix.

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
        of = difference(first.with_updates(second) if is_adapter else second, first)
    except ParameterError as error:  # other architecture or shape; ``difference`` names the wrong argument
        raise ParameterError("before", error.found, error.expected) from None
    names = _require_components(of, components)
    tell_of_large(of, names, progress, 2, np.square)
    of.require_finite(names)
    signs = sign_flips(level)
    notes = tuple(dict.fromkeys((*of.less.notes, *of.of.notes)))
    notes = notes if is_adapter else (*notes, _NOTE.format(signs.draws))
    for line in notes:
        progress.detail(line)
    advance = progress.bar("comparing matrices", of.n_layers * len(names))
    factors = [name for name in names if name in _FACTORS and any(_has_heads(site, name) for site in of.sites)]
    n_heads = max((max(site.n_heads, site.n_key_heads) for site in of.sites), default=0)
    whole = _Filled("/matrices", (of.n_layers, len(names)), signs)
    parts = _Filled("/heads", (len(of.sites), n_heads, len(factors)), signs)
    for layer, place in enumerate(of.layers):
        for k, name in enumerate(names):
            if of.has(layer, name):
                old, change = of.less.matrix(layer, name).astype(np.float64), of.matrix(layer, name)
                rounding, reason = (0.0, _LOW_RANK) if is_adapter else _rounding(of, layer, name)
                whole.put((layer, k), old, change, rounding, reason)
                for at, site in enumerate(of.sites):
                    if site.place == place and name in factors and _has_heads(site, name):
                        by_head = [of.by_head(at, _FACTORS[name].name, matrix) for matrix in (old, change)]
                        for head, each in enumerate(zip(*by_head, strict=True)):
                            own, own_change = (one.T for one in each) if name == _TURNED else each
                            parts.put((at, head, factors.index(name)), own, own_change, rounding, reason)
                        parts.put_shares(at, factors.index(name), by_head[1])
            advance(1)
    for circuit in PRODUCTS:
        wanted = {f"attention_{factor.name}" for factor in circuit.factors} <= {*names}
        known = set(sites_of(of.of, circuit)) & set(sites_of(of.less, circuit)) if wanted else ()
        for at in sorted(known):
            parts.put_product(at, circuit.name, *(read_factors(model, at, circuit) for model in (of.less, of.of)))
        if not known:
            parts.leave_out(circuit.name)
    groups = {"/matrices": whole.dataset({**layer_coordinates(of.layers), "component": names})}
    if factors:
        coords = {**layer_coordinates([site.place for site in of.sites]), "head": np.arange(n_heads)}
        groups["/heads"] = parts.dataset({**coords, "component": factors})
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    tree.attrs = _attributes(of, names, level, notes)
    return tree


def _require_components(of: Difference, wanted: Sequence[str] | None) -> list[str]:
    names = list(of.components if wanted is None else wanted)
    if isinstance(wanted, str) or not names or len(set(names)) < len(names) or not set(names) <= set(of.components):
        raise ParameterError("components", wanted, f"distinct ones of {', '.join(of.components)}")
    return names


def _rounding(of: Difference, layer: int, name: str) -> tuple[float, str]:
    """Return the scale of the rounding, and the reason why directions cannot be told from it, or ""."""
    return of.rounding(layer, name), ONE_WAY if of.rounds_one_way(layer, name) else ""


def _has_heads(site: Site, name: str) -> bool:
    """Return True if the sizes of each head's part of a matrix are known."""
    return all(getattr(site, size) is not None for size in (_FACTORS[name].rank, _FACTORS[name].width))


class _Filled:
    """Variables of a group while they are filled in."""

    def __init__(self, group: str, shape: tuple[int, ...], signs: SignFlips) -> None:
        self.schema = CHANGES_SCHEMA[group]
        self.values: dict[str, np.ndarray] = {
            name: np.full(shape[: len(one.dims)], "" if name.startswith("reason") else np.nan, dtype=object)
            for name, one in self.schema.items()
        }
        self.signs = signs

    def put(
        self,
        place: tuple[int, ...],
        old: Float64[np.ndarray, "row column"],
        change: Float64[np.ndarray, "row column"],
        rounding: float,
        reason: str,
    ) -> None:
        """Fill in one matrix; a ``reason`` says why its directions cannot be counted."""
        for name, value in _of_matrix(old, change, rounding).items():
            self.values[name][place] = value
        nothing = _nothing_to_test(old, change)
        for side, width in zip(_SIDES, (change.shape[1], change.shape[0]), strict=True):
            untested = np.isnan(self.values[f"p_value_{side}"][place])
            self.values[f"reason_{side}"][place] = (nothing or _FILLED.format(width)) if untested else ""
        self.values["reason"][place] = nothing or reason
        if nothing or reason:
            return
        with ThreadPoolExecutor(available_cores()) as pool:
            counted = self.signs.count(change, map_draws=pool.map)
        self.values["n_directions"][place] = counted.number
        if counted.p_value.size:
            self.values["first_p_value"][place] = counted.p_value[0]
        else:
            self.values["reason"][place] = counted.reason.words

    def put_shares(self, site: int, component: int, change: Float64[np.ndarray, "factor_head rank width"]) -> None:
        """Fill in the share of every head in the change of a matrix, given each head's part."""
        heads, squares = len(change), (change**2).sum(axis=2)
        place = (site, slice(heads), component)
        if not squares.any():
            self.values["reason_head"][place] = UNCHANGED
            return
        p_value = share_p_values(squares)
        self.values["share_head"][place] = squares.sum(axis=1) / squares.sum()
        self.values["expected_share_head"][place] = 1.0 / heads
        self.values["p_value_head"][place] = p_value
        if np.isnan(p_value).any():
            self.values["reason_head"][place] = _ONE_HEAD if heads == 1 else _ALL_ALIKE

    def put_product(
        self,
        site: int,
        circuit: str,
        before: Sequence[Float64[np.ndarray, "factor_head rank width"]],
        after: Sequence[Float64[np.ndarray, "factor_head rank width"]],
    ) -> None:
        """Fill in the change of AᵀB of every head: A'ᵀB' - AᵀB = ΔAᵀB + A'ᵀΔB."""
        heads = max(len(one) for one in before)
        (a, b), (new_a, new_b) = (
            [np.repeat(one.astype(np.float64), heads // len(one), axis=0) for one in factors]
            for factors in (before, after)
        )
        change = np.concatenate([new_a - a, new_a], axis=1), np.concatenate([b, new_b - b], axis=1)
        old, new, moved = (_product_norms(*pair) for pair in ((a, b), (new_a, new_b), change))
        common = ((a @ new_a.swapaxes(1, 2)) * (b @ new_b.swapaxes(1, 2))).sum(axis=(1, 2))  # tr (AᵀB)ᵀ A'ᵀB'
        with np.errstate(divide="ignore", invalid="ignore"):
            values = {"relative_change": moved / old, "similarity": np.clip(common / old / new, -1.0, 1.0)}
        for name, value in values.items():
            self.values[f"{name}_{circuit}"][site, :heads] = np.where((old > 0) & np.isfinite(value), value, np.nan)

    def leave_out(self, part: str) -> None:
        """Leave out the variables of an optional part of the table."""
        self.schema = {name: variable for name, variable in self.schema.items() if variable.part != part}

    def dataset(self, coords: dict[str, object]) -> xr.Dataset:
        """Make a dataset of all variables, with q-values."""
        for name in self.schema:
            self.values[name] = self.values[name].astype(str if name.startswith("reason") else np.float64)
        for side in (name.removeprefix("p_value_") for name in self.schema if name.startswith("p_value_")):
            self.values[f"q_value_{side}"] = benjamini_yekutieli(self.values[f"p_value_{side}"])
        variables = {name: (variable.dims, self.values[name]) for name, variable in self.schema.items()}
        return describe(xr.Dataset(variables, coords), self.schema)


def _product_norms(
    a: Float64[np.ndarray, "head rank width"], b: Float64[np.ndarray, "head rank other_width"]
) -> Float64[np.ndarray, " head"]:
    """Compute ‖AᵀB‖_F of every head from the triangles of Aᵀ and Bᵀ, which have their own rounding, not its root."""
    r_a, r_b = (np.linalg.qr(one.swapaxes(1, 2))[1] for one in (a, b))
    return np.linalg.norm(r_a @ r_b.swapaxes(1, 2), axis=(1, 2))


def _nothing_to_test(old: Float64[np.ndarray, "row column"], change: Float64[np.ndarray, "row column"]) -> str:
    """Say why a change has no test at all, or return ""."""
    if not old.any():
        return "all zeros before, which have no directions"
    return "" if change.any() else UNCHANGED


def _of_matrix(
    old: Float64[np.ndarray, "row column"], change: Float64[np.ndarray, "row column"], rounding: float
) -> dict[str, float]:
    """Compute the numbers of one change, except its directions beyond noise; for a zero change, only its norm."""
    norms = [float(np.linalg.norm(one)) for one in (old, change)]
    found: dict[str, float] = {"n_rows": old.shape[0], "n_columns": old.shape[1]}
    if norms[0] == 0.0:
        return found
    found["relative_change"] = norms[1] / norms[0]
    if norms[1] == 0.0:
        return found
    found["cosine"] = float(np.vdot(old / norms[0], change / norms[1]))
    found["rounding_share"] = rounding**2 * change.size / norms[1] ** 2
    (u_old, s_old, v_old), (u, s, v) = (
        np.linalg.svd(one / norm, full_matrices=False) for one, norm in zip((old, change), norms, strict=True)
    )
    s_old, s = without_noise(s_old), without_noise(s)
    found["effective_rank"] = _participation(s)
    k = math.ceil(_participation(s_old) - 1e-9)
    found["n_old_directions"] = k
    rank = int((s_old > 0.0).sum())
    for side, (new, before) in {"in": (v, v_old), "out": (u.T, u_old.T)}.items():
        found |= {f"{name}_{side}": value for name, value in _of_side(new, s, before[:rank], k).items()}
    return found


def _of_side(
    new: Float64[np.ndarray, "rank n"], s: Float64[np.ndarray, " rank"], old: Float64[np.ndarray, "old n"], k: int
) -> dict[str, float]:
    """Compare the directions of a change with old ones, strongest first."""
    n = new.shape[1]
    cosines = new @ old[:k].T
    share = float(s**2 @ (cosines**2).sum(axis=1))
    law = HaarTrace(s[None] ** 2, np.ones((1, k)), n)
    found = {"old_share": min(share, 1.0), "expected_share": k / n}
    if law.std()[0, 0] > 0.0:
        found |= {"z_score": float((share - law.mean()[0, 0]) / law.std()[0, 0]), "p_value": float(law.sf(share)[0, 0])}
    first = np.abs(old @ new[0])
    nearest = int(first.argmax())
    found |= {"nearest_cosine": min(float(first[nearest]), 1.0), "nearest": nearest}
    if n > 1:
        beyond = betaincc(0.5, 0.5 * (n - 1), found["nearest_cosine"] ** 2)
        found["nearest_p_value"] = float(-np.expm1(len(old) * np.log1p(-beyond))) if beyond < 1.0 else 1.0
    return found


def _participation(s: Float[np.ndarray, " r"]) -> float:
    squares = s**2
    return float(squares.sum() ** 2 / (squares**2).sum())


def _attributes(of: Difference, components: Sequence[str], level: float, notes: Sequence[str]) -> dict[str, object]:
    both = {"before": of.less, "after": of.of}
    call = {"function": "rmtbase.results.diff.diff", "components": list(components), "level": level}
    call |= {name: [model.name, model.revision] for name, model in both.items()}
    return file_attributes("changes", of, {"level": level}, notes, of.warnings, call)
