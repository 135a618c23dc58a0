"""Rendering of the page: variables and captions for the templates, and the environment that inserts them."""

import datetime
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from markupsafe import Markup

from rmtbase.drawing.axes import statistic_words
from rmtbase.drawing.svg import inline_figures
from rmtbase.errors import CheckpointError, ParameterError, RmtbaseWarning
from rmtbase.heads import direction_tokens as token_readings
from rmtbase.heads.read_sites import head_factors
from rmtbase.linalg import product_svd, without_noise
from rmtbase.models import Place, WeightMatrices, opened_from, token_names
from rmtbase.nulls import ENTRIES_IN_WORDS
from rmtbase.reasons import packaged_texts
from rmtbase.report.page import environment, frame
from rmtbase.results.attributes import command_about
from rmtbase.results.scores import figures
from rmtbase.results.scores._element_summary import summarize_elements
from rmtbase.results.scores._heads import circuit_scores, circuits_of, require_scores
from rmtbase.results.scores._how_much import layer_p_value_floors
from rmtbase.results.scores._why import summarize_why
from rmtbase.results.scores.page import _tables
from rmtbase.results.scores.schema import RESAMPLINGS
from rmtbase.results.scores.summary import HeadFinding, Summary, summarize_scores
from rmtbase.results.scores.words import compared_plainly, draws_in_words, factor_shapes
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import CIRCUITS, Circuit, layer_numbers, layer_stacks, shapes_of
from rmtbase.words import counted

_SINGLE = {"query": "queries", "key": "keys", "value": "values", "output": "outputs"}
_NUMBERS = ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head", "null_draws", "edge_level", "p_value_floor")
_TEXTS = ("model", "revision", "family", "null", "table", "rmtbase_version", "schema_version", "warnings", "provenance")
_NULL_METHODS = ("analytic", "simulated", "resampled")  # for each a template null_*.html
_FACTORS = {
    "kurtosis": "Gaussian factors, moved to first order by the kurtosis of each head's own elements",
    "orthogonal": "rows of orthogonal matrices",
}
_NO_LAW = "none is known at this shape, so that no head is scored on it"
_MOST_RUNS = 8  # most runs of equal layers that are listed one by one
# names for models without one
_UNNAMED = {"": "these arrays", "arrays": "these arrays", "state dict": "this state dict"}
_HEADS = 3  # largest number of heads whose directions are read
_DIRECTIONS = 2  # largest number of directions of each head, on each side
_WITHOUT_TOKENS = ("vision", "audio")  # stacks whose stream holds no tokens of the embedding
_SAME = 1e-4  # relative difference of the largest eigenvalue of a head; the stored one has thirteen digits


@cache
def _texts() -> dict[str, Any]:
    return packaged_texts("rmtbase.results.scores.page", "captions.toml")


