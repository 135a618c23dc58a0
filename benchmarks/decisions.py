"""Rules that say what was learned, on matrices that learned nothing and on planted ones: false alarms and power.

``spectra``: matrices and W_QK are drawn one at a time, and every rule of :mod:`_published_rules` decides on each: was
something learned, and in how many directions? Planted matrices are W + Σ θ a uᵀ, in W_QK only on W_Q, with θ in units
of the threshold beyond which one direction leaves the bulk of the spectrum. Their W_Q is also tested by itself.
``selection``: which layers of a model each recipe would train. ``compositions``: which pairs of heads compose, by a
score above that of random heads and by rmtbase's p-values.

The code of WeightWatcher, optht and TransformerLens is run if it is installed (``pip install --no-deps`` of
weightwatcher, powerlaw, scikit-learn and joblib; of optht; of transformer-lens and what it imports), and left out
otherwise, except that composition scores are then computed by their formula. Times are processor times, including the
spectrum that a rule needs.

    python benchmarks/decisions.py [--quick] [--output FILE]
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from _machine import Check, arguments, describe_machine, finish, timed
from _published_rules import LEVEL, Rule, Verdict, Weights, installed, interquartile_ratio, rules
from pairs import factored_score, opened
from rmtbase.laws import RankOneSpike
from rmtbase.linalg import single_threaded_blas
from rmtbase.models import Model
from rmtbase.results.composition import composition
from rmtbase.results.signal import spectral_signal
from rmtbase.statistics import benjamini_hochberg

SEED = 8
TRIALS = {  # of rules that are fast, slower and slow
    (64, 768): (400, 60, 16),
    (256, 256): (200, 30, 12),
    (768, 3072): (60, 10, 6),
    (768, 64, 768): (400, 20, 4),
    (1024, 128, 1024): (100, 10, 0),
}
QUICK_TRIALS, QUICK_TRIALS_PLANTED = (4, 1, 1), (4, 1, 0)
FACTOR, MLP, SQUARE, QK, WIDE_QK = (64, 768), (768, 3072), (256, 256), (768, 64, 768), (1024, 128, 1024)
STRENGTHS = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
POWER_LAW = 3.0  # exponent of the density of eigenvalues
TWICE, ENOUGH = 2.0, 10
"""Thresholds at which the right number is asked for, and draws or models without which a share says nothing."""

COVERED = ("normal", "uniform", "truncated normal")
"""Entries at which at most the level of matrices that learned nothing may be flagged by rmtbase signal."""

LAYERS, MODULES, TOP, MODELS, LEARNED_MODELS, QUICK_MODELS = 12, ((256, 256), (256, 1024)), (25, 50), 400, 25, 4
LEARNED_LAYERS, LEARNED_DIRECTIONS = 3, 2
LEARNED_STRENGTHS = (1.2, 2.0, 5.0)
HEADS, D_HEAD, D_MODEL, RANDOM_PAIRS, PAIR_MODELS = 8, 32, 256, 300, 50

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
ENTRIES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), shape),
    "truncated normal": lambda rng, shape: stats.truncnorm.rvs(-2.0, 2.0, size=shape, random_state=rng) / 0.87962566,
    "Laplace": lambda rng, shape: rng.laplace(scale=math.sqrt(0.5), size=shape),
    "Student t, 3": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3.0),
    "row gains of 10 %": lambda rng, shape: rng.normal(1.0, 0.1, (shape[0], 1)) * rng.standard_normal(shape),
    "column gains of 10 %": lambda rng, shape: rng.standard_normal(shape) * rng.normal(1.0, 0.1, shape[1]),
    "power law": lambda rng, shape: _power_law(rng, shape),
}
"""Laws of a matrix: of unit variance, but for the last, whose eigenvalues are independent, of density ~ λ^-3."""


@dataclass(frozen=True)
class Case:
    """Case to be drawn: dims (rows, columns) or (d, h, d), law of the entries, strengths in units of the threshold."""

    dims: tuple[int, ...]
    entries: str
    planted: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator) -> Weights:
        """Draw the weights, with the planted directions in the matrix or in W_Q."""
        left_side, width = self.dims[:2]
        shapes = [(left_side, width)] if len(self.dims) == 2 else [(width, left_side), (width, self.dims[2])]
        first, *others = (ENTRIES[self.entries](rng, shape) for shape in shapes)
        if self.planted:
            rows, columns = first.shape
            left, right = (np.linalg.qr(rng.standard_normal((n, len(self.planted))))[0] for n in (rows, columns))
            first = first + left * (threshold(self.dims) * np.array(self.planted)) @ right.T
        return Weights((first, *others))


def threshold(dims: tuple[int, ...]) -> float:
    """Threshold of a direction in one matrix, or on W_Q in W_QK."""
    return RankOneSpike(dims=dims, factor=0, normalization="none").threshold


def cases() -> Iterator[Case]:
    for entries in ENTRIES:
        yield Case(FACTOR, entries)
    yield from (Case(dims, "normal") for dims in (SQUARE, MLP, QK, WIDE_QK))
    yield from (Case(MLP, entries) for entries in ("uniform", "column gains of 10 %"))
    yield from (Case(QK, entries) for entries in ENTRIES if entries not in ("normal", "power law"))
    for dims in (FACTOR, QK):
        yield from (Case(dims, "normal", (strength,) * k) for k in (1, 2, 4) for strength in STRENGTHS)
    yield from (Case(SQUARE, "normal", (strength,)) for strength in STRENGTHS)
    yield from (Case(MLP, "normal", (strength,)) for strength in (1.2, 2.0))


def spectra(quick: bool) -> list[dict[str, Any]]:
    """Record the verdict of every rule on every case."""
    rows = []
    for number, case in enumerate(cases()):
        counts = TRIALS[case.dims]
        if quick:
            counts = QUICK_TRIALS_PLANTED if case.planted else QUICK_TRIALS
        asked = [rule for rule in rules() if _applies(rule, case)]
        own = [rule for rule in asked if rule.cost == 0] if len(case.planted) == 1 and len(case.dims) == 3 else []
        said: dict[tuple[str, str], list[tuple[Verdict, float]]] = {}
        for trial in range(max(counts)):
            weights = case.draw(np.random.default_rng([SEED, number, trial]))
            for what, of, askable in (("", weights, asked), ("W_Q", Weights(weights.factors[:1]), own)):
                if not askable:
                    continue
                begin = time.process_time()
                _ = of.singular_values
                spectrum = time.process_time() - begin
                for rule in askable:
                    if trial < counts[rule.cost]:
                        begin = time.process_time()
                        verdict = rule.call(of)
                        took = time.process_time() - begin + (spectrum if rule.reads_spectrum else 0.0)
                        said.setdefault((what, rule.name), []).append((verdict, took))
        for (what, name), found in said.items():
            rows.append({"rule": name, "of": what or ("W_QK" if len(case.dims) == 3 else "W")} | _row(case, found))
        print(_line(case, rows), flush=True)
    return rows


def _applies(rule: Rule, case: Case) -> bool:
    readable = rule.products or len(case.dims) == 2
    return readable and min(case.dims) <= rule.largest and (rule.planted or not case.planted)


def _row(case: Case, found: Sequence[tuple[Verdict, float]]) -> dict[str, Any]:
    learned = np.array([verdict.learned for verdict, _ in found])
    number = np.array([verdict.directions for verdict, _ in found])
    told, k = bool(np.isfinite(number).any()), len(case.planted)
    row = {
        "dims": list(case.dims), "entries": case.entries, "planted": list(case.planted), "draws": len(found),
        "learned": float(learned.mean()), "learned_standard_error": _standard_error(float(learned.mean()), len(found)),
    }  # fmt: skip
    if told:
        shares = {"exact": number == k, "too_many": number > k, "too_few": number < k, "no_number": np.isnan(number)}
        row |= {name: float(share.mean()) for name, share in shares.items()}
        row["median_directions"] = float(np.nanmedian(number))
    return row | {"seconds": float(np.median([took for _, took in found]))}


def _standard_error(share: float, count: int) -> float:
    return math.sqrt(share * (1.0 - share) / count)


def _line(case: Case, rows: Sequence[dict[str, Any]]) -> str:
    own = [row for row in rows if (row["dims"], row["entries"], row["planted"]) == _key(case)]
    said = (f"{row['rule']}{' of W_Q' * (row['of'] == 'W_Q')} {row['learned']:.2f}" for row in own)
    return f"{'×'.join(map(str, case.dims))}, {case.entries}, {case.planted or 'nothing'}: {'; '.join(said)}"


def _key(case: Case) -> tuple[list[int], str, list[float]]:
    return list(case.dims), case.entries, list(case.planted)


def selection(quick: bool) -> list[dict[str, Any]]:
    """Record which layers are trained: the top share by signal-to-noise ratio, or those with directions at q < 0.05."""
    rows = []
    for module, strength in product(MODULES, (0.0, *LEARNED_STRENGTHS)):
        hits: dict[str, list[NDArray[np.bool_]]] = {}
        for number in range(QUICK_MODELS if quick else LEARNED_MODELS if strength else MODELS):
            rng = np.random.default_rng([SEED + 1, module[1], round(10 * strength), number])
            ratios, p_values = [], []
            for layer in range(LAYERS):
                learned = (strength,) * LEARNED_DIRECTIONS if strength and layer < LEARNED_LAYERS else ()
                s = Case(module, "normal", learned).draw(rng).singular_values
                ratios.append(interquartile_ratio(s, module))
                p_values.append(float(spectral_signal(s**2, module, LEVEL).first_p_value))
            order = np.argsort(ratios)[::-1]
            for top in TOP:
                chosen = np.isin(np.arange(LAYERS), order[: LAYERS * top // 100])
                hits.setdefault(f"top {top} % by signal-to-noise ratio", []).append(chosen)
            hits.setdefault(f"rmtbase, q < {LEVEL:g}", []).append(benjamini_hochberg(np.array(p_values)) < LEVEL)
        for rule, each in hits.items():
            chosen, learned = np.array(each), LEARNED_LAYERS if strength else 0
            right = float(chosen[:, :learned].sum())
            row = {
                "rule": rule, "module": list(module), "layers": LAYERS, "learned_layers": learned,
                "strength": strength, "models": len(each), "chosen": float(chosen.sum(axis=1).mean()),
                "models_with_any": float(chosen.any(axis=1).mean()),
                "found": right / (learned * len(each)) if learned else None,
                "of_those_chosen_learned": right / float(chosen.sum()) if learned and chosen.any() else None,
            }  # fmt: skip
            rows.append(row)
            print(f"layers {module}, {strength:g} thresholds: {rule}: {row['chosen']:.2f} chosen, found {row['found']}")
    return rows


HEAD_CASES: dict[str, float | None] = {
    "normal": None, "uniform": None, "each head learned its own": None, "gains of the stream of 10 %": None,
    **{f"one pair at {strength:g}": strength for strength in STRENGTHS},
}  # fmt: skip


def heads(case: str, rng: np.random.Generator) -> Model:
    """Draw two layers of heads of a case; a planted pair is the first head of layer 0 and the keys of the last head."""
    width, single = HEADS * D_HEAD, threshold((D_HEAD, D_MODEL))
    layers = []
    for _ in range(2):
        law = ENTRIES["uniform" if case == "uniform" else "normal"]
        parts = {part: law(rng, (width, D_MODEL)) for part in ("query", "key", "value", "output")}
        if case.startswith("each"):
            for values in parts.values():
                for head in range(HEADS):
                    own = slice(head * D_HEAD, (head + 1) * D_HEAD)
                    left, right = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (D_HEAD, D_MODEL))
                    values[own] += 3.0 * single * left @ right.T
        layers.append(parts)
    if case.startswith("gains"):
        gains = rng.normal(1.0, 0.1, D_MODEL)
        layers = [{part: values * gains for part, values in parts.items()} for parts in layers]
    strength = HEAD_CASES[case]
    if strength is not None:
        u, a, b = (one / np.linalg.norm(one) for one in (rng.standard_normal(n) for n in (D_MODEL, D_HEAD, D_HEAD)))
        layers[0]["output"][:D_HEAD] += strength * single * np.outer(a, u)
        layers[1]["key"][-D_HEAD:] += strength * single * np.outer(b, u)
    return opened([parts | {"output": parts["output"].T} for parts in layers], HEADS)


def scores(of: Model) -> NDArray[np.float64]:
    """Composition scores (kind, earlier, later) of the heads of two layers, by TransformerLens or by the formula."""
    if not installed("transformer-lens"):
        pairs = [[((0, a), (1, b)) for b in range(HEADS)] for a in range(HEADS)]
        return np.array([[[factored_score(of, kind, *pair) for pair in row] for row in pairs] for kind in "qkv"])
    import torch
    from transformer_lens.FactoredMatrix import FactoredMatrix
    from transformer_lens.utilities.matrix import composition_scores

    def circuit(left: NDArray[Any], right: NDArray[Any]) -> FactoredMatrix:
        turned, kept = np.swapaxes(left, 1, 2).astype(np.float64), right.astype(np.float64)
        return FactoredMatrix(torch.from_numpy(turned), torch.from_numpy(kept))

    written = circuit(of.values(0), of.outputs(0))
    read = circuit(of.queries(1), of.keys(1))
    rights = (read, read.T, circuit(of.values(1), of.outputs(1)))
    return np.stack([composition_scores(written, right).numpy() for right in rights])


def random_baseline(rng: np.random.Generator) -> float:
    """Mean score of pairs of random heads: uniform entries, the default of PyTorch's linear layers."""
    found: list[float] = []
    while len(found) < RANDOM_PAIRS:
        of = heads("uniform", rng)
        found += np.diagonal(scores(of)[2]).tolist()
    return float(np.mean(found[:RANDOM_PAIRS]))


