"""Draws are summarised in blocks that do not depend on how they were cut into chunks, nor do a table's last digits."""

from __future__ import annotations

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.montecarlo import make_plan, run_in_memory

DRAWS = 2 * 2**14 + 100  # three blocks


@pytest.mark.exhaustive
@pytest.mark.parametrize("ensemble", mostly_exhaustive(["low_rank_product", "gaussian_chain"], always=1))
def test_a_table_of_several_blocks_does_not_depend_on_the_chunks(ensemble):
    """Among its variables the histogram's edges, which a table of spectra makes of its first draws."""
    case = {"d_model": 3, "d_head": 2} if ensemble == "low_rank_product" else {"dims": [3, 2, 3]}
    tables = [run_in_memory(make_plan(ensemble, [case], DRAWS, 7, chunk=chunk)) for chunk in (DRAWS, 10_001)]
    for name in tables[0].variables:
        np.testing.assert_array_equal(tables[0][name], tables[1][name], err_msg=str(name))
