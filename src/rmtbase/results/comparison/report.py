"""Comparisons on the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmtbase.reasons import Reason, not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.comparison._matrices import FUSED, published_class
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.comparison.summary import Row, answer_and_others, not_testable_of, rows_in, summarize_comparison
from rmtbase.tables import rows_of
from rmtbase.words import counted, listing

if TYPE_CHECKING:
    import xarray as xr

_LISTED = 12
_NAMED = 6  # models in the heading
# dimensions in the order in which rows are nested
_ORDER = ("step", "model", "pair", "contrast", "published_model", "component", "statistic", "measure", "group")
_MODELS = (
    *(Column(name, "left", cell=name) for name in ("model", "of", "attention")),
    Column("heads that differ", cell="departed"),
    Column("k, Transmission", form=".4g", cell="transmission_shape"),
    Column("untrained k", cell="untrained_shape"),
    Column("λ", form=".3g", cell="transmission_scale"),
    Column("recipe", "left", cell="initial_recipe"),
    Column("T/τ", form=".3g", cell="budget"),
    Column("state", "left", cell="budget_state"),
)
_PLACE = tuple(Column(name, "left", cell=name) for name in ("model", "component"))
_COMPONENTS = (
    *_PLACE,
    Column("differ from anchor", cell="departed"),
    Column("median k", form=".4g", cell="shape"),
    Column("untrained k", cell="untrained_shape"),
    Column("published class of k", "left", cell="published_class"),
    Column("R²", form=".4g", cell="r_squared"),
    Column("median λ", form=".4g", cell="median_scale"),
    Column("closure", form=".2g", cell="closure"),
    Column("gap", form=".3g", cell="body_tail_gap"),
    Column("mean λ", form=".3g", cell="scale"),
    Column("mean σ", form=".3g", cell="sigma"),
)
_NEAREST = (
    *_PLACE,
    Column("nearest published", "left", cell="nearest_model"),
    Column("distance", form=".3g", cell="nearest_distance"),
    Column("random (5 to 95 %)", cell="random"),
    Column("p", form=".2g", cell="nearest_p_value"),
    Column("q", form=".2g", cell="nearest_q_value"),
    Column("published as near", form=".0%", cell="nearest_between_published"),
)
_NEAREST_NOTE = (
    "Distance: in median k and ln of the median λ, each in standard deviations over the published models of that "
    "component. Random: untrained normal matrices of the same sizes and σ; p is the share of them that come as near. "
    "Published as near: published models with another one at most as far."
)
_TWO_GROUPS = Column("difference ± 95 %", cell="difference"), Column("p by t", form=".2g", cell="t_p_value")
_SEVERAL_GROUPS = Column("group sd", form=".2g", cell="group_std"), Column("F", form=".3g", cell="f_ratio")


def as_json(tree: xr.DataTree) -> dict[str, Any]:
    """Return each group as a list of rows, one for each entry of its first dimension; scalar groups as one row."""
    plain: dict[str, Any] = {}
    for path, node in tree.subtree_with_keys:
        *parents, name = path.split("/")
        if node.data_vars:
            table, parent = node.to_dataset(), plain
            for key in parents:
                parent = parent.setdefault(key, {})
            parent[name] = _nested(table, [dim for dim in _ORDER if dim in table.sizes])
    untested = not_testable_json(not_testable_of(tree))
    return plain | {"not_testable": untested, "sentences": summarize_comparison(tree)}


def _nested(table: xr.Dataset, dims: Sequence[str]) -> Any:
    if not dims:
        return {
            str(name): Reason.read(value.item()).words if name in ("reason", "alignment_reason") else value.item()
            for name, value in table.data_vars.items()
            if not value.dims
        }
    first, *inner = dims
    rows = []
    for place, name in enumerate(table[first].values.tolist()):
        entry = table.isel({first: place})
        row = {first: name, **_nested(entry, [])}
        if inner:
            row[f"{inner[0]}s"] = _nested(entry[[key for key, value in entry.items() if value.dims]], inner)
        rows.append(row)
    return rows


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Give the findings as sentences; as details the models, and their components or the groups they form."""
    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    models, published = rows_in(groups, "models", "model"), rows_in(groups, "published", "published_model")
    yield Heading(f"{counted(len(models), 'model')}: {listing([row['model'] for row in models], _NAMED)}")
    answer, others = answer_and_others(tree)
    yield from answer
    if answer:
        yield DETAILS
    yield from others
    rows = [
        row
        | {
            "of": " ".join(filter(None, (row["name"], row["revision"]))),
            "departed": _departed(row["n_departed_heads"], row["n_scored_heads"], row["n_untested_heads"]),
            "untrained_shape": _untrained(row, "transmission_shape"),
        }
        for row in models
    ]
    names = {"model": "published_model", "transmission_scale": "mean_scale"}
    rows += [row | {name: row[key] for name, key in names.items()} | {"of": "published"} for row in published]
    yield Rows.of(rows, *_MODELS)
    components = [row for row in rows_in(groups, "components", "model", "component") if row["n_matrices"]]
    if "trims" in groups:
        random = "{nearest_random_median:.3g} ({nearest_random_low:.3g} to {nearest_random_high:.3g})"
        rows = [row | {"random": random.format(**row)} for row in components if row["nearest_model"]]
        if rows:
            yield Rows.of(rows, *_NEAREST, named=2, title="Nearest published component")
            yield _NEAREST_NOTE
        yield _trim_rows(models, groups["trims"])
    if "between" in groups:
        yield from _group_items(groups["between"], groups["groups"])
    elif "components" in groups:
        yield from _component_items(components, groups)


