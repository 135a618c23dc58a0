"""Rendering of the page: variables for the templates, and the environment that inserts them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from numbers import Real
from typing import Any

import xarray as xr
from jinja2 import Environment
from markupsafe import Markup

from rmtbase.drawing.axes import statistic_words
from rmtbase.drawing.svg import inline_figures
from rmtbase.errors import ParameterError
from rmtbase.models import WeightMatrices
from rmtbase.nulls import ENTRIES_IN_WORDS
from rmtbase.report.page import environment, frame
from rmtbase.results.attributes import command_about
from rmtbase.results.scores import figures
from rmtbase.results.scores._distance import layer_p_value_floors
from rmtbase.results.scores._element_summary import summarize_elements
from rmtbase.results.scores._heads import circuit_scores, circuits_of, require_scores
from rmtbase.results.scores._null_words import RESAMPLINGS, draws_in_words, factor_shapes, null_entries, resampling_of
from rmtbase.results.scores._why import TESTS, summarize_why
from rmtbase.results.scores.figures._scores import MAIN_STATISTICS
from rmtbase.results.scores.page._captions import Caption, captions, circuit_words, of_circuit, opening
from rmtbase.results.scores.page._numbers import formula, number, z_text
from rmtbase.results.scores.page._tables import SCORE_COLUMNS, experts_table, heads_table, matrices_table
from rmtbase.results.scores.page._tokens import leading_tokens
from rmtbase.results.scores.summary import summarize_scores
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import CIRCUITS, layer_stacks, shapes_of
from rmtbase.words import counted

_NUMBERS = ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head", "null_draws", "edge_level")
_TEXTS = ("model", "revision", "family", "null", "table", "rmtbase_version", "schema_version", "warnings", "provenance")
_NULL_METHODS = ("analytic", "simulated", "resampled")  # for each a template null_*.html
_FACTORS = {
    "kurtosis": "Gaussian factors, moved to first order by the kurtosis of each head's own elements",
    "orthogonal": "rows of orthogonal matrices",
}
_NO_LAW = "none is known at this shape, so that no head is scored on it"
_MOST_RUNS = 8  # most runs of equal layers that are listed one by one
_UNNAMED = {
    "": "these arrays",
    "arrays": "these arrays",
    "state dict": "this state dict",
}  # names for models without one


def render(
    scores: xr.DataTree,
    *,
    date: datetime.date | None = None,
    pictures: bool = True,
    model: WeightMatrices | None = None,
) -> str:
    """Render one HTML page that shows which heads differ from the null, how far and by which statistic.

    The page opens from disk and needs no network: it contains its styles, script and figures, and a content security
    policy forbids everything else. It follows the reader's preference for light or dark.
    """
    require_scores(scores)
    _require_renderable(scores)
    null = _null(scores)
    summary, heads = summarize_scores(scores), scores["heads"].to_dataset()
    moved = list(summary.moved.sentences())
    why = summarize_why(scores)
    tokens = None if model is None else leading_tokens(scores, summary, model)
    caption = captions(scores, " ".join(summary.by_statistic()))
    said = shown(scores.attrs["model"])
    name = _UNNAMED.get(said, said)
    svgs = _svgs(scores, caption) if pictures else {}
    matrices = scores["matrices"].to_dataset() if "matrices" in scores.children else None
    experts = scores["experts"].to_dataset() if "experts" in scores.children else None
    further = [_circuit(scores, circuit, svgs) for circuit in circuits_of(scores)[1:]]
    script = files("rmtbase.results.scores.page").joinpath("templates", "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            attrs=scores.attrs,
            sections=_sections(tokens is not None, pictures, matrices is not None, experts is not None, further),
            shape=_shape(scores),
            circuits=further,
            summary=summary,
            name=name,
            lead=opening(scores, summary, name),
            answer=" ".join([summary.verdict(), *moved[:1]]),
            how=[*moved[1:], *summary.kind(), *summary.related.sentences()],
            sentences=[*summary.details(), *summary.reasons()],
            caveats=_caveats(scores, why is not None, tokens is not None, model),
            notes=json.loads(scores.attrs.get("notes", "[]")),
            not_testable=[f"{one.place}: {one.reason}" for one in summary.not_testable],
            captions=caption,
            svgs=svgs,
            heads=heads_table(scores, summary.level, MAIN_STATISTICS[0]),
            score_columns=SCORE_COLUMNS,
            matrices=None if matrices is None else matrices_table(matrices, summary.level, "excess_kurtosis"),
            experts=None if experts is None else experts_table(experts, summary.level, "excess_kurtosis"),
            elements=summarize_elements(scores),
            why=why,
            tokens=tokens,
            tests=TESTS,
            law=str(scores.attrs.get("initialization", "normal")).replace("_", " "),
            with_spectra=matrices is not None and "marchenko_pastur_distance" in matrices,
            statistics=[SPECTRAL_STATISTICS[name] for name in heads["statistic"].values.tolist()],
            **null,
            **frame(date, script),
        )
    )


def _caveats(scores: xr.DataTree, asked: bool, read: bool, model: WeightMatrices | None) -> list[str]:
    """List what the finding does not show, and which command asks further, or which function if there is no file."""
    if scores.attrs["model"] in _UNNAMED:
        causes, directions = 'rmtbase.score(…, why="all")', "rmtbase.results.signal.signal(…)"
    else:
        causes = command_about(scores.attrs, "score", "--why", "all", model=model)
        directions = command_about(scores.attrs, "signal", "--directions", "2", model=model)
    what = "what those of further heads read and write," if read else "what they read,"
    law = ENTRIES_IN_WORDS.get(null_entries(scores.attrs), "independent")
    named = "" if scores.attrs["null_method"] == "resampled" else f" The null assumes {law} entries before training."
    return [
        "A moved share says how much a head's spectrum differs, not how much the model needs the head, nor how many "
        "directions it has learned: a spectrum cannot tell a direction from an unequal axis.",
        "p and q say how sure a difference is, not how large. A head that does not differ may still have learned "
        f"something: not rejecting is no evidence.{named}",
        *([] if asked else [Markup("Why heads differ was not asked. To ask: <code>{}</code>").format(causes)]),
        Markup("How many directions a head has learned, and {} is another question. To ask: <code>{}</code>").format(
            what, directions
        ),
    ]


def _statistic_option(name: str) -> str:
    """Name a statistic in words, with the scale of its distances if that is logarithmic."""
    on_log_scale = name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].on_log_scale
    return statistic_words(name) + (" (z of its ln)" if on_log_scale else "")


def _environment() -> Environment:
    """Return the templates of this page, with its formats of numbers and formulas."""
    made = environment("rmtbase.results.scores.page")
    made.filters |= {
        "formula": formula,
        "number": number,
        "statistic_option": _statistic_option,
        "statistic_words": statistic_words,
        "z_text": z_text,
    }
    return made


def _svgs(scores: xr.DataTree, caption: Mapping[str, Caption]) -> dict[str, Markup]:
    """Draw the figures as SVG elements, by name; further circuits have only their map."""
    maps = {f"{circuit}-omnibus-map": of_circuit(CIRCUITS[circuit]) for circuit in circuits_of(scores)[1:]}
    captioned = {**caption, **maps}
    recipes = figures.figure_recipes(scores)
    informative = {name for name, recipe in recipes.items() if recipe.standard}
    return inline_figures(recipes, lambda name: captioned[name].description, informative & captioned.keys())


def _circuit(scores: xr.DataTree, name: str, svgs: Mapping[str, Markup]) -> dict[str, Any]:
    """Return the page's texts and tables about a further circuit."""
    tree, circuit = circuit_scores(scores, name), CIRCUITS[name]
    summary = summarize_scores(tree)
    title, says = circuit_words(circuit)
    matrix = Markup("W<sub>{}</sub>").format(circuit.letters)
    formula = Markup("<sup>⊤</sup>").join(Markup("W<sub>{}</sub>").format(one.letter) for one in circuit.factors)
    return {
        "id": f"circuit-{name}",
        "title": Markup("{}: {}").format(title, matrix),
        "matrix": matrix if len(circuit.factors) == 1 else Markup("{} = {}").format(matrix, formula),
        "says": says,
        "caption": of_circuit(circuit),
        "svg": svgs.get(f"{name}-omnibus-map"),
        "figure": f"{name}-omnibus-map",
        "answer": summary.answer(),
        "sentences": [*summary.details(), *summary.reasons()],
        "table": heads_table(tree, summary.level, MAIN_STATISTICS[0], MAIN_STATISTICS),
        "null": tree.attrs["null"],
        "draws": draws_in_words(tree),
        "source": tree.attrs["table"],
    }


