"""Shares of heads in a change: exact at small size, at their level for rows of any law; planted heads are named."""

import json
import re

import numpy as np
import peft
import pytest
import torch
import transformers

from exhaustive import mostly_exhaustive
from rmtbase.results.diff import diff
from rmtbase.results.diff.measure import share_p_values
from rmtbase.statistics import benjamini_yekutieli

N_HEADS, N_KEY_HEADS, D_HEAD, D_MODEL = 8, 4, 8, 32
ROWS = {
    "equal": lambda rng, w: w,
    "scales along the positions": lambda rng, w: w * np.tile(np.geomspace(1.0, 0.1, D_HEAD), N_HEADS)[:, None],
    "heavy tails": lambda rng, w: w * rng.standard_t(3, (len(w), 1)),
}


def squares_of(update):
    return (update.reshape(N_HEADS, D_HEAD, -1) ** 2).sum(axis=2)


@pytest.mark.parametrize(("heads", "rows"), [(2, 12), (4, 6), (8, 4)])
def test_tails_are_those_of_all_outcomes(heads, rows):
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(40):
        w = rng.chisquare(2, (heads, rows))
        sums = np.zeros(1)
        for column in w.T:
            sums = np.add.outer(sums, column).ravel()
        exact = [(sums >= x * (1 - 1e-12)).mean() for x in w.sum(axis=1)]
        ratios += (share_p_values(w) / exact).tolist()
    assert min(ratios) > 0.4 and max(ratios) < 2.0
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05)


def test_largest_and_smallest_outcome_are_exact_and_equal_heads_have_no_test():
    w = np.sort(np.random.default_rng(4).chisquare(2, (4, 6)), axis=0)
    p_value = share_p_values(w)
    assert p_value[3] == 4.0**-6 and p_value[0] == 1.0
    assert np.isnan(share_p_values(np.ones((4, 6)))).all() and np.isnan(share_p_values(w[:1])).all()


# 300 updates of 8 heads: 2400 p-values of a share of 5 %, of which those of one update depend on each other a little;
# 4.5 standard errors. The other bound is that of the q-values, 5 % of updates, and 3 standard errors.
@pytest.mark.parametrize("rank", mostly_exhaustive([1, 2, 8], always={2}))
@pytest.mark.parametrize("rows", ROWS)
def test_updates_that_prefer_no_head_name_one_as_rarely_as_they_say(rows, rank):
    rng = np.random.default_rng(rank)
    each = []
    for _ in range(300):
        update = rng.standard_normal((N_HEADS * D_HEAD, rank)) @ rng.standard_normal((rank, D_MODEL))
        each.append(share_p_values(squares_of(ROWS[rows](rng, update))))
    p_value = np.array(each)
    assert abs((p_value < 0.05).mean() - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / p_value.size)
    named = np.mean([(benjamini_yekutieli(one) < 0.05).any() for one in each])
    assert named < 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / len(each))


@pytest.mark.parametrize("rank", mostly_exhaustive([1, 2, 8], always=1))
def test_adapters_that_are_trained_on_noise_name_no_head(rank):
    """A and B as Adam leaves them after gradients of independent entries, from B = 0 on: 100 adapters of 8 heads."""
    torch.manual_seed(rank)
    a = torch.rand(100, rank, D_MODEL, dtype=torch.float64).sub_(0.5).requires_grad_()
    b = torch.zeros(100, N_HEADS * D_HEAD, rank, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([a, b], lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        ((b @ a) * torch.randn(100, N_HEADS * D_HEAD, D_MODEL, dtype=torch.float64)).sum().backward()
        optimizer.step()
    p_value = np.array([share_p_values(squares_of(one)) for one in (b @ a).detach().numpy()])
    assert abs((p_value < 0.05).mean() - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / p_value.size)


def adapter_of(folder, rank, planted=(), **options):
    """A tiny Llama and an adapter of it whose B is noise, eight times as large in each planted head (module, head)."""
    torch.manual_seed(rank)
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=N_HEADS, num_key_value_heads=N_KEY_HEADS, hidden_size=D_MODEL,
        head_dim=D_HEAD, intermediate_size=40, vocab_size=11,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder / "base")
    settings = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "k_proj"], **options)
    adapted = peft.get_peft_model(model, settings)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if planted is not None and "lora_B" in name:
                parameter.normal_(std=1e-3)
                for module, head in planted:
                    if module in name:
                        parameter[head * D_HEAD : (head + 1) * D_HEAD] *= 8.0
    adapted.save_pretrained(folder / "adapter")
    return folder / "base", folder / "adapter"


