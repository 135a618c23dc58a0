"""The chunks of a plan are made when they are asked for: as many as there may be, none is held."""

import itertools
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmtbase.montecarlo import Chunk, Chunks, make_plan

CASES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=4)


def listed(cases):
    """The chunks of (draws, draws per chunk), one by one."""
    return [
        Chunk(case, start, min(size, draws - start))
        for case, (draws, size) in enumerate(cases)
        for start in range(0, draws, size)
    ]


@settings(deadline=None)
@given(CASES, st.data())
def test_chunks_are_those_that_a_list_would_hold(cases, data):
    expected = listed(cases)
    chunks = Chunks.all(*zip(*cases, strict=True))
    assert list(chunks) == expected
    assert (len(chunks), chunks.size) == (len(expected), len(expected))
    assert chunks.total_draws == sum(chunk.count for chunk in expected)
    assert [chunks[place] for place in range(-len(expected), len(expected))] == [*expected, *expected]
    step = data.draw(st.sampled_from([slice(None), slice(1, None, 3), slice(None, None, -1)]))
    assert chunks[step] == expected[step]
    for number, chunk in enumerate(expected):
        assert (chunks.number(chunk.case, chunk.start), chunks.numbered(number)) == (number, chunk)
    for case in range(len(cases)):
        assert list(chunks.of_case(case)) == [chunk for chunk in expected if chunk.case == case]


@settings(deadline=None)
@given(CASES, st.data())
def test_what_is_missing_is_all_but_what_is_there(cases, data):
    expected = listed(cases)
    there = data.draw(st.sets(st.integers(0, len(expected) - 1)))
    left = Chunks.all(*zip(*cases, strict=True)).without(sorted(there))
    kept = [chunk for number, chunk in enumerate(expected) if number not in there]
    assert list(left) == kept
    assert [left[place] for place in range(len(kept))] == kept
    assert (left.size, left.total_draws) == (len(kept), sum(chunk.count for chunk in kept))
    assert list(left.only(left.runs)) == kept
    for case in range(len(cases)):
        assert list(left.of_case(case)) == [chunk for chunk in kept if chunk.case == case]


@pytest.mark.parametrize("place", [(-1, 0), (0, -3), (2, 0), (0, 10), (0, 3), (0, 100)])
def test_places_at_which_no_chunk_begins_have_no_number(place):
    assert Chunks.all((10, 5), (4, 5)).number(*place) is None


def test_a_place_beyond_the_end_is_an_index_error():
    with pytest.raises(IndexError):
        Chunks.all((10,), (4,))[3]


def test_two_thousand_million_chunks_take_no_memory():
    tracemalloc.start()
    plan = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 2**31, chunk=1, keep_sample=False)
    left = plan.chunks.without([7, 2**30])
    assert (plan.chunks.size, left.size, left.total_draws) == (2**31, 2**31 - 2, 2**31 - 2)
    assert (left[6].start, left[7].start, left[2**30 - 1].start) == (6, 8, 2**30 + 1)
    assert [chunk.start for chunk in itertools.islice(left, 5, 8)] == [5, 6, 8]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert sys.getsizeof(left) < 1000