def _shape(scores: xr.DataTree) -> list[tuple[str, str]]:
    """Return the numbers of layers, heads and dimensions as facts for the head of the page: terms and values.

    If layers differ, there is one fact for each run of equal layers.
    """
    attrs, heads = scores.attrs, scores["heads"].to_dataset()
    names = ("n_heads", "n_key_heads", "d_query", "d_head", "d_key")
    of_layers = {
        name: heads[name].values.tolist()
        if name in heads.coords
        else [int(attrs[name if name in attrs else "d_model"])] * heads.sizes["layer"]
        for name in names
    }
    stacks = layer_stacks(heads)
    runs = [(key, len(list(run))) for key, run in groupby(zip(stacks, *of_layers.values(), strict=True))]
    if "updates" in attrs:
        facts = [("scored", "the update ΔW = s B A, without its base")]
        for (stack, n_heads, _, d_query, rank, d_key), layers in runs[:_MOST_RUNS]:
            heads_of = f" × {counted(n_heads, 'head')}" if n_heads > 1 else ""
            facts.append((stack, f"{counted(layers, 'layer')}{heads_of}, {d_query} × {d_key} of rank {rank}"))
        return facts + _more_runs(len(runs))
    if len(runs) == 1 and "d_model" in attrs:
        _, n_heads, n_key_heads, *_ = runs[0][0]
        layers, all_layers = heads.sizes["layer"], int(attrs["n_layers"])
        of = "" if layers == all_layers else f" of {all_layers}"
        shape = f"{counted(layers, 'layer')}{of} × {counted(n_heads, 'head')}"
        on = f" on {counted(n_key_heads, 'key head')}" if n_key_heads != n_heads else ""
        return [("shape", shape + on), ("d_model", str(attrs["d_model"])), ("d_head", str(attrs["d_head"]))]
    facts = []
    for (stack, n_heads, n_key_heads, d_query, d_head, d_key), layers in runs[:_MOST_RUNS]:
        shape = f"{counted(layers, 'layer')} × {counted(n_heads, 'head')}"
        on = f" on {counted(n_key_heads, 'key head')}" if n_key_heads != n_heads else ""
        widths = f"width {d_query}" if d_query == d_key else f"width {d_query} (queries), {d_key} (keys)"
        facts.append((stack or "shape", f"{shape}{on}, d_head {d_head}, {widths}"))
    return facts + _more_runs(len(runs))


