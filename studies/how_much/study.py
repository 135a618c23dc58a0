"""Measures of how much a head differs from random heads, on random, planted and published heads and a training run.

    python studies/how_much/study.py
    python studies/how_much/study.py --only "published models" --model NAME=FOLDER --model NAME=FILE.gguf

writes ``results.json`` and the tables of ``README.md``; with ``--only`` the other parts stay as they are.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

import rmtbase
from rmtbase.linalg import product_singular_values
from rmtbase.models import open_model
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.results.scores._how_much import how_much
from rmtbase.results.signal import spectral_signal
from rmtbase.results.signal._learned_bound import share_bound
from rmtbase.statistics import moved_share

HERE = Path(__file__).parent
SHAPES = ((64, 8), (64, 12), (128, 16), (256, 32), (768, 64), (1024, 128), (64, 64))
STRUCTURE_SHAPES = ((64, 8), (128, 16), (336, 28), (768, 64), (64, 48))
RANKS = (1, 1, 2, 4, 8)  # numbers of planted directions, drawn with equal probability, at most half of d_head
NULL_HEADS, PLANTED_HEADS, STRUCTURE_HEADS, RANDOM_MODELS, RELATION_HEADS = 400, 120, 40, 800, 4000
LEVELS = (0.05, 0.01, 0.001)
SEED = 20261128

Spectra = Float[np.ndarray, "head index"]
Factors = Float[np.ndarray, "side rank width"]


def _directions(rng: np.random.Generator, d: int, h: int, count: int, thresholds: float) -> Factors:
    """Plant equally strong directions in each factor by itself, in units of the factor's threshold (d h)^(1/4)."""
    factors = rng.standard_normal((2, h, d))
    for factor in factors:
        axes, inputs = (np.linalg.qr(rng.standard_normal((size, count)))[0] for size in (h, d))
        factor += thresholds * (d * h) ** 0.25 * axes @ inputs.T
    return factors


def _gains(rng: np.random.Generator, h: int) -> Float[np.ndarray, "side rank one"]:
    return np.exp(0.5 * rng.standard_normal((2, h, 1)))


def _related(rng: np.random.Generator, d: int, h: int) -> Factors:
    w_q, noise = rng.standard_normal((2, h, d))
    return np.stack([w_q, 0.9 * w_q + np.sqrt(1.0 - 0.9**2) * noise])


STRUCTURES: dict[str, Callable[[np.random.Generator, int, int], Factors]] = {
    "nothing": lambda rng, d, h: rng.standard_normal((2, h, d)),
    "t₃ entries": lambda rng, d, h: rng.standard_t(3, (2, h, d)),
    "row gains e^{0.5 z}": lambda rng, d, h: rng.standard_normal((2, h, d)) * _gains(rng, h),
    "one axis in four × 3": lambda rng, d, h: (
        rng.standard_normal((2, h, d)) * np.where(np.arange(h) % 4, 1.0, 3.0)[:, None]
    ),
    "half the axes × 0.1": lambda rng, d, h: (
        rng.standard_normal((2, h, d)) * np.where(np.arange(h) % 2, 1.0, 0.1)[:, None]
    ),
    "three directions at 2": lambda rng, d, h: _directions(rng, d, h, 3, 2.0),
    "the same under row gains": lambda rng, d, h: _directions(rng, d, h, 3, 2.0) * _gains(rng, h),
    "d_head / 2 directions at 2": lambda rng, d, h: _directions(rng, d, h, h // 2, 2.0),
    "d_head directions at 3": lambda rng, d, h: _directions(rng, d, h, h, 3.0),
    "W_K = 0.9 W_Q + noise": _related,
}
"""Kinds of structure in both factors; strengths of directions in units of a factor's threshold."""


def _shares(eigenvalues: Spectra) -> Spectra:
    return eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)


