"""Do recipes differ by more than seeds do? Statistics, exact p-values and intervals of groups of models, and runs."""

import json
from itertools import permutations, product

import numpy as np
import pytest
import xarray as xr
from matrices_group import between_groups, compare_groups
from scipy import stats
from test_two_models import NAMES, drawn, levels

from rmtbase.results import open_table
from rmtbase.results.comparison import compare
from rmtbase.results.comparison._groups import measures_of
from rmtbase.results.comparison.summary import summarize_comparison
from rmtbase.results.trajectory.schema import departure_steps
from rmtbase.tables import write_table

STEPS = (0, 4, 45, 256)


def groups_of(rng, shifts, n=3):
    """Groups of n untrained models each, whose distances are moved by so much."""
    return {f"g{k}": [drawn(rng, shift=shift) for _ in range(n)] for k, shift in enumerate(shifts)}


def values(groups, measure="trace"):
    """The measure of each model, group by group."""
    return [np.array([measures_of(scores)[measure] for scores in members]) for members in groups.values()]


def run(rng, shift, left_from):
    """A trajectory whose heads move away in proportion to the step, and differ from the null for good from one on."""
    parts = [drawn(rng, shift=shift * step / STEPS[-1]) for step in STEPS]
    q = np.array([[1.0 if step < left_from else 0.01] * 8 for step in STEPS]).reshape(len(STEPS), 2, 4)
    heads = [
        one["heads"].to_dataset().assign(omnibus_q_value=(("layer", "head"), own))
        for one, own in zip(parts, q, strict=True)
    ]
    steps = {"step": list(STEPS), "revision": ("step", [f"step-{step}" for step in STEPS])}
    stepped = xr.concat([one.drop_vars("key_head") for one in heads], "step").assign_coords(steps)
    nulls = np.stack([q, np.ones_like(q)], axis=1)
    first, lasting = departure_steps(nulls, np.array(STEPS))
    places = ("null", "layer", "head")
    departures = xr.Dataset(
        {
            "omnibus_q_value": (("step", *places), nulls),
            "first_step": (places, first),
            "lasting_step": (places, lasting),
        },
        {**steps, "null": ["gaussian", "axes"], "layer": stepped["layer"], "head": stepped["head"]},
    )
    groups = {"/heads": stepped.assign(key_head=heads[0]["key_head"]), "/departures": departures}
    tree = xr.DataTree.from_dict({**groups, "/null": parts[0]["null"].to_dataset()})
    weights = {f"step-{step}": {"query_key_sha256": f"{step}-{rng.integers(1 << 40)}"} for step in STEPS}
    tree.attrs = {**parts[0].attrs, "provenance": json.dumps({"weights": weights})}
    return tree


@pytest.fixture(scope="module")
def runs():
    """Two recipes, four runs of each: the second one's heads move, and differ from a null from step 45 on."""
    rng = np.random.default_rng(21)
    return {
        f"{name}-{k}": run(rng, shift, at) for name, shift, at in (("a", 0.0, 999), ("b", 4.0, 45)) for k in range(4)
    }


@pytest.fixture(scope="module")
def of_runs(runs):
    """Their comparison, not to be changed."""
    return compare(runs, {name: [f"{name}-{k}" for k in range(4)] for name in "ab"}, permutations=99)


def test_recipes_are_compared_by_analysis_of_variance_and_every_way_to_divide_models():
    groups = groups_of(np.random.default_rng(20), (0.0, 0.5, 0.0), n=2)
    found, each = between_groups(groups), values(groups)
    place = found.measures.index("trace")
    assert found.f_ratio[place] == pytest.approx(stats.f_oneway(*each).statistic)
    whole = np.concatenate(each)
    ways = {tuple(way) for way in permutations([0, 0, 1, 1, 2, 2])}
    ratios = [stats.f_oneway(*(whole[np.array(way) == k] for k in range(3))).statistic for way in ways]
    assert found.p_value[place] == pytest.approx(np.mean(np.array(ratios) >= found.f_ratio[place] * (1 - 1e-9)))
    assert found.smallest_p_value == 6 / 90
    within = np.mean([one.var(ddof=1) for one in each])
    assert found.seed_std[place] == pytest.approx(np.sqrt(within))
    beyond = (2 * np.var([one.mean() for one in each], ddof=1) - within) / 2
    assert found.group_std[place] == pytest.approx(np.sqrt(max(0.0, beyond)))


