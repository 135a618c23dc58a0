"""Elements listed as improbable under the body of their matrix, and bodies for which the probability cannot be told.

    python studies/element_nulls/improbable.py

writes `improbable.json`: for matrices of each body, the share with an element that is listed at a level of 2.5 % per
matrix, and the share for which nothing can be told; for normal matrices with one element of 6 to 12 σ, the share in
which it is listed, at the level that a model of 12 matrices leaves to each. Standard errors are √(p (1 - p)/matrices);
seeded, half a minute of one core.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rmtbase.results.scores._element_scores import largest_elements
from rmtbase.results.scores._super_weights import improbable
from rmtbase.statistics import element_sketch

SEED, LEVEL, MATRICES, SIZE = 5, 0.025, 150, 4096
FAR, OF_POWER, LARGER = (6, 7, 9, 12), 50, 16_384
BODIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(-1.0, 1.0, n),
    "logistic": lambda rng, n: rng.logistic(size=n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "Student t, 3": lambda rng, n: rng.standard_t(3, n),
    "Student t, 10": lambda rng, n: rng.standard_t(10, n),
    "Student t, 20": lambda rng, n: rng.standard_t(20, n),
    "Student t, 50": lambda rng, n: rng.standard_t(50, n),
    "normal of two scales, 1 and 1.2": lambda rng, n: rng.normal(size=n) * np.where(np.arange(n) % 2, 1.0, 1.2),
}


def told(elements: np.ndarray, level: float) -> tuple[bool, bool]:
    """Test whether an element is listed, and whether that cannot be told."""
    found = improbable(largest_elements(elements), element_sketch(elements).core.scale, level)
    return found.p_value.size > 0 and not found.is_heavy, found.is_heavy


def main() -> None:
    """Simulate and record."""
    bodies, power = [], []
    for number, (name, draw) in enumerate(BODIES.items()):
        rng = np.random.default_rng([SEED, number])
        listed, untold = np.mean([told(draw(rng, SIZE), LEVEL) for _ in range(MATRICES)], axis=0)
        bodies.append({"body": name, "elements": SIZE, "matrices": MATRICES, "listed": listed, "cannot_tell": untold})
    for far in FAR:
        rng = np.random.default_rng([SEED, far])
        each = []
        for _ in range(OF_POWER):
            elements = rng.normal(size=LARGER)
            elements[77] = far
            each.append(told(elements, LEVEL / 12))
        listed, untold = np.mean(each, axis=0)
        found = {"listed": listed, "cannot_tell": untold}
        power.append({"sigmas": far, "elements": LARGER, "matrices": OF_POWER, **found})
    results = {"level": LEVEL, "bodies": bodies, "power": power}
    (Path(__file__).parent / "improbable.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
