"""A process that was forked from one that had used JAX says so at once, where its first draw would never end."""

import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing, os, warnings
warnings.filterwarnings("ignore", "os.fork|This process", category=Warning)
import rmtbase.montecarlo
from rmtbase.errors import ForkedProcessError

def said(call):
    try:
        call()
    except ForkedProcessError as error:
        return str(error)
    return "done"

def draw():
    rmtbase.montecarlo.simulate_gaussian_matrix(4, 2, 2)

def score():
    import numpy as np
    heads = np.random.default_rng(0).standard_normal((2, 64, 768))
    rmtbase.score_heads(heads, heads[::-1])

def law():
    rmtbase.laws.low_rank_product(768, 64).cdf(1.0)

def in_child(*calls):
    if os.fork() == 0:
        for call in calls:
            print(said(call), flush=True)
        os._exit(0)
    os.wait()

in_child(draw)
import jax
jax.numpy.ones(3)  # the user's own
in_child(draw)
print(said(draw), flush=True)  # or the child would print it again
in_child(score, law)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(said(lambda: pool.apply(draw)))
"""


@pytest.mark.exhaustive
def test_child_of_a_process_that_has_used_jax_refuses_to_draw_and_still_scores():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    early_child, child, parent, score, law, worker = ended.stdout.splitlines()
    assert (early_child, parent, score, law) == ("done", "done", "done", "done")
    for refused in (child, worker):
        assert "forked from one that had used JAX" in refused
        assert "multiprocessing.get_context('spawn')" in refused
