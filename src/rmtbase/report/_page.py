"""The page: what the templates are given, and how they put it in."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
from collections.abc import Mapping
from importlib.resources import files
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rmtbase.errors import ParameterError
from rmtbase.plots import DARK, LIGHT, MAIN_STATISTICS, figures, statistic_words
from rmtbase.report._captions import Caption, captions, opening
from rmtbase.report._numbers import formula, number, z_text
from rmtbase.report._svg import css_values, inline_svg, page_settings
from rmtbase.report._tables import SCORE_COLUMNS, heads_table, matrices_table
from rmtbase.scoring import farthest_distance, p_value_floors, require_scores, summarize_scores
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import null_method

_NUMBERS = ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head", "null_draws", "edge_level")
_TEXTS = ("model", "revision", "family", "null", "table", "rmtbase_version", "schema_version", "warnings", "provenance")
_NULL_METHODS = ("analytic", "simulated", "resampled")  # for each a template null_*.html
_RESAMPLINGS = ("permutation", "haar")
_NO_LAW = "none is known at this shape, so that no head is scored on it"
_LONGEST = 100_000  # characters of one text
_UNNAMED = {
    "": "these arrays",
    "arrays": "these arrays",
    "state dict": "this state dict",
}  # what has no name of its own


def render(scores: xr.DataTree, *, date: datetime.date | None = None, pictures: bool = True) -> str:
    """One HTML page that says which heads left the null, how far and by which statistic, and shows it.

    The page needs no network and opens from disk: styles, script and figures are inside, and a content security
    policy forbids the rest. It follows the reader's choice of light or dark.

    Args:
        scores: the tree that ``rmtbase.score`` or ``rmtbase.score_heads`` returns, or ``rmtbase.tables.open_scores``
            reads.
        date: the date on the page; today's if None, or that of the environment's SOURCE_DATE_EPOCH.
        pictures: whether the figures are drawn, which takes nearly all of the time; without them the page has its words
            and tables alone.

    Raises:
        ParameterError: it is no scores tree, or holds what no scores hold.
    """
    require_scores(scores)
    _require_renderable(scores)
    null = _null(scores)
    summary, heads = summarize_scores(scores), scores["heads"].to_dataset()
    caption = captions(scores, " ".join(summary.by_statistic()))
    model = shown(scores.attrs["model"])
    name = _UNNAMED.get(model, model)
    drawings = _drawings(scores, caption) if pictures else {}
    matrices = scores["matrices"].to_dataset() if "matrices" in scores.children else None
    floors = p_value_floors(scores.attrs)
    script = _resource("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            attrs=scores.attrs,
            sections=_sections(pictures, matrices is not None),
            summary=summary,
            name=name,
            date=(date or _today()).isoformat(),
            lead=opening(scores, summary, name),
            sentences=[*summary.verdict(), *summary.reasons(), *summary.left_out()],
            notes=json.loads(scores.attrs.get("notes", "[]")),
            farthest=_farthest(heads),
            outliers_above=int(heads["outliers_above"].sum()),
            outliers_below=int(heads["outliers_below"].sum()),
            captions=caption,
            drawings=drawings,
            heads=heads_table(heads, summary.level, MAIN_STATISTICS[0], floors),
            score_columns=SCORE_COLUMNS,
            matrices=None if matrices is None else matrices_table(matrices, summary.level, "excess_kurtosis"),
            with_spectra=matrices is not None and "marchenko_pastur_distance" in matrices,
            statistics=[SPECTRAL_STATISTICS[name] for name in heads["statistic"].values.tolist()],
            **null,
            light=css_values(LIGHT),
            dark=css_values(DARK),
            n_colours=len(LIGHT.diverging),
            css=Markup(_resource("page.css")),
            script=Markup(script),
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _today() -> datetime.date:
    """Today in UTC, or the day that a reproducible build asks for."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.datetime.now(datetime.UTC)
    return (datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch.isdecimal() else now).date()


