"""Watching a run: cost, file, logs, and weights and random numbers that are as they would be without."""

import json
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import norm

import rmtbase
from event_files import events
from exhaustive import mostly_exhaustive
from rmtbase.errors import NonFiniteError, ParameterError, TableError
from rmtbase.models import open_model
from rmtbase.nulls import Gaussian
from rmtbase.results import open_table
from rmtbase.results.trajectory import summarize_trajectory
from rmtbase.results.trajectory._alarm import ALARM_LEVEL, Spending, evidence, look_weights, raised
from rmtbase.results.trajectory._checkpoint_scores import Scoring
from rmtbase.watch import WatchCallback, Watcher, WatchWarning

SETTINGS = {
    "vocab_size": 32, "hidden_size": 128, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 16,
}  # fmt: skip
HEADS = Scoring(matrices="none", proof=False)
STATE = {
    "scoring": HEADS,
    "family": "llama",
    "config": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
}


def state_dict(seed, shift=0.0):
    """Queries and keys of one layer, of a shape that the atlas has."""
    rng = np.random.default_rng(seed)
    shared = shift * rng.standard_normal(128)
    return {
        f"model.layers.0.self_attn.{name}.weight": (
            0.02 * rng.standard_normal((rows, 128)) + (shared if name in ("q_proj", "k_proj") else 0.0)
        ).astype(np.float32)
        for name, rows in (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))
    } | {"model.layers.0.self_attn.o_proj.weight": 0.02 * rng.standard_normal((128, 64)).astype(np.float32)}