def _effective_rank(eigenvalues: Spectra) -> Float[np.ndarray, " head"]:
    p = np.maximum(_shares(eigenvalues), 1e-300)
    return np.exp(-(p * np.log(p)).sum(axis=-1))


def _participation(eigenvalues: Spectra) -> Float[np.ndarray, " head"]:
    return 1.0 / (_shares(eigenvalues) ** 2).sum(axis=-1)


def _above_the_edge(eigenvalues: Spectra, null: Spectra) -> Float[np.ndarray, " head"]:
    p, edge = _shares(eigenvalues), np.quantile(_shares(null)[:, 0], 0.999)
    return np.where(p > edge, p, 0.0).sum(axis=-1)


def _by_weaker_half(eigenvalues: Spectra, null: Spectra) -> Float[np.ndarray, " head"]:
    half = (eigenvalues.shape[-1] + 1) // 2
    return 1.0 - _shares(eigenvalues)[:, half:].sum(axis=-1) / _shares(null.mean(axis=0))[half:].sum()


MEASURES: dict[str, Callable[[Spectra, Spectra], Float[np.ndarray, " head"]]] = {
    "moved share": lambda eigenvalues, null: moved_share(eigenvalues, null.mean(axis=0)),
    "noise from the weaker half": _by_weaker_half,
    "lost effective rank": lambda eigenvalues, null: 1 - _effective_rank(eigenvalues) / _effective_rank(null).mean(),
    "lost participation ratio": lambda eigenvalues, null: 1 - _participation(eigenvalues) / _participation(null).mean(),
    "share above the edge": _above_the_edge,
}
"""Measures of eigenvalues of heads, given those of random heads of their shape."""


def drawn(rng: np.random.Generator, d_model: int, d_head: int, n: int, law: str = "normal") -> Factors:
    """Draw the factors of random heads, (2, head, d_head, d_model)."""
    shape = (2, n, d_head, d_model)
    return rng.standard_normal(shape) if law == "normal" else rng.uniform(-1.0, 1.0, shape)


def planted(rng: np.random.Generator, d_model: int, d_head: int, n: int) -> tuple[Spectra, Float[np.ndarray, " head"]]:
    """Draw heads with planted directions: their eigenvalues, and the share of ‖W_QK‖²_F that is not noise.

    One to eight directions u_i of the head axes are read by W_Q along v_i and, in seven of ten heads, by W_K along w_i,
    at up to 2.8 times √d_model. The planted share is 1 - ‖N_Qᵀ N_K‖² / ‖W_QK‖² with the noise N_Q and N_K.
    """
    spectra, shares = [], []
    for _ in range(n):
        rank, both = min(int(rng.choice(RANKS)), d_head // 2), rng.random() < 0.7
        noise_q, noise_k = rng.standard_normal((2, d_head, d_model))
        u, v, w = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (d_head, d_model, d_model))
        strengths = 0.7 * rng.uniform(0, 4) * np.sqrt(d_model) * rng.uniform(0.6, 1.0, rank)
        w_q, w_k = noise_q + (u * strengths) @ v.T, noise_k + both * (u * strengths) @ w.T
        spectra.append(product_singular_values(w_q[None], w_k[None])[0] ** 2)
        shares.append(1.0 - np.sum(product_singular_values(noise_q, noise_k) ** 2) / spectra[-1].sum())
    return np.array(spectra), np.array(shares)


