"""The section of the page that reads the leading directions of the first heads as tokens."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from plots.scored_model import D_HEAD, D_MODEL, PLANTED, write_checkpoint
from rmtbase.errors import NonFiniteError, ParameterError, RmtbaseWarning
from rmtbase.heads.direction_tokens import DirectionReading, direction_tokens, nearer_than_chance, nearest_by_chance
from rmtbase.linalg import product_svd
from rmtbase.models import ArrayModel, open_model
from rmtbase.results import open_table
from rmtbase.results.scores import render, score

LAYER, HEAD = PLANTED[0]


QUERY, KEY = 17, 40  # tokens that the planted head reads
NAMED = "<script>"
EMBEDDING = "model.embed_tokens.weight"


def of(folder):
    return open_model(folder, proof=False)


def change(folder, **tensors):
    """Write the checkpoint anew with other tensors, None for those that it loses."""
    held = load_file(folder / "model.safetensors") | {name: one for name, one in tensors.items() if one is not None}
    kept = {name: one.astype(np.float32) for name, one in held.items() if tensors.get(name, one) is not None}
    save_file(kept, folder / "model.safetensors")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A model with key heads that two heads share, one head of which was given a token to query and one to key."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "planted", learned=False)
    held, rng = load_file(folder / "model.safetensors"), np.random.default_rng(0)
    for kind, head, token in (("q", HEAD, QUERY), ("k", HEAD // 2, KEY)):
        name = f"model.layers.{LAYER}.self_attn.{kind}_proj.weight"
        rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
        held[name][rows] += 20.0 * np.outer(rng.standard_normal(D_HEAD), held[EMBEDDING][token])
        change(folder, **{name: held[name]})
    (folder / "vocab.json").write_text(json.dumps({NAMED: QUERY}))
    return folder


@pytest.fixture(scope="module")
def scores(planted):
    return score(of(planted), "analytic")


def section(page):
    """Text of the section without links to terms, and the cells of its table."""
    found = re.search(
        r'<section id="tokens".*?</section>', re.sub(r'<a class="term"[^>]*>(.*?)</a>', r"\1", page), re.DOTALL
    )
    rows = re.findall(r"<tr>(.*?)</tr>", found[0], re.DOTALL) if found else []
    cells = [[re.sub("<[^>]+>", "", one) for one in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows]
    return found and (found[0], cells[1:])


def test_a_head_that_reads_a_token_is_shown_with_its_name(planted, scores):
    page = render(scores, pictures=False, model=of(planted))
    words, rows = section(page)
    assert "directions point at tokens beyond chance, at a false discovery rate of 5 %" in words
    first = {side: [above, below] for head, number, side, above, below, _ in rows
             if (head, number) == (f"layer {LAYER} head {HEAD}", "0")}  # fmt: skip
    assert any(end.startswith("&lt;script&gt; ") for end in first["query"])
    assert any(end.startswith(f"#{KEY} ") for end in first["key"])
    nearest = nearest_by_chance(of(planted))
    assert (
        f"z of {nearest.mean:.1f} on average and below {nearest.upper:.1f} for 95 %" in words and "0 ± 1" not in words
    )
    assert 'href="#tokens"' in page and "those of further heads read and write" in page
    bare = render(scores, pictures=False)
    assert section(bare) is None and "and what they read, is another question" in bare


def test_random_heads_are_seldom_said_to_read_tokens():
    """At most 5 % of pages show a direction of random heads; more than 34 of 400 happen once in a thousand times."""
    rng, demo = np.random.default_rng(1), open_model("demo", proof=False)
    heads = (product_svd(*rng.standard_normal((2, 16, 128))) for _ in range(3 * 400))
    vectors = np.array([one for left, _, right in heads for one in (*left.T[:2], *right[:2])])
    p_values = direction_tokens(demo, vectors).p_value.reshape(400, 12)
    pages = [[DirectionReading("", 0, "qk", 0, 0, "left", False, [], [], p) for p in page] for page in p_values]
    assert sum(bool(nearer_than_chance(page, 0.05)) for page in pages) <= 34


def test_scores_of_another_model_are_refused(planted, scores, tmp_path):
    same_name = shutil.copytree(planted, tmp_path / planted.name)
    name = f"model.layers.{LAYER}.self_attn.k_proj.weight"
    change(same_name, **{name: 2.0 * load_file(planted / "model.safetensors")[name]})
    for model, words in (
        (open_model("demo", proof=False), f"found demo, revision final; expected {planted.name}"),
        (of(same_name), "largest eigenvalue"),
        ("demo", "a WeightMatrices or None"),
    ):
        with pytest.raises(ParameterError) as caught:
            render(scores, pictures=False, model=model)
        assert caught.value.name == "model"
        assert words in f"found {caught.value.found}; expected {caught.value.expected}"


def test_without_an_embedding_or_a_head_that_differs_there_is_no_section(planted, scores, tmp_path):
    bare = shutil.copytree(planted, tmp_path / planted.name)
    change(bare, **{EMBEDDING: None})
    random = of(write_checkpoint(tmp_path / "random", learned=False))
    none = score(random, "analytic")
    none["heads"]["omnibus_q_value"][:] = 1.0
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 4, D_HEAD, D_MODEL))
    arrays = ArrayModel.from_factors(w_q, w_k, "arrays")
    for tree, model in ((scores, of(bare)), (none, random), (score(arrays, "analytic"), arrays)):
        assert section(render(tree, pictures=False, model=model)) is None


def test_a_difference_is_read_by_its_first_model_and_directions_that_are_no_tokens_have_only_the_sentence(tmp_path):
    model = open_model("demo", minus="demo@step-0")
    words, rows = section(render(score(model, "analytic"), pictures=False, model=model))
    assert rows and "point at tokens" in words
    folder = write_checkpoint(tmp_path / "learned", learned=True)  # random directions
    words, rows = section(render(score(of(folder), "analytic"), pictures=False, model=of(folder)))
    assert "directions points at tokens beyond chance" in words and "<table" not in words and not rows


@pytest.mark.exhaustive
def test_a_damaged_embedding_costs_only_the_tokens(run, planted, tmp_path):
    damaged = shutil.copytree(planted, tmp_path / "damaged")
    embedding = load_file(damaged / "model.safetensors")[EMBEDDING]
    embedding[3] = np.nan
    change(damaged, **{EMBEDDING: embedding})
    table, page = tmp_path / "scores.nc", tmp_path / "report.html"
    ran = run("score", damaged, "--null", "analytic", "--matrices", "none", "-o", table, "-o", page)
    said = "What the first heads read could not be found out: "
    assert ran.status == 0 and said in ran.err and EMBEDDING in ran.err
    assert said in section(page.read_text(encoding="utf-8"))[0]
    with pytest.warns(RmtbaseWarning, match=said):
        render(open_table(table), pictures=False, model=of(damaged))
    with pytest.raises(NonFiniteError):
        list(of(damaged).blocks(of(damaged).parts["embeddings"][0]))