def train(folder, watched, max_steps=6, resume=False):
    """A short run of the Trainer, watched or not: the Trainer and what it logged to TensorBoard."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SETTINGS))
    data = [{"input_ids": ids, "labels": ids} for ids in (torch.arange(i, i + 8) % 32 for i in range(32))]
    arguments = TrainingArguments(
        str(folder / "run"), max_steps=max_steps, save_steps=3, logging_steps=3, per_device_train_batch_size=4,
        report_to=["tensorboard"], use_cpu=True, learning_rate=0.02, disable_tqdm=True, seed=1, log_level="error",
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    if watched:
        trainer.add_callback(WatchCallback(trainer, folder / "run.nc", every=2, scoring=HEADS, budget=None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and transformers
        trainer.train(resume_from_checkpoint=resume or None)
    return trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def trainer(folder):
    """A run that was watched."""
    return train(folder, watched=True)


def test_run_of_the_trainer_is_followed_and_is_the_run_that_is_not_watched(trainer, folder, tmp_path):
    tree = open_table(folder / "run.nc", "trajectory")
    assert tree["heads"]["step"].values.tolist() == [0, 2, 4, 6]
    (callback,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, WatchCallback))
    assert callback.skipped == 0
    assert len(callback.watcher.seconds) == 4
    assert all(0 < seconds < 60 for seconds in callback.watcher.seconds)
    assert callback.watcher.planned_looks == tree.attrs["planned_looks"] == 5
    scalars = events(folder)
    q_value = tree["departures"]["omnibus_q_value"].values[:, 0]
    share = [(step, float((one <= 0.05).mean())) for step, one in zip((0, 2, 4, 6), q_value, strict=True)]
    assert scalars["train/rmtbase/left_share"] == share
    alarm = tree["departures"]["alarm_step"].values
    assert scalars["train/rmtbase/alarm"] == [(step, float((alarm <= step).sum())) for step in (0, 2, 4, 6)]
    assert [step for step, _ in scalars["train/rmtbase/look_seconds"]] == [0, 2, 4, 6]
    assert "train/loss" in scalars
    watched = open_table(folder / "run.nc", "trajectory")["heads"].to_dataset()
    scores = rmtbase.score(open_model(trainer.model, proof=False))
    np.testing.assert_array_equal(watched["observed"].values[-1], scores["heads"]["observed"].values)
    saved = rmtbase.trajectory(folder / "run", matrices="none")["heads"].to_dataset()
    assert saved["revision"].values.tolist() == ["checkpoint-3", "checkpoint-6"]
    assert saved["fingerprint"].values[-1] == watched["fingerprint"].values[-1]
    np.testing.assert_array_equal(saved["observed"].values[-1], watched["observed"].values[-1])
    alone = train(tmp_path, watched=False)
    for (name, watched), plain in zip(
        trainer.model.state_dict().items(), alone.model.state_dict().values(), strict=True
    ):
        assert torch.equal(watched, plain), name


@pytest.mark.exhaustive
def test_run_that_goes_on_replaces_the_looks_beyond_where_it_does(trainer, folder, tmp_path):
    shutil.copytree(folder / "run" / "checkpoint-3", tmp_path / "run" / "checkpoint-3")
    shutil.copy(folder / "run.nc", tmp_path / "run.nc")
    before = open_table(folder / "run.nc", "trajectory")
    train(tmp_path, watched=True, resume=True)
    after = open_table(tmp_path / "run.nc", "trajectory")
    assert after["heads"]["step"].values.tolist() == [0, 2, 3, 4, 6]
    both = [0, 2, 4, 6]
    for name in ("observed", "sigma_q"):
        here, there = (tree["heads"][name].sel(step=both).values for tree in (after, before))
        np.testing.assert_array_equal(here, there)
    assert after.attrs["planned_looks"] == 5


def test_look_leaves_random_numbers_and_weights_alone_and_one_beyond_the_budget_is_left_out(tmp_path, monkeypatch):
    weights = {name: torch.from_numpy(one).requires_grad_() for name, one in state_dict(0).items()}
    torch.manual_seed(3)
    state, versions = torch.get_rng_state(), [one._version for one in weights.values()]
    found = Watcher(tmp_path / "run.nc", **STATE).look(weights, 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert [one._version for one in weights.values()] == versions
    assert json.loads(json.dumps(found)) == found
    assert next(iter(found)) == "rmtbase/left_share"
    now = [100.0]
    monkeypatch.setattr("rmtbase.watch._watcher.time.perf_counter", lambda: now[0])
    watcher = Watcher(tmp_path / "run.nc", budget=0.1, **STATE)
    assert watcher.can_afford()
    watcher.seconds, watcher._began = [1.0], 100.0
    now[0] = 118.9
    assert not watcher.can_afford()
    now[0] = 119.1
    assert watcher.can_afford()
    with pytest.raises(ParameterError, match="budget"):
        Watcher(tmp_path / "other.nc", budget=0.0)


def test_alarm_is_raised_for_a_departure_and_kept_over_a_restart(tmp_path):
    path = tmp_path / "run.nc"
    watcher = Watcher(path, planned_looks=4, **STATE)
    assert watcher.look(state_dict(0), 0)["rmtbase/alarm"] == 0
    assert watcher.look(state_dict(1, shift=0.02), 5)["rmtbase/alarm"] == 4
    again = Watcher(path, **STATE)
    assert (again.planned_looks, again.steps) == (4, [0, 5])
    found = again.look(state_dict(2), 7)
    assert found["rmtbase/alarm"] == 4
    assert 0 < found["rmtbase/alarm_detectable_p_value"] < ALARM_LEVEL
    (alarm,) = (one for one in summarize_trajectory(open_table(path, "trajectory")).sentences() if "alarm" in one)
    assert alarm.startswith(
        "The alarm, false in at most 5% of runs over all looks, was raised for 4 of 4 heads. It names"
    )
    assert (open_table(path, "trajectory")["departures"]["alarm_step"].values == 5).all()
    with pytest.raises(ParameterError, match="more than 7"):
        again.look(state_dict(2), 7)


def test_look_that_fails_leaves_the_file_and_another_way_of_scoring_or_no_inputs_are_refused(tmp_path):
    watcher = Watcher(tmp_path / "run.nc", **STATE)
    watcher.look(state_dict(0), 0)
    before = (tmp_path / "run.nc").read_bytes()
    broken = state_dict(0)
    broken["model.layers.0.self_attn.q_proj.weight"][0, 0] = np.nan
    with pytest.raises(NonFiniteError):
        watcher.look(broken, 1)
    assert (tmp_path / "run.nc").read_bytes() == before
    assert watcher.steps == [0]
    with pytest.raises(TableError, match="seed of gaussian = 0; expected one with seed of gaussian = 3"):
        Watcher(
            tmp_path / "run.nc", **STATE | {"scoring": Scoring(nulls=Gaussian(seed=3), matrices="none", proof=False)}
        )
    assert (tmp_path / "run.nc").read_bytes() == before
    with pytest.raises(ParameterError, match=r'a module is best read by running it, .*inputs=\{"x": x\}'):
        Watcher(tmp_path / "own.nc").look(Fused(), 0)


def test_other_processes_do_not_look_and_a_look_that_fails_is_warned_of(tmp_path):
    told = []
    callback = WatchCallback(SimpleNamespace(log=told.append), tmp_path / "run.nc", every=2, **STATE)
    state = SimpleNamespace(is_world_process_zero=False, global_step=0, max_steps=8)
    callback.on_train_begin(None, state, None, state_dict(0))
    assert told == callback.watcher.steps == []
    state.is_world_process_zero = True
    callback.on_train_begin(None, state, None, state_dict(0))
    assert callback.watcher.steps == [0]
    state.global_step, broken = 8, state_dict(0)
    broken["model.layers.0.self_attn.k_proj.weight"][:] = np.inf
    with pytest.warns(WatchWarning, match="the look at step 8 failed: .* infinite values"):
        callback.on_train_end(None, state, None, broken)
    assert len(told) == 1
    state.global_step, again = 0, WatchCallback(callback.trainer, tmp_path / "run.nc", every=2, **STATE)
    again.on_train_begin(None, state, None, state_dict(0))  # the same run, from its start
    assert len(told) == 1
    with pytest.raises(ParameterError, match="a file of this run, whose weights at step 0 are others"):
        again.on_train_begin(None, state, None, state_dict(1))


def test_look_that_breaks_is_warned_of_and_looks_are_not_planned_once_some_have_been_made(tmp_path, monkeypatch):
    Watcher(tmp_path / "run.nc", **STATE).look(state_dict(0), 0)
    callback = WatchCallback(SimpleNamespace(log=lambda found: None), tmp_path / "run.nc", every=2, **STATE)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=8)
    callback.on_train_begin(None, state, None, state_dict(0))
    assert callback.watcher.planned_looks is None
    state.global_step = 2
    monkeypatch.setattr(callback.watcher, "look", lambda *_, **__: {}["nothing"])
    with pytest.warns(WatchWarning, match="the look at step 2 failed: KeyError: 'nothing'"):
        callback.on_step_end(None, state, None, state_dict(0))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
def test_updates_of_adapters_are_part_of_what_is_looked_at(tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    options = LoraConfig(r=4, target_modules=["q_proj", "k_proj"], modules_to_save=["lm_head"], init_lora_weights=False)
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(**SETTINGS)), options)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    live, merged = (Watcher(tmp_path / name, scoring=HEADS) for name in ("live.nc", "merged.nc"))
    live.look(torch.nn.DataParallel(model), 0)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    merged.look(model.merge_and_unload(), 0)
    there, here = (watcher.tree["heads"].to_dataset() for watcher in (merged, live))
    assert here.equals(there)  # with the fingerprint


class Fused(torch.nn.Module):
    """Queries, keys and values as one matrix, under names of its own."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)

    def forward(self, x):
        return self.out(attended(*self.qkv(x).chunk(3, -1)))

    def parts(self):
        return self.qkv.weight[:128], self.qkv.weight[128:256]