def _component_items(components: Sequence[Row], groups: dict[str, xr.Dataset]) -> Iterator[Item]:
    names = {row["component"] for row in components}
    published = [
        row
        | {
            "model": f"{row['published_model']} (published)",
            "published_class": published_class(row["shape"], row["component"] in FUSED),
            "median_scale": row["scale"],
            "scale": "",
        }
        for row in rows_in(groups, "published", "published_model", "component")
        if row["component"] in names and not math.isnan(row["shape"])
    ]
    rows = [
        row
        | {"departed": _departed(row["n_departed"], row["n_tested"], row["n_matrices"] - row["n_tested"])}
        | {"untrained_shape": _untrained(row, "shape")}
        for row in components
    ]
    rows = [row | {"published_class": row["published_class"].replace("_", " ")} for row in [*rows, *published]]
    has_scale = "median_scale" in groups["components"]
    columns = [column for column in _COMPONENTS if has_scale or column.cell != "median_scale"]
    yield Rows.of(rows, *columns, named=2, title="By component")
    names_of_nulls = (f"{name}_null_mean" for name in ("r_squared", "closure", "body_tail_gap"))
    r_squared, closure, gap = (float(groups["components"][name].median()) for name in names_of_nulls)
    untrained = f"of untrained weights R² {r_squared:.4f}, closure {closure:.2g}, gap {gap:.3g}"
    yield f"Medians over layers, means of λ and σ; {untrained}."
    if published:
        yield "Published: DATABASE_v9_1 of the package npm-weibull-py (T. Ding, arXiv:2605.18898), CC BY 4.0."


def _trim_rows(models: Sequence[Row], trims: xr.Dataset) -> Rows:
    number = {str(name): value.item() for name, value in trims.items()}
    rows: list[tuple[str | float, ...]] = [
        (row["model"], row["transmission_shape"], "", row["transmission_shape_untrimmed"], row["transmission_gap"])
        for row in models
    ]
    published = "twelve models (published)", "", f" ± {number['gap_std']:.4f}"
    for name, start, error in (published, ("untrained", "untrained_", "")):
        shapes = (number[f"{start}shape_{trim}"] for trim in ("10", "5", "0"))
        rows.append((name, *shapes, f"{number[f'{start}gap']:.4f}{error}"))
    shapes = [Column(heading, form=".4g") for heading in ("k, middle 80 %", "k, middle 90 %", "k, all")]
    return Rows([Column("Transmission", "left"), *shapes, Column("gap", form=".3g")], rows, title="By trim")


def _group_items(between: xr.Dataset, groups: xr.Dataset) -> Iterator[Item]:
    names, two = between["group"].values.tolist(), between.sizes["group"] == 2
    means = between["mean"].transpose("measure", "group").values.tolist()
    measures = rows_of(between, COMPARISON_SCHEMA["/between"], "measure")
    rows: list[Row] = [row | dict(zip(names, mean, strict=True)) for row, mean in zip(measures, means, strict=True)]
    if two:
        contrasts = rows_of(groups.isel(contrast=[0]), COMPARISON_SCHEMA["/groups"], "contrast", "measure")
        for row, contrast in zip(rows, contrasts, strict=True):
            half, number = (contrast["interval_high"] - contrast["interval_low"]) / 2, contrast["difference"]
            interval = "" if math.isnan(half) else f" ± {half:.2g}"
            row |= contrast | {"difference": "" if math.isnan(number) else f"{number:+.3g}{interval}"}
    first = [row for row in rows if row["headline"]]
    others = [row for row in rows if not row["headline"] and not math.isnan(row["adjusted_p_value"])]
    others.sort(key=lambda row: (row["adjusted_p_value"], -row["f_ratio"]))
    shown = [*first, *others][: max(_LISTED, len(first))]
    for row in shown:
        if math.isnan(row["adjusted_p_value"]):  # not tested, so that its other numbers are missing too
            row |= {name: UNTESTED for name, value in row.items() if value == "" or value != value}
    numbers = [Column(name, form=".4g", cell=name) for name in names]
    numbers += [Column("seed sd", form=".2g", cell="seed_std"), *(_TWO_GROUPS if two else _SEVERAL_GROUPS)]
    adjusted = Column("adj. p", form=".2g", cell="adjusted_p_value")
    yield Rows.of(shown, Column("measure", "left", cell="measure"), *numbers, adjusted, title="Groups")
    yield (
        "Of spectra the mean distance of key heads from the null, in its standard deviations; sd are standard "
        "deviations, from seed to seed and between groups beyond it; adj. p is exact, adjusted for all measures."
    )


def _departed(departed: int, tested: int, untested: int) -> str:
    words = f"{departed} of {tested}" if tested else UNTESTED
    return f"{words} ({untested} not testable)" if untested else words


def _untrained(row: Row, name: str) -> str:
    mean, error = (row.get(f"{name}_null_{part}", math.nan) for part in ("mean", "std"))
    return "" if math.isnan(mean) else f"{mean:.4f} ± {error:.4f}"
