"""Why heads leave the null: several nulls, each of which keeps something else, and what their answers say together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.linalg import solve_triangular

from rmtbase.errors import ParameterError
from rmtbase.linalg import core_of_triangles, core_singular_values, triangles
from rmtbase.models import WeightMatrices
from rmtbase.nulls import ANGLE_STATISTICS, HeadParts, JointNull, angle_statistics
from rmtbase.progress import Progress
from rmtbase.scoring._find_null import NULLS
from rmtbase.scoring._heads import layer_coordinates
from rmtbase.scoring._read_sites import read_factors, sites_of
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, benjamini_yekutieli, holm, spectral_statistics
from rmtbase.tables import CIRCUITS, WHY_SCHEMA, describe, layer_names

TESTS: Mapping[str, str] = MappingProxyType(
    {
        "gaussian": "W_QK of independent entries",
        "kurtosis": "W_QK of independent entries with its own excess kurtosis",
        "gains": "W_QK of independent entries, under gains of rows and columns",
        "permutation": "W_QK of its own entries in random order",
        "query": "W_Q of independent entries",
        "key": "W_K of independent entries",
        "angles": "W_Q and W_K read independent subspaces",
        "haar": "W_Q and W_K are turned against each other at random",
        "joint": "W_QK, W_Q, W_K of independent entries and the subspaces that they read, all at once",
        "group": "the same of all heads that read one key head",
    }
)
"""What each null says of a head, by the name of the test, in the order in which they are told."""

QUICK = ("gaussian", "kurtosis", "query", "key", "angles", "haar", "joint", "group")
"""Those that ``"quick"`` stands for: without the drawing of whole matrices that gains and permutations take."""

LEVEL = 0.05
_NOT_TOLD = "not told by so few draws"
_JOINT = ("query", "key", "angles", "joint", "group")
_DRAWS = 10_000


class Found(NamedTuple):
    """What became of one test of every head.

    Attributes:
        p_value: (layer, head); NaN where a head has no shape, or no such test.
        floor: the smallest that it can be.
    """

    p_value: Float[np.ndarray, "layer head"]
    floor: float


def require_tests(names: Sequence[str] | str) -> tuple[str, ...]:
    """The tests of those names, in the order of :data:`TESTS`; of ``"quick"`` and ``"all"`` those they stand for.

    Raises:
        ParameterError: a name that is none.
    """
    wanted: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        if name not in (*TESTS, "quick", "all"):
            raise ParameterError("why", name, f"some of {', '.join(TESTS)}, or quick, or all")
        wanted |= set(QUICK) if name == "quick" else set(TESTS) if name == "all" else {name}
    return tuple(name for name in TESTS if name in wanted)


def with_why(
    tree: xr.DataTree,
    null: str,
    model: WeightMatrices,
    tests: Sequence[str],
    scores_by: Callable[[str, Progress], xr.DataTree],
    draws: int | None,
    seed: int,
    progress: Progress,
) -> xr.DataTree:
    """The scores of a model, by a null, with the group ``/why``: ``scores_by`` makes them by another null."""
    told = _NewNotes(progress, {line for name in ("notes", "warnings") for line in json.loads(tree.attrs[name])})

    def heads_by(name: str) -> tuple[xr.Dataset, float]:
        scored = tree if name == null else scores_by(name, told)
        group = scored["null"].to_dataset()
        floors = (
            group["p_value_floor"].values if "p_value_floor" in group else scored.attrs.get("p_value_floor", np.nan)
        )
        smallest = float(np.max(floors))
        return scored["heads"].to_dataset(), smallest if str(
            scored.attrs["null_method"]
        ) == "analytic" else smallest / 2.0

    tree["why"], notes = why(model, tests, heads_by, draws, seed, progress)
    for note in notes:
        progress.note(note)
    tree.attrs["notes"] = json.dumps([*json.loads(tree.attrs["notes"]), *notes])
    return tree


class _NewNotes(NamedTuple):
    """A progress that tells no note twice."""

    of: Progress
    told: set[str]

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        return self.of.bar(label, total)

    def note(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.of.note(line)


def why(
    model: WeightMatrices,
    tests: Sequence[str],
    heads_by: Callable[[str], tuple[xr.Dataset, float]],
    draws: int | None,
    seed: int,
    progress: Progress,
) -> tuple[xr.Dataset, list[str]]:
    """The group ``/why`` of a scores file, and notes of tests that the model does not allow.

    Args:
        model: whose heads were scored.
        tests: some of :data:`TESTS`.
        heads_by: scores all heads by a null of that name: its ``/heads``, and the smallest omnibus p-value.
        draws: of the joint null; 10 000 if None.
        seed: of these.
        progress: shows the draws.
    """
    found: dict[str, Found] = {}
    notes = []
    for name in tests:
        try:
            if name in NULLS:
                heads, floor = heads_by(name)
                found[name] = Found(heads["omnibus_p_value"].values, floor)
            elif name in _JOINT and name not in found:
                found |= _joint(model, tests, draws or _DRAWS, seed, progress)
                if name not in found:
                    notes.append(f"why: no test by {name}: every head has a key head of its own")
        except ParameterError as error:
            notes.append(f"why: no test by {name}: {error}")
    order = [name for name in tests if name in found]
    sites = [model.sites[index] for index in sites_of(model, CIRCUITS["qk"])]
    if not order:
        raise ParameterError("why", list(tests), f"a test that the model allows ({'; '.join(notes)})")
    p_value = np.stack([found[name].p_value for name in order], axis=-1)

    def adjusted(by: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, "layer head test"]:
        return np.stack([by(p_value[..., k]) for k in range(len(order))], axis=-1)

    q_value = adjusted(benjamini_hochberg)
    floors = np.array([found[name].floor for name in order])
    left = _left(p_value, q_value, floors)
    verdicts = np.empty(left.shape[:2], dtype=object)
    for place in np.ndindex(*verdicts.shape):
        verdicts[place] = verdict(dict(zip(order, left[place], strict=True)))
    dims = ("layer", "head", "test")
    dataset = xr.Dataset(
        {
            "p_value": (dims, p_value),
            "q_value": (dims, q_value),
            "yekutieli_q_value": (dims, adjusted(benjamini_yekutieli)),
            "holm_p_value": (dims, adjusted(holm)),
            "p_value_floor": (("test",), floors),
            "verdict": (dims[:2], verdicts.astype(str)),
        },
        {
            **layer_coordinates([site.place for site in sites]),
            "head": np.arange(p_value.shape[1]),
            "test": order,
            "meaning": ("test", [TESTS[name] for name in order]),
        },
    )
    return describe(dataset, WHY_SCHEMA), notes


@dataclass(frozen=True)
class WhySummary:
    """What the group ``/why`` of a scores file says.

    Attributes:
        tests: their names.
        left: how many heads left the null of each, of ``n_heads``.
        verdicts: every verdict with the heads it is of, the most frequent first.
        rows: of each head its name, for each test 1 (left its null), 0 (did not) or NaN (not told), and the verdict.
    """

    tests: tuple[str, ...]
    left: dict[str, int]
    n_heads: int
    verdicts: dict[str, tuple[str, ...]]
    rows: tuple[tuple[str, tuple[float, ...], str], ...]

    def sentences(self) -> list[str]:
        """How many heads have each verdict, and how many left each null."""
        heads = f"{self.n_heads} head{'s' * (self.n_heads != 1)}"
        lines = [f"{len(names)} of {heads}: {words}." for words, names in self.verdicts.items()]
        return [*lines, "Left, by null: " + ", ".join(f"{name} {self.left[name]}" for name in self.tests) + "."]


def summarize_why(scores: xr.DataTree) -> WhySummary | None:
    """The summary of the group ``/why``; None where a scores tree has none."""
    if "why" not in scores.children:
        return None
    group = scores["why"].to_dataset().transpose("layer", "head", "test", ...)
    tests = tuple(map(str, group["test"].values))
    left = _left(group["p_value"].values, group["q_value"].values, group["p_value_floor"].values)
    names, verdicts, rows = layer_names(group), dict[str, list[str]](), []
    for (layer, head), words in np.ndenumerate(group["verdict"].values):
        if not np.isnan(group["p_value"].values[layer, head]).all():
            name = f"{names[layer]} head {group['head'].values[head]}"
            verdicts.setdefault(str(words) or _NOT_TOLD, []).append(name)
            rows.append((name, tuple(left[layer, head].tolist()), str(words)))
    ordered = sorted(verdicts.items(), key=lambda each: -len(each[1]))
    return WhySummary(
        tests,
        dict(zip(tests, (left == 1.0).sum(axis=(0, 1)).tolist(), strict=True)),
        len(rows),
        {words: tuple(of) for words, of in ordered},
        tuple(rows),
    )


def _left(p_value: np.ndarray, q_value: np.ndarray, floors: np.ndarray) -> Float[np.ndarray, "layer head test"]:
    """1 where a head left a null, 0 where not; NaN where it has no shape, or where so few draws cannot tell."""
    left = np.where(q_value < LEVEL, 1.0, np.where(p_value <= floors, np.nan, 0.0))
    return np.where(np.isnan(p_value), np.nan, left)


def verdict(left: Mapping[str, float]) -> str:
    """What the answers of one head say together, in words; "" where there are none.

    Args:
        left: by the name of a test 1 where the head left its null, 0 where not, NaN where that is not told.
    """

    def yes(*names: str) -> bool:
        return any(left.get(name, np.nan) == 1.0 for name in names)

    def no(name: str) -> bool:
        return left.get(name, np.nan) == 0.0

    if all(np.isnan(each) for each in left.values()):
        return ""
    if not yes(*left):
        return "like a head that has learned nothing"
    aligned, entries_only = yes("haar", "angles"), no("permutation") or ("permutation" not in left and no("kurtosis"))
    if entries_only and not aligned:
        return "its entries are not normal, no more"
    if no("gains") and not aligned:
        return "its rows and columns have gains, no more"
    factors = " and ".join(symbol for name, symbol in (("query", "W_Q"), ("key", "W_K")) if yes(name))
    parts = [f"{factors} {'have' if ' and ' in factors else 'has'} learned directions"] if factors else []
    if yes("haar"):
        parts.append("queries and keys are aligned")
    elif factors and no("haar"):
        parts.append("queries and keys are not aligned")
    if yes("angles"):
        parts.append("what they read is related")
    return "; ".join(parts) if parts else "it leaves the null, by none of its parts alone"


def _joint(model: WeightMatrices, tests: Sequence[str], draws: int, seed: int, progress: Progress) -> dict[str, Found]:
    """The tests of a head with its factors, against joint draws."""
    sites = sites_of(model, CIRCUITS["qk"])
    each = [model.sites[site] for site in sites]
    shapes = {(one.d_query, one.d_key, one.d_head, one.n_heads, one.n_key_heads) for one in each}
    if len(shapes) > 1:
        raise ParameterError("sites", sorted(shapes), "heads of one shape, as many in every layer")
    ((d_query, d_key, d_head, n_heads, n_key_heads),) = shapes
    if d_query != d_key or d_head > d_query:
        raise ParameterError("d_query, d_key, d_head", (d_query, d_key, d_head), "queries and keys of one stream")
    group = n_heads // n_key_heads
    advance = progress.bar("reading factors", len(sites))
    parts = []
    for site in sites:
        w_q, w_k = read_factors(model, site, CIRCUITS["qk"])
        parts.append(_parts(w_q, w_k, d_query))
        advance(1)
    heads = HeadParts(*map(np.stack, zip(*parts, strict=True)))
    p_values = _joint_null(_JointDraws(d_query, d_head, group, draws, seed, progress)).p_values(heads)
    return {name: Found(p_values[name], 1.0 / (draws + 1)) for name in tests if name in p_values}


def _parts(
    w_q: Float[np.ndarray, "head rank width"], w_k: Float[np.ndarray, "key_head rank width"], d_model: int
) -> HeadParts:
    """The statistics of the heads of a layer, and of their factors; NaN where one has no full rank."""
    (n_heads, rank, _), group = w_q.shape, len(w_q) // len(w_k)
    r_q, r_k = triangles(w_q).r, triangles(w_k).r
    sizes = [len(SPECTRAL_STATISTICS)] * 3 + [len(ANGLE_STATISTICS)]
    whole = HeadParts(*(np.full((n_heads, size), np.nan) for size in sizes))
    for head in range(n_heads):
        key = head // group
        one_q, one_k = r_q[head], r_k[key]
        sigmas = [np.linalg.norm(one) / np.sqrt(rank * d_model) for one in (one_q, one_k)]
        values = [core_singular_values(one) for one in (core_of_triangles(one_q, one_k), one_q, one_k)]
        if min(each[-1] for each in values) <= 0.0:
            continue
        crossed = w_q[head].astype(np.float64) @ w_k[key].astype(np.float64).T
        crossed = solve_triangular(one_q, crossed, trans=1)
        cosines = core_singular_values(solve_triangular(one_k, crossed.T, trans=1))
        for at, each, scale in zip(whole[:3], values, (sigmas[0] * sigmas[1], *sigmas), strict=True):
            at[head] = spectral_statistics(each / scale)
        whole.angles[head] = angle_statistics(cosines, d_model)
    return whole


@dataclass(frozen=True)
class _JointDraws:
    """What a joint null is drawn by; whom the drawing is told is no part of it."""

    d_model: int
    d_head: int
    group: int
    draws: int
    seed: int
    progress: Progress = field(compare=False)


@lru_cache(maxsize=8)
def _joint_null(of: _JointDraws) -> JointNull:
    """The joint null of normal heads of a shape, ``group`` of which read one key head."""
    from rmtbase.ensembles import random_subspaces
    from rmtbase.montecarlo import draw_spectra, simulate_heads_with_factors

    sample = simulate_heads_with_factors(of.d_model, of.d_head, of.group, of.draws, of.seed, of.progress)
    of_angles = draw_spectra(random_subspaces(of.d_model, of.d_head), of.draws * of.group, of.seed, solver="svd")
    cosines = np.concatenate([chunk.singular_values for chunk in of_angles])
    angles = angle_statistics(cosines, of.d_model).reshape(of.draws, of.group, -1)
    return JointNull(HeadParts(sample.product, sample.query, sample.key, angles))
