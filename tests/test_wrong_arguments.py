"""Every public function and constructor refuses a wrong argument by its name, before it does anything else.

python tests/test_wrong_arguments.py              # every wrong value for every parameter
python tests/test_wrong_arguments.py laws. nulls  # those of calls whose names have one of these words
"""

import contextlib
import inspect
import pickle
import random
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rmtbase
from rmtbase import constants, ensembles, laws, montecarlo
from rmtbase.arguments import checked
from rmtbase.errors import ParameterError, RmtbaseError
from rmtbase.results import comparison
from rmtbase.watch import Watcher
from valid_calls import Call, scored, valid_calls, wrong_values

OF_MODEL = dict.fromkeys(("model", "before", "after", "initial", "minus"), ("model", "family", "adapter")) | {
    "shape": ("dims", "d_model", "d_head", "the pair by position"),
    "table": ("scores",),
    "nulls": ("null",),
    "cases": ("d_model", "d_head"),
}
"""Names by which an argument is known to the function that reads it."""

SECONDS = 60.0  # of one call, at most
QUICK = 2_400
SLOW = [f"montecarlo.{name}" for name in ("baseline", "element_baseline", "run_plan", "draw_chunks", "draw_spectra")]
"""Calls that draw where a value is right by chance."""


class TookTooLong(BaseException):
    """A call that does not end."""


def fault_of(call: Call, name: str, what: str) -> str | None:
    """What is wrong with the end of a call that has a wrong argument; None where nothing is."""
    value = wrong_values()[what]
    try:
        with in_time():
            call.with_wrong(name, value)
    except ParameterError as error:  # of two arguments that do not go together either may be named
        names = [name, *call.parameters(), *OF_MODEL.get(name, ())]
        return None if re.search("|".join(names), error.name) else f"named {error.name}: {error}"
    except (TypeError, ValueError) as error:
        return None if re.search(rf"(?<!\w){name}(?!\w)", str(error)) else f"{type(error).__name__}: {error}"
    except RmtbaseError:
        return None
    except TookTooLong:
        return "took too long"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def cases_of(calls: Sequence[Call]) -> list[tuple[Call, str, str]]:
    """Every wrong value for every parameter; a function that is called back is the caller's own."""
    return [
        (call, name, what)
        for call in calls
        for name, parameter in call.parameters().items()
        for what, value in wrong_values().items()
        if not (callable(value) and "Callable" in str(parameter.annotation))
    ]


def faults_of(cases: Sequence[tuple[Call, str, str]]) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of NumPy says that a wrong value was taken
        for call, name, what in cases:
            if fault := fault_of(call, name, what):
                yield f"{call.name}({name}: {what}): {fault[:200]}"


def test_thousands_of_wrong_arguments_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = [call for call in valid_calls(tmp_path, quick=True) if call.name not in SLOW]
    cases = random.Random(17).sample(cases_of(calls), QUICK)
    assert list(faults_of(cases)) == []


@pytest.mark.exhaustive
@pytest.mark.weekly
def test_every_wrong_argument_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert list(faults_of(cases_of(list(valid_calls(tmp_path))))) == []


@pytest.mark.exhaustive
@pytest.mark.weekly
def test_the_calls_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in valid_calls(tmp_path):
        call.function(**call.make())


