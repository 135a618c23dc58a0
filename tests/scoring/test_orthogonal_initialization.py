"""Heads of orthogonally initialised matrices: where their spectrum is fixed, and where it has a law.

False failures: p-values of a few hundred heads must not be less uniform than a correct null makes them once in 10⁵
runs, each of the few statistics that are looked at.
"""

import json

import jax
import numpy as np
import pytest
import torch
from scipy import special, stats

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.ensembles import orthogonal_blocks
from rmtbase.errors import ParameterError
from rmtbase.heads.factors import stored_rows
from rmtbase.linalg import reproducible_jax
from rmtbase.models import open_model
from rmtbase.nulls import Gaussian, find_null
from rmtbase.results.scores.words import compared
from rmtbase.tables import CIRCUITS
from statistical.harness import uniform

LEVEL = 1e-5
LOOKED_AT = ["log_determinant", "normalized_participation_ratio", "largest_eigenvalue", "trace"]


def drawn(*shape, seed, dtype=torch.float32):
    """torch's own: (layers, heads, d_head, d_model), each layer one stored matrix."""
    generator = torch.Generator().manual_seed(seed)
    empty = [torch.empty(shape[1] * shape[2], shape[3]) for _ in range(shape[0])]
    stored = [torch.nn.init.orthogonal_(matrix, generator=generator) for matrix in empty]
    return torch.stack(stored).to(dtype).float().numpy().reshape(shape)


def score(w_q, w_k, null="gaussian", *, draws=None, seed=0, **options):
    null = find_null(null, initialization="orthogonal", draws=draws, seed=seed)
    return rmtbase.score_heads(w_q, w_k, null, **options)


def warnings_of(tree):
    return json.loads(tree.attrs["warnings"])


@pytest.mark.parametrize(
    "dtype", mostly_exhaustive([torch.float32, torch.bfloat16, torch.float16], always={torch.bfloat16})
)
@pytest.mark.parametrize("shape", [(2, 4, 16, 64), (2, 3, 8, 64)])
def test_orthonormal_rows_leave_nothing_to_test(shape, dtype):
    """Square and wide stored matrices: all singular values of W_QK are equal, whatever its scale, to rounding."""
    w_q, w_k = (gain * drawn(*shape, seed=seed, dtype=dtype) for gain, seed in ((0.3, 1), (5.0, 2)))
    tree = score(w_q, w_k, circuits=("query",), matrices="spectra")
    assert compared(tree).endswith("against the law of random heads with orthogonal entries")
    for heads in (tree["heads"], tree["circuits/query/heads"]):
        assert np.isfinite(heads["observed"].values).all()
        assert set(heads["reason"].values.flat) == {"fixed_spectrum"}
        for name in ("p_value", "q_value", "z_score", "omnibus_p_value"):
            assert np.isnan(heads[name].values).all(), name
    assert np.isnan(tree["matrices"]["p_value"].values).all()
    lines = [line for line in warnings_of(tree) if "orthonormal rows fix its spectrum" in line]
    assert len(lines) == 2 and all(len(line) < 600 for line in lines)
    assert any("no null of them is known" in line for line in warnings_of(tree))


def test_a_head_of_another_spectrum_is_rejected_and_orthogonal_ones_are_told_under_another_null():
    w_q, w_k = drawn(1, 4, 16, 64, seed=3), drawn(1, 4, 16, 64, seed=4)
    w_k[0, 2] += 0.02
    tree = score(w_q, w_k)
    assert (tree["heads"]["omnibus_p_value"].values[0] < 1e-10).tolist() == [False, False, True, False]
    assert any(line.startswith("layer 0 head 2: not as by orthogonal initialisation") for line in warnings_of(tree))
    w_q, w_k = drawn(1, 3, 8, 24, seed=11), drawn(1, 3, 8, 24, seed=12)
    w_q[0, 0] = np.random.default_rng(13).standard_normal((8, 24))
    notes = json.loads(rmtbase.score_heads(w_q, w_k, "analytic").attrs["notes"])
    assert any(note.startswith("2 of 3 heads have equal singular values of W_QK") for note in notes)
    assert not any("equal singular" in note for note in json.loads(score(w_q, w_k).attrs["notes"]))


