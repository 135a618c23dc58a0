"""Comparisons on the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.comparison._classes import FUSED, published_class
from rmtbase.results.comparison.summary import answer_and_rest, not_testable_of, summarize_comparison

if TYPE_CHECKING:
    import xarray as xr

_LISTED = 12
_NAMED = 6  # models in the heading
_ORDER = (
    *("step", "model", "pair", "contrast", "published_model", "component", "statistic", "measure", "group"),
)  # order in which the rows are nested


def as_json(tree: xr.DataTree) -> dict[str, Any]:
    """Return each group as a list of rows, one for each entry of its first dimension; scalar groups as one row."""
    plain: dict[str, Any] = {}
    for path, node in tree.subtree_with_keys:
        *above, name = path.split("/")
        if node.data_vars:
            table, inside = node.to_dataset(), plain
            for one in above:
                inside = inside.setdefault(one, {})
            inside[name] = _rows(table, [dim for dim in _ORDER if dim in table.sizes])
    untested = [one._asdict() for one in not_testable_of(tree)]
    return plain | {"not_testable": untested, "sentences": summarize_comparison(tree)}


def _rows(table: xr.Dataset, dims: Sequence[str]) -> Any:
    if not dims:
        return {str(name): value.item() for name, value in table.data_vars.items()}
    first, *others = dims
    rows = []
    for place, name in enumerate(table[first].values.tolist()):
        one = table.isel({first: place})
        own = {str(key): value.item() for key, value in one.data_vars.items() if not value.dims}
        row = {first: name, **own}
        if others:
            inner = one[[key for key, value in one.data_vars.items() if value.dims]]
            row[f"{others[0]}s"] = _rows(inner, others)
        rows.append(row)
    return rows


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Give the findings as sentences; as details the models, and their components or the groups they form."""
    names = tree["models"].to_dataset()["model"].values.tolist()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    yield Heading(f"{len(names)} model{'s' * (len(names) != 1)}: {', '.join(names[:_NAMED])}{more}")
    answer, rest = answer_and_rest(tree)
    yield from answer
    if answer:
        yield DETAILS
    yield from rest
    yield from _model_items(tree)
    if "trims" in tree.children:
        yield from _nearest_items(tree)
        yield _trim_rows(tree)
    if "between" in tree.children:
        yield from _group_items(tree)
    elif "components" in tree.children:
        yield from _component_items(tree)


def _model_items(tree: xr.DataTree) -> Iterator[Item]:
    """Print the models, and below them the published ones."""
    table = tree["models"].to_dataset()
    rows = []
    for place in range(table.sizes["model"]):
        one = {str(name): value.item() for name, value in table.isel(model=place).data_vars.items()}
        null = one.get("transmission_shape_null_mean", math.nan), one.get("transmission_shape_null_std", math.nan)
        rows.append(
            (
                table["model"].values[place],
                " ".join(part for part in (one["name"], one["revision"]) if part),
                one["attention"],
                _left(one["n_departed_heads"], one["n_scored_heads"], one["n_untested_heads"]),
                _number(one.get("transmission_shape", math.nan)),
                "" if math.isnan(null[0]) else f"{null[0]:.4f} ± {null[1]:.4f}",
                _number(one.get("transmission_scale", math.nan), 3),
                one.get("initial_recipe", ""),
                _number(one["budget"], 3),
                one["budget_state"],
            )
        )
    if "published" in tree.children:
        of = tree["published"].to_dataset()
        for place, name in enumerate(of["published_model"].values.tolist()):
            one = {str(key): value.item() for key, value in of.isel(published_model=place).items() if not value.dims}
            cells = (_number(one["mean_scale"], 3), "", _number(one["budget"], 3), one["budget_state"])
            rows.append((name, "published", "", "", "", "", *cells))
    columns = [Column(name, "left") for name in ("model", "of", "attention")]
    columns += [Column("heads that differ"), Column("k, Transmission"), Column("untrained k"), Column("λ")]
    columns += [Column("recipe", "left"), Column("T/τ"), Column("state", "left")]
    yield Rows(columns, rows)


