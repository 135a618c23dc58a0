"""What is taken off the expansions of scale-free statistics: the study makes it, and it holds on other chains."""

import json

import numpy as np
import pytest
from scipy.special import ndtr
from study_files import study_module

study = study_module("spectral_tails", "study")
record, results = (json.loads(path.read_text(encoding="utf-8")) for path in (study.RECORD, study.RESULTS))


def test_a_cubic_in_the_score_is_found_again():
    law, _ = study.expanded("eigenvalue entropy", (40, 16))
    given = np.array([0.02, -0.01, 0.005, 0.002])
    tail = ndtr(study.SCORES + study.hermite(study.SCORES) @ given)
    drawn = {"quantile": law.ppf(tail)}
    np.testing.assert_allclose(study.coefficients(law, drawn, 10**6), given, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("statistic", ["eigenvalue participation_ratio", "eigenvalue entropy"])
def test_the_shipped_coefficients_are_fitted_to_the_draws(statistic):
    shipped = json.loads(study.REST.read_text(encoding="utf-8"))[statistic]
    fitted = study.fitted(statistic, record["made"])
    np.testing.assert_allclose(shipped["coefficients"], fitted["coefficients"], rtol=1e-3, atol=1e-6)
    for end in ("smallest", "largest"):
        np.testing.assert_allclose(shipped[end], fitted[end], rtol=1e-4)


def test_tails_hold_where_nothing_was_fitted_and_results_and_tables_are_those_of_the_laws():
    # Up to six factors: 25 % and two standard errors of the draws, 7 to 10 % at 1e-3; 55 % below a rank of 16.
    for name, found in results.items():
        dims = tuple(map(int, name.split(",")))
        if len(dims) <= 7:
            for statistic in study.SHOWN:
                mended = found[statistic]["mended"]
                for side in ("lower", "upper"):
                    for level in study.LEVELS:
                        allowed = np.log(1.25 if min(dims) >= 16 else 1.55) + 2.0 / np.sqrt(
                            level * record["tried"][name]["draws"]
                        )
                        assert abs(np.log(mended[f"{side} {level:g}"])) < allowed, (name, statistic, side, level)
                assert abs(mended["mean"]) < 0.02 and abs(mended["std"]) < (0.01 if min(dims) >= 16 else 0.02)
    assert not {tuple(sorted(name.split(","))) for name in record["made"]} & {
        tuple(sorted(name.split(","))) for name in record["tried"]
    }
    name = "72,18,27,90"
    for statistic in ("singular entropy", "eigenvalue stable_rank"):
        law = study.mended_by_draws(statistic, *study.expanded(statistic, tuple(map(int, name.split(",")))))
        assert study.errors(law, record["tried"][name][statistic]) == results[name][statistic]["mended"]
    page = study.README.read_text(encoding="utf-8")
    assert study.filled(page, results) == page
    assert study.filled(page.replace("| 768, 64, 768 | 1.00", "| 768, 64, 768 | 1.01"), results) == page
