"""Composition of pairs of heads: the scores against d × d products, p-values over random heads, and who reads whom."""

import math

import numpy as np
import pytest
from made_models import layers, model_of
from scipy.linalg import subspace_angles

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.models import Place, Site, Tensor, open_model
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.report import Heading
from rmtbase.results.composition import composition
from rmtbase.results.composition.report import as_json, report, summarize_composition


def circuits(model, site, head):
    """W_QK and W_OV as d × d matrices."""
    of_key = model.key_head(head, site)
    query, key = model.queries(site)[head], model.keys(site)[of_key]
    value, output = model.values(site)[of_key], model.outputs(site)[head]
    return query.T @ key, output.T @ value


@pytest.mark.parametrize(
    "sizes",
    [{}, {"heads": 4, "key_heads": 2, "d_head": 3, "d_value": 7}, {"heads": 1, "d_head": 24, "d_value": 5}],
    ids=["plain", "grouped, wider values", "full rank"],
)
def test_scores_are_those_of_the_whole_matrices(sizes):
    # TransformerLens' all_composition_scores, of row vectors: ‖OV₁ QK₂‖, ‖OV₁ QK₂ᵀ‖ and ‖OV₁ OV₂‖ over the norms.
    model = model_of(np.random.default_rng(1), layers(3), **sizes)
    table = composition(model)
    norm = np.linalg.norm
    for (a, b), (c, d) in [((0, 0), (1, 0)), ((0, -1), (2, -1)), ((1, 0), (2, -1))]:
        heads = model.sites[0].n_heads
        b, d = b % heads, d % heads
        ov = circuits(model, a, b)[1].T
        read_qk, read_ov = circuits(model, c, d)
        for kind, right in (("q", read_qk), ("k", read_qk.T), ("v", read_ov.T)):
            found = table["score"].sel(kind=kind, earlier=f"L{a}H{b}", later=f"L{c}H{d}").item()
            assert found == pytest.approx(norm(ov @ right) / norm(ov) / norm(right), rel=1e-6)  # of float32 weights
    expected = table["expected_score"].values
    np.testing.assert_allclose(expected[~np.isnan(expected)], 1.0 / math.sqrt(24), rtol=1e-12)


def test_overlap_is_the_mean_squared_cosine_of_the_principal_angles():
    model = model_of(np.random.default_rng(2), layers(2), d_head=5, d_value=3)
    table = composition(model, ["k"])
    for earlier in range(2):
        for later in range(2):
            angles = subspace_angles(model.outputs(0)[earlier].T.astype(float), model.keys(1)[later].T.astype(float))
            found = table["overlap"].sel(kind="k", earlier=f"L0H{earlier}", later=f"L1H{later}").item()
            assert found == pytest.approx(np.mean(np.cos(angles) ** 2), rel=1e-6)
    assert table["expected_overlap"].sel(kind="k", earlier="L0H0", later="L1H0").item() == pytest.approx(5 / 24)


@pytest.mark.parametrize(
    "sizes",
    mostly_exhaustive(
        [
            {"heads": 16, "d_model": 48, "d_head": 8},
            {"heads": 16, "d_model": 64, "d_head": 4, "d_value": 16},
            {"heads": 32, "key_heads": 16, "d_model": 32, "d_head": 16},
            {"heads": 16, "d_model": 48, "d_head": 8, "draw": lambda rng, shape: rng.uniform(-1.0, 1.0, shape)},
        ],
        always=2,
    ),
    ids=["d/6", "wider values", "grouped, d/2", "uniform entries"],
)
def test_p_values_of_independent_heads_are_uniform(sizes):
    # Pairs (i, i) share no head, of grouped heads every other one: 192 independent tests of each kind in 12 models.
    # Beyond 4.5 standard errors one seed in 100 000; the law's own error at these levels is within 5 %.
    rng, heads = np.random.default_rng(4), sizes["heads"]
    step = heads // sizes.get("key_heads", heads)
    tables = [composition(model_of(rng, layers(2), **sizes)) for _ in range(12)]
    for name in ("p_value", "overlap_p_value"):
        p = np.array([np.diag(one[:heads, heads:])[::step] for table in tables for one in table[name].values]).ravel()
        assert p.size == 576
        for level in (0.05, 0.25, 0.5):
            error = 4.5 * math.sqrt(level * (1 - level) / p.size) + 0.05 * level
            assert abs((p <= level).mean() - level) < error
    assert sum(len(summarize_composition(table).surviving) > 0 for table in tables) <= 4  # of 12; 0.02 % by chance