def _caption_of_circuit(circuit: Circuit) -> dict[str, str]:
    texts = _texts()["circuit"]
    return {part: text.format(noun=circuit.noun, symbol=circuit.symbol) for part, text in texts.items()}


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
    heads = scores["heads"].to_dataset()
    summary = summarize_scores(scores)
    answer, *how_much = summary.moved.sentences() if summary.findings else [""]
    why, tokens = summarize_why(scores), None if model is None else leading_tokens(scores, summary, model)
    words = _texts()["words"]["simulated"] | _texts()["words"].get(scores.attrs["null_method"], {})
    captions = {
        name: {part: text.format(**words) for part, text in texts.items()}
        for name, texts in _texts()["captions"].items()
    }
    if by_statistic := summary.by_statistic():
        captions["heads-by-statistic"]["description"] = by_statistic[0]
    name = _UNNAMED.get(scores.attrs["model"], shown(scores.attrs["model"]))
    svgs = {}
    if pictures:
        # further circuits have only their map
        maps = {f"{name}-omnibus-map": _caption_of_circuit(CIRCUITS[name]) for name in circuits_of(scores)[1:]}
        captioned, recipes = captions | maps, figures.figure_recipes(scores)
        standard = {name for name, recipe in recipes.items() if recipe.standard}
        svgs = inline_figures(recipes, lambda name: captioned[name]["description"], standard & captioned.keys())
    tables = {
        name: make(scores[name].to_dataset(), summary.level)
        for name, make in (("matrices", _tables.matrices_table), ("experts", _tables.experts_table))
        if name in scores.children
    }
    further = [_circuit(scores, circuit, svgs) for circuit in circuits_of(scores)[1:]]
    sections = {
        "finding": "Which heads, and how much",
        "tokens": tokens and "What the first heads read",
        "tests": "How sure is it",
        "figures": pictures and "Heads in pictures",
        "heads": "All heads",
        **{circuit["id"]: circuit["title"] for circuit in further},
        "matrices": "matrices" in tables and "Weight matrices",
        "experts": "experts" in tables and "Experts",
        "null": "How the null was made",
    }
    script = files("rmtbase.results.scores.page").joinpath("templates", "page.js").read_text(encoding="utf-8")
    # further questions: a command, or a function if there is no file
    ask_causes, ask_directions = 'rmtbase.score(…, why="all")', "rmtbase.results.signal.signal(…)"
    if scores.attrs["model"] not in _UNNAMED:
        ask_causes = command_about(scores.attrs, "score", "--why", "all", model=model)
        ask_directions = command_about(scores.attrs, "signal", "--directions", "2", model=model)
    templates = environment("rmtbase.results.scores.page")

    def statistic_option(name: str) -> str:
        statistic = SPECTRAL_STATISTICS.get(name)
        return statistic_words(name) + (" (z of its ln)" if statistic and statistic.on_log_scale else "")

    filters = (_tables.formula, _tables.number, _tables.z_text, statistic_option, statistic_words)
    templates.filters |= {function.__name__: function for function in filters}
    return templates.get_template("page.html").render(
        attrs=scores.attrs,
        sections={name: title for name, title in sections.items() if title},
        shape=_shape(scores),
        circuits=further,
        summary=summary,
        name=name,
        lead=compared_plainly(scores, name),
        answer=f"{summary.verdict()} {answer}".rstrip(),
        how=[*how_much, *summary.kind(), *summary.related.sentences()],
        sentences=[*summary.details(), *summary.reasons()],
        law_of_entries=ENTRIES_IN_WORDS.get(scores.attrs["null_entries"], "independent"),
        ask_causes=ask_causes,
        ask_directions=ask_directions,
        notes=json.loads(scores.attrs.get("notes", "[]")),
        not_testable=[f"{head.place}: {head.reason.words}" for head in summary.not_testable],
        captions=captions,
        svgs=svgs,
        heads=_tables.heads_table(scores, summary.level),
        score_columns=_tables.SCORE_COLUMNS,
        elements=summarize_elements(scores),
        why=why,
        tokens=tokens,
        law=str(scores.attrs.get("initialization", "normal")).replace("_", " "),
        with_spectra="matrices" in tables and "marchenko_pastur_distance" in scores["matrices"],
        statistics=[SPECTRAL_STATISTICS[name] for name in heads["statistic"].values.tolist()],
        matrices=tables.get("matrices"),
        experts=tables.get("experts"),
        **_null(scores),
        **frame(date, script),
    )


def _require_renderable(scores: xr.DataTree) -> None:
    """Require numbers and known names wherever the page counts or looks up; all other text is only shown."""
    attrs, heads = scores.attrs, scores["heads"].to_dataset()
    for name in ("layer", "head"):
        if heads[name].dtype.kind not in "iu":
            raise ParameterError(f"scores, coordinate {name} of /heads", heads[name].dtype, "whole numbers")
    statistics = {*heads["statistic"].values.tolist(), *heads["farthest_statistic"].values.ravel().tolist()} - {""}
    if unknown := sorted(statistics - SPECTRAL_STATISTICS.keys()):
        raise ParameterError("scores, statistic of /heads", unknown[0], f"some of {', '.join(SPECTRAL_STATISTICS)}")
    by_layer = {*map(str, heads.coords), *map(str, scores["null"].to_dataset().data_vars)}
    by_layer |= {"d_model"} if "d_query" in {*by_layer, *attrs} else set()
    numbers = [name for name in _NUMBERS if name in attrs or name not in by_layer]
    for name in (*numbers, *_TEXTS):
        kind, words = (str, "a text") if name in _TEXTS else (Real, "a number")
        if not isinstance(attrs.get(name), kind):
            raise ParameterError(f"scores, attribute {name}", attrs.get(name), words)
    method, entries = attrs.get("null_method"), attrs.get("null_entries")
    if method not in _NULL_METHODS or (method == "resampled") != (entries in RESAMPLINGS):
        expected = f"one of {', '.join(_NULL_METHODS)}; resampled by {' or '.join(RESAMPLINGS)}"
        raise ParameterError("null", attrs["null"], expected)


