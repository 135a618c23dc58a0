import datetime
import json
import re
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.nulls import Table
from rmtbase.results.scores import circuit_scores, render, summarize_scores
from rmtbase.results.scores._how_much import farthest_distance, signed_distance
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present

VOID = {"meta", "link", "input", "br", "img"}


class Outline(HTMLParser):
    """Checks that elements nest; collects elements, identifiers and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.identifiers, self.text = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.identifiers += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def of(self, tag):
        return [attrs for found, attrs in self.elements if found == tag]


@pytest.fixture(scope="session")
def outline(page):
    return Outline(page)


@pytest.mark.parametrize(
    ("coordinates", "attributes", "words"),
    [
        ({"layer": ["<b>", "<i>", "<p>"]}, {}, "coordinate layer of /heads"),
        ({"statistic": ["<b>", *SPECTRAL_STATISTICS][:-1]}, {}, "statistic of /heads = '<b>'"),
        ({}, {"d_head": "<b>"}, "attribute d_head = '<b>'"),
        ({}, {"edge_level": [0.1, 0.2]}, "attribute edge_level"),
        ({}, {"model": 3}, "attribute model = 3"),
        ({}, {"null_method": "<b>"}, "analytic, simulated, resampled"),
        ({}, {"null_method": "resampled"}, "signs or axes"),
    ],
)
def test_what_is_counted_or_looked_up_must_be_what_it_is_said_to_be(coordinates, attributes, words, tree):
    changed = tree.copy()
    changed["heads"] = changed["heads"].to_dataset().assign_coords(coordinates)
    changed.attrs |= attributes
    with pytest.raises(ParameterError, match=re.escape(words)):
        render(changed)


def test_elements_nest_references_lead_somewhere_and_headings_skip_no_level(outline, page):
    assert outline.open == [] and len(outline.identifiers) == len(set(outline.identifiers))
    targets = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)|aria-labelledby="([^"]+)"', page)
    assert {next(filter(None, target)) for target in targets} <= set(outline.identifiers)
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_nothing_is_loaded_from_anywhere_and_hostile_names_stay_text(page, outline, harmless):
    for tag, attrs in outline.elements:
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
        assert "onerror" not in attrs
    assert set(re.findall(r"url\((.)", page)) <= {"#"} and "@import" not in page
    metas = outline.of("meta")
    policy = next(attrs["content"] for attrs in metas if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none';")
    assert "<script>window.hacked" in harmless and "<script>window.hacked" not in page
    assert outline.of("img") == [attrs for attrs in metas if attrs.get("http-equiv") == "refresh"] == []
    assert len(metas) == 5
    assert "window.hacked" not in "".join(re.findall(r"<script>.*?</script>", page, re.DOTALL))  # data apart
    assert "".join(outline.text).count(harmless) >= 50  # among them each row of the table of matrices
    assert page.isprintable() or set(filter(lambda one: not one.isprintable(), page)) == {"\n", "\u202f"}


in_words = partial(render, pictures=False)


def without_links_to_terms(page):
    """The page without its glossary and the links to it: without captions other places are the first uses."""
    return re.sub(r'<a class="term"[^>]*>(.*?)</a>|<section id="glossary".*?</section>', r"\1", page, flags=re.S)


def words_of(page):
    return " ".join("".join(Outline(page).text).split())


def test_the_finding_comes_first_and_in_words(tree, outline):
    text = " ".join("".join(outline.text).split())
    summary = summarize_scores(tree)
    sentences = [summary.verdict(), *summary.moved.sentences(), *summary.kind(), *summary.details(), *summary.reasons()]
    places = [text.index(" ".join(sentence.split())) for sentence in sentences]
    assert places == sorted(places) and places[1] < text.index("Map of all heads") < places[2]
    assert places[-1] < text.index("How far every head is from random")
    (by_statistic,) = summary.by_statistic()  # drawn as bars, and told to readers who cannot see them
    assert by_statistic in [svg["aria-label"] for svg in outline.of("svg")]


def test_the_first_two_sentences_say_what_was_compared_with_what_and_one_head_is_told_as_one(
    tree, analytic_tree, baseline
):
    for scores, against in ((tree, "2 000 random heads"), (analytic_tree, "what is known by theory of random heads")):
        text = words_of(in_words(scores))
        lead = text.index("Each attention head of ")
        assert text.index(f"was compared with {against} of the same shape (d_model 32, d_head 8)") > lead
        heads = len(summarize_scores(scores).findings)
        assert f"{heads} of 11 testable heads differ from random heads (false discovery rate 5%)" in text
        assert "null" not in text[lead : text.index("differ by chance")].replace(shown(scores.attrs["model"]), "")
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 1, 8, 32))
    text = words_of(in_words(rmtbase.score_heads(w_q, w_k, Table(baseline), model="a model")))
    assert "shape1 layer × 1 head d_model32" in text and "The one head cannot be told from random" in text
    assert "The attention head of a model was compared with 2 000 random heads" in text
    assert not re.search(r"\b1 (head|layer)s\b", text)
    w_q += 3 * np.outer(np.ones(8), np.ones(32))
    assert "1 of 1 head differs from random heads" in words_of(in_words(rmtbase.score_heads(w_q, w_k, Table(baseline))))


def test_a_head_without_a_score_has_the_hatched_mark_and_a_model_without_any_has_a_page(baseline):
    attention = np.random.default_rng(1).standard_normal((32, 96))

    def page_of(zeros):
        attention[:, :zeros] = 0.0
        state = {"h.0.attn.c_attn.weight": attention, "h.0.attn.c_proj.weight": np.eye(32)}
        model = open_model(state, family="gpt2", config={"n_head": 4})
        return in_words(rmtbase.score(model, Table(baseline), matrices="none"))

    page = page_of(8)
    (untested,) = [
        row for row in re.findall(r"<tr(?: data-flagged)?><td>.*?</tr>", page) if '<i class="z-1"></i>–' in row
    ]
    assert re.findall(r"<td[^>]*>(?:<[^>]*>)*([^<]*)", untested)[:5] == ["0", "0", "–", "–", "–"]
    assert "Heads that cannot be tested" in words_of(page)
    assert "layer 0 head 0: W_Q is zeros, or rounding to them" in words_of(page)
    assert re.search("of (the )?3 testable heads", words_of(page))
    text = words_of(page_of(96))
    for words in (
        "Each attention head of this state dict was compared",
        "Whether heads differ from random heads cannot be told.",
        "layer 0 head 3: W_Q and W_K are zeros, or rounding to them",
    ):
        assert words in text
    assert "None of the" not in text


def test_a_page_without_pictures_or_matrices_is_the_same_but_for_them_and_arrays_have_one(tree, page):
    without = re.sub(r"<figure .*?</figure>", "", page, flags=re.DOTALL)
    for part in (r'<li><a href="#figures">.*?</a></li>', r'<section id="figures".*?</section>'):
        without, count = re.subn(part, "", without, flags=re.DOTALL)
        assert count == 1
    assert without_links_to_terms(in_words(tree)).split() == without_links_to_terms(without).split()
    bare = tree.copy()
    del bare["matrices"]
    for attributes in ({"family": "", "model": "arrays", "revision": ""}, {"family": "arrays"}):
        bare.attrs = tree.attrs | attributes
        text = in_words(bare)
        assert Outline(text).open == [] and "Weight matrices" in page and "Weight matrices" not in text
        assert ("Each attention head of these arrays was" in text) == ("model" in attributes)


def test_the_page_says_of_what_it_is_when_it_was_made_and_by_what(analytic_tree, monkeypatch):
    text = words_of(in_words(analytic_tree, date=datetime.date(2031, 2, 3)))
    assert "date2031-02-03" in text and f"made byrmtbase {analytic_tree.attrs['rmtbase_version']}" in text
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert "date1970-01-02" in words_of(in_words(analytic_tree))


def test_farthest_has_one_meaning_and_says_where_it_is_ln(tree, page):
    heads, findings = tree["heads"].to_dataset(), summarize_scores(tree).findings
    distance = np.abs(farthest_distance(heads))
    place = np.unravel_index(np.nanargmax(distance), distance.shape)
    statistic = SPECTRAL_STATISTICS[str(heads["farthest_statistic"].values[place])]
    (first,) = (finding.sentence() for finding in findings if (finding.layer, finding.head) == place)
    assert f"{distance[place]:.1f} standard deviations" in first
    assert ("of its ln" in first) == statistic.on_log_scale
    z = embedded(page, "heads-table")["largest_eigenvalue"]["cells"][2].split("|")
    drawn = signed_distance(heads.sel(statistic="largest_eigenvalue")).ravel()
    assert [float(text.replace("−", "-")) for text in z if text != "–"] == pytest.approx(
        drawn[drawn == drawn], abs=0.06
    )
    assert ">largest eigenvalue (z of its ln)</option>" in page


def test_p_values_at_the_floor_are_bounds_of_heads_and_of_matrices(tree, page):
    matrices = tree["matrices"].to_dataset()
    for table, group, name, floor in (
        ("heads-table", tree["heads"].to_dataset(), "largest_eigenvalue", 2 / 2001),
        ("matrices-table", matrices, "excess_kurtosis", 1e-16),
        ("matrices-table", matrices, "largest_eigenvalue", 2 / 5001),
    ):
        at_floor = np.isclose(group["p_value"].sel(statistic=name).values.ravel(), floor, rtol=1e-6, atol=0.0)
        assert 0 < at_floor.sum() < at_floor.size
        p, q = (column.split("|") for column in embedded(page, table)[name]["cells"][3:])
        for column in (p, q) if table == "heads-table" else (p,):
            assert [text.startswith("≤ ") for text in column] == at_floor.tolist(), name
    assert re.search(r"<td>≤ [\d.e−]+</td><td>\d", page)  # the omnibus q-value
    assert "(q ≤ " in page


def test_on_paper_headings_stay_with_what_follows_and_nothing_is_cut(page):
    rules = page[page.index("@media print") : page.index("</style>", page.index("@media print"))]
    assert re.search(r"h2, h3[^{]*{ break-after: avoid; }", rules)
    assert re.search(r"figure, tr[^{]*{ break-inside: avoid; }", rules)
    assert "table-row-group" not in rules  # headers come again on every page, drawn as text: buttons do not
    assert "th[data-title]::before { content: attr(data-title); }" in rules
    assert re.search(r"\.scroll, pre { max-height: none; overflow: visible;", rules)
    assert re.search(r"\.hint, \.skip[^{]*{ display: none !important; }", rules)


def test_headers_symbols_and_figures_have_their_words_and_warnings_and_notes_are_told(page, outline, tree):
    headers = [attrs for tag, attrs in outline.elements if tag == "th" and attrs.get("scope") == "col"]
    tips = [attrs["title"] for attrs in headers if "title" in attrs]
    assert len(tips) >= 15 and all(len(tip) > 10 for tip in tips)
    symbols = [attrs["title"] for attrs in outline.of("span") if attrs.get("class") == "math"]
    assert symbols and all(symbols)
    figures = outline.of("svg")
    assert len(outline.of("figure")) == len(outline.of("figcaption")) == 10
    assert [one["class"] for one in figures] == ["wide", "narrow"] * 10
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 20 for svg in figures)
    text = "".join(outline.text)
    for words in ("Warnings about the checkpoint", "Notes about the checkpoint", *json.loads(tree.attrs["warnings"])):
        assert shown(words) in text


def test_every_colour_of_a_figure_follows_the_page(page):
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r'(href="#|url\(#)[^")]+', "", svg)) == []
        assert "var(--text)" in svg
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    set_for_light = set(re.findall(r"(--[\w-]+):", page.split("@media (prefers-color-scheme: dark)")[0]))
    defined_by_css = set(re.findall(r"(--[\w-]+):", page))
    assert used <= defined_by_css
    assert {"--text", "--surface", "--diverging-7", "--flagged"} <= set_for_light


def embedded(page, table):
    """The columns of every statistic that a table holds for its script, by statistic."""
    found = page[page.index(f'id="{table}"') :]
    text = found[found.index('json">') + 6 : found.index("</script>")]
    assert "<" not in text
    return json.loads(text)


def test_the_table_lists_every_head_with_every_statistic_and_the_null_has_its_provenance(tree, page, outline):
    table = page[page.index('id="heads-table"') :]
    rows = re.findall(r"<tr( data-flagged)?>(.*?)</tr>", table[table.index("<tbody>") : table.index("</tbody>")])
    heads = tree["heads"].to_dataset()
    assert len(rows) == heads["observed"].sizes["layer"] * heads["observed"].sizes["head"]
    assert sum(bool(flag) for flag, _ in rows) == len(summarize_scores(tree).findings)
    texts = embedded(page, "heads-table")
    assert list(texts) == list(SPECTRAL_STATISTICS)
    observed = [float(cell.replace("−", "-")) for cell in texts["stable_rank"]["cells"][0].split("|") if cell != "–"]
    expected = heads["observed"].sel(statistic="stable_rank").values.ravel()
    np.testing.assert_allclose(observed, expected[np.isfinite(expected)], rtol=1e-3)
    assert tree.attrs["provenance"] in outline.text and "never below 2 / (2000 + 1) = 0.001" in page


def test_an_analytic_null_and_one_of_the_heads_own_are_explained_as_what_they_are(analytic_tree, resampled_tree):
    name = resampled_tree.attrs["null_entries"]
    of_signs = name == "signs"
    explained = (
        (analytic_tree, ("Monte Carlo", "(b + 1)", "null draws' own", "simulated", "e−17"), (
            "None; source: the laws of rmtbase", "below 1e−16, where they end, nothing is claimed",
            "the Cauchy combination of its statistics' p-values", "The law of the log-determinant",
            "expansions in 1/dhead", "How well each law is known", "log-determinant: exact: exact in all respects",
        )),
        (resampled_tree, ("Marchenko", "free-product", "random head", "Gaussian factors"), (
            "499 copies of itself", f"{name}: the head's own W_Q and W_K", "499 for each head from its own matrices",
            "given random signs" if of_signs else "meet the key axes in random order",
            "never below 2 / (499 + 1) = 0.004", "Every draw has the norms of the head's own matrices",
            "heavy tails" if of_signs else "stay what they are", "A null head's largest (smallest) eigenvalue passes",
        )),
    )  # fmt: skip
    for tree, absent, present in explained:
        outline = Outline(in_words(tree))
        assert outline.open == [] and len(outline.identifiers) == len(set(outline.identifiers))
        text = " ".join("".join(outline.text).split())
        text = text if tree is analytic_tree else text.rpartition("What the words mean")[0]
        assert not [words for words in absent if words in text]
        assert not [words for words in present if words not in text]


def test_a_page_names_the_statistics_that_have_no_null(make_weights, tmp_path):
    queries, keys = np.random.default_rng(2).standard_normal((2, 2, 3, 16, 20))
    tree = rmtbase.score(make_weights(queries, keys).save(tmp_path / "model"), "analytic")
    assert "none is known at this shape" not in in_words(tree)
    record = json.loads(tree.attrs["provenance"])
    record["null"] |= dict.fromkeys(("condition_number_singular", "smallest_eigenvalue"), "none")
    tree.attrs["provenance"] = json.dumps(record)
    tree["null"]["edge_quantile_lower"] = 0.0 * tree["null"]["edge_quantile_lower"]
    words = in_words(tree)
    assert "the lower one is not known at this shape" in words
    assert "condition number of singular values, smallest eigenvalue: none is known at this shape" in words


def test_hostile_provenance_of_an_analytic_null_stays_text(analytic_tree):
    hostile = analytic_tree.copy()
    script = "</pre><img src=x onerror=alert(1)><script>window.hacked = 1</script>"
    record = json.dumps({"null": {"trace": script, script: "none"}})
    hostile.attrs = analytic_tree.attrs | {"table": script, "provenance": record}
    outline = Outline(in_words(hostile))
    assert outline.open == outline.of("img") == []
    assert len(outline.of("script")) == 3  # of each of the two tables, and the page's own
    assert "".join(outline.text).count(script) >= 3
    hostile.attrs["provenance"] = json.dumps({"model": script})
    assert "How well each law is known" not in in_words(hostile)


@pytest.mark.exhaustive
def test_the_same_scores_give_the_same_page_whatever_the_caller_s_matplotlib_settings(tree, page):
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        before = dict(matplotlib.rcParams)
        assert render(tree) == page and dict(matplotlib.rcParams) == before


@pytest.mark.exhaustive
def test_a_model_of_1024_heads_stays_below_5_megabytes(tree):
    many = tree["heads"].to_dataset().isel(layer=np.arange(32) % 3, head=np.arange(32) % 4)
    many = many.assign_coords(layer=np.arange(32), head=np.arange(32))
    noise = np.clip(np.random.default_rng(0).normal(1.0, 0.1, many["observed"].shape), 0.5, None)
    for name in ("observed", "null_mean", "z_score", "p_value", "q_value"):
        many[name] = (many[name] * noise).clip(max=1.0 if name in ("p_value", "q_value") else None)
    big = xr.DataTree.from_dict({"/heads": many, "/null": tree["null"].to_dataset()})
    big.attrs = tree.attrs | {"n_layers": 32, "n_heads": 32}
    assert len(render(big).encode()) < 5e6


def shown_of_heads(tree, **values):
    """What the table of heads shows, column by column, of a statistic with these values, head after head."""
    changed, heads = tree.copy(), tree["heads"].to_dataset().copy(deep=True)
    for name, column in values.items():
        place = heads[name].sel(statistic="stable_rank")
        heads[name].loc[{"statistic": "stable_rank"}] = np.resize(column, place.shape)
    changed["heads"] = heads
    cells = embedded(in_words(changed), "heads-table")["stable_rank"]["cells"]
    return dict(zip(("observed", "null", "z"), (column.split("|") for column in cells), strict=False))


def test_numbers_are_short_z_has_one_decimal_and_a_mean_is_as_long_as_its_standard_deviation_says(tree):
    numbers = {
        0.0: "0", 0.79234: "0.7923", -33.7: "−33.7", 12345.6: "12346", 1.5e8: "1.5e8", 4.8e-13: "4.8e−13",
        -2e-7: "−2e−7", np.nan: "–", np.inf: "∞", -np.inf: "−∞",
    }  # fmt: skip
    z_scores = {-0.04: "0.0", -33.74: "−33.7", 12345.6: "12346", np.nan: "–"}
    nulls = {
        (0.79234, 0.02134): "0.792 ± 0.021",
        (-0.000366, 0.038): "0.000 ± 0.038",
        (5706.4, 453.1): "5706 ± 453",
        (1e9, 1e7): "1e9 ± 1e7",
        (np.nan, np.nan): "median 3.07",
        (5706.4, np.nan): "median 3.07",
    }
    means, stds = zip(*nulls, strict=True)
    moments = {"null_mean": list(means), "null_std": list(stds)}
    found = shown_of_heads(tree, observed=list(numbers), z_score=list(z_scores), **moments, null_quantile=3.07)
    for column, texts in (("observed", numbers), ("z", z_scores), ("null", nulls)):
        assert found[column][: len(texts)] == list(texts.values())
    assert shown_of_heads(tree, **moments, null_quantile=np.nan)["null"][4] == "–"


def test_formulas_have_no_latex_left_and_embedded_json_cannot_end_its_element(page, harmless):
    formulas = re.findall(r'<(?:td|span) class="math"[^>]*>(.*?)</(?:td|span)>', page)
    assert len(formulas) > 2 * len(SPECTRAL_STATISTICS)
    for text in formulas:
        assert not set("\\{}$") & set(text)
    assert "(Σ<sub>k</sub> λ<sub>k</sub>)<sup>2</sup> / Σ<sub>k</sub> λ<sub>k</sub><sup>2</sup>" in formulas
    assert harmless in embedded(page, "matrices-table")


@pytest.mark.exhaustive
def test_a_model_of_several_stacks_shapes_and_circuits_has_a_section_for_each_circuit_and_rows_for_each_head():
    tree = rmtbase.open_table(Path(__file__).parents[1] / "data" / "scores-of-several-stacks.nc", "scores")
    page = render(tree)
    outline = Outline(page)
    assert not outline.open and len(set(outline.identifiers)) == len(outline.identifiers)

    def section(name):
        return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL).group()

    for name in ("ov", "key"):
        scores, part = circuit_scores(tree, name), section(f"circuit-{name}")
        assert f'href="#circuit-{name}"' in page
        assert part.count("<svg ") == 2  # wide and narrow
        assert summarize_scores(scores).verdict()[0] in part
        assert part.count("<tr") == 2 + heads_present(scores["heads"].to_dataset()).sum()
    assert "W<sub>OV</sub> = W<sub>O</sub><sup>⊤</sup>W<sub>V</sub>" in section("circuit-ov")
    assert ">key head<" in section("circuit-key")
    rows = re.findall(r"<tr(?: data-flagged)?><td.*?</tr>", section("heads"))
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row)[:5] for row in rows]
    assert cells[3:5] == [["encoder", "0", "3", "3", "32 × 8 × 32"], ["decoder", "0", "0", "0", "48 × 8 × 48"]]
    assert cells[-1] == ["cross", "1", "5", "5", "48 × 9 × 32"]
    assert len(re.findall("<tr", section("matrices"))) == 2 + 5 + 10 + 1 + 8
    assert "Shapes: W<sub>Q</sub> and W<sub>K</sub> of 8 × 32; 8 × 48; 9 × 48 and 9 × 32." in section("null")
    facts = re.search(r'<dl class="facts">.*?</dl>', page, re.DOTALL).group()
    facts = re.sub(r"</?a\b[^>]*>", "", facts)  # links to the words
    assert "<dt>encoder</dt><dd>1 layer × 4 heads, d_head 8, width 32</dd>" in facts
    assert "<dt>decoder</dt><dd>2 layers × 6 heads on 2 key heads, d_head 8, width 48</dd>" in facts
    assert "<dt>cross</dt><dd>2 layers × 6 heads, d_head 9, width 48 (queries), 32 (keys)</dd>" in facts
