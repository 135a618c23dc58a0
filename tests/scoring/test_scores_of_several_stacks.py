"""Models of several stacks, shapes and circuits: each head against the null of its own shape."""

import json

import numpy as np
import pytest
import xarray as xr

import rmtbase
from plots.several_stacks import PLANTED, STACKS, ZERO, translator
from rmtbase.errors import ParameterError
from rmtbase.nulls import AnalyticNull, Axes, Gaussian
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.statistics import ELEMENT_STATISTICS, SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import CIRCUITS, heads_present, layer_names, shapes_of, to_pandas, write_table

EVERY = tuple(CIRCUITS)


@pytest.fixture(scope="module")
def model():
    return translator()


@pytest.fixture(scope="module")
def tree(model):
    """Its scores by every circuit, against the laws."""
    return rmtbase.score(model, "analytic", circuits=EVERY)


def dense(model, site, head, circuit):
    """The matrix of a circuit of one head, formed."""
    at, factors = model.sites[site], CIRCUITS[circuit].factors
    reads = {"query": model.queries, "key": model.keys, "value": model.values, "output": model.outputs}
    shared = {"key": at.n_heads // at.n_key_heads, "value": at.n_heads // at.n_key_heads} if len(factors) > 1 else {}
    matrices = [reads[factor.name](site)[head // shared.get(factor.name, 1)] for factor in factors]
    return matrices[0] if len(matrices) == 1 else matrices[0].T @ matrices[1]


@pytest.mark.parametrize("circuit", EVERY)
def test_every_head_has_the_spectrum_of_its_own_matrix_and_the_null_of_its_own_shape(tree, model, circuit):
    heads, shapes = circuit_scores(tree, circuit)["heads"], shapes_of(circuit_scores(tree, circuit))
    there = heads_present(heads.to_dataset())
    assert there.sum(axis=1).tolist() == [getattr(site, CIRCUITS[circuit].heads) for site in model.sites]
    for site, head in ((0, 0), (2, 4 if there[2, 4] else 1), (4, 2)):
        dims = tuple(getattr(model.sites[site], name) for name in CIRCUITS[circuit].dims)
        assert dims in shapes
        values = np.linalg.svd(dense(model, site, head, circuit), compute_uv=False)[: min(dims)]
        one = heads.to_dataset().isel(layer=site, head=head)
        np.testing.assert_allclose(one["eigenvalue"][: min(dims)], values**2, rtol=1e-9)
        assert one["eigenvalue"][min(dims) :].isnull().all()
        sigma = np.prod([float(one[factor.sigma]) for factor in CIRCUITS[circuit].factors])
        scored = AnalyticNull(dims=dims).score(values, sigma**2)
        for name in ("observed", "null_mean", "z_score", "p_value"):
            np.testing.assert_allclose(one[name], getattr(scored, name), rtol=1e-6, atol=1e-9)
        assert one["farthest_statistic"].item() == list(SPECTRAL_STATISTICS)[int(scored.farthest)]


def test_q_values_are_over_all_stacks_and_coordinates_say_what_differs_between_layers(tree):
    heads = tree["heads"].to_dataset()
    scored = heads["omnibus_p_value"].notnull().values
    assert scored.sum() == sum(layers * n_heads for layers, n_heads, *_ in STACKS.values()) - 1
    expected = benjamini_hochberg(heads["omnibus_p_value"].values[scored])
    np.testing.assert_array_equal(heads["omnibus_q_value"].values[scored], expected)
    assert layer_names(heads)[:3] == ["encoder layer 0", "decoder layer 0", "decoder layer 1"]
    assert heads["n_key_heads"].values.tolist() == [4, 2, 2, 6, 6]
    assert heads["d_key"].values.tolist() == [32, 48, 48, 32, 32]
    assert not {"n_heads", "n_key_heads", "d_model", "d_head"} & set(tree.attrs)
    output = tree["circuits"]["output"]
    assert output.attrs["null"].startswith("gaussian: i.i.d. Gaussian W_O at ") and output.attrs["circuit"] == "output"


def test_matrices_are_of_all_layers_those_without_attention_too_and_findings_name_the_stack(tree, model):
    matrices = tree["matrices"].to_dataset()
    assert layer_names(matrices) == [str(place) for place in model.layers]
    expected = [[model.has(layer, name) for name in model.components] for layer in range(len(model.layers))]
    np.testing.assert_array_equal(matrices["n_rows"].notnull(), expected)
    assert matrices["q_value"].notnull().any("statistic").sum() == np.sum(expected)
    place, head = PLANTED
    found = {(finding.place, finding.stack) for finding in summarize_scores(tree).findings}
    assert (f"{place} head {head}", place.stack) in found
    assert "key heads" in summarize_scores(circuit_scores(tree, "key")).sentences()[0]
    zeros = f"{ZERO[0]} head {ZERO[1]}: W_Q is zeros"
    assert any(line.startswith(zeros) for line in json.loads(tree.attrs["warnings"]))


def test_one_row_of_a_frame_for_each_head_and_what_is_written_is_what_is_read(tree, tmp_path):
    counts = {name: heads_present(circuit_scores(tree, name)["heads"].to_dataset()).sum() for name in circuits_of(tree)}
    for name, count in counts.items():
        frame = to_pandas(tree, "heads" if name == "qk" else name)
        assert len(frame) == count * len(SPECTRAL_STATISTICS)
    assert set(frame["stack"]) == set(STACKS)
    assert len(to_pandas(tree, "matrices")) == len(ELEMENT_STATISTICS) * int(tree["matrices"]["n_rows"].notnull().sum())
    xr.testing.assert_identical(open_table(write_table(tree, tmp_path / "scores.nc"), "scores"), tree)


def test_heads_of_one_shape_score_the_same_beside_others_as_alone(tree, model):
    """Of a circuit, the numbers of a head are those of the same weights scored as arrays."""
    layers = [index for index, site in enumerate(model.sites) if site.place.stack == "decoder"]
    queries, keys = (np.stack([read(layer) for layer in layers]) for read in (model.queries, model.keys))
    alone = rmtbase.score_heads(queries, keys, "analytic")["heads"].to_dataset()
    beside = tree["heads"].to_dataset().isel(layer=layers, index=slice(8))
    for name in ("observed", "z_score", "p_value", "omnibus_p_value", "sigma_q", "sigma_k", "eigenvalue", "key_head"):
        np.testing.assert_array_equal(beside[name], alone[name])


@pytest.fixture(scope="module")
def two_stacks():
    return translator(stacks=("encoder", "cross"))


@pytest.mark.exhaustive
def test_each_shape_has_its_own_simulated_null(two_stacks):
    scores = rmtbase.score(two_stacks, Gaussian(draws=60), matrices="none")
    null = scores["null"].to_dataset()
    assert null["layer_shape"].values.tolist() == [0, 1, 1]
    sizes = (null[name].values.tolist() for name in ("d_query", "d_head", "d_key"))
    assert list(zip(*sizes, strict=True)) == shapes_of(scores) == [(32, 8, 32), (48, 9, 32)]
    assert null["eigenvalue_mean"].notnull().sum("index").values.tolist() == [8, 9]
    assert len(json.loads(scores.attrs["provenance"])["null"]) == 2


def test_heads_with_a_null_each_may_differ_in_number_and_shape(two_stacks):
    heads = rmtbase.score(two_stacks, Axes(draws=19), matrices="none", circuits=("ov",))
    for circuit in ("qk", "ov"):
        scores = circuit_scores(heads, circuit)
        known = scores["null"]["eigenvalue_mean"].notnull().any("index").values
        there = heads_present(scores["heads"].to_dataset())
        assert known.sum() == there.sum() - 1  # the head of zeros has none
        assert not known[~there].any()


def test_circuits_that_are_unknown_or_of_matrices_that_are_not_there_are_refused(model):
    for circuits in (("nope",), ("qk", "W_OV"), ("",)):
        with pytest.raises(ParameterError, match=r"circuits = .*expected some of qk, ov, query"):
            rmtbase.score(model, "analytic", circuits=circuits)
    with pytest.raises(ParameterError, match="circuits = 'ov': expected some of qk, query, key"):
        rmtbase.score_heads(model.queries(0) + 1e-3, model.keys(0), "analytic", circuits=("ov",))