def _farthest(heads: xr.Dataset) -> dict[str, Any] | None:
    """The head farthest from the null: its distance and what that is of; None where no head was scored."""
    ordered = heads.transpose("layer", "head", ...)
    distance = np.abs(farthest_distance(ordered))
    if np.isnan(distance).all():
        return None
    layer, head = np.unravel_index(np.nanargmax(distance), distance.shape)
    return {
        "distance": float(distance[layer, head]),
        "head": f"layer {ordered['layer'].values[layer]} head {ordered['head'].values[head]}",
        "statistic": SPECTRAL_STATISTICS[str(ordered["farthest_statistic"].values[layer, head])],
    }


def _statistic_option(name: str) -> str:
    """A statistic in words, with the scale that its distances are on where that is another."""
    on_log_scale = name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].on_log_scale
    return statistic_words(name) + (" (z of its ln)" if on_log_scale else "")


def _environment() -> Environment:
    """Templates in which all that is put in is harmless text, escaped, unless a template made it."""
    environment = Environment(
        loader=PackageLoader("rmtbase.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else shown(value, _LONGEST),
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    environment.filters |= {
        "formula": formula,
        "number": number,
        "shown": shown,
        "statistic_option": _statistic_option,
        "statistic_words": statistic_words,
        "z_text": z_text,
    }
    return environment


def _resource(name: str) -> str:
    return files("rmtbase.report").joinpath("templates", name).read_text(encoding="utf-8")


def _drawings(scores: xr.DataTree, caption: Mapping[str, Caption]) -> dict[str, Markup]:
    """The figures as SVG elements, by name."""
    with page_settings() as theme:
        return {
            name: inline_svg(figure, f"f{k}", caption[name].description)
            for k, (name, figure) in enumerate(figures(scores, theme=theme).items())
        }


def _sections(with_pictures: bool, with_matrices: bool) -> dict[str, str]:
    return {
        "finding": "What was found",
        **({"figures": "Heads in pictures"} if with_pictures else {}),
        "heads": "All heads",
        **({"matrices": "Weight matrices"} if with_matrices else {}),
        "null": "How the null was made",
    }


def _null(scores: xr.DataTree) -> dict[str, Any]:
    """What the templates say of the null."""
    attrs = scores.attrs
    method, resampling = null_method(attrs), str(attrs["null"]).partition(":")[0]
    if method not in _NULL_METHODS or (method == "resampled" and resampling not in _RESAMPLINGS):
        raise ParameterError(
            "null", attrs["null"], f"one of {', '.join(_NULL_METHODS)}; resampled by {' or '.join(_RESAMPLINGS)}"
        )
    analytic = method == "analytic"
    return {
        "null_method": method,
        "resampling": resampling,
        "draws": int(attrs["null_draws"]),
        "lower_edge_known": not analytic or float(scores["null"].to_dataset()["edge_quantile_lower"]) != 0.0,
        "accuracies": _accuracies(attrs["provenance"]) if analytic else {},
    }


def _accuracies(provenance: str) -> dict[str, list[str]]:
    """How well each statistic's law is known, by the record that the file keeps of it: the statistics of each word."""
    statistics: dict[str, list[str]] = {}
    for name, accuracy in json.loads(provenance).get("null", {}).items():
        statistics.setdefault(_NO_LAW if accuracy == "none" else accuracy, []).append(name)
    return statistics


def _require_renderable(scores: xr.DataTree) -> None:
    """What is counted and looked up must be numbers and known names; all other text is only shown."""
    heads = scores["heads"].to_dataset()
    for name in ("layer", "head"):
        if heads[name].dtype.kind not in "iu":
            raise ParameterError(f"scores, coordinate {name} of /heads", heads[name].dtype, "whole numbers")
    for name in {*heads["statistic"].values.tolist(), *heads["farthest_statistic"].values.ravel().tolist()} - {""}:
        if name not in SPECTRAL_STATISTICS:
            raise ParameterError("scores, statistic of /heads", name, f"some of {', '.join(SPECTRAL_STATISTICS)}")
    floor = ("p_value_floor",) if null_method(scores.attrs) == "analytic" else ()  # which files of schema 1.0 lack
    for name in (*_NUMBERS, *floor):
        if not isinstance(scores.attrs.get(name), Real):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a number")
    for name in _TEXTS:
        if not isinstance(scores.attrs.get(name), str):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a text")
