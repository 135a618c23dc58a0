"""The trajectory of a folder of checkpoints is the scores of each of them, and says when each head came to differ."""

import json
import shutil

import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.errors import CheckpointError, MissingFileError, ParameterError, StoreError
from rmtbase.models import find_series
from rmtbase.nulls import Axes, Gaussian
from rmtbase.results import open_table
from rmtbase.results.trajectory import summarize_trajectory
from rmtbase.results.trajectory._along_steps import StepName, failures, joined, one_step, until
from rmtbase.results.trajectory.report import _departure, as_json
from rmtbase.results.trajectory.schema import departure_steps, steps_before
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import write_table

STEPS = [0, 10, 20, 40]


def test_every_number_is_that_of_the_scores_of_its_checkpoint_and_the_file_holds_every_step(made, whole_run):
    tree, path, told = made
    for step in (0, 20):
        scores = rmtbase.score(whole_run / f"step-{step}", circuits=("qk", "query"))
        compared = 0
        for group in ("heads", "matrices", "circuits/query/heads"):
            there, here = scores[group].to_dataset(), tree[group].to_dataset().sel(step=step)
            assert set(there.data_vars) <= set(here.data_vars)
            for name in there.data_vars:
                expected = there[name]
                if "probability" in expected.dims:
                    expected = expected.sel(probability=[0.025, 0.5, 0.975])
                np.testing.assert_array_equal(here[name].values, expected.values)
                compared += 1
        assert compared > 38
        assert tree["null"].to_dataset().equals(scores["null"].to_dataset())
    assert open_table(path, "trajectory").identical(tree)
    assert tree["heads"]["step"].values.tolist() == STEPS
    assert tree["heads"]["revision"].values.tolist() == [f"step-{step}" for step in STEPS]
    assert told.steps["scoring checkpoints"] == len(STEPS)
    assert not path.with_name("traj.nc.steps").exists()


@pytest.mark.exhaustive
def test_elements_of_heads_are_in_the_file_and_their_group_can_be_read_alone(whole_run, tmp_path):
    path = tmp_path / "traj.nc"
    made = rmtbase.trajectory(whole_run, ["step-0", "step-40"], path, elements="factors")
    assert open_table(path, "trajectory").identical(made)
    scores = rmtbase.score(whole_run / "step-40", elements="factors")["heads/elements"].to_dataset()
    with xr.open_dataset(path, group="/heads/elements") as alone:
        assert alone["step"].values.tolist() == [0, 40]
        np.testing.assert_array_equal(alone["p_value"].sel(step=40).values, scores["p_value"].values)


def test_heads_have_left_for_good_from_the_first_step_after_which_all_are_flagged(tree):
    departures = tree["departures"].to_dataset()
    left = departures["omnibus_q_value"].sel(null="gaussian").values <= 0.05
    assert not left[0].any()
    assert left[-1].all()
    for layer, head in np.ndindex(*left.shape[1:]):
        flags = left[:, layer, head].tolist()
        place = len(flags)
        while place and flags[place - 1]:
            place -= 1
        assert departures["lasting_step"].values[0, layer, head] == STEPS[place]
        assert departures["first_step"].values[0, layer, head] == STEPS[flags.index(True)]
    summary = summarize_trajectory(tree)
    assert [one.left["gaussian"] for one in summary.steps] == left.sum(axis=(1, 2)).tolist()
    sentence = summary.sentences()[0]
    assert sentence == "8 of 8 heads came to differ from random heads for good: all between step 10 and 20."


def with_departures(tree, change):
    """The trajectory with its group of departures changed."""
    groups = {name: tree[name].to_dataset(inherit=False) for name in tree.groups if name != "/"}
    changed = xr.DataTree.from_dict({**groups, "/departures": change(groups["/departures"])})
    changed.attrs = tree.attrs
    return changed


def with_q_values(tree, q_value):
    dims = tree["departures"]["omnibus_q_value"].dims
    return with_departures(tree, lambda group: group.assign(omnibus_q_value=(dims, q_value)))