@pytest.mark.parametrize("rank", mostly_exhaustive([1, 2, 8], always=1))
@pytest.mark.parametrize(
    ("module", "layer", "component", "head"),
    [("layers.1.self_attn.q_proj", 1, "attention_query", 3), ("layers.0.self_attn.k_proj", 0, "attention_key", 2)],
)
@pytest.mark.filterwarnings("ignore")  # of peft and transformers to each other
def test_the_planted_head_of_an_adapter_is_the_one_that_is_named(module, layer, component, head, rank, tmp_path, run):
    base, adapter = adapter_of(tmp_path, rank, [(module, head)])
    ran = run("diff", base, adapter, "--json")
    assert ran.status == 0, ran.err
    printed = json.loads(ran.out)
    (named,) = printed["heads_with_larger_shares"]
    assert (named["layer"], named["head"], named["component"]) == (f"layer {layer}", head, component)
    assert named["share"] > 0.5 and named["expected_share"] in (1 / N_HEADS, 1 / N_KEY_HEADS)
    heads = diff(base, adapter)["heads"].to_dataset()
    of_keys = heads["p_value_head"].sel(component="attention_key")
    assert np.isfinite(of_keys[:, :N_KEY_HEADS]).all() and np.isnan(of_keys[:, N_KEY_HEADS:]).all()
    assert heads["reason"].values[0, 0, 0] == "low_rank_update"


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_at_its_beginning_changes_nothing_and_is_not_tested(tmp_path, run):
    base, adapter = adapter_of(tmp_path, 4, None)
    ran = run("diff", base, adapter)
    assert ran.status == 0
    assert ran.out == "adapter on base: what changed\nNo matrix of 14 changed, so there is no change to test.\n"
    ran = run("-v", "diff", base, adapter)
    assert "shares of heads: 48 of 48 parts of heads cannot be tested: the same in both" in ran.out
    assert "larger share" not in ran.out


@pytest.mark.filterwarnings("ignore")
def test_of_an_adapter_the_questions_without_an_answer_are_named_with_what_was_tested(tmp_path, run):
    base, adapter = adapter_of(tmp_path, 8, [("no module", 0)])
    said = " ".join(run("diff", base, adapter).out.split())
    low_rank = "a low-rank update, whose directions are as many as its rank whatever it learned"
    assert "none of 4 tested along the old inputs, none of 4 tested along the old outputs." in said
    assert "None of 24 tested parts of heads (a head's rows or columns of one matrix) has a larger share" in said
    told, _, untold = said.partition("Cannot be told: ")
    assert untold == f"how many directions the change has, for 4 matrices and 24 parts of heads ({low_rank})."
    assert "directions beyond noise" not in told and not re.search(r"\b0 of", said)


@pytest.mark.filterwarnings("ignore")
def test_heads_that_are_all_alike_leave_their_shares_untold(tmp_path, run, make_weights):
    """Every head of each matrix changes by the same rows: no share can be told from another, and none is said."""
    rng = np.random.default_rng(2)
    queries, keys = rng.integers(-64, 65, (2, 2, 4, 16, 128)) / 1024  # sums are exact
    before = make_weights(queries, keys).save(tmp_path / "before")
    moved = rng.integers(-8, 9, (2, 1, 16, 128)) / 1024
    after = make_weights(queries + moved, keys).save(tmp_path / "after")
    said = " ".join(run("diff", before, after).out.split())
    assert "larger share" not in said
    assert "whether a head has more than its share of it, for 8 parts of heads" in said