class Transposed(torch.nn.Module):
    """Weights as parameters (d_in, d_out): x @ W."""

    def __init__(self):
        super().__init__()
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, torch.nn.Parameter(0.1 * torch.randn(128, 128)))

    def forward(self, x):
        return attended(x @ self.w_q, x @ self.w_k, x @ self.w_v) @ self.w_o

    def parts(self):
        return self.w_q.T, self.w_k.T


class CausalSelfAttention(torch.nn.Module):
    """As nanoGPT has it: c_attn, a mask in a buffer, dropout, and scores by hand."""

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = (torch.nn.Linear(128, size, bias=False) for size in (384, 128))
        self.attn_dropout, self.resid_dropout = torch.nn.Dropout(0.1), torch.nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        size, length, width = x.size()
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (one.view(size, length, 8, width // 8).transpose(1, 2) for one in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        y = self.attn_dropout(scores.softmax(-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(size, length, width)))

    def parts(self):
        return self.c_attn.weight[:128], self.c_attn.weight[128:256]


class OfTorch(torch.nn.Module):
    """torch.nn.MultiheadAttention, which need not return its weights."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(128, 8, batch_first=True)

    def forward(self, x):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.inner(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0]

    def parts(self):
        return self.inner.in_proj_weight[:128], self.inner.in_proj_weight[128:256]


def attended(q, k, v):
    q, k, v = (one.unflatten(-1, (8, 16)).transpose(-3, -2) for one in (q, k, v))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(-3, -2).flatten(-2)


@pytest.mark.parametrize("attention", [Fused, Transposed, CausalSelfAttention, OfTorch])
def test_heads_of_a_module_of_ones_own_are_found_by_running_it(attention, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.LayerNorm(128), attention())
    inputs, before = {"input": torch.randn(2, 8, 128)}, {name: one.clone() for name, one in module.state_dict().items()}
    watcher = Watcher(tmp_path / "run.nc", scoring=HEADS, inputs=inputs)
    found = watcher.look(module, 0)
    assert module.training and all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert found["rmtbase/heads_that_differ"] == 8 * found["rmtbase/left_share"] == 0.0
    assert 0.05 < found["rmtbase/smallest_q_value"] <= 1.0
    w_q, w_k = (part.detach().numpy().reshape(8, 16, 128) for part in module[1].parts())
    scores = rmtbase.score_heads(w_q, w_k)["heads"].to_dataset()
    seen = watcher.tree["heads"].to_dataset().isel(step=0)
    np.testing.assert_allclose(seen["observed"].values, scores["observed"].values, rtol=1e-6)
    with torch.no_grad():
        module[1].parts()[0][32:48] += 0.5 * torch.randn(16, 1) * torch.randn(128)
    again, q_value = watcher.look(module, 1), watcher.tree["departures"]["omnibus_q_value"].values[1, 0, 0]
    assert again["rmtbase/heads_that_differ"] == (q_value <= 0.05).sum() >= 1
    assert again["rmtbase/smallest_q_value"] == q_value[2] == q_value.min() <= 0.05


@pytest.mark.parametrize("planned_looks", [None, 1])
def test_alarm_that_can_name_no_lone_head_any_more_says_so(tmp_path, planned_looks):
    watcher = Watcher(tmp_path / "run.nc", planned_looks=planned_looks, **STATE)
    planned, many = Spending.for_heads(32, 1 / 51201, planned=100), Spending.for_heads(512, 1 / 201)
    assert planned.looks_to_name() == 5
    assert planned.looks_to_name(departed=32) == 1
    assert many.looks_to_name(seen=99) is None and many.largest_p_value_named(seen=99) is None
    watcher.level = 1e-6
    with pytest.warns(WatchWarning, match="at no look can the alarm name a lone head of 4 that differs"):
        watcher.look(state_dict(0), 0)
    watcher.look(state_dict(0), 1)  # once


# Looks of one network at its beginning, of which no head differs: nothing is named, and the warning is the only change.
@pytest.mark.parametrize("planned", [1, 2, 6])
def test_no_warning_is_about_a_look_after_the_last_planned_one(tmp_path, planned):
    watcher = Watcher(tmp_path / "run.nc", planned_looks=planned, **STATE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WatchWarning)
        found = [watcher.look(state_dict(0), step) for step in range(planned)]
    least = [one["rmtbase/alarm_detectable_p_value"] for one in found]
    assert np.isfinite(least[:-1]).all() and np.isnan(least[-1])
    assert [one["rmtbase/alarm"] for one in found] == [0.0] * planned
    with pytest.warns(WatchWarning, match=rf"from look {planned + 2} on the alarm cannot name a lone head of 4"):
        watcher.look(state_dict(0), planned)  # one more than planned


def test_the_trainer_s_last_look_is_not_warned_of_a_next_one(tmp_path):
    logged = []
    callback = WatchCallback(SimpleNamespace(log=logged.append), tmp_path / "run.nc", every=4, budget=None, **STATE)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WatchWarning)
        callback.on_train_begin(None, state, None, state_dict(0))
        state.global_step = 4
        callback.watcher.level = 1e-6  # too little to name a lone head at a next look
        callback.on_step_end(None, state, None, state_dict(0))
        callback.on_train_end(None, state, None, state_dict(0))
    assert callback.watcher.planned_looks == 3 and callback.watcher.steps == [0, 4]
    assert np.isnan(logged[-1]["rmtbase/alarm_detectable_p_value"]) and logged[-1]["rmtbase/alarm"] == 0.0


def runs_of_looks(moved, heads, runs=4000, looks=50, draws=51_200):
    """p-values of runs that learn nothing: at each look a normal score keeps √(1 − moved²) of what it was."""
    rng = np.random.default_rng(11)
    z, p_value = rng.standard_normal((runs, heads)), np.empty((looks, runs, heads))
    for look in range(looks):
        p_value[look] = np.ceil(norm.sf(z) * (draws + 1)) / (draws + 1)
        z = np.sqrt(1.0 - moved**2) * z + moved * rng.standard_normal(z.shape)
    return p_value, 1 / (draws + 1)


# 4 000 runs of fixed seeds for each of 4 ways in which looks depend on each other, from the same to independent. The
# bound allows three standard errors: falsely crossed in one of 700 cells, were the level spent to the last.
@pytest.mark.parametrize("planned", [50, None])
@pytest.mark.parametrize("moved", mostly_exhaustive([0.0, 0.05, 0.3, 1.0], always=2))
def test_runs_that_learn_nothing_raise_no_more_alarms_than_the_level(moved, planned):
    p_value, floor = runs_of_looks(moved, heads=8)
    spending = Spending.for_heads(8, floor, planned)
    evidences = evidence(p_value, spending)[-1]
    alarms = np.mean([raised(one).any() for one in evidences])
    assert alarms <= ALARM_LEVEL + 3 * np.sqrt(ALARM_LEVEL * (1 - ALARM_LEVEL) / 4000)
    assert evidences.mean() < 1.0 + 4.0 * evidences.std() / np.sqrt(evidences.size)
    if moved == 0.0:  # the share of the level that the smallest effect has is spent: 0.36, or 0.3 without a plan
        assert alarms > ALARM_LEVEL / (3 if planned else 5)


def test_a_head_at_the_smallest_effect_is_named_and_one_beyond_is_not():
    spending = Spending.for_heads(16, 1e-6, planned=50)
    least = spending.largest_p_value_named()
    assert least > 1e-3
    for p, is_named in ((1e-3, True), (least, True), (1.1 * least, False)):
        p_value = np.full((50, 16), 0.5)
        p_value[:, 3] = p
        found = raised(evidence(p_value, spending)[-1])
        assert found[3] == is_named and found.sum() == is_named
        if is_named:
            looks = spending.looks_to_name(p)
            assert raised(evidence(p_value, spending)[looks - 1])[3]
            assert not raised(evidence(p_value, spending)[looks - 2])[3]


@pytest.mark.parametrize("planned", [7, None])
@pytest.mark.parametrize(("heads", "floor"), [(1, 1e-6), (32, 1e-4), (1000, 1e-2)])
def test_weights_of_looks_and_calibrated_p_values_sum_to_at_most_one(heads, floor, planned):
    spending = Spending.for_heads(heads, floor, planned)
    grid = floor * np.arange(1, int(1 / floor) + 1)  # the p-values of draws
    assert spending.calibrated(grid).mean() <= 1.0 + 1e-9
    assert np.isnan(spending.calibrated(np.array([np.nan]))).sum() == 0
    sums = np.cumsum(look_weights(100_000, planned))
    assert (np.diff(sums) > 0).all()
    assert 0.9 < sums[-1] < 1.0
    assert np.cumsum(look_weights(7, 7))[-1] == pytest.approx(0.9)