def test_head_that_comes_back_or_was_not_tested_has_not_left_for_good(tree):
    q_value = np.full((4, 1, 2, 4), 0.5)
    q_value[1, 0, 0, 0] = 0.01
    q_value[[0, 2, 3], 0, 1, 1] = 0.05
    q_value[:, 0, 1, 2] = np.nan
    back = joined([with_q_values(tree, q_value)])
    first, lasting = (back["departures"][name].values[0] for name in ("first_step", "lasting_step"))
    assert (first[0, 0], lasting[0, 0]) == (10, pytest.approx(np.nan, nan_ok=True))
    assert (first[1, 1], lasting[1, 1]) == (0, 20)
    assert np.isfinite(first).sum() == 2
    (departure,) = summarize_trajectory(back).departures
    assert (departure.left, departure.first, departure.half, departure.came_back) == (1, 20, None, 1)
    q_value = np.full((4, 1, 2, 4), 0.01)
    q_value[:, 0, 0, 0] = (0.5, np.nan, 0.01, 0.01)
    q_value[:, 0, 1] = np.nan
    after = joined([with_q_values(tree, q_value)])
    np.testing.assert_array_equal(
        steps_before(after["departures"]["omnibus_q_value"].values, np.array(STEPS))[0],
        [[0, np.nan, np.nan, np.nan], [np.nan] * 4],
    )
    q_value[0], q_value[1:, 0, 1] = np.nan, 0.01
    (departure,) = summarize_trajectory(joined([with_q_values(tree, q_value)])).departures
    assert (departure.last_after, departure.last) == (None, 20) and "the last by step 20" in departure.sentence()
    _, departure = departed_at(tree, 0, *[2] * 6, 3)
    assert (departure.first_after, departure.first) == (None, 0)
    assert (departure.half_after, departure.half) == (10, 20) and (departure.last_after, departure.last) == (20, 40)
    (printed,) = as_json(tree)["departures"]
    assert (printed["first_after"], printed["first"], printed["last_after"], printed["last"]) == (10, 20, 10, 20)