TALL = [((12, 20, 8, 64), 20), ((30, 8, 12, 32), 2)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("shape", "key_heads"), mostly_exhaustive(TALL, always=TALL[1:]))
def test_p_values_of_rows_of_tall_matrices_are_uniform(shape, key_heads):
    """More rows than columns of W_Q; of the second shape the grouped keys have fewer, and theirs are orthonormal."""
    layers, _, d_head, d_model = shape
    w_q, w_k = drawn(*shape, seed=5), drawn(layers, key_heads, d_head, d_model, seed=6)
    heads = score(w_q, w_k, draws=4000)["heads"].to_dataset().isel(head=slice(None, None, shape[1] // key_heads))
    for name in LOOKED_AT[: 3 if key_heads < shape[1] else 4]:
        assert uniform(heads["p_value"].sel(statistic=name).values, 4000) > LEVEL, name
    if key_heads < shape[1]:  # then the trace is that of W_Q, which the estimate of its scale fixes
        assert np.isnan(heads["p_value"].sel(statistic="trace")).all()
    assert uniform(heads["omnibus_p_value"].values, 4000) > LEVEL


def spectra(ensemble, draws):
    with reproducible_jax():
        keys = jax.random.split(jax.random.key(7), draws)
        return np.linalg.svd(np.asarray(jax.jit(jax.vmap(lambda key: ensemble.sample(key).matrix))(keys)), False, False)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("h", "n", "rows"), mostly_exhaustive([(1, 6, 10), (3, 6, 10), (5, 6, 9)], always={3}))
def test_the_log_determinant_of_a_block_has_its_closed_form(h, n, rows):
    """|X Xᵀ| is a product of h independent beta variables, (n - i)/2 and (N - n)/2: mean and variance within 5 se."""
    a, b = 0.5 * (n - np.arange(h)), 0.5 * (rows - n)
    found = 2.0 * np.log(spectra(orthogonal_blocks((h, n), (rows,)), 4000)).sum(axis=1)
    mean = np.sum(special.digamma(a) - special.digamma(a + b))
    variance = np.sum(special.polygamma(1, a) - special.polygamma(1, a + b))
    assert found.mean() == pytest.approx(mean, abs=5 * (variance / 4000) ** 0.5)
    assert found.var() == pytest.approx(variance, rel=5 * (stats.kurtosis(found) + 2.0) ** 0.5 / 4000**0.5)
    if h == 1:
        assert stats.kstest(np.exp(found), stats.beta(a[0], b).cdf).pvalue > LEVEL
    if h == 3:  # a product with orthonormal rows has the spectrum of the other factor
        single, product = orthogonal_blocks((3, 8), (12,)), orthogonal_blocks((8, 3, 8), (12, 8))
        assert stats.ks_2samp(spectra(single, 2000)[:, 0], spectra(product, 2000)[:, 0]).pvalue > LEVEL


def test_stored_matrices_are_those_of_the_model():
    from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel

    fused = open_model(GPT2Model(GPT2Config(n_layer=1, n_head=4, n_embd=32, vocab_size=50)))
    parted = LlamaConfig(
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=32,
        vocab_size=50,
    )  # fmt: skip
    apart = open_model(LlamaModel(parted))
    assert stored_rows(fused, 0, CIRCUITS["qk"]) == ((96, 96), True)
    assert stored_rows(fused, 0, CIRCUITS["ov"]) == ((32, 96), False)
    assert stored_rows(apart, 0, CIRCUITS["qk"]) == ((32, 16), False)


@pytest.mark.exhaustive
def test_a_fused_matrix_has_the_null_of_its_own_rows():
    """GPT-2's c_attn, drawn by torch.nn.init.orthogonal_: 96 columns of 32 rows, orthonormal rows as stored."""
    from transformers import GPT2Config, GPT2Model

    module = GPT2Model(GPT2Config(n_layer=40, n_head=4, n_embd=32, vocab_size=50))
    torch.manual_seed(8)
    for block in module.h:
        torch.nn.init.orthogonal_(block.attn.c_attn.weight)
    tree = rmtbase.score(
        open_model(module, proof=False), Gaussian(initialization="orthogonal", draws=4000), matrices="none"
    )
    for name in LOOKED_AT:
        assert uniform(tree["heads"]["p_value"].sel(statistic=name).values, 4000) > LEVEL, name


def test_what_has_no_law_is_refused():
    heads = drawn(1, 2, 8, 24, seed=9), drawn(1, 2, 8, 24, seed=10)
    cases = [{"null": "analytic"}, {"null": "kurtosis"}, {"null": "axes"}, {"why": "all"}, {"elements": "factors"}]
    for options in (*cases, {"null": "null.nc"}):
        with pytest.raises(ParameterError, match="table" if options.get("null") == "null.nc" else "initialization"):
            score(*heads, **options)