def test_of_a_planted_pair_it_is_that_pair_alone():
    # The keys of L2H1 read what L0H2 writes, three parts in four; nothing else is changed.
    rng, heads, h, d = np.random.default_rng(5), 3, 8, 96
    output, key = rng.standard_normal((d, heads * h)), rng.standard_normal((heads * h, d))
    key[h : 2 * h] = 0.5 * key[h : 2 * h] + 1.5 * output[:, 2 * h :].T
    model = model_of(rng, layers(3), heads=heads, d_model=d, d_head=h, t0_output=output, t2_key=key)
    (pair,) = summarize_composition(composition(model)).surviving
    assert (pair.kind, pair.earlier, pair.later) == ("k", "L0H2", "L2H1")
    assert pair.score > 1.5 * pair.expected_score and pair.overlap > 3 * h / d


def test_the_bundled_model_has_learned_to_compose_and_its_largest_score_is_named_beside_the_surest_pair():
    assert not summarize_composition(composition(open_model("demo", "step-0"))).surviving
    table = composition("demo")
    summary = summarize_composition(table)
    assert ("k", "L1H1", "L2H5") in {(pair.kind, pair.earlier, pair.later) for pair in summary.surviving}
    assert sum(one.pairs for one in summary.kinds) == 3 * 6 * 8 * 8
    p = [pair.p_value for pair in summary.surviving]
    assert p == sorted(p) and max(pair.q_value for pair in summary.surviving) < 0.05
    largest, surest = summary.largest[0], summary.surviving[0]
    survives = table["q_value"].values < 0.05
    assert largest.score == table["score"].values[survives].max() > surest.score
    assert surest.p_value == table["p_value"].min() < largest.p_value
    _, first, second, *_ = [one for one in report(table) if isinstance(one, str) and not isinstance(one, Heading)]
    assert first.startswith(
        f"Largest scores of these: {largest.earlier} into keys of {largest.later} (0.165, by chance"
    )
    assert second.startswith(f"Surest, by p: {surest.earlier} into values of {surest.later} (p = 2.3e-08), ")
    printed = as_json(table)
    assert printed["sentences"][1:] == [first, second]
    assert [one["score"] for one in printed["largest"]] == sorted(table["score"].values[survives])[:1:-1]
    assert [one["p_value"] for one in printed["surest"]] == sorted(table["p_value"].values[survives])[:3]


def test_of_pairs_at_the_floor_of_p_the_largest_scores_come_first():
    # Five pairs share all of their directions, which is far beyond what the law can tell.
    rng, heads, h, d = np.random.default_rng(8), 6, 8, 96
    output, key = rng.standard_normal((d, heads * h)), rng.standard_normal((heads * h, d))
    for head, own in enumerate((1.0, 0.0, 2.0, 0.5, 1.5)):
        rows = slice(head * h, (head + 1) * h)
        key[rows] = own * key[rows] + 5.0 * output[:, rows].T
    model = model_of(rng, layers(2), heads=heads, d_model=d, d_head=h, t0_output=output, t1_key=key)
    table = composition(model, ["k"])
    surviving = summarize_composition(table).surviving
    at_floor = [pair for pair in surviving if pair.p_value == SMALLEST_P_VALUE]
    assert len(at_floor) == 5 and min(table["p_value"].values[table["p_value"].notnull()]) == SMALLEST_P_VALUE
    assert [pair.score for pair in surviving[:5]] == sorted((pair.score for pair in at_floor), reverse=True)
    assert [pair.z_score for pair in surviving[:5]] != sorted((pair.z_score for pair in at_floor), reverse=True)
    (sentence,) = [one for one in report(table) if isinstance(one, str) and one.startswith("Surest")]
    assert "(p ≤ 1.0e-16); 5 pairs are at this floor of p, the largest scores first." in sentence


