"""Before large matrices are read, their number and an estimate of the time are told; small ones are not tried."""

import re

import numpy as np
import pytest

import rmtbase
from rmtbase.models import Model, open_model
from rmtbase.results.attributes import tell_of_large
from rmtbase.results.composition import composition
from rmtbase.results.depth.measure import depth
from rmtbase.results.diff import diff
from rmtbase.results.signal import signal
from telling import Told

MEASURES = {
    "score": (lambda told: rmtbase.score("demo", "analytic", progress=told), "elements"),
    "score of spectra": (lambda told: rmtbase.score("demo", "analytic", matrices="spectra", progress=told), "spectra"),
    "signal": (lambda told: signal("demo", progress=told), "spectra"),
    "composition": (lambda told: composition("demo", progress=told), "elements"),
    "depth": (lambda told: depth("demo", progress=told), "spectra"),
    "diff": (lambda told: diff("demo", "demo", progress=told), "spectra"),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_estimate_is_told_before_a_weight_is_read(measure, monkeypatch):
    def read(*arguments):
        raise KeyError("a weight is read")

    monkeypatch.setattr(Model, "layer_shapes", lambda model, components: [(65_536, 65_536), (65_536, 128)])
    monkeypatch.setattr(Model, "require_finite", read)
    told, (run, what) = Told(), MEASURES[measure]
    with pytest.raises(KeyError, match="a weight is read"):
        run(told)
    (line,) = told.notes
    models = 2 if measure == "diff" else 1
    elements = models * (65_536**2 + 65_536 * 128)
    assert line.startswith(f"{2 * models} matrices of {elements:.2g} elements will be read, the largest 65536 × 65536")
    assert re.search(rf"their {what} take about [\d.e+]+ (h|min|s), by a trial of a small one$", line)


def test_small_matrices_are_not_tried_and_the_estimate_grows_with_the_work(monkeypatch):
    told, model, numbers = Told(), open_model("demo"), []
    expected = [model.matrix(layer, name).shape for layer in range(model.n_layers) for name in ("mlp_in", "mlp_out")]
    assert sorted(model.layer_shapes(["mlp_in", "mlp_out"])) == sorted(expected)
    tell_of_large(model, None, told, 2, lambda matrix: pytest.fail("a trial"))
    assert told.notes == []
    for count in (1, 100):
        told = Told()
        monkeypatch.setattr(Model, "layer_shapes", lambda model, components, count=count: [(32_768, 32_768)] * count)
        tell_of_large(model, None, told, 1, np.square)
        number, unit = re.search(r"about ([\d.e+]+) (h|min|s)", told.notes[0]).groups()
        numbers.append(float(number) * {"h": 3600, "min": 60, "s": 1}[unit])
    assert 10 < numbers[1] / numbers[0] < 1000
