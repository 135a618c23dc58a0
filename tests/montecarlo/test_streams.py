"""Draws read in blocks: the same blocks however they were cut into chunks, so that a table's last digits are, too."""

from __future__ import annotations

import numpy as np
import pytest

from rmtbase.montecarlo import make_plan, run_in_memory
from rmtbase.montecarlo._stores._source import in_blocks


@pytest.mark.parametrize("cut", [[20], [1] * 20, [3, 0, 17], [8, 8, 4], [5, 11, 4], [16, 4]])
def test_blocks_do_not_depend_on_the_cut(cut, monkeypatch):
    monkeypatch.setattr("rmtbase.montecarlo._stores._source.BLOCK", 8)
    whole = np.arange(60.0).reshape(3, 20)
    blocks = list(in_blocks(np.split(whole, np.cumsum(cut)[:-1], axis=1)))
    assert [block.shape for block in blocks] == [(3, 8), (3, 8), (3, 4)]
    assert all(block.flags.c_contiguous for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), whole)


def test_nothing_comes_of_nothing():
    assert list(in_blocks([])) == []
    assert list(in_blocks([np.empty((3, 0))])) == []


@pytest.mark.parametrize("ensemble", ["low_rank_product", "gaussian_chain"])
def test_a_table_of_several_blocks_does_not_depend_on_the_chunks(ensemble, monkeypatch):
    """Among its variables the histogram's edges, which a table of spectra makes of its first draws."""
    monkeypatch.setattr("rmtbase.montecarlo._stores._source.BLOCK", 64)
    case = {"d_model": 12, "d_head": 3} if ensemble == "low_rank_product" else {"dims": [12, 3, 12]}
    tables = [run_in_memory(make_plan(ensemble, [case], 200, 7, chunk=chunk)) for chunk in (200, 33)]
    for name in tables[0].variables:
        np.testing.assert_array_equal(tables[0][name], tables[1][name], err_msg=str(name))
