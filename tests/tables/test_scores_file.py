"""A scores file, of one stack or several, holds what its schema says, as a tree that xarray opens, or is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rmtbase.errors import TableError
from rmtbase.results import open_table
from rmtbase.results.figures import figures
from rmtbase.results.scores import render, summarize_scores
from rmtbase.results.scores._heads import circuits_of
from rmtbase.results.scores.schema import SCORES, heads_schema, null_schema
from rmtbase.tables import CIRCUITS, validate, write_table

DATA = Path(__file__).parents[1] / "data"


def test_every_variable_comes_back_with_dims_long_name_and_units(scores, tmp_path):
    with xr.open_datatree(write_table(scores, tmp_path / "scores.nc")) as opened:
        for group in ("/heads", "/null", "/matrices", "/heads/elements", "/super_weights"):
            for name, variable in SCORES.groups[group].items():
                found = opened[group][name]
                assert found.dims == variable.dims, (group, name)
                assert found.attrs["long_name"] == variable.long_name, (group, name)
                assert found.attrs.get("units", "") == variable.units, (group, name)


def test_coordinates_infinities_and_attributes_come_back(scores, tmp_path):
    scores["heads"]["observed"].values[0, 0, 0] = -np.inf
    scores["heads"]["z_score"].values[0, 0, :2] = np.inf, np.nan
    opened = open_table(write_table(scores, tmp_path / "scores.nc"), "scores")
    for tree in (scores, opened):
        assert tree["heads"]["observed"].values[0, 0, 0] == -np.inf
        np.testing.assert_array_equal(tree["heads"]["z_score"].values[0, 0, :2], [np.inf, np.nan])
        for group in ("heads", "matrices", "null"):
            for name, coordinate in tree[group].coords.items():
                assert coordinate.attrs.get("long_name"), (group, name)
        edges = tree["null"]["bin_edge"].values
        np.testing.assert_array_equal(tree["null"]["bin"], 0.5 * (edges[1:] + edges[:-1]))
    attributes = opened.attrs
    assert (attributes["model"], attributes["family"]) == ("model", "llama")
    assert attributes["null"].startswith("gaussian")
    assert attributes["null_draws"] == 400
    record = json.loads(attributes["provenance"])
    assert len(record["weights"]["query_key_sha256"]) == 64
    assert record["null"]["table"]["call"]["cases"] == [{"d_model": 32, "d_head": 8}]
    assert json.loads(attributes["warnings"]) == []


@pytest.fixture(scope="module")
def stored():
    return open_table(DATA / "scores-of-several-stacks.nc", "scores")


@pytest.fixture
def tree(stored):
    return stored.copy(deep=True)


def test_every_variable_of_every_circuit_has_its_dims_and_its_long_name(stored):
    assert circuits_of(stored) == ["qk", "ov", "key"]
    for name in circuits_of(stored):
        groups = stored if name == "qk" else stored["circuits"][name]
        for group, schema in (
            ("heads", heads_schema(CIRCUITS[name])),
            ("null", null_schema(CIRCUITS[name], several=True)),
        ):
            for variable, known in schema.items():
                if known.part and variable not in groups[group]:
                    continue
                found = groups[group][variable]
                assert (found.dims, found.attrs["long_name"]) == (known.dims, known.long_name), (name, group, variable)
            for coordinate in groups[group].coords.values():
                assert coordinate.attrs["long_name"]


def test_circuits_differ_in_their_scales(stored):
    names = {name: set(stored["circuits"][name]["heads"].data_vars) for name in ("ov", "key")}
    assert {"sigma_o", "sigma_v", "key_head"} <= names["ov"]
    assert "sigma_k" in names["key"] and not {"sigma_q", "key_head"} & names["key"]


DAMAGES = {
    "a shape that there is no null for": (
        lambda tree: tree["null"]["layer_shape"].values.__setitem__(0, 7),
        "layer_shape 7 of 3 shapes",
    ),
    "layers that the null does not have": (
        lambda tree: tree.update({"null": xr.DataTree(tree["null"].to_dataset().isel(layer=slice(1, None)))}),
        "layer_shape of",
    ),
    "a circuit of another name": (
        lambda tree: tree["circuits/ov"].attrs.update(circuit="value"),
        "no attribute circuit = ov",
    ),
    "an unknown circuit": (lambda tree: tree["circuits/ov"].attrs.update(circuit="W_OV"), "attribute circuit = W_OV"),
    "a number of draws below zero": (
        lambda tree: tree["circuits/ov"].attrs.update(null_draws=-1),
        "attribute null_draws = -1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_together_is_refused(tree, damage):
    spoil, found = DAMAGES[damage]
    spoil(tree)
    with pytest.raises(TableError, match=found):
        validate(tree, "scores.nc", "scores")


def test_groups_and_sizes_that_are_missing_are_named(stored):
    groups = stored.to_dict()
    for place in ("/circuits/ov/null", "/circuits/ov/heads"):
        tree = xr.DataTree.from_dict({name: group for name, group in groups.items() if name != place})
        with pytest.raises(TableError, match=f"no group '{place}'"):
            validate(tree, "scores.nc", "scores")
    tree = xr.DataTree.from_dict(groups | {"/heads": groups["/heads"].drop_vars("d_head")})
    with pytest.raises(TableError, match="no attribute d_head"):
        validate(tree, "scores.nc", "scores")


@pytest.mark.parametrize("name", ["scores", "scores-of-several-stacks"])
def test_stored_scores_are_read_summarised_and_drawn(name):
    tree = open_table(DATA / f"{name}.nc", "scores")
    assert summarize_scores(tree).sentences()
    drawn = figures(tree, names={"omnibus-map", "statistics-by-layer", "matrix-z-heat-map"})
    assert {"omnibus-map", "statistics-by-layer"} <= set(drawn)
    assert "How far from random?" in render(tree, pictures=False)