def _mean(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """Return the mean of the known values, its standard error, and the share of known values."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if known.size < 2:
        return [None, None, known.size / max(len(values), 1)]
    return [float(known.mean()), float(known.std(ddof=1) / np.sqrt(known.size)), known.size / len(values)]


def random_heads(rng: np.random.Generator) -> dict:
    """Summarize the amounts of random heads."""
    found: dict = {}
    for d_model, d_head in SHAPES:
        for law in ("normal", "uniform"):
            heads = rmtbase.score_heads(*drawn(rng, d_model, d_head, NULL_HEADS, law), "analytic")["heads"]
            values = {
                "moved share": heads["moved_share"].values[0],
                "with equal axes": heads["moved_share_equal_axes"].values[0],
                "relation": heads["relation"].values[0],
            }
            place = found.setdefault(f"{d_model}, {d_head}", {})
            of_law = {
                name: {"mean": float(np.mean(one)), "sd": float(np.std(one)), "95 %": float(np.quantile(one, 0.95))}
                for name, one in values.items()
            }
            place |= of_law if law == "normal" else {law: of_law}
    return found


def structures(rng: np.random.Generator) -> dict:
    """Measure heads with each kind of structure: means, standard errors, and the shares with each sentence."""
    found: dict = {}
    for d_model, d_head in STRUCTURE_SHAPES:
        place = found.setdefault(f"{d_model}, {d_head}", {})
        for name, draw in STRUCTURES.items():
            factors = np.stack([draw(rng, d_model, d_head) for _ in range(STRUCTURE_HEADS)], axis=1)
            tree = rmtbase.score_heads(*factors, "analytic")
            heads, amounts = tree["heads"].to_dataset(), list(how_much(tree).values())
            eigenvalues = heads["eigenvalue"].values[0]
            weaker = _by_weaker_half(eigenvalues, tree["null"]["eigenvalue_mean"].values[None])
            signal = spectral_signal(eigenvalues, (d_model, d_head, d_model))
            place[name] = {
                "moved share": _mean(heads["moved_share"].values[0]),
                "with equal axes": _mean(heads["moved_share_equal_axes"].values[0]),
                "noise from the weaker half": _mean(weaker),
                "optimal shrinkage": _mean(np.where(signal.n_directions >= 0, signal.signal_share, np.nan)),
                "bound of W_Q": _mean([share_bound(w_q).share for w_q in factors[0]]),
                "relation": _mean(heads["relation"].values[0]),
                "unequal axes": float(np.mean([one.mostly_axes for one in amounts])),
                **{side or "not told": float(np.mean([one.towards == side for one in amounts]))
                   for side in ("fewer", "more", "both", "")},
            }  # fmt: skip
    return found


def planted_heads(rng: np.random.Generator) -> dict:
    """Compare the measures with planted shares: rank correlations and errors."""
    found: dict = {}
    together: dict[str, list] = {name: [] for name in (*MEASURES, "planted")}
    for d_model, d_head in SHAPES:
        null = np.array(
            [product_singular_values(*w) ** 2 for w in drawn(rng, d_model, d_head, NULL_HEADS).swapaxes(0, 1)]
        )
        spectra, shares = planted(rng, d_model, d_head, PLANTED_HEADS)
        together["planted"].append(shares)
        place = found.setdefault(f"{d_model}, {d_head}", {})
        for name, measure in MEASURES.items():
            values = measure(spectra, null)
            together[name].append(values)
            place[name] = _agreement(shares, values)
    shares = np.concatenate(together.pop("planted"))
    found["all shapes"] = {name: _agreement(shares, np.concatenate(values)) for name, values in together.items()}
    return found


def _agreement(shares: Float[np.ndarray, " head"], values: Float[np.ndarray, " head"]) -> dict[str, float]:
    """Return Spearman's rank correlation with the planted share, and the root mean square difference."""
    error = float(np.sqrt(np.mean((values - shares) ** 2)))
    return {"rank correlation": float(spearmanr(shares, values)[0]), "error": error}


def answers_of_random_models(rng: np.random.Generator) -> dict:
    """Count random models of 32 heads by what their answer says."""
    counts = dict.fromkeys(("a head", "a kind", "unequal axes", "a relation"), 0)
    for _ in range(RANDOM_MODELS):
        summary = summarize_scores(rmtbase.score_heads(*rng.standard_normal((2, 4, 8, 16, 128))))
        counts["a head"] += bool(summary.findings)
        counts["a kind"] += bool(summary.kinds)
        counts["unequal axes"] += any(one.mostly_axes for _, one in summary.moved.heads)
        counts["a relation"] += bool(summary.related.heads)
    return {"models": RANDOM_MODELS, **counts}


def relations(rng: np.random.Generator) -> dict:
    """Count unrelated heads of several laws of entries with p-values of the relation below the levels."""
    found: dict = {}
    for d_model, d_head in ((64, 8), (128, 16), (64, 48), (256, 32)):
        n = RELATION_HEADS if d_model < 200 else RELATION_HEADS // 4
        for law in ("normal", "uniform", "t₃", "row gains", "column gains of each factor"):
            p = []
            for _ in range(n // 200):
                w = rng.standard_normal((2, 200, d_head, d_model))
                if law == "uniform":
                    w = rng.uniform(-1.0, 1.0, w.shape)
                elif law == "t₃":
                    w = rng.standard_t(3, w.shape)
                elif law == "row gains":
                    w *= np.exp(0.5 * rng.standard_normal((2, 200, d_head, 1)))
                elif law != "normal":
                    w *= np.exp(0.5 * rng.standard_normal((2, 200, 1, d_model)))
                p.append(rmtbase.score_heads(*w, "analytic")["heads"]["relation_p_value"].values[0])
            place = found.setdefault(f"{d_model}, {d_head}", {"heads": n})
            place[law] = [float(np.mean(np.concatenate(p) < level)) for level in LEVELS]
    return found


def training_run() -> dict:
    """Follow the demo model's training run: smallest, median and largest moved share at each step."""
    heads = open_table(HERE.parent / "training_run" / "trajectory.nc")["heads"].to_dataset()
    return {
        str(step): [float(value) for value in np.nanquantile(heads["moved_share"].sel(step=step), [0.0, 0.5, 1.0])]
        for step in heads["step"].values.tolist()
    }


def published_model(name: str, path: str) -> dict:
    """Summarize the heads of one published model."""
    tree = rmtbase.score(open_model(path, proof=False), "analytic", matrices="none")
    heads, amounts = tree["heads"].to_dataset(), list(how_much(tree).values())
    summary = summarize_scores(tree)
    eigenvalues, null = heads["eigenvalue"].values, tree["null"]["eigenvalue_mean"].values
    weaker = _by_weaker_half(eigenvalues.reshape(-1, eigenvalues.shape[-1]), null[None])
    return {
        "heads": summary.n_heads,
        "differ": len(summary.findings),
        **{
            name: [float(np.nanmedian(heads[variable])), float(np.nanmax(heads[variable]))]
            for name, variable in (
                ("moved share", "moved_share"), ("with equal axes", "moved_share_equal_axes"), ("relation", "relation"),
            )
        },
        "95 % of random heads": float(tree["null"]["moved_share_upper"]),
        "unequal axes": sum(one.mostly_axes for one in amounts),
        "towards": {
            side or "not told": sum(one.towards == side for one in amounts) for side in ("fewer", "more", "both", "")
        },
        "related": len(summary.related.heads),
        "weaker half is negative": int((weaker < 0.0).sum()),
        "rank correlation with the weaker half": float(spearmanr(weaker, heads["moved_share"].values.ravel())[0]),
    }  # fmt: skip


PARTS: dict[str, Callable[[np.random.Generator], dict]] = {
    "random heads": random_heads,
    "structures": structures,
    "planted heads": planted_heads,
    "random models": answers_of_random_models,
    "relations": relations,
    "training run": lambda rng: training_run(),
}
"""Parts of the study other than the published models, each with a generator of its own."""


_SENTENCES = ("unequal axes", "fewer", "more", "both", "not told")


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _with_error(cell: Sequence[float | None]) -> str:
    mean, error, known = cell
    if mean is None or error is None:
        return "–"
    of = "" if known == 1.0 else f" ({100 * (known or 0.0):.0f} % of heads)"
    return f"{_percent(mean)} ± {_percent(error)}{of}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)] + [""]


def tables(found: dict) -> str:
    """Write the tables of the README."""
    rows = []
    for place, one in found["random heads"].items():
        three = [
            f"{_percent(of['mean'])} ± {_percent(of['sd'])}, {_percent(of['95 %'])} %"
            for of in (one["moved share"], one["with equal axes"], one["uniform"]["moved share"])
        ]
        related = one["relation"]
        r = "–" if np.isnan(related["mean"]) else f"{_percent(related['mean'])} ± {_percent(related['sd'])} %"
        rows.append([f"({place})", *three, r])
    header = ["(d_model, d_head)", "moved share: mean ± sd, 95 % below", "with equal axes", "uniform entries", "R"]
    lines = _table(header, rows)
    columns = [name for name in next(iter(found["structures"].values()))["nothing"] if name not in _SENTENCES]
    for place, kinds in found["structures"].items():
        rows = [
            [
                name,
                *(_with_error(one[column]) for column in columns),
                ", ".join(_percent(one[side], 0) for side in ("fewer", "more", "both")),
                _percent(one["unequal axes"], 0),
            ]
            for name, one in kinds.items()
        ]
        lines += [f"({place}), % ± standard error:", ""]
        lines += _table(["planted", *columns, "towards fewer, more, both", "unequal axes"], rows)
    places = found["planted heads"]
    rows = [
        [name, *(f"{one[name]['rank correlation']:.2f}, {one[name]['error']:.2f}" for one in places.values())]
        for name in MEASURES
    ]
    lines += _table(["measure", *places], rows)
    models = found["random models"]
    names = [f"name {name}" for name in models if name != "models"]
    lines += _table(["random models", *names], [[str(count) for count in models.values()]])
    rows = [
        [f"({place}), {law}", *(f"{100 * rate:.2f} %" for rate in rates)]
        for place, laws in found["relations"].items()
        for law, rates in laws.items()
        if law != "heads"
    ]
    lines += _table(["unrelated heads", *(f"p < {level:g}" for level in LEVELS)], rows)
    rows = []
    for name, one in found.get("published models", {}).items():
        amounts = [
            ", ".join(_percent(value) for value in one[key]) + " %"
            for key in ("moved share", "with equal axes", "relation")
        ]
        sides = ", ".join(str(one["towards"][side]) for side in ("fewer", "more", "both"))
        counts = [str(one["unequal axes"]), str(one["weaker half is negative"])]
        chance = f"{_percent(one['95 % of random heads'])} %"
        rows.append([name, f"{one['heads']}, {one['differ']}", *amounts, chance, sides, *counts])
    header = ["published model", "heads, differ", "moved share: median, largest", "with equal axes", "R"]
    header += ["95 % of random heads", "towards fewer, more, both", "unequal axes", "the weaker half is negative for"]
    lines += _table(header, rows)
    steps = list(found["training run"].items())[:: max(1, len(found["training run"]) // 12)]
    rows = [[step, *(f"{100 * one:.0f} %" for one in three)] for step, three in steps]
    lines += _table(["step", "smallest", "median", "largest"], rows)
    return "\n".join(lines).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "published models"], default=list(PARTS))
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    arguments = parser.parse_args()
    results = HERE / "results.json"
    found = json.loads(results.read_text()) if results.exists() else {}
    for number, (name, part) in enumerate(PARTS.items()):
        if name in arguments.only:
            found[name] = part(np.random.default_rng([SEED, number]))
            results.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for name, path in (one.split("=", 1) for one in arguments.model):
        found.setdefault("published models", {})[name] = published_model(name, path)
    results.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = HERE / "README.md"
    begin, rest = page.read_text().split("<!-- begin table -->\n")
    page.write_text(
        f"{begin}<!-- begin table -->\n{tables(found)}\n<!-- end table -->{rest.split('<!-- end table -->')[1]}"
    )
    print(tables(found))


if __name__ == "__main__":
    main()
