"""The tables of README.md, from the files of results.

python benchmarks/tables.py
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Results = Mapping[str, Any]
Rows = Iterator[tuple[str, ...]]

RULES = {
    "rmtbase signal": "`rmtbase signal`",
    "rmtbase heavy tails": "`rmtbase heavy tails`",
    "WeightWatcher spikes": "WeightWatcher spikes",
    "WeightWatcher α": "WeightWatcher α",
    "IQR signal-to-noise": "interquartile",
    "4/√3, σ unknown": "4/√3, σ unknown",
    "4/√3, σ known": "4/√3, σ known",
    "optht, σ known": "the same by optht",
    "90 % of the energy": "90 % of the energy",
}
NAMES_A_RANK_ALWAYS = "90 % of the energy"
CASES = (
    ("W", (64, 768), "normal", "normal (64, 768)"),
    ("W", (256, 256), "normal", "normal (256, 256)"),
    ("W", (768, 3072), "normal", "normal (768, 3072)"),
    ("W", (64, 768), "uniform", "uniform (64, 768)"),
    ("W", (64, 768), "Laplace", "Laplace"),
    ("W", (64, 768), "Student t, 3", "Student t₃"),
    ("W", (64, 768), "row gains of 10 %", "row gains of 10 %"),
    ("W", (64, 768), "column gains of 10 %", "column gains of 10 %"),
    ("W_QK", (768, 64, 768), "normal", "W_QK (768, 64)"),
)
NOT_OF_PRODUCTS = ("rmtbase heavy tails", "IQR signal-to-noise")
STRENGTHS = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
HEADS = {
    "normal": "pairs flagged, %: normal entries",
    "uniform": "uniform entries",
    "each head learned its own": "each head learned directions of its own",
    "gains of the stream of 10 %": "gains of 10 % that all heads share",
}


def result(name: str) -> Results:
    """Read the results that a script wrote."""
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


def directions() -> Rows:
    """Compare the search for directions with scoring, in processor seconds."""
    yield "", "weights", "`score`", "singular values", "directions", "of `score`", "`signal`"
    for one in result("directions")["processor_seconds"]:
        seconds = [f"{one[name]:.2f}" for name in ("score", "singular values", "directions", "signal")]
        share = f"{100 * one['directions'] / one['score']:.0f} %"
        where, weights = f"{one['shape']}, {one['heads']} heads", "planted" if one["planted"] else "noise alone"
        yield where, weights, *seconds[:3], share, seconds[3]


LACKS = {
    "exact": ("`weibull_fit`", "a copy of the weights is held and sorted"),
    "streaming": ("`element_sketch`, with all else that is asked of elements", "k̂ to the last digit"),
    "likelihood": ("`weibull_likelihood_fit`", "a trim"),
    "scipy": ("`scipy.stats.weibull_min.fit`", "a trim, a standard error, a null"),
    "npm-weibull-py": ("npm-weibull-py", "a standard error, a null, a grid that fits the sample"),
}


def weibull() -> Rows:
    """Weibull fits beside others: costs, and the bias of k̂ in standard errors of one fit of the most weights."""
    found = result("weibull_peers")
    most = max(one["n"] for one in found["cost"])
    exact = {one["contender"]: one for one in found["quantiles"]}
    errors = {one["contender"]: one["law_std"] * (one["n"] / most) ** 0.5 for one in found["accuracy"]}
    yield "", "processor seconds", "copies", "bias of k̂", "what it lacks"
    for name, (shown, lacks) in LACKS.items():
        cost = next(one for one in found["cost"] if (one["contender"], one["n"]) == (name, most))
        seconds, bias = cost["cpu_seconds"], "not run"
        if name in exact:
            low, high = (pick(exact[name]["shape_error"]) / errors[name] for pick in (min, max))
            bias = re.sub(r"e-0*", "e-", f"{max(-low, high):.0e}")
            if len(exact[name]["shape_error"]) > 1:
                bias = f"−{-low:.1f} to +{high:.1f}, by the unit of the weights"
        yield (
            shown,
            f"{seconds:.{2 if seconds < 1 else 1 if seconds < 10 else 0}f}",
            f"{cost['copies']:.1f}",
            bias,
            lacks,
        )


def spectrum(found: Results, rule: str, of: str, dims: tuple[int, ...], entries: str, planted: list[float]) -> Any:
    """Find a rule's verdict on a case; None if the rule was not run."""
    key = (rule, of, list(dims), entries, planted)
    rows = (
        one for one in found["spectra"] if tuple(one[k] for k in ("rule", "of", "dims", "entries", "planted")) == key
    )
    return next(rows, None)


def false_alarms() -> Rows:
    """Share of matrices that learned nothing of which a rule says that they did."""
    found = result("decisions")
    yield "", *(shown for *_, shown in CASES)
    for rule, shown in RULES.items():
        yield shown, *(alarm(spectrum(found, rule, *case[:3], []), rule, case[0]) for case in CASES)


def alarm(one: Results | None, rule: str, of: str) -> str:
    """Format the alarms of one rule in one case."""
    if one is None:
        return "–" if of == "W_QK" and rule in NOT_OF_PRODUCTS else "not run"
    median = one.get("median_directions")
    if rule == NAMES_A_RANK_ALWAYS:
        return f"({median:.0f})"
    per_cent = 100 * one["learned"]
    text = f"{per_cent:.1f}" if rule == "rmtbase signal" and per_cent < 100 else f"{per_cent:.0f}"
    if rule == "rmtbase signal" and one["draws"] < 100:
        text += f" ± {100 * one['learned_standard_error']:.1f}"
    return f"{text} ({median:.0f})" if per_cent == 100 and median is not None and rule != "rmtbase signal" else text