def departed_at(tree, *places):
    """Sentence and departure of a run whose heads differ from a checkpoint of these places on; None for never."""
    q_value = np.full((len(STEPS), 1, 2, 4), 0.5)
    for head, place in enumerate(places):
        q_value[place:, 0, head // 4, head % 4] = 0.01 if place is not None else 0.5
    (departure,) = summarize_trajectory(joined([with_q_values(tree, q_value)])).departures
    return departure.sentence(), departure


@pytest.mark.parametrize(
    ("places", "number", "when"),
    [
        ((1,) * 8, "8 of 8", ": all between step 0 and 10."),
        ((0,) * 8, "8 of 8", ": all already at the first checkpoint, step 0."),
        (
            (0, *[2] * 6, 3), "8 of 8",
            ": the first already at the first checkpoint, step 0, half of all reached between step 10 and 20, the last "
            "between step 20 and 40.",
        ),
        (
            (1, 1, 1, 1, 1, 3, 3, 3), "8 of 8",
            ": the first half between step 0 and 10, the last between step 20 and 40.",
        ),
        ((2, *[None] * 7), "1 of 8", ": between step 10 and 20."),
        ((2, 3, *[None] * 6), "2 of 8", ": the first between step 10 and 20."),
        ((None,) * 8, "None of 8", "."),
    ],
)  # fmt: skip
def test_heads_come_to_differ_between_two_checkpoints(tree, places, number, when):
    assert departed_at(tree, *places)[0] == f"{number} heads came to differ from random heads for good{when}"


# Heads of p-values that stay the same from step to step until the head departs, as weights do that hardly move: 200
# runs. The interval of a time misses it in at most 5 % of runs, and 3.5 standard errors.
def test_intervals_of_departures_miss_the_time_as_rarely_as_the_level_says(tree):
    rng, n_heads, missed = np.random.default_rng(5), 8, np.zeros(3)
    steps = np.arange(10) * 50
    for _ in range(200):
        onset, p = rng.uniform(0, steps[-1], n_heads), rng.uniform(size=n_heads)
        q = np.array([benjamini_hochberg(np.where(step >= onset, 1e-6 * p, p)) for step in steps])
        q = q.reshape(len(steps), 1, 2, 4)
        dims = ("step", "layer", "head")
        of_null = xr.Dataset(
            {
                "omnibus_p_value": (dims, q[:, 0]),
                "omnibus_q_value": (dims, q[:, 0]),
                **{name: (dims[1:], one[0]) for name, one in zip(
                    ("first_step", "lasting_step"), departure_steps(q, steps), strict=True
                )},
            },
            {"step": steps, "null": "gaussian"},
        )  # fmt: skip
        found = _departure(of_null, tree["heads"].to_dataset().isel(step=-1), True)
        times = np.sort(onset)[[0, (n_heads + 1) // 2 - 1, -1]]
        ends = ((found.first_after, found.first), (found.half_after, found.half), (found.last_after, found.last))
        missed += [
            not (-1 if low is None else low) < time <= high for time, (low, high) in zip(times, ends, strict=True)
        ]
    assert (missed / 200 < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 200)).all()


@pytest.mark.exhaustive
def test_several_nulls_have_departures_each_and_the_first_is_that_of_the_heads(whole_run, tree, tmp_path):
    nulls = (Axes(draws=39), Gaussian(draws=39))
    made = rmtbase.trajectory(whole_run, ["0", "40"], tmp_path / "t.nc", nulls=nulls, matrices="none")
    assert open_table(tmp_path / "t.nc", "trajectory").identical(made)
    departures = made["departures"].to_dataset()
    assert departures["null"].values.tolist() == ["axes", "gaussian"]
    gaussian = departures.sel(null="gaussian", step=40)
    there = tree["departures"].to_dataset().sel(null="gaussian", step=40)
    np.testing.assert_array_equal(gaussian["omnibus_p_value"].values, there["omnibus_p_value"].values)
    np.testing.assert_array_equal(departures["p_value"].sel(null="axes").values, made["heads"]["p_value"].values)
    assert made.attrs["null"].startswith("axes")
    assert made["null"]["eigenvalue_mean"].dims == ("step", "layer", "head", "index")


def test_what_cannot_be_scored_is_named_and_the_rest_goes_on(run_folder, write_step, run, tmp_path):
    weights = run_folder / "step-10" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    write_step(run_folder, 30, n_heads=2)
    shutil.copytree(run_folder / "step-20", run_folder / "step-21")
    (run_folder / "step-50").mkdir()
    path = tmp_path / "traj.nc"
    ran = run("trajectory", run_folder, "--matrices", "none", "-o", path, "--json")
    assert ran.status == 1
    printed = json.loads(ran.out)
    assert list(printed["failed"]) == ["step-10", "step-30", "step-50"]
    assert "model.safetensors" in printed["failed"]["step-10"]
    assert "no such file" in printed["failed"]["step-50"]
    assert printed["failed"]["step-30"] == "other sizes than most: 2 of head and not 4"
    assert not any(str(tmp_path) in reason for reason in printed["failed"].values())
    assert [one["step"] for one in printed["steps"]] == [0, 20, 21, 40]
    assert [one["duplicate_of"] for one in printed["steps"]] == ["", "", "step-20", ""]
    assert "rmtbase: step-10 left out: " in ran.err
    tree = open_table(path, "trajectory")
    assert failures(tree) == printed["failed"]
    names = ["step", "revision", "duplicate_of"]
    first, again = (tree["heads"].sel(step=step).to_dataset().drop_vars(names) for step in (20, 21))
    assert first.equals(again)


def test_summary_has_a_line_for_each_checkpoint(whole_run, run, tmp_path):
    ran = run("-v", "trajectory", whole_run, "--revisions", "0,20", "--matrices", "none", "-o", tmp_path / "traj.nc")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert all(any(f" step-{step} " in line for line in lines) for step in (0, 20))
    assert "8 of 8 heads came to differ from random heads for good" in ran.out
    assert f"rmtbase: wrote {tmp_path / 'traj.nc'}" in ran.err


def test_weights_that_are_those_of_an_earlier_step_are_scored_once(run_folder, scored):
    shutil.copytree(run_folder / "step-0", run_folder / "step-5")
    tree = rmtbase.trajectory(run_folder, ["0", "5", "10"], matrices="none")
    assert scored == ["step-0", "step-10"]
    assert tree["heads"]["duplicate_of"].values.tolist() == ["", "step-0", ""]


def test_trajectories_are_joined_and_cut(tree, whole_run):
    last = rmtbase.trajectory(whole_run, ["40"], circuits=("qk", "query"))
    early = until(tree, 39)
    assert early["heads"]["step"].values.tolist() == [0, 10, 20]
    assert joined([last, early])["departures"].to_dataset().equals(tree["departures"].to_dataset())
    assert until(tree, -1) is None
    with pytest.raises(ParameterError, match="each step is in one"):
        joined([tree, last])
    (departure,) = summarize_trajectory(until(tree, 0)).departures
    assert departure.sentence() == "None of 8 heads differ from random heads at step 0, the only one."


def test_group_whose_entries_come_and_go_says_of_which_step_each_is(whole_run):
    def part(step, count):
        scores = rmtbase.score(whole_run / f"step-{step}", matrices="none")
        found = xr.Dataset({"layer": ("super_weight", np.arange(count)), "value": ("super_weight", np.ones(count))})
        groups = {name: scores[name].to_dataset(inherit=False) for name in ("heads", "null")}
        tree = xr.DataTree.from_dict({**groups, "super_weights": found})
        tree.attrs = scores.attrs
        return one_step({"gaussian": tree}, StepName(step, f"step-{step}", str(step)))

    tree = joined([part(0, 2), part(10, 0), part(20, 1)])
    assert tree["super_weights"]["at_step"].values.tolist() == [0, 0, 20]
    assert until(tree, 10)["super_weights"]["at_step"].values.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("revisions", "said"),
    [
        (["main"], "'all', or some of step-0, step-10"),
        (["0", "0:step-10"], "one of step 0"),
        (["3:main", "5:main"], "a revision of one step: it is given for several"),
        ([], "nothing"),
    ],
)
def test_revision_that_is_none_is_refused(revisions, said, whole_run):
    with pytest.raises(ParameterError, match=said):
        rmtbase.trajectory(whole_run, revisions)


def test_names_of_revisions_tell_their_steps(tmp_path):
    names = ["checkpoint-500", "step512", "global_step3", "stage1-step1000-tokens5B", "main", "stepping", "v1.0"]
    for name in (*names, "tmp-checkpoint-500"):  # the last as the Trainer writes one
        (tmp_path / name).mkdir()
    assert [one.step for one in find_series(tmp_path).revisions] == [3, 500, 512, 1000]
    chosen = [one[:2] for one in find_series(tmp_path, ["7:main", "500"]).revisions]
    assert chosen == [(7, "main"), (500, "checkpoint-500")]


def test_where_nothing_can_be_scored_the_first_reason_is_told(tmp_path):
    (tmp_path / "run" / "step-3").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"none of 1 checkpoints can be scored; step-3: step-3/config.json: no"):
        rmtbase.trajectory(tmp_path / "run")
    with pytest.raises(ParameterError, match="whose names state their steps"):
        rmtbase.trajectory(tmp_path)
    with pytest.raises(MissingFileError):
        rmtbase.trajectory(tmp_path / "nowhere")


def test_finished_checkpoints_of_other_options_and_other_steps_are_refused(
    whole_run, tmp_path, killed_as_it_writes, tree
):
    output = tmp_path / "traj.nc"
    stopped = killed_as_it_writes(whole_run, ["0", "10"], output=output, matrices="none")
    assert stopped.__notes__ == [f"2 finished checkpoints are kept in {output}.steps, run again to go on"]
    with pytest.raises(StoreError, match="scored with other options"):
        rmtbase.trajectory(whole_run, ["0", "10"], output, nulls=Gaussian(seed=1), matrices="none")
    wrong = with_departures(tree, lambda group: group.assign_coords(step=group["step"] + 1))
    with pytest.raises(rmtbase.errors.TableError, match="other steps in /departures"):
        open_table(write_table(wrong, tmp_path / "wrong.nc"), "trajectory")