def test_models_that_share_seeds_are_compared_seed_by_seed_and_equal_ones_have_no_interval():
    rng = np.random.default_rng(22)
    of_seeds = (-3.0, 0.0, 3.0)  # what a seed decides, the same in each group
    groups = {f"g{k}": [drawn(rng, shift=of + 0.4 * k) for of in of_seeds] for k in range(3)}
    found, table = between_groups(groups, paired=True), np.stack(values(groups))
    rest = table - table.mean(axis=0)
    between = 3 * (rest.mean(axis=1) ** 2).sum() / 2
    within = ((rest - rest.mean(axis=1, keepdims=True)) ** 2).sum() / 4
    place = found.measures.index("trace")
    assert found.f_ratio[place] == pytest.approx(between / within)
    assert found.seed_std[place] == pytest.approx(np.sqrt(within))
    assert found.smallest_p_value == 6 / 6**3
    ratios = []
    for way in product(permutations(range(3)), repeat=3):
        moved = np.stack([rest[list(order), k] for k, order in enumerate(way)], axis=1)
        ratios.append((moved.mean(axis=1) ** 2).sum())
    assert found.p_value[place] == pytest.approx(np.mean(np.array(ratios) >= 2 * between / 3 * (1 - 1e-9)))
    assert found.seed_std[place] < between_groups(groups).seed_std[place]
    one = compare_groups(groups["g0"], groups["g2"], paired=True)
    d = table[2] - table[0]
    t = stats.ttest_rel(table[2], table[0])
    assert one.t_p_value[place] == pytest.approx(t.pvalue)
    assert (one.interval_low[place], one.interval_high[place]) == pytest.approx(tuple(t.confidence_interval()))
    signs = np.array(list(product((-1, 1), repeat=3)))
    assert one.p_value[place] == pytest.approx(np.mean(np.abs(signs @ d) >= abs(d.sum()) * (1 - 1e-9)))
    assert one.smallest_p_value == 2 / 8 and one.paired
    groups = groups_of(np.random.default_rng(24), (0.0, 0.0), n=4)
    for scores in groups["g1"]:
        scores["heads"] = xr.DataTree(
            scores["heads"].to_dataset().assign(omnibus_q_value=(("layer", "head"), np.zeros((2, 4))))
        )
    found = compare_groups(*groups.values())
    place = found.measures.index("heads_departed")
    assert found.p_value[place] == found.smallest_p_value == 2 / 70
    assert np.isnan([found.t_p_value[place], found.interval_low[place]]).all()
    same = compare_groups(groups["g0"], groups["g0"])
    assert (same.p_value == 1.0).all() and (same.t_p_value == 1.0).all() and not same.difference.any()


@pytest.mark.exhaustive
@pytest.mark.parametrize("paired", [False, True])
def test_recipes_of_untrained_models_differ_no_more_often_than_the_level(paired):
    rng = np.random.default_rng(25)
    found = [between_groups(groups_of(rng, (0, 0, 0)), 99, paired=paired) for _ in range(40)]
    for p in ([one.p_value[0] for one in found], [one.adjusted_p_value[:4].min() for one in found]):
        for share, most in levels(p):
            assert share <= most
    assert all((one.adjusted_p_value[:4] >= one.p_value[:4]).all() for one in found)


def test_trajectories_are_compared_at_every_step_and_by_when_heads_left(runs, of_runs, tmp_path):
    along, at_end = of_runs["along/groups"].to_dataset(), of_runs["groups"].to_dataset()
    assert along["step"].values.tolist() == list(STEPS)
    for step in (0, STEPS[-1]):
        one = along.sel(step=step).isel(contrast=0)
        first, second = (
            np.mean([runs[f"{group}-{k}"]["heads/z_score"].sel(step=step, statistic="trace") for k in range(4)])
            for group in "ab"
        )
        assert one["difference"].sel(measure="trace").item() == pytest.approx(second - first)
    assert (along["adjusted_p_value"].sel(step=0).isel(contrast=0).values[:4] > 0.05).all()
    last = of_runs["along/between"].to_dataset().isel(step=-1).sel(measure=NAMES)
    between = of_runs["between"].to_dataset().sel(measure=NAMES)
    np.testing.assert_array_equal(last["p_value"], between["p_value"])
    assert (last["adjusted_p_value"].values >= between["adjusted_p_value"].values).all()  # adjusted for all steps
    when = at_end.isel(contrast=0).sel(measure="departure_step gaussian")
    assert (when["first_mean"].item(), when["second_mean"].item()) == pytest.approx((STEPS[-1], 45))
    left = along.isel(contrast=0)["second_mean"].sel(measure="heads_departed gaussian").values
    assert left.tolist() == [0, 0, 1, 1]
    assert at_end.isel(contrast=0)["difference"].sel(measure="heads_departed axes").item() == 0
    assert of_runs["models"].to_dataset()["revision"].values.tolist() == ["step-256"] * 8
    assert len(set(of_runs["models"].to_dataset()["fingerprint"].values.tolist())) == 8
    (line,) = [one for one in summarize_comparison(of_runs) if one.startswith("Along 4 steps")]
    assert "heads_departed gaussian between step 4 and 45" in line
    assert f"at step 0 they differ in 0 of {of_runs['along/between'].sizes['measure']} measures" in line
    assert open_table(write_table(of_runs, tmp_path / "runs.nc"), "comparison").identical(of_runs)


def test_runs_of_other_steps_are_compared_at_common_ones(runs):
    shorter = {name: one.isel(step=slice(0, 3)) if name == "a-0" else one for name, one in runs.items()}
    found = compare(shorter, {name: [f"{name}-{k}" for k in range(4)] for name in "ab"}, permutations=9)
    assert found["along/groups"]["step"].values.tolist() == list(STEPS[:3])
    assert "the 3 steps that all of their trajectories have" in found.attrs["warnings"]
    assert "departure_step gaussian" not in found["groups"]["measure"].values
