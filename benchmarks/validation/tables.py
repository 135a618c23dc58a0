"""The results as JSON with one row a line, as one long table, and as the short tables of the README."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

Record = dict[str, Any]
RowDict = dict[str, Any]

_EDGES = ("largest_eigenvalue", "smallest_eigenvalue")
_TAIL_NAMES = ("lower tail 0.01", "upper tail 0.01", "lower tail 0.001", "upper tail 0.001")
_SHARED = ("quantity", "parameters", "method", "group", "draws")
_JUDGED = {"z": "z", "deviation": "error/sd", "ratio": "ratio"}
_ORDERS = {"first order": "first order", "first order, half-shift": "first order, half-shift", "grid": "second order"}
_MARKED = re.compile(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", re.DOTALL)


def as_json(record: Record) -> str:
    """Write the record as JSON: a line for all numbers of one quantity, whose shared keys are written once."""
    head = {key: value for key, value in record.items() if key != "sections"}
    sections = []
    for name, section in record["sections"].items():
        subjects: dict[str, list[RowDict]] = {}
        for row in section["rows"]:
            subjects.setdefault(_dumped({key: row[key] for key in _SHARED if key in row}), []).append(
                {key: value for key, value in row.items() if key not in _SHARED}
            )
        lines = ",\n".join(f'  {shared[:-1]}, "numbers": {_dumped(numbers)}}}' for shared, numbers in subjects.items())
        curves = _dumped(_rounded(section["curves"]))
        opening = f' {_dumped(name)}: {{"seconds": {section["seconds"]}, "curves": {curves}, "quantities": ['
        sections.append(f"{opening}\n{lines}\n ]}}")
    opening = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    return opening + ',\n "sections": {\n' + ",\n".join(sections) + "\n }\n}\n"


def from_json(text: str) -> Record:
    """Read the record that :func:`as_json` wrote, with a row for each number."""
    record = json.loads(text)
    for section in record["sections"].values():
        section["rows"] = [
            {**{key: value for key, value in subject.items() if key != "numbers"}, **number}
            for subject in section.pop("quantities")
            for number in subject["numbers"]
        ]
    return record


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def filled(text: str, record: Record) -> str:
    """Fill everything between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` of a text anew."""
    return _MARKED.sub(
        lambda found: f"<!-- begin {found[1]} -->\n{_PARTS[found[1]](record)}\n<!-- end {found[1]} -->", text
    )


def verdict(record: Record) -> str:
    """Count in one line the comparisons and those within their limits."""
    judged = [row for row in _rows(record) if _claimed(row)]
    failed = sum(not row["passed"] for row in judged)
    return f"{len(judged)} of {sum(1 for _ in _rows(record))} comparisons are judged, {failed} of them fail."


def full(record: Record) -> str:
    """Every comparison."""
    parts = [
        "# Every analytic quantity beside simulation\n\n"
        "Made by `validate.py`; how to read it is in [README.md](README.md). Errors of means and quantiles are law - "
        "simulation in standard deviations of the statistic, ratios are simulation/law. **Bold**: outside the limits."
    ]
    for name, section in record["sections"].items():
        parts.append(f"## {name[0].upper()}{name[1:]}")
        parts += _heads(section["rows"]) if name == "heads" else [_generic(section["rows"])]
    return "\n\n".join(parts) + "\n"


def _rows(record: Record) -> Iterator[RowDict]:
    for section in record["sections"].values():
        yield from section["rows"]


def _heads(rows: list[RowDict]) -> Iterator[str]:
    laws = [row for row in rows if row.get("group") in ("grid", "others")]
    yield (
        "### Mean and standard deviation\n\n`own`: each factor divided by its own estimated sigma.\n\n"
        + _table(
            (
                "d_model",
                "d_head",
                "statistic",
                "mean, law",
                "simulated",
                "error/sd",
                "z",
                "sd, law",
                "simulated",
                "ratio",
                "z",
            ),
            map(_mean_and_std, _grouped(laws)),
        )
    )
    edges = [row for row in laws if row["quantity"] in _EDGES]
    quantiles = sorted({row["of"] for row in edges if row["of"].startswith("quantile")})
    tails = sorted({row["of"] for row in edges if "tail" in row["of"]}, key=_tail_order)
    yield "### Extreme eigenvalues: errors of quantiles, in standard deviations\n\n" + _table(
        ("d_model", "d_head", "statistic", *(name.removeprefix("quantile ") for name in quantiles)),
        ((*_shape(group[0]), *_pick(group, quantiles, "deviation", "+.3f")) for group in _grouped(edges)),
    )
    yield "### Extreme eigenvalues: tail probabilities, simulation/law, and counts beyond the quantile\n\n" + _table(
        ("d_model", "d_head", "statistic", *tails),
        ((*_shape(group[0]), *_pick(group, tails, "ratio", ".2f", counts=True)) for group in _grouped(edges)),
    )
    others = [row for row in laws if row["quantity"] not in _EDGES]
    tails = sorted({row["of"] for row in others if "tail" in row["of"]}, key=_tail_order)
    yield "### Other statistics: tail probabilities, simulation/law\n\n" + _table(
        ("d_model", "d_head", "statistic", *tails),
        ((*_shape(group[0]), *_pick(group, tails, "ratio", ".2f")) for group in _grouped(others)),
    )
    yield "### First-order Tracy-Widom laws, of edge and scale alone\n\n" + _generic(
        [row for row in rows if row.get("group", "").startswith("first order")], with_group=True
    )
    yield "### Outside the domain of `null`\n\n" + _generic([row for row in rows if row.get("group") == "outside"])
    yield "### Tails of the extreme eigenvalues, pooled over the grid\n\n" + _generic(
        [row for row in rows if row.get("group", "").startswith("pooled")], with_group=True
    )


def _grouped(rows: Iterable[RowDict]) -> Iterator[list[RowDict]]:
    """Rows of one statistic of one shape."""
    groups: dict[str, list[RowDict]] = {}
    for row in rows:
        groups.setdefault(row["quantity"] + json.dumps(row["parameters"]), []).append(row)
    yield from groups.values()


def _shape(row: RowDict) -> tuple[str, str, str]:
    parameters = row["parameters"]
    own = ", own" if parameters["self_normalized"] else ""
    return str(parameters["d_model"]), str(parameters["d_head"]), _words(row["quantity"]) + own


def _mean_and_std(group: list[RowDict]) -> tuple[str, ...]:
    mean, std = (next(row for row in group if row["of"] == of) for of in ("mean", "std"))
    return (
        *_shape(mean),
        _number(mean["analytic"]), _with_error(mean), _marked(mean, f"{mean['deviation']:+.4f}"), f"{mean['z']:+.2f}",
        _number(std["analytic"]), _with_error(std), _marked(std, f"{std['ratio']:.4f}"), f"{std['z']:+.2f}",
    )  # fmt: skip


def _pick(group: list[RowDict], names: Sequence[str], value: str, form: str, counts: bool = False) -> Iterator[str]:
    found = {row["of"]: row for row in group}
    for name in names:
        row = found.get(name)
        if row is None:
            yield ""
        else:
            count = f" ({round(row['simulated'] * row['draws'])})" if counts else ""
            yield _marked(row, f"{row[value]:{form}}{count}")


def _generic(rows: list[RowDict], with_group: bool = False) -> str:
    head = ("quantity", "of what", "number", "method", "analytic", "simulated", "z", "error/sd", "ratio")
    return _table(
        head,
        (
            (
                _words(row["quantity"]) + (f" ({row['group']})" if with_group else ""),
                _parameters(row["parameters"]), row["of"], row["method"], _number(row["analytic"]), _with_error(row),
                _optional(row, "z", "+.2f"),
                _marked(row, _optional(row, "deviation", "+.4f")) if row.get("judged") == "deviation"
                else _optional(row, "deviation", "+.4f"),
                _marked(row, _optional(row, "ratio", ".4f")) if row.get("judged") == "ratio"
                else _optional(row, "ratio", ".4f"),
            )
            for row in rows
        ),
    )  # fmt: skip


def _claimed(row: RowDict) -> bool:
    """Return True if the row is judged, and something is claimed for its shape."""
    return "passed" in row and row.get("group") != "outside"


def _sections(record: Record) -> str:
    """Write a line per section: exact and asymptotic comparisons, and how many fail."""
    lines = []
    for name, section in record["sections"].items():
        rows = section["rows"]
        exact = [row for row in rows if row["method"] == "exact" and _claimed(row)]
        asymptotic = [row for row in rows if row["method"] == "asymptotic" and _claimed(row)]
        lines.append(
            (
                name, str(len(exact)), f"{max(abs(row['z']) for row in exact):.2f}" if exact else "",
                str(sum(not row["passed"] for row in exact)), str(len(asymptotic)),
                str(sum(not row["passed"] for row in asymptotic)), str(len(rows) - len(exact) - len(asymptotic)),
            )
        )  # fmt: skip
    head = ("section", "exact", "largest abs(z)", "beyond 4.5", "asymptotic", "outside their limits", "not judged")
    machine = record["machine"]
    return (
        _table(head, lines) + f"\n\n{verdict(record)} Simulated with {_versions(machine)} on {machine['processor']}"
        f" ({machine['cores']} cores, {machine['system']})."
    )


def _versions(machine: dict[str, Any]) -> str:
    return ", ".join(f"{name} {machine['packages'][name]}" for name in ("numpy", "scipy", "jax"))


def exact_scores(record: Record) -> np.ndarray:
    """Z of every exact value but those that a free scale makes twins of others."""
    twins = ("normalized_participation_ratio", "normalized_participation_ratio_singular")
    rows = (row for row in _rows(record) if row["method"] == "exact" and "z" in row and row["quantity"] not in twins)
    return np.array([row["z"] for row in rows])


def _scores(record: Record) -> str:
    z = exact_scores(record)
    shares = ((1.0, 0.3173), (2.0, 0.0455), (3.0, 0.0027))
    lines = [(f"abs(z) > {limit:g}", f"{(np.abs(z) > limit).mean():.4f}", f"{normal:.4f}") for limit, normal in shares]
    lines += [("mean of z", f"{z.mean():+.3f}", "0"), ("standard deviation of z", f"{z.std():.3f}", "1")]
    return _table((f"{z.size} exact values", "found", "standard normal"), lines)


def _statistics(record: Record) -> str:
    """Tabulate the worst of each statistic over the grid, and over the other shapes."""
    rows = [row for row in record["sections"]["heads"]["rows"] if row.get("group") in ("grid", "others")]
    shapes = {(row["parameters"]["d_model"], row["parameters"]["d_head"]) for row in rows if row["group"] == "grid"}
    others = {(row["parameters"]["d_model"], row["parameters"]["d_head"]) for row in rows if row["group"] == "others"}
    lines = []
    for statistic in dict.fromkeys(row["quantity"] for row in rows):
        of = [row for row in rows if row["quantity"] == statistic]
        line = [_words(statistic), of[0]["method"]]
        for group in ("grid", "others"):
            for number, key in (("mean", "deviation"), ("std", "ratio")):
                some = [row for row in of if row["of"] == number and row["group"] == group]
                line.append(_worst(some, key) if some else "")
        lines.append(tuple(line))
    head = (
        "statistic", "mean and sd are", f"mean: largest error/sd, {len(shapes)} shapes of the grid",
        "sd: furthest ratio, grid", f"mean: {len(others)} other shapes", "sd: other shapes",
    )  # fmt: skip
    listed = ", ".join(f"({d}, {h})" for d, h in sorted(others))
    return _table(head, lines) + f"\n\nOther shapes: {listed}."


def _worst(rows: list[RowDict], key: str, form: str = "") -> str:
    centre = 1.0 if key == "ratio" else 0.0
    form = form or (".4f" if key == "ratio" else "+.4f")
    row = max(rows, key=lambda one: abs(one[key] - centre))
    place = f"({row['parameters']['d_model']}, {row['parameters']['d_head']})"
    own = " own" if row["parameters"]["self_normalized"] else ""
    return _marked(row, f"{row[key]:{form}}") + f" {place}{own}"


def _edges(record: Record) -> str:
    """Second order beside first order: the worst over the grid, where both have their shapes."""
    rows = [row for row in record["sections"]["heads"]["rows"] if not row["parameters"]["self_normalized"]]
    lines = []
    for statistic, outer in zip(_EDGES, ("upper", "lower"), strict=True):
        of_statistic = [row for row in rows if row["quantity"] == statistic]
        on_grid = [row["parameters"] for row in of_statistic if row["group"] == "grid" and row["of"] == "mean"]
        for group, label in _ORDERS.items():
            of = [row for row in of_statistic if row["group"] == group and row["parameters"] in on_grid]
            pooled = {
                row["of"]: row
                for row in of_statistic
                if row["group"] == f"pooled, {group}" and row["parameters"]["d_head"] == "all"
            }
            quantiles = [row for row in of if row["of"].startswith("quantile")]
            lines.append(
                (
                    _words(statistic), label,
                    _worst([row for row in of if row["of"] == "mean"], "deviation"),
                    _worst([row for row in of if row["of"] == "std"], "ratio"),
                    _worst(quantiles, "deviation") if quantiles else "",
                    *(_counted(pooled.get(f"{outer} tail {p:g}")) for p in (1e-2, 1e-3, 1e-4)),
                )
            )  # fmt: skip
    head = (
        "extreme eigenvalue", "law", "mean: largest error/sd", "sd: furthest ratio",
        "quantiles 1 % to 99.9 %: largest error/sd", "outer tail 1e-2", "1e-3", "1e-4",
    )  # fmt: skip
    return _table(head, lines)


def _counted(row: RowDict | None) -> str:
    """Format the ratio of a pooled count with its standard error."""
    if row is None:
        return ""
    return f"{row['ratio']:.3f} ± {row['standard_error'] / row['analytic']:.3f}"


def _tails(record: Record) -> str:
    """Right-tail p-values of the extreme eigenvalues, pooled over gamma."""
    rows = [
        row for row in record["sections"]["heads"]["rows"]
        if row.get("group") == "pooled, grid" and row["of"].startswith("upper")
    ]  # fmt: skip
    names = sorted({row["of"] for row in rows}, key=_tail_order)
    heads: list[Any] = sorted({row["parameters"]["d_head"] for row in rows}, key=str)
    heads = [*sorted(h for h in heads if h != "all"), "all"]
    lines = []
    for statistic in _EDGES:
        for own in (False, True):
            for h in heads:
                place = (statistic, h, own)
                of = {
                    row["of"]: row
                    for row in rows
                    if (row["quantity"], row["parameters"]["d_head"], row["parameters"]["self_normalized"]) == place
                }
                if of:
                    shapes = next(iter(of.values()))["parameters"]["shapes"]
                    values = (_marked(of[name], _counted(of[name])) for name in names)
                    lines.append((_words(statistic) + (", own" if own else ""), str(h), str(shapes), *values))
    return _table(("extreme eigenvalue", "d_head", "shapes", *names), lines)


def _other_tails(record: Record) -> str:
    """Tail probabilities of the statistics other than extreme eigenvalues: the furthest ratio over the grid."""
    rows = [row for row in record["sections"]["heads"]["rows"] if row["group"] == "grid" and "tail" in row["of"]]
    rows = [row for row in rows if row["quantity"] not in _EDGES]
    names = sorted({row["of"] for row in rows}, key=_tail_order)
    lines = []
    for statistic in dict.fromkeys(row["quantity"] for row in rows):
        line = [_words(statistic)]
        for name in names:
            of = [row for row in rows if (row["quantity"], row["of"]) == (statistic, name)]
            line.append(_worst(of, "ratio", ".2f"))
        lines.append(line)
    errors = {name: next(row for row in rows if row["of"] == name) for name in names}
    note = ", ".join(f"{row['standard_error'] / row['analytic']:.2f} ({name})" for name, row in errors.items())
    return _table(("statistic", *names), lines) + f"\n\nStandard errors of each ratio: {note}."


def _chain_tails(record: Record) -> str:
    """Tails of every statistic of every chain, simulation/law; bold outside the limits."""
    rows = record["sections"]["tails"]["rows"]
    lines = []
    for group in _grouped(rows):
        found = {row["of"]: row for row in group}
        lines.append(
            (
                "×".join(map(str, group[0]["parameters"]["dims"])), _words(group[0]["quantity"]),
                _marked(found["mean"], f"{found['mean']['deviation']:+.3f}"),
                _marked(found["std"], f"{found['std']['ratio']:.3f}"),
                *_pick(group, _TAIL_NAMES, "ratio", ".2f"), f"{group[0]['draws'] // 1000} 000",
            )
        )  # fmt: skip
    return _table(("dims", "statistic", "mean: error/sd", "sd: ratio", *_TAIL_NAMES, "draws"), lines)


def _failures(record: Record) -> str:
    """Every comparison outside its limits."""
    lines = []
    for row in _rows(record):
        if _claimed(row) and not row["passed"]:
            value = row[row["judged"]]
            lines.append(
                (
                    _words(row["quantity"]), _parameters(row["parameters"]), row["of"],
                    _number(row["analytic"]), _with_error(row), f"{_JUDGED[row['judged']]} {value:.3f}",
                    f"{row['low']:g} to {row['high']:g}",
                )
            )  # fmt: skip
    if not lines:
        return "None."
    return _table(("quantity", "of what", "number", "analytic", "simulated", "found", "limits"), lines)


def _outside(record: Record) -> str:
    """Tabulate what the edge laws would say where ``null`` refuses."""
    rows = [row for row in record["sections"]["heads"]["rows"] if row.get("group") == "outside"]
    lines = []
    for group in _grouped(rows):
        found = {row["of"]: row for row in group}
        quantiles = [row for row in group if row["of"].startswith("quantile")]
        furthest = max(quantiles, key=lambda row: abs(row["deviation"]))
        lines.append(
            (
                *_shape(group[0]), _marked(found["mean"], f"{found['mean']['deviation']:+.3f}"),
                _marked(found["std"], f"{found['std']['ratio']:.3f}"),
                _marked(furthest, f"{furthest['deviation']:+.2f}") + f" at {furthest['of'].split()[1]}",
                *(f"{found[name]['ratio']:.2f}" for name in ("upper tail 0.001", "lower tail 0.001") if name in found),
            )
        )  # fmt: skip
    head = (
        "d_model", "d_head", "statistic", "mean: error/sd", "sd: ratio", "furthest quantile: error/sd",
        "upper tail 1e-3: ratio", "lower tail 1e-3: ratio",
    )  # fmt: skip
    return _table(head, lines)


def _quantities(record: Record) -> str:
    """Tabulate the worst of every quantity of the sections other than heads."""
    lines = []
    for name, section in record["sections"].items():
        if name == "heads":
            continue
        groups: dict[tuple[str, str], list[RowDict]] = {}
        for row in section["rows"]:
            if "passed" in row:
                groups.setdefault((row["quantity"], row["method"]), []).append(row)
        for (quantity, method), rows in groups.items():
            worst = max(rows, key=_excess)
            value = worst[worst["judged"]]
            found = f"{_JUDGED[worst['judged']]} {value:{'.3f' if worst['judged'] == 'ratio' else '+.3f'}}"
            place = f"{worst['of']}; {_parameters(worst['parameters'])}"
            lines.append((name, _words(quantity), method, str(len(rows)), _marked(worst, found), place))
    return _table(("section", "quantity", "method", "comparisons", "worst", "where"), lines)


def _excess(row: RowDict) -> float:
    """Distance of a judged number from the middle of its limits, in their half width."""
    centre, half = 0.5 * (row["low"] + row["high"]), 0.5 * (row["high"] - row["low"])
    return abs(row[row["judged"]] - centre) / half


_PARTS: dict[str, Callable[[Record], str]] = {
    "sections": _sections,
    "scores": _scores,
    "statistics": _statistics,
    "edges": _edges,
    "tails": _tails,
    "other_tails": _other_tails,
    "chain_tails": _chain_tails,
    "failures": _failures,
    "outside": _outside,
    "quantities": _quantities,
}


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in (head, rule, *lines))
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped)


def _words(quantity: str) -> str:
    return quantity.replace("_", " ").replace("W QK", "W_QK")


def _parameters(parameters: dict[str, Any]) -> str:
    named = (
        (key.replace("_", " ") if key not in ("d_model", "d_head") else key, value) for key, value in parameters.items()
    )
    return ", ".join(
        key if value is True else f"{key} {'×'.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in named
        if value is not False
    )


def _marked(row: RowDict, text: str) -> str:
    return f"**{text}**" if row.get("passed") is False else text


def _optional(row: RowDict, key: str, form: str) -> str:
    return f"{row[key]:{form}}" if key in row else ""


def _number(value: float) -> str:
    return f"{value:.7g}"


def _with_error(row: RowDict) -> str:
    """Format the simulated value to the digits that its error allows, with the error."""
    error = row["standard_error"]
    if not error > 0.0:
        return _number(row["simulated"])
    digits = 1 - math.floor(math.log10(error))
    if digits > 8 or digits < 0:
        return f"{row['simulated']:.6g} ± {error:.2g}"
    return f"{row['simulated']:.{digits}f} ± {error:.{digits}f}"


def _tail_order(name: str) -> tuple[str, float]:
    side, _, probability = name.split()
    return side, -float(probability)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value
