"""Signal and noise of a model: each head and matrix as if it were alone, in a file that opens again."""

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values
from rmtbase.models import ArrayModel, open_model
from rmtbase.nulls import Gaussian
from rmtbase.reasons import Reason
from rmtbase.results import open_table
from rmtbase.results.signal import signal, signal_rows, spectral_signal
from rmtbase.results.signal._learned_part import learned_part_of
from rmtbase.results.signal.rows import discoveries, signal_groups, summarize_signal
from rmtbase.tables import CIRCUITS, export, write_table
from telling import Told


@pytest.fixture(scope="module")
def demo():
    """The bundled model after 200 steps."""
    return open_model("demo", "step-200")


@pytest.fixture(scope="module")
def tree(demo):
    return signal(open_model(demo, proof=False), circuits=("ov",), matrices="none")


@pytest.fixture(scope="module")
def untrained():
    """The bundled model before its training, whole matrices too."""
    return signal(open_model("demo", "step-0", proof=False))


def test_untrained_heads_have_learned_nothing(untrained):
    rows = signal_rows(untrained)
    # 188 at 5 %, of which heads that share a key head go together: more than 24 with probability 1e-4.
    assert len(rows) == 4 * (4 * 8 + 2 * 4 + 7)
    assert sum(row.numbers["n_directions"] > 0 for row in rows) <= 24
    assert all(row.numbers["noise_floor"] == 1 for row in rows)
    assert discoveries(rows, 0.05) == 0  # but for 5 % of seeds


def test_heads_and_matrices_are_those_of_their_own_spectra(demo, tree, untrained):
    assert list(tree["circuits"].children) == ["qk", "ov"]
    layer, head = 2, 5
    w_q, w_k = demo.queries(layer)[head], demo.keys(layer)[demo.key_head(head, layer)]
    alone = spectral_signal(product_singular_values(w_q, w_k) ** 2, (128, 16, 128))
    heads = tree["circuits/qk/heads"].to_dataset().isel(layer=layer, head=head)
    assert heads["n_directions"] == alone.n_directions > 2
    n = int(alone.n_directions)
    np.testing.assert_allclose(heads["strength"][:n], alone.strength, rtol=1e-9)
    assert heads["expected_error"] == pytest.approx(float(alone.expected_error), rel=1e-9)
    assert (heads["noise_scale"] <= heads["sigma"]).item()
    matrix = open_model("demo", "step-0").matrix(1, "mlp_in")
    alone = spectral_signal(np.linalg.svd(matrix.astype(float), compute_uv=False) ** 2, matrix.shape)
    of_matrix = untrained["matrices"].to_dataset().sel(layer=1, component="mlp_in")
    assert (of_matrix["n_rows"], of_matrix["n_columns"]) == matrix.shape
    assert of_matrix["first_p_value"] == pytest.approx(float(alone.first_p_value), rel=1e-6)
    assert of_matrix["rest_p_value"] == pytest.approx(float(alone.rest_p_value), rel=1e-6)


def test_noise_may_have_each_heads_own_kurtosis_or_that_of_an_initialization(tmp_path):
    model, layer, head = open_model("demo", "step-0"), 1, 3
    own = signal(open_model(model, proof=False), "kurtosis", circuits=("qk",))
    w_q, w_k = model.queries(layer)[head], model.keys(layer)[model.key_head(head, layer)]
    eigenvalues, dims = product_singular_values(w_q, w_k) ** 2, (128, 16, 128)
    kurtosis = [np.mean(one.astype(float) ** 4) / np.mean(one.astype(float) ** 2) ** 2 - 3.0 for one in (w_q, w_k)]
    alone = spectral_signal(eigenvalues, dims, excess_kurtosis=np.mean(kurtosis))
    heads = own["circuits/qk/heads"].to_dataset().isel(layer=layer, head=head)
    assert heads["first_p_value"] == pytest.approx(float(alone.first_p_value), rel=1e-9)
    assert heads["rest_p_value"] == pytest.approx(float(alone.rest_p_value), rel=1e-9)
    part = learned_part_of(model, layer, "mlp_in", null="kurtosis")
    of_matrix = own["matrices"].to_dataset().isel(layer=layer).sel(component="mlp_in")
    assert of_matrix["rest_p_value"] == pytest.approx(float(part.signal.rest_p_value), rel=1e-6)
    assert open_table(write_table(own, tmp_path / "signal.nc"), "signal").attrs["null"] == "kurtosis"
    uniform = signal(
        open_model(model, proof=False), Gaussian(initialization="uniform"), matrices="none", circuits=("qk",)
    )
    alone = spectral_signal(eigenvalues, dims, excess_kurtosis=-1.2)
    heads = uniform["circuits/qk/heads"].to_dataset().isel(layer=layer, head=head)
    assert heads["rest_p_value"] == pytest.approx(float(alone.rest_p_value), rel=1e-9)


