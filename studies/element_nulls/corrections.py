"""The corrections of the next order that `rmtbase.laws._null._element_null` holds, measured at n = 100.

    python studies/element_nulls/corrections.py

writes `corrections.json`: n (Var/leading order − 1), and the same of the third cumulant, of each smooth statistic on
the scale on which its law is made, for three parents, with standard errors over ten parts of the sample (half a minute
of one core; seeded).
"""

import json
import math
from pathlib import Path

import numpy as np
from scipy import stats
from study import PARENTS

from rmtbase.laws._element.parents import PARENTS as LAWS
from rmtbase.laws._null._element_laws import ElementLaw, NormalSample, Smooth
from rmtbase.laws._null._element_null import _RECIPES
from rmtbase.statistics import ELEMENT_STATISTICS, element_sketch

FOLDER = Path(__file__).parent
SEED, COUNT, DRAWS, PARTS = 20_261_124, 100, 4_000, 10


def smooth_laws() -> dict[str, Smooth]:
    """Smooth law of each statistic that has one."""

    def own(law: ElementLaw) -> ElementLaw:
        return law.otherwise if isinstance(law, NormalSample) else law

    laws = {name: own(recipe.law) for name, recipe in _RECIPES.items()}
    return {name: law for name, law in laws.items() if isinstance(law, Smooth)}


def main() -> None:
    """Simulate, compare, record."""
    laws, record = smooth_laws(), []
    for index, (parent, draw) in enumerate(PARENTS.items()):
        rng = np.random.default_rng([SEED, index])
        sketches = (element_sketch([draw(rng, COUNT)]) for _ in range(DRAWS))
        found = np.array([[ELEMENT_STATISTICS[name].function(one) for name in laws] for one in sketches])
        for (name, law), sample in zip(laws.items(), found.T, strict=True):
            statistic = law.expand(LAWS[parent])
            scaled = statistic.map(*law.scale.derivatives(statistic.value))
            parts = np.array_split(law.scale.transform(sample), PARTS)
            second = COUNT * (COUNT * np.array([part.var() for part in parts]) / scaled.variance - 1.0)
            third = COUNT * (COUNT**2 * np.array([stats.kstat(part, 3) for part in parts]) / scaled.third - 1.0)
            error = math.sqrt(PARTS)
            record.append(
                {
                    "statistic": name,
                    "parent": parent,
                    "used": law.corrections,
                    "variance": [float(second.mean()), float(second.std(ddof=1)) / error],
                    "third_cumulant": [float(third.mean()), float(third.std(ddof=1)) / error],
                }
            )
        print(parent, flush=True)
    (FOLDER / "corrections.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