def compositions(quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Record which pairs compose by each rule, and the largest relative difference of the scores."""
    baseline = random_baseline(np.random.default_rng(SEED + 2))
    rows, apart = [], 0.0
    for number, case in enumerate(HEAD_CASES):
        said: dict[str, list[NDArray[np.bool_]]] = {}
        took = dict.fromkeys(("score", "rmtbase"), 0.0)
        models = 2 if quick else PAIR_MODELS
        for trial in range(models):
            of = heads(case, np.random.default_rng([SEED + 3, number, trial]))
            begin = time.process_time()
            score = scores(of)
            took["score"] += time.process_time() - begin
            begin = time.process_time()
            table = composition(of)
            took["rmtbase"] += time.process_time() - begin
            own = {name: table[name].values[:, :HEADS, HEADS:] for name in ("score", "p_value", "q_value")}
            apart = max(apart, float(np.abs(score / own["score"] - 1.0).max()))
            said.setdefault("score above that of random heads", []).append(score > baseline)
            said.setdefault(f"rmtbase, p ≤ {LEVEL:g}", []).append(own["p_value"] <= LEVEL)
            said.setdefault(f"rmtbase, q < {LEVEL:g}", []).append(own["q_value"] < LEVEL)
        for rule, each in said.items():
            chosen = np.array(each)
            planted = np.zeros(chosen.shape[1:], dtype=bool)
            planted[1, 0, -1] = HEAD_CASES[case] is not None
            rest = chosen[:, ~planted]
            share = rest.mean(axis=1)
            error = float(share.std(ddof=1) / math.sqrt(models))
            row = {
                "rule": rule, "heads": case, "d_model": D_MODEL, "d_head": D_HEAD, "models": models,
                "pairs_of_a_model": int(rest.shape[1]), "flagged": float(share.mean()), "standard_error": error,
                "models_with_any": float(rest.any(axis=1).mean()),
                "found": float(chosen[:, planted].mean()) if planted.any() else None,
                "seconds": took["rmtbase" if "rmtbase" in rule else "score"] / models,
            }  # fmt: skip
            rows.append(row)
            print(f"pairs, {case}: {rule}: {row['flagged']:.3f} ± {error:.3f} flagged, found {row['found']}")
    return rows, apart


def _power_law(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    eigenvalues = rng.random(min(shape)) ** (-1.0 / (POWER_LAW - 1.0))
    left, right = (np.linalg.qr(rng.standard_normal((n, min(shape))))[0] for n in shape)
    return left * np.sqrt(eigenvalues) @ right.T


def verdicts(result: dict[str, Any]) -> list[Check]:
    """Check the claims about rmtbase's own rows."""

    def most(count: int) -> float:
        return LEVEL + 2.0 * _standard_error(LEVEL, count)

    checks = []
    own = [row for row in result["spectra"] if row["rule"] == "rmtbase signal"]
    for row in own:
        name = f"{row['of']} {'×'.join(map(str, row['dims']))}, {row['entries']}"
        if not row["planted"] and row["entries"] in COVERED:
            checks.append(Check(f"signal, {name}: false alarms", row["learned"], at_most=most(row["draws"])))
        elif row["planted"] and row["of"] != "W_Q":
            name += f", {len(row['planted'])} at {row['planted'][0]:g}"
            checks.append(Check(f"signal, {name}: too many", row["too_many"], at_most=most(row["draws"])))
            if row["planted"][0] == TWICE and row["draws"] >= ENOUGH:
                checks.append(Check(f"signal, {name}: the right number", row["exact"], at_least=0.9))
    for row in (row for row in result["spectra"] if row["rule"] == "rmtbase heavy tails"):
        name = f"{'×'.join(map(str, row['dims']))}, {row['entries']}"
        if row["entries"] == "power law":
            checks.append(Check(f"heavy tails, {name}: found", row["learned"], at_least=0.75))
        elif row["entries"] in COVERED:  # the null of 99 draws is one for all matrices of the shape
            limit = LEVEL + 2.0 * math.hypot(_standard_error(LEVEL, row["draws"]), _standard_error(LEVEL, 99))
            checks.append(Check(f"heavy tails, {name}: false alarms", row["learned"], at_most=limit))
    for row in result["selection"]:
        if row["rule"].startswith("rmtbase") and not row["strength"]:
            share = row["models_with_any"]
            name = "×".join(map(str, row["module"]))
            claim = f"models of {name} that learned nothing with a layer named"
            checks.append(Check(claim, share, at_most=most(row["models"])))
    for row in result["compositions"]:
        trusted = row["rule"].startswith("rmtbase, p") and row["models"] >= ENOUGH
        if trusted and not row["heads"].startswith("gains"):
            limit = LEVEL + float(stats.t.ppf(0.977, row["models"] - 1)) * row["standard_error"]
            checks.append(Check(f"pairs, {row['heads']}: false alarms", row["flagged"], at_most=limit))
    checks.append(
        Check("largest relative difference of composition scores from others'", result["scores_apart"], at_most=1e-9)
    )
    return checks


def main() -> None:
    options = arguments("Decisions by other tools' rules and by rmtbase's.", "decisions.json")
    logging.disable(logging.WARNING)
    result: dict[str, Any] = {
        "benchmark": "decisions",
        "command": "python benchmarks/decisions.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "level": LEVEL,
        "rules": [{name: getattr(rule, name) for name in ("name", "by", "says", "made_for")} for rule in rules()],
        "composition_scores_by": f"code of transformer-lens {installed('transformer-lens')}"
        if installed("transformer-lens")
        else "formula, of pairs.py",
    }
    with single_threaded_blas():
        timings = {
            "spectra": timed(lambda: result.update(spectra=spectra(options.quick))),
            "selection": timed(lambda: result.update(selection=selection(options.quick))),
            "compositions": timed(
                lambda: result.update(zip(("compositions", "scores_apart"), compositions(options.quick), strict=True))
            ),
        }
    result["timings"] = {name: asdict(one) for name, one in timings.items()}
    finish(result, verdicts(result), options.output)


if __name__ == "__main__":
    main()