def _component_items(tree: xr.DataTree) -> Iterator[Item]:
    """Print the components of each model, and below them the published ones."""
    table, rows = tree["components"].to_dataset(), []
    for name in table["model"].values.tolist():
        for component in table["component"].values.tolist():
            one = {str(key): value.item() for key, value in table.sel(model=name, component=component).items()}
            if not one["n_matrices"]:
                continue
            tested = one["n_tested"]
            untrained = f"{one['shape_null_mean']:.4f} ± {one['shape_null_std']:.4f}"
            rows.append(
                (
                    name,
                    component,
                    _left(one["n_departed"], tested, one["n_matrices"] - tested),
                    _number(one["shape"]),
                    "" if math.isnan(one["shape"]) else untrained,
                    one["published_class"],
                    _number(one["r_squared"]),
                    *([_number(one["median_scale"])] if "median_scale" in one else []),
                    _number(one["closure"], 2),
                    _number(one["body_tail_gap"], 3),
                    _number(one["scale"], 3),
                    _number(one["sigma"], 3),
                )
            )
    published = _published_rows(tree, table["component"].values.tolist())
    rows += [(*row, *[""] * (len(rows[0]) - len(row))) for row in published]
    columns = [Column("model", "left"), Column("component", "left"), Column("differ from anchor"), Column("median k")]
    columns += [Column("untrained k"), Column("published class of k", "left")]
    columns += [Column("R²"), *([Column("median λ")] if "median_scale" in table else [])]
    columns += map(Column, ("closure", "gap", "mean λ", "mean σ"))
    yield Rows(columns, rows, named=2, title="By component")
    null = [float(table[f"{name}_null_mean"].median()) for name in ("r_squared", "closure", "body_tail_gap")]
    untrained = "of untrained weights R² {:.4f}, closure {:.2g}, gap {:.3g}".format(*null)
    yield f"Medians over layers, means of λ and σ; {untrained}."
    if published:
        yield "Published: DATABASE_v9_1 of the package npm-weibull-py (T. Ding, arXiv:2605.18898), CC BY 4.0."


def _published_rows(tree: xr.DataTree, components: Sequence[str]) -> list[tuple[str, ...]]:
    """List the published median k, its class, R² and λ, of the components that the compared models have."""
    if "published" not in tree.children or "shape" not in tree["published"].data_vars:
        return []
    published = tree["published"].to_dataset()
    held = [name for name in components if name in published["component"].values]
    rows = []
    for model in published["published_model"].values.tolist():
        for name in held:
            fit = published.sel(published_model=model, component=name)
            k = fit["shape"].item()
            if not math.isnan(k):
                more = (_number(fit["r_squared"].item()), _number(fit["scale"].item())) if "scale" in fit else ()
                rows.append(
                    (f"{model} (published)", name, "", _number(k), "", published_class(k, name in FUSED), *more)
                )
    return rows


def _nearest_items(tree: xr.DataTree) -> Iterator[Item]:
    """Print the nearest published component of each component, and how near untrained matrices come."""
    table, rows = tree["components"].to_dataset(), []
    for name in table["model"].values.tolist():
        for component in table["component"].values.tolist():
            one = {str(key): value.item() for key, value in table.sel(model=name, component=component).items()}
            if not one["nearest_model"]:
                continue
            random = f"{one['nearest_random_median']:.3g} ({one['nearest_random_low']:.3g} to "
            cells = (one["nearest_model"], _number(one["nearest_distance"], 3))
            cells += (f"{random}{one['nearest_random_high']:.3g})", _number(one["nearest_p_value"], 2))
            cells += (_number(one["nearest_q_value"], 2), f"{one['nearest_between_published']:.0%}")
            rows.append((name, component, *cells))
    columns = [Column(name, "left") for name in ("model", "component", "nearest published")]
    columns += map(Column, ("distance", "random (5 to 95 %)", "p", "q", "published as near"))
    if rows:
        yield Rows(columns, rows, named=2, title="Nearest published component")
        yield (
            "Distance: in median k and ln of the median λ, each in standard deviations over the published models of "
            "that component. Random: untrained normal matrices of the same sizes and σ; p is the share of them that "
            "come as near. Published as near: published models with another one at most as far."
        )


