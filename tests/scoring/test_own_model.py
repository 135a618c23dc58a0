"""A model of one's own with fused weights, from its module to the report, in as few lines as the README promises."""

import json
from pathlib import Path

import numpy as np
import torch

import rmtbase
from rmtbase.models import split_qkv
from rmtbase.report import render
from rmtbase.scoring import summarize_scores

N_LAYERS, N_HEADS, D_MODEL, D_HEAD, PLANTED = 12, 32, 256, 16, 30
NOTEBOOK = Path(__file__).parents[2] / "examples" / "own_model.ipynb"


class Attention(torch.nn.Module):
    """As in many a private model: one linear map for queries, keys and values, cut by ``chunk`` and then into heads."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(D_MODEL, 3 * N_HEADS * D_HEAD, bias=False)
        self.out = torch.nn.Linear(N_HEADS * D_HEAD, D_MODEL, bias=False)
        torch.nn.init.normal_(self.qkv.weight, std=0.02)

    def heads(self, x):
        """Queries, keys and values (head, position, d_head)."""
        return (part.unflatten(-1, (N_HEADS, D_HEAD)).transpose(0, 1) for part in self.qkv(x).chunk(3, dim=-1))


class OwnModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Attention() for _ in range(N_LAYERS))


def planted_model():
    """A random model in bfloat16, and which of its heads were given one strong direction."""
    torch.manual_seed(0)
    model = OwnModel()
    planted = torch.zeros(N_LAYERS * N_HEADS, dtype=torch.bool)
    planted[torch.randperm(len(planted))[:PLANTED]] = True
    with torch.no_grad():
        for layer, head in planted.view(N_LAYERS, N_HEADS).nonzero().tolist():
            rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
            model.blocks[layer].qkv.weight[rows] += 0.02 * torch.outer(torch.randn(D_HEAD), torch.randn(D_MODEL))
    return model.bfloat16(), planted.view(N_LAYERS, N_HEADS).numpy()


def test_from_module_to_report_in_ten_lines(tmp_path):
    model, planted = planted_model()

    w_q, w_k = [], []
    for block in model.blocks:
        q, k, _ = split_qkv(block.qkv.weight, N_HEADS, "concatenated")
        w_q.append(q)
        w_k.append(k)
    scores = rmtbase.score_heads(w_q, w_k, model="my model")
    (tmp_path / "report.html").write_text(render(scores), encoding="utf-8")

    found = scores["heads"]["omnibus_q_value"].values < 0.01
    np.testing.assert_array_equal(found, planted)  # 30 of 384, and none else
    assert "my model" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert {(one.layer, one.head) for one in summarize_scores(scores, 0.01).findings} == set(
        zip(*(place.tolist() for place in np.nonzero(planted)), strict=True)
    )


def test_the_heads_are_those_of_the_forward_pass():
    attention = Attention().double()
    x = torch.randn(5, D_MODEL, dtype=torch.float64)
    for weights, made in zip(split_qkv(attention.qkv.weight, N_HEADS, "concatenated"), attention.heads(x), strict=True):
        torch.testing.assert_close(x @ weights.mT, made)


def test_the_notebook_holds_no_outputs_and_compiles():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        compile("".join(cell["source"]), str(NOTEBOOK), "exec")
