"""A mean or a spread that does not exist is not printed: the reason is, with the median and quantiles."""

import json
import re


def test_baseline_prints_the_reason_the_median_and_quantiles(run, tmp_path):
    where = ("--draws", "50", "-o", tmp_path / "table.nc")
    printed = run("baseline", "--d-model", "8", "--d-head", "8", "--d-model", "9", "--d-head", "8", *where)
    assert printed.status == 0
    quantile = r"\S+ ± \S+"
    ends = r"\S+"  # 50 draws do not tell how well these are known
    sentence = (
        rf"condition_number has no mean here: E x\^p is infinite for p >= 1; median {quantile}, 95 % from {ends} to "
    )
    assert re.search(sentence, " ".join(printed.out.split()))
    text = " ".join(printed.out.split())
    assert "condition_number has no mean here: E x^p is infinite for p >= 0.5; median " in text
    assert "condition_number has no mean here: E x^p is infinite for p >= 1; median " in text
    assert "condition_number_singular has no standard deviation here: E x^p is infinite for p >= 2; median " in text
    (row, *_) = (line for line in printed.out.splitlines() if line.split()[:1] == ["condition_number"])
    assert row.split()[:2] == ["condition_number", "approximate"]  # and no number between them
    answer = run("baseline", "--d-model", "8", "--d-head", "8", "--draws", "50", "--json", "-o", tmp_path / "json.nc")
    one = json.loads(answer.out)["cases"][0]["statistics"]["condition_number"]
    assert (one["mean"], one["std"], one["standard_error"], one["moment_order"]) == (None, None, None, 0.5)
    assert 1.0 < one["quantile_0.025"] < one["quantile_0.5"] < one["quantile_0.975"]
    assert json.loads(answer.out)["cases"][0]["statistics"]["trace"]["mean"] > 0.0


def test_law_says_what_has_no_mean(run):
    text = " ".join(run("law", "--d-model", "16", "--d-head", "16").out.split())
    for name, order in (("condition_number", "0.5"), ("condition_number_singular", "1")):
        assert (
            f"{name} has no mean here: E x^p is infinite for p >= {order}; its quantiles are those of its law" in text
        )
    assert "has no mean" not in run("law", "--d-model", "64", "--d-head", "16").out


def test_baseline_prints_simulated_and_analytic_values_to_the_same_digits(run, tmp_path):
    printed = run("baseline", "--d-model", "32", "--d-head", "8", "--draws", "50", "-o", tmp_path / "table.nc")
    rows = [line.split() for line in printed.out.splitlines() if line.split()[-1:] == ["exact"]]
    assert [row[0] for row in rows] == ["trace", "trace_of_square", "log_determinant"]
    for _, mean, error, std, std_error, analytic_mean, analytic_std, *_ in rows:
        for one, others in ((mean, (error, analytic_mean)), (std, (std_error, analytic_std))):
            assert {len(other.partition(".")[2]) for other in others} == {len(one.partition(".")[2])}
        assert len(error.replace(".", "").lstrip("0")) >= 2