def _more_runs(count: int) -> list[tuple[str, str]]:
    return [("and", f"{count - _MOST_RUNS} more runs of layers")] if count > _MOST_RUNS else []


def _sections(
    with_tokens: bool,
    with_pictures: bool,
    with_matrices: bool,
    with_experts: bool,
    circuits: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    return {
        "finding": "Which heads, and how much",
        **({"tokens": "What the first heads read"} if with_tokens else {}),
        "tests": "How sure is it",
        **({"figures": "Heads in pictures"} if with_pictures else {}),
        "heads": "All heads",
        **{circuit["id"]: circuit["title"] for circuit in circuits},
        **({"matrices": "Weight matrices"} if with_matrices else {}),
        **({"experts": "Experts"} if with_experts else {}),
        "null": "How the null was made",
    }


def _null(scores: xr.DataTree) -> dict[str, Any]:
    """Return the variables about the null that the templates use."""
    attrs = scores.attrs
    method, resampling = attrs.get("null_method"), resampling_of(attrs)
    if method not in _NULL_METHODS or (method == "resampled" and resampling not in RESAMPLINGS):
        raise ParameterError(
            "null", attrs["null"], f"one of {', '.join(_NULL_METHODS)}; resampled by {' or '.join(RESAMPLINGS)}"
        )
    analytic, entries = method == "analytic", null_entries(attrs)
    return {
        "null_method": method,
        "resampling": resampling,
        "factors": _FACTORS.get(entries) or f"{ENTRIES_IN_WORDS[entries]} factors",
        "draws": draws_in_words(scores),
        "floors": sorted(set(layer_p_value_floors(scores)[0].tolist())),
        "shapes": [factor_shapes(dims) for dims in shapes_of(scores)],
        "lower_edge_known": not analytic or bool((scores["null"].to_dataset()["edge_quantile_lower"] != 0.0).any()),
        "accuracies": _accuracies(attrs["provenance"]) if analytic else {},
    }


def _accuracies(provenance: str) -> dict[str, list[str]]:
    """Group the statistics by the accuracy of their laws, according to the record that the file keeps."""
    statistics: dict[str, list[str]] = {}
    record = json.loads(provenance).get("null", {})
    of_shapes = list(record.values()) if all(isinstance(one, dict) for one in record.values()) else [record]
    for of_shape in of_shapes:
        for name, accuracy in of_shape.items():
            if name not in SPECTRAL_STATISTICS:  # other entries of a record
                continue
            names = statistics.setdefault(_NO_LAW if accuracy == "none" else accuracy, [])
            names += [name] if name not in names else []
    return statistics


def _require_renderable(scores: xr.DataTree) -> None:
    """Require numbers and known names wherever the page counts or looks up; all other text is only shown."""
    heads = scores["heads"].to_dataset()
    for name in ("layer", "head"):
        if heads[name].dtype.kind not in "iu":
            raise ParameterError(f"scores, coordinate {name} of /heads", heads[name].dtype, "whole numbers")
    for name in {*heads["statistic"].values.tolist(), *heads["farthest_statistic"].values.ravel().tolist()} - {""}:
        if name not in SPECTRAL_STATISTICS:
            raise ParameterError("scores, statistic of /heads", name, f"some of {', '.join(SPECTRAL_STATISTICS)}")
    told = {*map(str, heads.coords), *map(str, scores["null"].to_dataset().data_vars)}
    if "d_query" in {*told, *scores.attrs}:
        told.add("d_model")
    for name in (*_NUMBERS, "p_value_floor"):
        if name in told and name not in scores.attrs:
            continue
        if not isinstance(scores.attrs.get(name), Real):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a number")
    for name in _TEXTS:
        if not isinstance(scores.attrs.get(name), str):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a text")
