"""Comparisons on the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmtbase.reasons import Reason, not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.comparison._classes import FUSED, published_class
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.comparison.summary import answer_and_others, not_testable_of, summarize_comparison
from rmtbase.tables import rows_of
from rmtbase.words import counted, listing

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.comparison.summary import Row

_LISTED = 12
_NAMED = 6  # models in the heading
_ORDER = (
    *("step", "model", "pair", "contrast", "published_model", "component", "statistic", "measure", "group"),
)  # order in which the rows are nested


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
    scalars = {
        str(name): Reason.read(value.item()).words if name in ("reason", "alignment_reason") else value.item()
        for name, value in table.data_vars.items()
        if not value.dims
    }
    if not dims:
        return scalars
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
    models = _rows(groups, "models", "model")
    yield Heading(f"{counted(len(models), 'model')}: {listing([row['model'] for row in models], _NAMED)}")
    answer, others = answer_and_others(tree)
    yield from answer
    if answer:
        yield DETAILS
    yield from others
    yield _model_rows(models, _rows(groups, "published", "published_model"))
    components = [row for row in _rows(groups, "components", "model", "component") if row["n_matrices"]]
    if "trims" in groups:
        yield from _nearest_items(components)
        yield _trim_rows(models, groups["trims"])
    if "between" in groups:
        yield from _group_items(groups["between"], groups["groups"])
    elif "components" in groups:
        yield from _component_items(components, groups)


def _rows(groups: dict[str, xr.Dataset], name: str, *dims: str) -> list[Row]:
    return rows_of(groups[name], COMPARISON_SCHEMA[f"/{name}"], *dims) if name in groups else []


def _model_rows(models: Sequence[Row], published: Sequence[Row]) -> Rows:
    """Make the table of the models, and below them the published ones."""
    missing = dict.fromkeys(COMPARISON_SCHEMA["/models"], math.nan) | {"initial_recipe": ""}
    rows: list[tuple[str | float, ...]] = [
        (
            row["model"],
            " ".join(filter(None, (row["name"], row["revision"]))),
            row["attention"],
            _departed(row["n_departed_heads"], row["n_scored_heads"], row["n_untested_heads"]),
            row["transmission_shape"],
            _with_error(row["transmission_shape_null_mean"], row["transmission_shape_null_std"]),
            row["transmission_scale"],
            row["initial_recipe"],
            row["budget"],
            row["budget_state"],
        )
        for row in (missing | row for row in models)
    ]
    for row in published:
        texts = (row["published_model"], "published", "", "", "", "")
        rows.append((*texts, row["mean_scale"], "", row["budget"], row["budget_state"]))
    columns = [Column(name, "left") for name in ("model", "of", "attention")]
    columns += [Column("heads that differ"), Column("k, Transmission", form=".4g"), Column("untrained k")]
    columns += [Column("λ", form=".3g"), Column("recipe", "left"), Column("T/τ", form=".3g"), Column("state", "left")]
    return Rows(columns, rows)


def _component_items(components: Sequence[Row], groups: dict[str, xr.Dataset]) -> Iterator[Item]:
    """Print the components of each model, and below them the published ones."""
    names = {row["component"] for row in components}
    published = [
        row
        for row in _rows(groups, "published", "published_model", "component")
        if row["component"] in names and not math.isnan(row["shape"])
    ]
    nearest = [Column("median λ", form=".4g")] if "median_scale" in groups["components"] else []
    rows: list[tuple[str | float, ...]] = [
        (
            row["model"],
            row["component"],
            _departed(row["n_departed"], row["n_tested"], row["n_matrices"] - row["n_tested"]),
            row["shape"],
            _with_error(row["shape_null_mean"], row["shape_null_std"]),
            row["published_class"],
            row["r_squared"],
            *([row["median_scale"]] if nearest else []),
            *(row[name] for name in ("closure", "body_tail_gap", "scale", "sigma")),
        )
        for row in components
    ]
    for row in published:
        k, name = row["shape"], row["component"]
        cells = (k, "", published_class(k, name in FUSED), row["r_squared"], *([row["scale"]] if nearest else []))
        rows.append((f"{row['published_model']} (published)", name, "", *cells, "", "", "", ""))
    columns = [Column("model", "left"), Column("component", "left"), Column("differ from anchor")]
    columns += [Column("median k", form=".4g"), Column("untrained k"), Column("published class of k", "left")]
    columns += [Column("R²", form=".4g"), *nearest, Column("closure", form=".2g")]
    columns += [Column(name, form=".3g") for name in ("gap", "mean λ", "mean σ")]
    yield Rows(columns, rows, named=2, title="By component")
    table = groups["components"]
    null = [float(table[f"{name}_null_mean"].median()) for name in ("r_squared", "closure", "body_tail_gap")]
    untrained = "of untrained weights R² {:.4f}, closure {:.2g}, gap {:.3g}".format(*null)
    yield f"Medians over layers, means of λ and σ; {untrained}."
    if published:
        yield "Published: DATABASE_v9_1 of the package npm-weibull-py (T. Ding, arXiv:2605.18898), CC BY 4.0."


def _nearest_items(components: Sequence[Row]) -> Iterator[Item]:
    """Print the nearest published component of each component, and how near untrained matrices come."""
    columns = (
        Column("model", "left", cell=lambda row: row["model"]),
        Column("component", "left", cell=lambda row: row["component"]),
        Column("nearest published", "left", cell=lambda row: row["nearest_model"]),
        Column("distance", form=".3g", cell=lambda row: row["nearest_distance"]),
        Column("random (5 to 95 %)", cell=lambda row: _RANDOM.format(**row)),
        Column("p", form=".2g", cell=lambda row: row["nearest_p_value"]),
        Column("q", form=".2g", cell=lambda row: row["nearest_q_value"]),
        Column("published as near", form=".0%", cell=lambda row: row["nearest_between_published"]),
    )
    rows = Rows.of(
        (row for row in components if row["nearest_model"]), *columns, named=2, title="Nearest published component"
    )
    if rows.rows:
        yield rows
        yield (
            "Distance: in median k and ln of the median λ, each in standard deviations over the published models of "
            "that component. Random: untrained normal matrices of the same sizes and σ; p is the share of them that "
            "come as near. Published as near: published models with another one at most as far."
        )


_RANDOM = "{nearest_random_median:.3g} ({nearest_random_low:.3g} to {nearest_random_high:.3g})"


def _trim_rows(models: Sequence[Row], trims: xr.Dataset) -> Rows:
    """Table of the shape by trim: models, published models together, and untrained weights."""
    names = ("model", "transmission_shape", "transmission_shape_untrimmed", "transmission_gap")
    rows = [
        (name, shape, "", untrimmed, gap)
        for name, shape, untrimmed, gap in ([row[key] for key in names] for row in models)
    ]
    number = {str(name): value.item() for name, value in trims.items()}
    gap, untrained_gap = _with_error(number["gap"], number["gap_std"]), f"{number['untrained_gap']:.4f}"
    for label, start, text in (("twelve models (published)", "", gap), ("untrained", "untrained_", untrained_gap)):
        rows.append((label, *(number[f"{start}shape_{trim}"] for trim in ("10", "5", "0")), text))
    columns = [Column(name, form=".4g") for name in ("k, middle 80 %", "k, middle 90 %", "k, all")]
    return Rows([Column("Transmission", "left"), *columns, Column("gap", form=".3g")], rows, title="By trim")


def _group_items(between: xr.Dataset, groups: xr.Dataset) -> Iterator[Item]:
    """Print headline measures, then those that differ most; for two groups with the interval of the difference."""
    names, two = between["group"].values.tolist(), between.sizes["group"] == 2
    means = between["mean"].transpose("measure", "group").values.tolist()
    measures = rows_of(between, COMPARISON_SCHEMA["/between"], "measure")
    if two:
        contrasts = rows_of(groups.isel(contrast=[0]), COMPARISON_SCHEMA["/groups"], "contrast", "measure")
        measures = [row | contrast for row, contrast in zip(measures, contrasts, strict=True)]
    measures = [row | {"means": mean} for row, mean in zip(measures, means, strict=True)]
    first = [row for row in measures if row["headline"]]
    others = [row for row in measures if not row["headline"] and not math.isnan(row["adjusted_p_value"])]
    others.sort(key=lambda row: (row["adjusted_p_value"], -row["f_ratio"]))
    columns = [Column("measure", "left", cell=lambda row: row["measure"])]
    columns += [_cell(name, ".4g", lambda row, k=k: row["means"][k]) for k, name in enumerate(names)]
    columns += [_cell("seed sd", ".2g", lambda row: row["seed_std"])]
    if two:
        columns += [Column("difference ± 95 %", cell=_difference), _cell("p by t", ".2g", lambda row: row["t_p_value"])]
    else:
        columns += [
            _cell("group sd", ".2g", lambda row: row["group_std"]),
            _cell("F", ".3g", lambda row: row["f_ratio"]),
        ]
    columns += [_cell("adj. p", ".2g", lambda row: row["adjusted_p_value"])]
    yield Rows.of([*first, *others][: max(_LISTED, len(first))], *columns, title="Groups")
    yield (
        "Of spectra the mean distance of key heads from the null, in its standard deviations; sd are standard "
        "deviations, from seed to seed and between groups beyond it; adj. p is exact, adjusted for all measures."
    )


def _cell(name: str, form: str, value: Callable[[Row], float]) -> Column:
    """Column of numbers of measures, which are marked where the measure could not be tested."""

    def cell(row: Row) -> str | float:
        number = value(row)
        return UNTESTED if math.isnan(number) and math.isnan(row["adjusted_p_value"]) else number

    return Column(name, form=form, cell=cell)


def _difference(row: Row) -> str:
    if math.isnan(row["difference"]):
        return UNTESTED if math.isnan(row["adjusted_p_value"]) else ""
    half = (row["interval_high"] - row["interval_low"]) / 2
    return f"{row['difference']:+.3g}" + ("" if math.isnan(half) else f" ± {half:.2g}")


def _departed(departed: int, tested: int, untested: int) -> str:
    """Format a count among those that could be tested, with the number that could not."""
    words = f"{departed} of {tested}" if tested else UNTESTED
    return f"{words} ({untested} not testable)" if untested else words


def _with_error(value: float, error: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f} ± {error:.4f}"