def _circuit(scores: xr.DataTree, name: str, svgs: Mapping[str, Markup]) -> dict[str, Any]:
    tree, circuit = circuit_scores(scores, name), CIRCUITS[name]
    summary = summarize_scores(tree)
    title, says = "What heads write", "says what a head writes for what it reads, whatever it attends to."
    if sides := _SINGLE.get(name):
        title, shows = (
            f"{sides.capitalize()} by themselves",
            f"shows a direction that training gave only to the {sides}",
        )
        says = f"{shows}, long before it can be seen in a product of two matrices."
    matrix = Markup("W<sub>{}</sub>").format(circuit.letters)
    formula = Markup("<sup>⊤</sup>").join(Markup("W<sub>{}</sub>").format(factor.letter) for factor in circuit.factors)
    return {
        "id": f"circuit-{name}",
        "title": Markup("{}: {}").format(title, matrix),
        "matrix": matrix if len(circuit.factors) == 1 else Markup("{} = {}").format(matrix, formula),
        "says": says,
        "caption": _caption_of_circuit(circuit),
        "svg": svgs.get(f"{name}-omnibus-map"),
        "figure": f"{name}-omnibus-map",
        "answer": summary.answer(),
        "sentences": [*summary.details(), *summary.reasons()],
        "table": _tables.heads_table(tree, summary.level),
        "null": tree.attrs["null"],
        "draws": draws_in_words(tree),
        "source": tree.attrs["table"],
    }


def _shape(scores: xr.DataTree) -> list[tuple[str, str]]:
    """Return the numbers of layers, heads and dimensions as facts for the head of the page: terms and values."""
    attrs, heads = scores.attrs, scores["heads"].to_dataset()
    names = ("n_heads", "n_key_heads", "d_query", "d_head", "d_key")
    of_layers = [
        heads[name].values.tolist()
        if name in heads.coords
        else [int(attrs[name if name in attrs else "d_model"])] * heads.sizes["layer"]
        for name in names
    ]
    layers = zip(layer_stacks(heads), *of_layers, strict=True)
    runs = [(*key, counted(len(list(run)), "layer")) for key, run in groupby(layers)]
    facts = [("scored", "the update ΔW = s B A, without its base")] if "updates" in attrs else []
    for stack, n_heads, n_key_heads, d_query, d_head, d_key, n_layers in runs[:_MOST_RUNS]:
        if "updates" in attrs:
            heads_of = f" × {counted(n_heads, 'head')}" if n_heads > 1 else ""
            facts.append((stack, f"{n_layers}{heads_of}, {d_query} × {d_key} of rank {d_head}"))
            continue
        on = f" on {counted(n_key_heads, 'key head')}" if n_key_heads != n_heads else ""
        shape = f" × {counted(n_heads, 'head')}{on}"
        if len(runs) == 1 and "d_model" in attrs:
            of_all = "" if heads.sizes["layer"] == int(attrs["n_layers"]) else f" of {attrs['n_layers']}"
            widths = [(name, str(attrs[name])) for name in ("d_model", "d_head")]
            return [("shape", f"{n_layers}{of_all}{shape}"), *widths]
        width = f"width {d_query}" if d_query == d_key else f"width {d_query} (queries), {d_key} (keys)"
        facts.append((stack or "shape", f"{n_layers}{shape}, d_head {d_head}, {width}"))
    return facts + ([("and", f"{len(runs) - _MOST_RUNS} more runs of layers")] if len(runs) > _MOST_RUNS else [])


def _null(scores: xr.DataTree) -> dict[str, Any]:
    method, entries = scores.attrs["null_method"], scores.attrs["null_entries"]
    accuracies: dict[str, list[str]] = {}  # statistics by the accuracy of their laws, as the file records it
    record = json.loads(scores.attrs["provenance"]).get("null", {}) if method == "analytic" else {}
    for of_shape in record.values() if all(isinstance(entry, dict) for entry in record.values()) else [record]:
        for name in [name for name in of_shape if name in SPECTRAL_STATISTICS]:
            names = accuracies.setdefault(_NO_LAW if of_shape[name] == "none" else of_shape[name], [])
            names += [name] if name not in names else []
    lower_edge = scores["null"].to_dataset()["edge_quantile_lower"]
    return {
        "null_method": method,
        "entries": entries,
        "factors": _FACTORS.get(entries) or f"{ENTRIES_IN_WORDS.get(entries, '')} factors",
        "draws": draws_in_words(scores),
        "floors": sorted(set(layer_p_value_floors(scores)[0].tolist())),
        "shapes": [factor_shapes(dims) for dims in shapes_of(scores)],
        "lower_edge_known": method != "analytic" or bool((lower_edge != 0.0).any()),
        "accuracies": accuracies,
    }


