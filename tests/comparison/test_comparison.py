"""A comparison as a whole: what is in it, in words, in its file, and beside what it is made of."""

import csv
import io

import numpy as np
import pytest
from matrices_group import compare_groups

from rmtbase.errors import ParameterError, TableError
from rmtbase.results import open_table
from rmtbase.results.comparison import Training, compare, scale_law, shape_drift
from rmtbase.results.comparison._two_models import common_origin, compare_two
from rmtbase.results.comparison.report import report
from rmtbase.results.comparison.summary import summarize_comparison
from rmtbase.tables import export, write_table

TRAINING = {"a": Training(1e-3, 0.01, 1_000), "c": Training(1e-4, 0.01, 143_000), "d": Training(3e-4, 0.1, 500)}


@pytest.fixture(scope="module")
def models(scored):
    """Four models: untrained, a copy of it, one with heavy tails, one whose heads have learned a direction."""
    made = scored(1), scored(1), scored(2, heavy=("attention_query",)), scored(4, spike=20.0)
    return dict(zip("abcd", made, strict=True))


@pytest.fixture(scope="module")
def comparison(models):
    """Theirs, not to be changed."""
    return compare(models, {"x": ["a", "b"], "y": ["c", "d"]}, TRAINING, ["a", "b"], published=True, permutations=99)


def test_a_comparison_holds_what_its_tests_say_in_words_and_in_its_file(comparison, models, tmp_path):
    pair = comparison["pairs"].to_dataset().sel(pair="a | d")
    found = compare_two(models["a"], models["d"], 99)
    np.testing.assert_array_equal(pair["p_value"], found["p_value"])
    assert pair["omnibus_p_value"].item() == found["omnibus_p_value"]
    assert pair["alignment"].item() == common_origin(models["a"], models["d"], 99)["alignment"]
    groups = comparison["groups"].to_dataset().isel(contrast=0)
    between = compare_groups([models[name] for name in "ab"], [models[name] for name in "cd"], 99)
    np.testing.assert_array_equal(groups["standard_error"].sel(measure=list(between.measures)), between.standard_error)
    drift = comparison["drifts"].to_dataset().sel(pair="a | c", component="attention_query")
    each = shape_drift(models["a"], models["c"]).sel(component="attention_query")
    assert drift["drift"].item() == pytest.approx(each["drift"].mean().item())
    assert drift["standard_error"].item() == pytest.approx(each["standard_error"].values[0] / np.sqrt(2))
    assert drift["p_value"].item() < 0.01
    findings, table = comparison["findings"].to_dataset(), comparison["models"].to_dataset().sel(model=[*"acd"])
    law = scale_law(table["root"].values, table["transmission_scale"].values)
    assert findings["scale_law_exponent"].item() == law.exponent
    assert findings["paired_growth_n_initial"].item() == 2
    assert comparison["models"].to_dataset()["untrained"].values.tolist() == [1, 1, 0, 0]
    assert comparison["models"].to_dataset()["initial_recipe"].values.tolist() == [""] * 4
    shapes = comparison["components"].to_dataset()["shape"]
    assert shapes.sel(model="c", component="attention_query").item() < 1.1
    assert comparison["components"].to_dataset()["n_departed"].sel(model="c", component="attention_query").item() == 2
    lines = "\n".join(summarize_comparison(comparison))
    for said in ("a and b: duplicates", "a and d: their heads differ", "x (2) against y (2): so few models", "CV ",
                 "λ against √(η/λ_wd)", "is built in by what they share before training"):  # fmt: skip
        assert said in lines
    assert open_table(write_table(comparison, tmp_path / "all.nc"), "comparison").identical(comparison)


def test_published_shapes_stand_beside_the_models_with_their_source(comparison):
    # The paper prints ranges of them: 1.2 and 4.3, to two decimals.
    shapes = comparison["published"].to_dataset()["shape"]
    for component, models, low, high in (
        ("attention_query_key_value", "Pythia", 1.05, 1.18),
        *((name, "OLMo", 0.76, 0.99) for name in ("attention_query", "attention_key")),
        *((name, ("LLaMA", "Mistral", "Qwen"), 1.10, 1.16) for name in ("attention_query", "attention_key")),
    ):
        of = [one for one in shapes["published_model"].values if one.startswith(models)]
        found = shapes.sel(component=component, published_model=of).values
        assert low - 0.005 <= found.min() and found.max() <= high + 0.005
    items = list(report(comparison.drop_nodes(["between", "groups", "members"])))
    (rows,) = (one for one in items if getattr(one, "title", "") == "By component")
    assert ["OLMo-1-7B (published)", "attention_output", "", "1.041"] in [row[:4] for row in rows.texts]
    assert any("CC BY 4.0" in str(one) for one in items)


def test_models_of_heads_alone_are_compared_without_fits(scored):
    tree = compare({"a": scored(1, matrices=False), "b": scored(5, n_layers=3, matrices=False)}, permutations=99)
    assert set(tree.children) == {"models", "pairs"}
    assert "no Weibull fits to compare" in tree.attrs["warnings"]
    assert not tree["pairs"].to_dataset()["paired"].item()
    assert [row["model"] for row in csv.DictReader(io.StringIO(export(tree).decode()))] == ["a", "b"]


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        ("pairs", lambda table: table.assign(first=("pair", ["e"] * table.sizes["pair"])), "first 'e' in /pairs"),
        ("models", lambda table: table.drop_vars("attention"), "no variable 'attention'"),
        ("components", lambda table: table.assign(shape=-table["shape"]), "in variable '/components/shape'"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(group, change, said, comparison, tmp_path):
    broken = comparison.copy()
    broken[group] = type(broken)(change(broken[group].to_dataset()))
    path = write_table(broken, tmp_path / "broken.nc")
    with pytest.raises(TableError, match=said):
        open_table(path, "comparison")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": {"x": ["a", "b"]}}, "2 groups at least"),
        ({"groups": {"x": ["a", "b"], "y": ["c"]}}, "2 models at least"),
        ({"paired": True}, "2 groups at least"),
        ({"groups": {"x": ["a", "b"], "y": ["b", "c"]}}, "models in only one of x and y"),
        ({"groups": {"x": ["a", "e"], "y": ["b", "c"]}}, r"groups\['x'\] = 'e'"),
        ({"training": {"e": Training(1.0, 1.0, 1)}}, "training = 'e': expected one of a, b, c, d"),
        ({"initial": ["e"]}, "initial = 'e': expected one of"),
        ({"permutations": 0}, "permutations"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(options, said, models):
    with pytest.raises(ParameterError, match=said):
        compare(models, **{"permutations": 9} | options)
    with pytest.raises(ParameterError, match="the same number of models in each"):
        compare(models | {"e": models["a"]}, {"x": [*"abe"], "y": [*"cd"]}, paired=True, permutations=9)
    with pytest.raises(ParameterError, match="1 at least"):
        compare({})
    with pytest.raises(ParameterError, match="UTF-8"):
        compare({"a\udcff": models["a"]})