def power() -> Rows:
    """Share of matrices in which exactly the planted number is named."""
    found = result("decisions")

    def shares(rule: str, of: str, dims: tuple[int, ...], number: int) -> list[str]:
        rows = (spectrum(found, rule, of, dims, "normal", [strength] * number) for strength in STRENGTHS)
        return [f"{100 * one['exact']:.0f}" for one in rows]

    yield "planted", "rule", *(f"{strength:g}" for strength in STRENGTHS)
    for dims, number in (((64, 768), 1), ((64, 768), 4), ((256, 256), 1)):
        yield f"{number} in {dims}", "`rmtbase signal`", *shares("rmtbase signal", "W", dims, number)
        yield "", "WeightWatcher spikes", *shares("WeightWatcher spikes", "W", dims, number)
        each = [shares(rule, "W", dims, number) for rule in ("4/√3, σ unknown", "4/√3, σ known", "optht, σ known")]
        if each[0] == each[1] == each[2]:
            yield "", "4/√3, either, optht too", *each[0]
        else:
            both = (one if one == two else f"{one} ({two})" for one, two in zip(*each[:2], strict=True))
            yield "", "4/√3, σ unknown (known)", *both
    for number, of in ((1, "W_QK"), (1, "W_Q"), (4, "W_QK")):
        planted = f"{number} in W_Q of (768, 64)" if of == "W_QK" else ""
        dims = (768, 64, 768)
        yield planted, f"`rmtbase signal` of {of}", *shares("rmtbase signal", of, dims, number)


def layers() -> Rows:
    """Compare the layers that each recipe would train."""
    heads = "top 25 %: of the learned", "top 50 %", "rmtbase, q < 0.05: of the learned", "besides, modules of a model"
    yield "module", "strength", *heads
    found: dict[tuple[tuple[int, int], float], list[Results]] = {}
    for one in result("decisions")["selection"]:
        if one["strength"]:
            found.setdefault((tuple(one["module"]), one["strength"]), []).append(one)
    for (module, strength), rules in found.items():
        ours = rules[-1]
        besides = ours["chosen"] - ours["found"] * ours["learned_layers"]
        yield f"{module}", f"{strength:g}", *(f"{100 * one['found']:.0f}" for one in rules), f"{besides:.2f}"


def pairs() -> Rows:
    """Compare the pairs of heads that compose by each rule."""
    yield "", "above random heads", "rmtbase, p ≤ 0.05", "rmtbase, q < 0.05"
    by_heads: dict[str, list[Results]] = {}
    for one in result("decisions")["compositions"]:
        by_heads.setdefault(one["heads"], []).append(one)
    for name, shown in HEADS.items():
        *tested, corrected = by_heads[name]
        shares = (f"{100 * one['flagged']:.1f} ± {100 * one['standard_error']:.1f}" for one in tested)
        yield shown, *shares, f"{100 * corrected['flagged']:.2f}" if corrected["flagged"] else "0"
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, rules in by_heads.items():
        if name.startswith("one pair at ") and name != "one pair at 0.8":
            strength = name.removeprefix("one pair at ")
            alike.setdefault(tuple(f"{100 * one['found']:.0f}" for one in rules), []).append(strength)
    for place, (shares, strengths) in enumerate(alike.items()):
        at = ", ".join(strengths)
        first = f"found, %: one pair that composes by a direction at {at} threshold"
        yield f"at {at}" if place else first, *shares


def gpu() -> Rows:
    """Compare a GPU with the cores of its host, in milliseconds per draw."""
    found = result("engine_accelerator")
    yield "", "rmtbase", "bare cost", "16 cores, `svd`", "16 cores, `gram`", "dense on the GPU", "dense, NumPy"
    for one in found["cases"]:
        of = {name: each["median_ms"] for name, each in one["contenders"].items()}
        own = of["rmtbase"]
        numbers = (own, own / one["ratios_of_medians"]["rmtbase / bare"], of["processor_svd"])
        gram, dense, numpy = (of.get(name) for name in ("processor_gram", "dense", "dense_numpy"))
        yield (
            one["case"].replace("residual d", "residual path, d"), *(_milliseconds(x) for x in numbers),
            _milliseconds(gram), f"{dense:.0f}", f"{numpy:,.0f}".replace(",", " "),
        )  # fmt: skip
    one = {name: each["median_ms"] for name, each in found["elements"]["contenders"].items()}
    numpy = f"{one['dense_numpy']:,.0f}".replace(",", " ")
    yield (
        found["elements"]["case"].replace("elements", "elements of"),
        f"{one['rmtbase']:.1f}",
        "",
        f"{one['processor']:.1f}",
        "",
        "",
        numpy,
    )


def _milliseconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.{4 if value < 0.03 else 3 if value < 1 else 2 if value < 10 else 1}f}"


TABLES: dict[str, Callable[[], Rows]] = {
    one.__name__: one for one in (directions, weibull, false_alarms, power, layers, pairs, gpu)
}


def filled(page: str) -> str:
    """Fill every table between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` of the page anew."""

    def table(found: re.Match[str]) -> str:
        title, *rows = TABLES[found[1]]()
        lines = ("| " + " | ".join(row) + " |" for row in (title, ["---"] * len(title), *rows))
        return "\n".join(
            [f"<!-- begin {found[1]} -->", *(re.sub("  +", " ", line) for line in lines), f"<!-- end {found[1]} -->"]
        )

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", table, page, flags=re.DOTALL)


def main() -> None:
    page = HERE / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