REFUSED = {
    "models = ": lambda: comparison.compare([scored()]),
    "models = of a number": lambda: comparison.compare({1: scored()}),
    "groups = ": lambda: comparison.compare({"a": scored()}, groups=["a"]),
    "training = 'a'": lambda: comparison.compare({"a": scored()}, training="a"),
    "seed = None": lambda: comparison.compare({"a": scored()}, seed=None),
    "permutations = 2147483648": lambda: comparison.compare({"a": scored()}, permutations=2**31),
    "draws = 2147483648": lambda: comparison.shape_band([[1.1]], [[100]], draws=2**31),
    "revisions = 'step0': expected 'all', or some of step-0": lambda: rmtbase.trajectory("demo", revisions=["step0"]),
    "revisions[0] = 0: expected a text": lambda: rmtbase.trajectory("demo", revisions=[0, 512]),
    "ax = 5: expected an Axes or None": lambda: rmtbase.plot(scored(), "q_values", ax=5),
    "d_model = b'x': expected an integer": lambda: laws.low_rank_product(b"x", 64),
    "d_model = bytearray(b'12'): expected an integer": lambda: rmtbase.baseline(bytearray(b"12"), 4),
    "d_head = b'\\x0c': expected": lambda: montecarlo.baseline(120, b"\x0c"),
    "references[1] = 5: expected a text": lambda: constants.Constant(
        **{**vars(constants.square_product_upper_edge), "references": ("a", 5)}
    ),
    "entries[1] = 7: expected": lambda: constants.as_json(iter([constants.square_product_upper_edge, 7])),
    "log_unit = 'a': expected a number": lambda: laws.EdgeLaw(laws.largest_eigenvalue(12, 4).coordinate, "a"),
    "rows = 8: expected a sequence, each item an integer": lambda: ensembles.orthogonal_blocks((12, 4, 12), 8),
    "cases = None": lambda: montecarlo.make_plan("gaussian_matrix", None),
    "ensemble = None: expected a text": lambda: montecarlo.make_plan(None, [{}]),
    "budget = 'all'": lambda: Watcher("a.nc", budget="all"),
    "scoring = 'analytic'": lambda: Watcher("a.nc", "analytic"),
    "name = 5: expected a text": lambda: list(constants.sets().values())[-1].find(5),
    "words = None: expected a text": lambda: list(constants.sets().values())[-1].search(None),
    "digits = '3': expected an integer": lambda: constants.square_product_upper_edge.significant_digits("3"),
    "f = 2: expected a function": lambda: laws.low_rank_product(12, 4).expect(2),
    "k = 2147483648: expected at most": lambda: laws.low_rank_product(12, 4).moment(2**31),
    "components[1] = 'normal': expected a Parent": lambda: laws.parents.Mixture(
        (laws.parents.Normal(1.0), "normal"), (0.5, 0.5)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_each_of_these_is_refused_by_name(message):
    with pytest.raises(ParameterError) as caught:
        REFUSED[message]()
    assert str(caught.value).startswith(message.partition("of a number")[0])


@pytest.mark.parametrize("size", [np.int64(12), np.uint8(12), np.array(12)], ids=lambda size: type(size).__name__)
def test_integers_of_numpy_are_integers(size):
    assert laws.low_rank_product(size, 4) == laws.low_rank_product(12, 4)


def test_numbers_of_jax_are_numbers():
    import jax.numpy as jnp

    assert laws.marchenko_pastur(jnp.int32(8), 4, jnp.float32(0.5)) == laws.marchenko_pastur(8, 4, 0.5)


@checked
def typed(several: Mapping[str, Sequence[float]], pair: tuple[int, str] = (1, "a"), *rest: str, **others: bool) -> int:
    return len(several) + len(rest) + len(others)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (({"a": [1, "b"]},), {}, "several['a'][1] = 'b': expected a number"),
        (({1: [1]},), {}, "several = 1: expected a text"),
        (
            ([1],),
            {},
            "several = [1]: expected a mapping, each key a text and each value a sequence, each item a number",
        ),
        (({}, (1, 2)), {}, "pair[1] = 2: expected a text"),
        (({}, (1,)), {}, "pair = (1,): expected (an integer, a text)"),
        (({}, (1, "a"), "b", 5), {}, "rest = 5: expected a text"),
        (({},), {"other": 1}, "other = 1: expected True or False"),
    ],
)
def test_the_innermost_wrong_item_is_named(arguments, options, message):
    with pytest.raises(ParameterError) as caught:
        typed(*arguments, **options)
    assert str(caught.value) == message


def test_arrays_are_kept_as_a_whole():
    @checked
    def kept(stack: NDArray[np.float64] | Sequence[float]) -> Any:
        return stack

    array = np.ones((2, 3), dtype=np.float32)
    assert kept(array) is array


def test_right_arguments_pass():
    assert typed({"a": np.ones(3), "b": (1, 2.5)}, [np.int8(1), "a"], "b", other=np.True_) == 4


def test_a_checked_function_can_be_pickled_and_shows_its_signature():
    assert pickle.loads(pickle.dumps(laws.trace_moment)) is laws.trace_moment
    assert pickle.loads(pickle.dumps(rmtbase.score)) is rmtbase.score
    assert list(inspect.signature(laws.element_null).parameters) == ["statistic", "n", "distribution"]


def main() -> None:
    """Print every fault."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        words = sys.argv[1:] or [""]
        cases = cases_of([call for call in valid_calls(Path(folder)) if any(word in call.name for word in words)])
        faults = 0
        for fault in faults_of(cases):
            faults += 1
            print(fault, flush=True)
        print(f"{len(cases)} calls, {faults} faults")


if __name__ == "__main__":
    main()