def test_pairs_are_of_one_stream_and_cross_attention_reads_two():
    places = [*layers(2, "encoder"), *layers(2, "decoder"), *layers(2, "cross")]
    there = composition(model_of(np.random.default_rng(6), places, heads=1))["score"].notnull()

    def pairs(kind):
        return {
            (a, b)
            for a in there["earlier"].values
            for b in there["later"].values
            if there.sel(kind=kind, earlier=a, later=b)
        }

    encoder = {("encoder L0H0", "encoder L1H0")}
    decoder = {("decoder L0H0", "decoder L1H0"), ("cross L0H0", "decoder L1H0")}
    crossing = {
        ("decoder L0H0", "cross L0H0"), ("decoder L0H0", "cross L1H0"), ("decoder L1H0", "cross L1H0"),
        ("cross L0H0", "cross L1H0"),
    }  # fmt: skip
    encoded = {(f"encoder L{a}H0", f"cross L{b}H0") for a in range(2) for b in range(2)}
    assert pairs("q") == encoder | decoder | crossing
    assert pairs("k") == pairs("v") == encoder | decoder | encoded


def test_other_stacks_and_other_widths_make_no_pairs():
    places = [*layers(2, "text"), *layers(1, "vision"), Place("cross", 3)]
    table = composition(model_of(np.random.default_rng(7), places, heads=1, widths={0: (24, 24)}))
    assert table["score"].notnull().sum() == 3
    assert "cross layer 3: no decoder" in table.attrs["warnings"]
    with pytest.raises(ParameterError, match=r"layer 0 writes 20 numbers, of which layer 1 reads 24: no pairs"):
        composition(model_of(np.random.default_rng(7), layers(2), widths={0: (24, 20)}))


def test_a_head_of_zeros_has_no_pairs_and_the_scale_of_weights_changes_nothing():
    output = np.random.default_rng(8).standard_normal((24, 8))
    output[:, 4:] = 0.0
    table = composition(model_of(np.random.default_rng(8), layers(2), t0_output=output))
    missing = table["score"].sel(later="L1H0").isnull().sel(kind="q")
    assert missing.sel(earlier="L0H1") and not missing.sel(earlier="L0H0")
    assert np.isnan(table["q_value"].sel(earlier="L0H1")).all()
    assert np.isnan(table["overlap"].sel(earlier="L0H1")).all()
    rng = np.random.default_rng(9)
    output, key = rng.standard_normal((24, 8)), rng.standard_normal((8, 24))
    plain = composition(model_of(np.random.default_rng(10), layers(2), t0_output=output, t1_key=key))
    scaled = composition(
        model_of(np.random.default_rng(10), layers(2), t0_output=output * 2.0**80, t1_key=key * 2.0**-90)
    )
    for name in ("score", "p_value", "overlap"):
        np.testing.assert_allclose(scaled[name], plain[name], rtol=1e-9)


def test_what_cannot_be_composed_or_summarised_is_refused():
    for kinds in ((), ("q", "q"), ("x",), "qk"):
        with pytest.raises(ParameterError, match=r"distinct ones of q, k, v|each item a text"):
            composition("demo", kinds)
    with pytest.raises(ParameterError, match="two layers whose heads share a residual stream"):
        composition(model_of(np.random.default_rng(11), layers(1)))
    tensors = {f"{k}.{part}": np.ones((4, 8)) for k in range(2) for part in ("query", "key")}
    sites = [
        Site(
            place=Place("", k), n_heads=1, n_key_heads=1, d_head=4, d_query=8, d_key=8, query=Tensor(f"{k}.query"),
            key=Tensor(f"{k}.key"),
        )
        for k in range(2)
    ]  # fmt: skip
    with pytest.raises(ParameterError, match="layer 1: its values or outputs are not known"):
        composition(open_model(tensors, sites=sites, name="keys alone"))
    with pytest.raises(ParameterError, match="table"):
        summarize_composition(None)
    with pytest.raises(ParameterError, match="level"):
        summarize_composition(composition("demo", ["q"]), 1.0)
