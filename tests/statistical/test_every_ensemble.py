"""What every registered ensemble promises, and that it draws what it says: NumPy's draws of the matrix are the oracle.

A new ensemble is tested by its entry in ``ensemble_examples.EXAMPLES``.

False failures: each comparison of laws is a two-sample Kolmogorov–Smirnov test whose p-value must exceed 1e-7. With
under 1 000 of them a correct ensemble fails for fewer than one seed in 10 000. The seeds are fixed.
"""

import pickle
from itertools import combinations

import jax
import numpy as np
import pytest
from ensemble_examples import EXAMPLES
from harness import joint_statistics, same_law

from rmtbase.ensembles import ENSEMBLES, make_ensemble
from rmtbase.linalg import PRNG_IMPLEMENTATION, reproducible_jax

DRAWS = 2_000
LEVEL = 1e-7
OFTEN_USED = ("low_rank_product", "gaussian_chain", "residual_path", "initialized_matrix")


def cases(always):
    return [
        pytest.param(
            name, example, id=f"{name} {number}", marks=[pytest.mark.exhaustive] * (number > 0 or name not in always)
        )
        for name, examples in EXAMPLES.items()
        for number, example in enumerate(examples)
    ]


CASES = cases(always=EXAMPLES)
every_example = pytest.mark.parametrize(("name", "example"), CASES)
one_of_each_kind = pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if name != "low_rank_product"]
)  # which is a chain
one_of_some_laws = pytest.mark.parametrize(("name", "example"), cases(always=OFTEN_USED))
one_program = pytest.mark.parametrize(("name", "example"), [case for case in CASES if case.values[1].same_program])
TRACED = []  # one entry for each program that was compiled


@jax.jit
def sample_many(ensemble, seed, indices):
    TRACED.append(type(ensemble))
    key = jax.random.key(seed, impl=PRNG_IMPLEMENTATION)
    return jax.vmap(lambda index: ensemble.sample(jax.random.fold_in(key, index)))(indices)


def draws(ensemble, indices=range(DRAWS), seed=0):
    with reproducible_jax():
        return jax.tree.map(np.asarray, sample_many(ensemble, seed, np.asarray(indices, dtype=np.uint32)))


def statistics(ensemble, matrices, norm_squared):
    singular_values = np.linalg.svd(matrices, compute_uv=False)[:, : ensemble.rank]
    return joint_statistics(singular_values, norm_squared)


def oracle_statistics(ensemble, oracle, seed=1):
    rng = np.random.default_rng(seed)
    matrices, norms = zip(*(oracle(rng) for _ in range(DRAWS)), strict=True)
    return statistics(ensemble, np.array(matrices), np.array(norms).reshape(DRAWS, -1))


def test_every_ensemble_has_an_example_and_other_classes_are_other_trees():
    assert set(EXAMPLES) == set(ENSEMBLES)
    ensembles = [make_ensemble(case.values[0], case.values[1].parameters) for case in CASES]
    for name, examples in EXAMPLES.items():
        assert len({make_ensemble(name, example.parameters).name for example in examples}) == len(examples)
    for one, other in combinations(ensembles, 2):
        if type(one) is not type(other):
            assert jax.tree.structure(one) != jax.tree.structure(other), (one.name, other.name)


@one_of_some_laws
def test_draws_have_the_law_of_the_matrix_itself(name, example):
    ensemble = make_ensemble(name, example.parameters)
    got = statistics(ensemble, *draws(ensemble))
    expected = oracle_statistics(ensemble, example.oracle)
    assert got.keys() == expected.keys()
    p_values = {of: same_law(got[of], expected[of]) for of in got}
    assert min(p_values.values()) > LEVEL, p_values


@pytest.mark.exhaustive
@pytest.mark.optimized
@one_of_each_kind
def test_a_draw_is_the_same_to_the_bit_in_any_batch_and_order(name):
    ensemble = make_ensemble(name, EXAMPLES[name][0].parameters)
    together, few = (draws(ensemble, indices) for indices in (range(DRAWS), [5, 1_999, 2]))
    for of_many, of_few in zip(together, few, strict=True):
        np.testing.assert_array_equal(of_few, of_many[[5, 1_999, 2]])


@every_example
def test_draws_have_the_stated_shape_and_rank_and_depend_on_seed_and_index_alone(name, example):
    ensemble = make_ensemble(name, example.parameters)
    (first, norm_squared), other = draws(ensemble), draws(ensemble, seed=1).matrix
    assert first.shape == (DRAWS, *ensemble.matrix_shape)
    assert norm_squared.shape == (DRAWS, len(ensemble.factor_sizes))
    assert first.dtype == norm_squared.dtype == np.float64
    assert all(type(size) is int and size > 0 for size in (*ensemble.matrix_shape, *ensemble.factor_sizes))
    assert 1 <= ensemble.rank <= min(ensemble.matrix_shape)
    assert (np.linalg.matrix_rank(first) == ensemble.rank).all()
    assert len(np.unique(first.reshape(DRAWS, -1), axis=0)) == DRAWS
    assert (first != other).any(axis=(1, 2)).all()
    again = pickle.loads(pickle.dumps(ensemble))
    assert again.name == ensemble.name
    np.testing.assert_array_equal(draws(again).matrix[:3], first[:3])


@one_program
def test_what_is_data_needs_no_other_program(name, example):
    first = draws(make_ensemble(name, example.parameters)).matrix
    programs = len(TRACED)
    other = draws(make_ensemble(name, example.same_program)).matrix
    assert len(TRACED) == programs
    assert (first != other).any(axis=(1, 2)).all()  # what is data has its effect