class TokenFinding(NamedTuple):
    sentence: str  # how many directions point at tokens beyond chance, and of which heads; or why none could be read
    listed: Sequence[token_readings.DirectionReading] = ()  # the readings of those that do
    by_chance: str = ""  # how near the nearest token lies to a random direction, in words


def leading_tokens(scores: xr.DataTree, summary: Summary, model: WeightMatrices) -> TokenFinding | None:
    """Read the strongest directions of the first heads as tokens; None if none reads a stream of known tokens."""
    if not isinstance(model, WeightMatrices):
        raise ParameterError("model", type(model).__name__, "an opened model, as rmtbase.open_model returns it")
    revisions = (shown(model.name), shown(model.revision or "")), (scores.attrs["model"], scores.attrs["revision"])
    opened, expected = (f"{name}, revision {revision}" if revision else name for name, revision in revisions)
    if opened != expected:
        raise ParameterError("model", opened, f"{expected}, whose scores these are")
    source = next(iter(opened_from(model)), None)
    if source is None or not any(name.component == "embedding" for name in source.parts.get("embeddings", ())):
        return None
    width = source.shape(token_readings.embedding_of(source))[0]
    findings = sorted(summary.findings, key=lambda finding: -finding.how_much.moved_share)[:_HEADS]
    try:
        directions = [direction for direction in _directions(scores, findings, model) if len(direction[-1]) == width]
        if not directions:
            return None
        tokens = token_readings.direction_tokens(source, np.array([vector for *_, vector in directions]))
        names, by_chance = token_names(source.path), token_readings.nearest_by_chance(source)
    except CheckpointError as error:
        sentence = f"What the first heads read could not be found out: {error}"
        warnings.warn(RmtbaseWarning(sentence), stacklevel=3)
        return TokenFinding(sentence)
    readings = [
        token_readings.DirectionReading(
            head.stack, head.layer, "qk", head.head, number, side, False, *tokens.named(k, names), p_value, by_chance
        )
        for k, ((head, number, side, _), p_value) in enumerate(zip(directions, tokens.p_value.tolist(), strict=True))
    ]
    headline = token_readings.readings_headline(readings, summary.level)
    read = dict.fromkeys(head.place for head, *_ in directions)
    strongest = f"They are the strongest of W_QK of {', '.join(read)}"
    sentence = f"{headline} {strongest}, which queries and keys read from the residual stream."
    nearest = token_readings.nearer_than_chance(readings, summary.level)
    return TokenFinding(sentence, nearest, token_readings.nearest_words(readings))


def _directions(
    scores: xr.DataTree, findings: Sequence[HeadFinding], model: WeightMatrices
) -> Iterator[tuple[HeadFinding, int, str, np.ndarray]]:
    """Yield singular vectors of W_QK with their head, number and side, of the queries or of the keys."""
    heads, sites = scores["heads"].to_dataset(), {site.place: index for index, site in enumerate(model.sites)}
    rows = list(map(Place, layer_stacks(heads), layer_numbers(heads)))
    largest = heads["eigenvalue"].transpose("layer", "head", "index").values[..., 0]
    for finding in findings:
        place = Place(finding.stack, finding.layer)
        if finding.stack in _WITHOUT_TOKENS:
            continue
        if place not in sites or finding.head >= model.sites[sites[place]].n_heads:
            raise ParameterError("model", model.name, f"one with {finding.place}, as the scores have")
        factors = head_factors(model, sites[place], CIRCUITS["qk"], finding.head)
        left, values, right = product_svd(*(factor.astype(np.float64) for factor in factors))
        strength, expected = float(values[0]) ** 2, float(largest[rows.index(place), finding.head])
        if not math.isclose(strength, expected, rel_tol=_SAME):
            words = f"{model.name}, whose {finding.place} has the largest eigenvalue {strength:.6g}"
            raise ParameterError("model", words, f"the weights and folds that were scored, with {expected:.6g}")
        for k in range(min(_DIRECTIONS, int((without_noise(values) > 0.0).sum()))):
            yield finding, k, "left", left[:, k]
            yield finding, k, "right", right[k]