def _trim_rows(tree: xr.DataTree) -> Rows:
    """Table of the shape by trim: models, published models together, and untrained weights."""
    models, trims = tree["models"].to_dataset(), tree["trims"].to_dataset()
    rows = []
    for place, name in enumerate(models["model"].values.tolist()):
        one = {str(key): value.item() for key, value in models.isel(model=place).data_vars.items()}
        full, gap = one["transmission_shape_untrimmed"], one["transmission_gap"]
        rows.append((name, _number(one["transmission_shape"]), "", _number(full), _number(gap, 3)))
    number = {str(name): value.item() for name, value in trims.data_vars.items()}
    for label, start, gap in (
        ("twelve models (published)", "", f"{number['gap']:.4f} ± {number['gap_std']:.4f}"),
        ("untrained", "untrained_", f"{number['untrained_gap']:.4f}"),
    ):
        rows.append((label, *(f"{number[f'{start}shape_{trim}']:.4g}" for trim in ("10", "5", "0")), gap))
    columns = [Column("Transmission", "left"), *map(Column, ("k, middle 80 %", "k, middle 90 %", "k, all", "gap"))]
    return Rows(columns, rows, title="By trim")


def _group_items(tree: xr.DataTree) -> Iterator[Item]:
    """Print headline measures, then those that differ most; for two groups with the interval of the difference."""
    between = tree["between"].to_dataset()
    groups, names = between["group"].values.tolist(), between["measure"].values.tolist()
    two = tree["groups"].to_dataset().isel(contrast=0) if len(groups) == 2 else None
    tested = between if two is None else two
    p = dict(zip(names, zip(tested["adjusted_p_value"].values, -between["f_ratio"].values, strict=True), strict=True))
    first = [name for name, shown in zip(names, between["headline"].values, strict=True) if shown]
    others = sorted((name for name in names if name not in first and not math.isnan(p[name][0])), key=p.__getitem__)
    rows = []
    for name in [*first, *others][: max(_LISTED, len(first))]:
        own = {str(key): value.item() for key, value in tested.sel(measure=name).data_vars.items() if not value.dims}
        means = [_number(value) for value in between["mean"].sel(measure=name).values.tolist()]
        cells: tuple[str, ...] = (_number(own["seed_std"], 2),)
        if two is None:
            cells += (_number(own["group_std"], 2), _number(own["f_ratio"], 3))
        else:
            half = (own["interval_high"] - own["interval_low"]) / 2
            interval = "" if math.isnan(half) else f" ± {half:.2g}"
            difference = "" if math.isnan(own["difference"]) else f"{own['difference']:+.3g}{interval}"
            cells += (difference, _number(own["t_p_value"], 2))
        untested = math.isnan(own["adjusted_p_value"])
        texts = (*means, *cells, _number(own["adjusted_p_value"], 2))
        rows.append((name, *(text or (UNTESTED if untested else "") for text in texts)))
    columns = [Column("measure", "left"), *map(Column, groups), Column("seed sd")]
    columns += map(Column, ("group sd", "F") if two is None else ("difference ± 95 %", "p by t"))
    yield Rows([*columns, Column("adj. p")], rows, title="Groups")
    yield (
        "Of spectra the mean distance of key heads from the null, in its standard deviations; sd are standard "
        "deviations, from seed to seed and between groups beyond it; adj. p is exact, adjusted for all measures."
    )


def _left(found: int, tested: int, untested: int) -> str:
    """Format a count among those that could be tested, with the number that could not."""
    words = f"{found} of {tested}" if tested else UNTESTED
    return f"{words} ({untested} not testable)" if untested else words


def _number(value: float, digits: int = 4) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}"