def test_heads_that_share_keys_are_looked_at_as_one(tree, demo):
    layer, shared, members = 2, 1, 2
    heads = range(members * shared, members * (shared + 1))
    w_q, w_k = demo.queries(layer).astype(float), demo.keys(layer)[demo.key_head(heads[0], layer)].astype(float)
    sizes = [np.linalg.norm(w_q[head]) for head in heads]
    blocks = [w_q[head] * np.sqrt(np.mean(np.square(sizes))) / size for head, size in zip(heads, sizes, strict=True)]
    left, s, _ = np.linalg.svd(np.hstack(blocks).T @ w_k, full_matrices=False)
    found = spectral_signal(s[:16] ** 2, (128 * members, 16, 128))
    table = tree["circuits/qk/groups"].to_dataset().isel(layer=layer, key_head=shared)
    number = int(found.n_directions)
    assert table["n_directions"] == number > 2
    np.testing.assert_allclose(table["strength"][:number], found.strength, rtol=1e-9)
    share = np.square(left[:, :number]).reshape(members, 128, number).sum(axis=1)
    np.testing.assert_allclose(table["head_share"][:number], share.T, rtol=1e-8)
    place = (layer, "qk", shared)
    (group,) = (row for row in signal_groups(tree) if (row.layer, row.what, row.head) == place)
    np.testing.assert_allclose([one["head_share"] for one in group.directions], share.T, rtol=1e-8)
    assert len(signal_groups(tree)) == 2 * 4 * 4


def test_rows_files_and_latex_hold_all_of_it(tree, untrained, tmp_path):
    rows = signal_rows(tree)
    assert len(rows) == 2 * 32
    first = next(row for row in rows if row.directions)
    assert len(first.directions) == first.numbers["n_directions"]
    assert discoveries(rows, 0.05) > 50
    for part in (*summarize_signal(rows), *summarize_signal(signal_rows(untrained))):
        assert part["spectra"] == (16 if part["what"] in ("key", "value") else 32 if part["what"] in CIRCUITS else 4)
    for part in summarize_signal(rows):
        own = [row for row in rows if row.what == part["what"]]
        assert part["no_floor"] == sum(row.numbers["noise_floor"] == 0 for row in own)
    for one in (tree, untrained):
        assert open_table(write_table(one, tmp_path / "signal.nc"), "signal").identical(one)
    table = export(tree, "latex", group="ov").decode()
    assert "layer & head & n directions & signal share & threshold & noise scale &" in table
    assert r"\pm" in table  # the scale with its error


def test_tables_for_print_and_for_other_programs_have_the_bound_and_why_there_is_no_number():
    tree = signal(open_model("demo", proof=False), circuits=("query",), matrices="none")
    table = export(tree, "latex", group="query").decode()
    assert "n directions & no number & signal share & learned share bound &" in table and r"too\_few\_left" in table
    header, first, *_ = export(tree, "csv", group="query").decode().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    heads = tree["circuits/query/heads"].to_dataset()
    assert float(cells["learned_share_bound"]) == pytest.approx(float(heads["learned_share_bound"][0, 0]))
    assert (cells["no_number"], cells["no_bound"], cells["n_directions"]) == ("too_few_left", "", "nan")
    qk = export(tree, "latex", group="qk").decode()
    assert "learned share bound" not in qk  # of a product there is none


def test_what_has_no_number_says_why_and_rows_are_of_signal_alone(weights, tmp_path):
    weights.queries[0, 1] = 0.0
    told = Told()
    found = signal(str(weights.save(tmp_path / "zeros")), matrices="none", progress=told)
    assert "matrices" not in found.children
    rows = [row for row in signal_rows(found) if row.what == "qk"]
    assert [row.reason.code for row in rows] == ["", "all_zeros", *[""] * (len(rows) - 2)]
    assert rows[1].numbers["n_directions"] is None
    assert told.steps == told.totals
    few = ArrayModel.from_factors([np.ones((1, 4, 30)) + np.eye(4, 30)], [np.eye(4, 30)[None]], "few")
    (row, *_) = signal_rows(signal(few, matrices="none"))
    assert row.reason == Reason("too_short", {"length": 4, "needed": 8})
    with pytest.raises(ParameterError, match=r"tree = None: expected a DataTree, as rmtbase.open_table opens it"):
        signal_rows(None)
    weights.queries[0, 1, 0, 0] = 1e3
    found = signal(str(weights.save(tmp_path / "heavy")), null="kurtosis", matrices="none")
    reasons = [row.reason for row in signal_rows(found) if row.what == "qk"]
    assert reasons[1] == Reason("heavy_entries", {"largest": 3.0})
    assert not any(reasons[:1] + reasons[2:])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"matrices": "elements"}, "matrices"),
        ({"level": 1.0}, "level"),
        ({"null": "axes"}, "null"),
        ({"circuits": ("k",)}, "circuits"),
    ],
)
def test_bad_arguments_are_named(options, name):
    with pytest.raises(ParameterError) as caught:
        signal("demo", **options)
    assert caught.value.name == name
