"""A run that is interrupted leaves no thread of its own at work, whoever still holds the exception."""

import itertools
import signal
import threading
import time

import pytest

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import low_rank_product
from rmtbase.montecarlo import compute_chunk, draw_elements, make_plan

PLAN = make_plan("low_rank_product", [{"d_model": 64, "d_head": 16}], 10**6, chunk=50_000, keep_sample=False)


def spectra():
    for chunk in PLAN.chunks:
        compute_chunk(PLAN, chunk, "gram")


def elements():
    for _ in draw_elements(low_rank_product(64, 16, "dense"), 10**6, 0):
        pass


def ours():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rmtbase-")]


@pytest.fixture
def interrupt():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# Between the opening of a file and its with statement an interrupt leaves it to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*unclosed file.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.exhaustive
@pytest.mark.parametrize("draw", mostly_exhaustive([spectra, elements], always=1))
def test_interrupt_at_any_moment_ends_the_threads_that_draw(draw, interrupt):
    seen = threading.Event()

    def watch():
        while not seen.is_set():
            if ours():
                seen.set()
            time.sleep(0.001)

    threading.Thread(target=watch, daemon=True).start()
    for moment in itertools.chain([1.5], (0.05 + 0.05 * step for step in range(4))):
        interrupt(moment)
        with pytest.raises(KeyboardInterrupt) as held:
            draw()
        assert ours() == [], held
    assert seen.is_set()
