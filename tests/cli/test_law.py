"""``rmtbase law``: the numbers of the laws, as text that fits a terminal and as JSON that a machine can read."""

import json
import math
import os
import re
import resource
import subprocess
import sys

import pytest
from strict import strict_json

import rmtbase
from rmtbase import laws
from rmtbase.errors import ParameterError

SHAPE = ("--d-model", 768, "--d-head", 64)
DIMS = (768, 64, 768)


@pytest.fixture
def values(run):
    def law(*options):
        ran = run("law", *options, "--json")
        assert (ran.status, ran.err) == (0, "")
        return strict_json(ran.out)

    return law


def test_a_scale_beside_the_own_estimate_is_refused():
    with pytest.raises(ParameterError, match=r"sigma = 2\.0: expected none where each factor is divided"):
        laws.describe(12, 4, sigma=2.0, self_normalized=True)


def test_a_matrix_a_chain_and_a_residual_path_have_the_numbers_of_their_laws(values):
    found = values("--dims", "96,64", "--sigma", 0.02)
    law = laws.marchenko_pastur(96, 64, 0.02)
    assert found["spectrum"]["support"] == pytest.approx(law.support, rel=1e-12)
    assert found["rank"] == 64 and found["normalization"] == "none"
    known = laws.largest_eigenvalue(dims=(96, 64), sigma=0.02)
    assert found["statistics"]["largest_eigenvalue"]["mean"] == pytest.approx(known.mean(), rel=1e-12)
    assert found["exact_moments"]["trace"]["mean"] == pytest.approx(96 * 64 * 0.02**2, rel=1e-12)

    dims = (48, 16, 48, 16)
    found = values("--dims", ",".join(map(str, dims)), "--normalization", "none")
    law = laws.GaussianChain(dims=dims, normalization="none")
    assert found["spectrum"]["moments"] == [law.moment(k) for k in range(1, 5)]
    assert tuple(found["statistics"]) == laws.NULL_STATISTICS
    described = strict_json(json.dumps(laws.describe(dims, normalization="none")))
    assert found == {"rmtbase_version": rmtbase.__version__, **described}
    two = values("--dims", "48,16,32", "--sigma", "0.5,2")
    assert two["sigmas"] == [0.5, 2.0]
    head = {"--d-model": 48, "--d-head": 16}
    assert values("--dims", "48,16,48") == values(*(word for pair in head.items() for word in pair))

    found = values("--depth", 24, "--sigma", 0.3, "--d-model", 768)
    law = laws.ResidualPath(24, 0.3)
    assert found["spectrum"]["support"] == list(law.support)
    assert found["spectrum"]["edge_scale"] == list(law.edge_scale(768))
    assert found["exact_moments"]["trace"]["mean"] == pytest.approx(768 * law.mean(), rel=1e-12)
    limit = values("--depth", 24, "--sigma", 0.3)
    assert limit["exact_moments"] is None and limit["spectrum"]["mean"] == law.mean()
    assert values("--depth", 3)["sigma"] == 1.0


def test_reference_values_at_768_64(values):
    found = values(*SHAPE)
    spectrum, statistics = found["spectrum"], found["statistics"]
    assert spectrum["support"] == pytest.approx([290.440529, 1564.226138], abs=5e-7)
    assert spectrum["edge_scale"] == pytest.approx([8.80625, 35.71635], abs=5e-6)
    assert spectrum["often_quoted"]["support"] == pytest.approx([388.59, 1275.41], abs=5e-3)
    assert spectrum["often_quoted"]["fraction_outside"] == pytest.approx(0.18, abs=5e-4)
    assert spectrum["moments"][:2] == pytest.approx([768, 768**2 * (1 + 2 / 12)], rel=1e-14)
    assert statistics["normalized_participation_ratio"]["mean"] == pytest.approx(0.85525, abs=5e-6)
    assert statistics["normalized_participation_ratio"]["std"] == pytest.approx(0.00401, abs=5e-6)
    assert statistics["trace"]["mean"] == 49152
    assert statistics["trace"]["std"] == pytest.approx(452.68974, abs=5e-6)
    assert statistics["trace_of_square"]["mean"] == 44142784
    assert statistics["trace_of_square"]["std"] == pytest.approx(866074.17, abs=5e-3)
    assert found["element"]["kl_to_normal"] == pytest.approx(1.68354e-4, abs=5e-10)
    assert found["element"]["excess_kurtosis"] == 6 / 64
    # Simulated: 1515.7 with sd 43.8 and 302.14, standard errors 0.7 and 0.18.
    assert statistics["largest_eigenvalue"]["mean"] == pytest.approx(1515.7, abs=2.1)
    assert statistics["largest_eigenvalue"]["std"] == pytest.approx(43.8, rel=0.02)
    assert statistics["smallest_eigenvalue"]["mean"] == pytest.approx(302.14, abs=0.54)
    assert found["spike"]["on_product"]["threshold"] == pytest.approx(33.39, abs=5e-3)
    assert found["spike"]["on_factor"]["threshold"] == pytest.approx(18.63, abs=5e-3)
    assert found["spike"]["on_factor_alone"]["threshold"] == pytest.approx((768 * 64) ** 0.25, rel=1e-12)
    assert found["factor"]["support"] == pytest.approx([(768**0.5 - 8) ** 2, (768**0.5 + 8) ** 2], rel=1e-12)
    raw = values(*SHAPE, "--normalization", "none")
    assert raw["statistics"]["log_determinant"]["mean"] == pytest.approx(844.830, abs=5e-4)
    assert raw["exact_moments"]["log_determinant"]["mean"] == raw["statistics"]["log_determinant"]["mean"]
    own = values(*SHAPE, "--self-normalized")["statistics"]
    for name in ("largest_eigenvalue", "smallest_eigenvalue", "trace", "trace_of_square", "log_determinant"):
        assert own[name]["std"] < statistics[name]["std"]
    assert own["stable_rank"] == statistics["stable_rank"]


@pytest.mark.parametrize(
    ("options", "chain"),
    [
        ((), {}),
        (("--normalization", "none", "--sigma", 0.02), {"normalization": "none", "sigma": 0.02}),
        (("--sigma", "0.5,0.02"), {"sigma_q": 0.5, "sigma_k": 0.02}),
        (("--self-normalized",), {"self_normalized": True}),
    ],
)
def test_extreme_eigenvalues_and_every_registered_null_have_the_numbers_of_their_laws(options, chain, values):
    printed = values("--d-model", 96, "--d-head", 24, *options)
    assert printed == {"rmtbase_version": rmtbase.__version__, **laws.describe(96, 24, **chain)}
    found, scale = printed["statistics"], {"normalization": "sqrt_d"} | chain
    for name, entry in printed["extreme_eigenvalues"].items():
        edge = getattr(laws, name)(d_model=96, d_head=24, **scale)
        assert (entry["mean"], entry["std"]) == (edge.mean(), edge.std())
        assert set(entry["quantiles"]) == {"0.001", "0.01", "0.05", "0.5", "0.95", "0.99", "0.999"}
        for p, quantile in entry["quantiles"].items():
            assert edge.cdf(quantile) == pytest.approx(float(p), rel=1e-9)
        singular = entry["singular_value"]
        assert singular["mean"] ** 2 + singular["std"] ** 2 == pytest.approx(edge.mean(), rel=1e-12)
        assert singular["std"] == pytest.approx(edge.std() / (2 * math.sqrt(edge.mean())), rel=0.01)
    assert tuple(found) == laws.NULL_STATISTICS
    for name, entry in found.items():
        null = laws.null(name, d_model=96, d_head=24, **chain)
        quantiles = {f"{p:g}": float(null.ppf(p)) for p in (0.025, 0.5, 0.975)}
        assert entry["quantiles"] == pytest.approx(quantiles, rel=1e-13)
        expected = (null.mean(), null.std(), null.method, null.accuracy, None)
        assert tuple(entry[key] for key in ("mean", "std", "method", "accuracy", "reason")) == expected


def test_spectrum_is_that_of_the_law(values):
    found = values("--d-model", 100, "--d-head", 30, "--sigma", 0.5, "--normalization", "none")["spectrum"]
    law = laws.low_rank_product(100, 30, 0.5, 0.5, "none")
    assert (found["support"], found["edge_scale"]) == (list(law.support), list(law.edge_scale))
    assert (found["mean"], found["std"], found["hard_edge"]) == (law.mean(), law.std(), False)
    assert found["moments"] == [law.moment(k) for k in (1, 2, 3, 4)]
    assert found["cumulants"] == [law.cumulant(k) for k in (1, 2, 3, 4)]
    assert found["free_cumulants"] == [law.free_cumulant(k) for k in (1, 2, 3, 4)]
    low, high = values("--d-model", 10**6, "--d-head", 128)["spectrum"]["support"]
    gamma = 128e-6  # edges 1 -+ sqrt(8 gamma) to leading order
    assert [low / 1e6, high / 1e6] == pytest.approx([1 - (8 * gamma) ** 0.5, 1 + (8 * gamma) ** 0.5], abs=4 * gamma)
    assert [s**2 for s in found["support_singular_values"]] == pytest.approx(found["support"], rel=1e-14)
    for p, quantile in found["quantiles"].items():
        assert law.cdf(quantile) == pytest.approx(float(p), rel=1e-12)


def test_element_and_spike_are_those_of_their_laws(values):
    found = values(*SHAPE, "--sigma", 0.02)
    law, element = laws.product_element(768, 64, sigma_q=0.02, sigma_k=0.02), found["element"]
    assert (element["std"], element["entropy"]) == (law.std(), law.entropy())
    normal = element["normal_of_same_variance"]
    assert normal["entropy"] - element["entropy"] == pytest.approx(element["kl_to_normal"], abs=1e-14)
    for tail, quantile in element["upper_quantiles"].items():
        assert law.sf(quantile) == pytest.approx(float(tail), rel=1e-10)
    anchor = laws.weibull_anchor(distribution=laws.parents.VarianceGamma(h=64))
    assert element["weibull_anchor"]["shape"] == pytest.approx(anchor.shape, rel=1e-12)
    assert element["weibull_anchor"]["scale"] == pytest.approx(anchor.scale * law.std(), rel=1e-12)
    assert normal["weibull_anchor"]["shape"] == pytest.approx(1.205434319017451, rel=1e-13)
    for factor, name in ((None, "on_product"), (0, "on_factor")):
        spike = laws.RankOneSpike(dims=DIMS, sigmas=(0.02, 0.02), normalization="sqrt_d", factor=factor)
        entry = found["spike"][name]
        assert entry["threshold"] == spike.threshold
        for power, strength in entry["detectable_strength"].items():
            assert spike.power(strength, 0.05) == pytest.approx(float(power), abs=1e-8)


def test_each_factor_may_have_a_sigma_of_its_own_which_scales_eigenvalues(values, run):
    options = (*SHAPE, "--sigma", "0.5,0.02")
    found, alike, unit = values(*options), values(*SHAPE, "--sigma", 0.1), values(*SHAPE)
    assert (alike["sigma_q"], alike["sigma_k"]) == (0.1, 0.1)
    assert alike["spectrum"]["support"] == pytest.approx([1e-4 * x for x in unit["spectrum"]["support"]], rel=1e-13)
    assert alike["statistics"]["spectral_entropy"] == unit["statistics"]["spectral_entropy"]
    assert (found["sigma_q"], found["sigma_k"]) == (0.5, 0.02)
    assert found["spectrum"]["support"] == pytest.approx(alike["spectrum"]["support"], rel=1e-13)
    assert found["factor"]["mean"] == pytest.approx(25 * alike["factor"]["mean"], rel=1e-13)
    text = " ".join(run("law", *options).out.split())
    assert "Gaussian weights, σ_Q = 0.5, σ_K = 0.02;" in text
    assert "E Σ λ = d*h*sigma_q**2*sigma_k**2" in text
    assert "on W_Q, seen in W_QK" in text and "(or W_K)" not in text
    assert "on W_Q (or W_K), seen in W_QK" in " ".join(run("law", *SHAPE).out.split())


@pytest.mark.parametrize("normalization", ["sqrt_d", "none"])
@pytest.mark.parametrize("scaling", [("--sigma", 0.5), ("--self-normalized",)])
def test_formulas_of_the_exact_moments_give_their_values(normalization, scaling, values):
    found = values("--d-model", 48, "--d-head", 4, "--normalization", normalization, *scaling)["exact_moments"]
    for name in ("trace", "trace_of_square"):
        value = eval(found[name]["mean_formula"], {"d": 48, "h": 4, "sigma": 0.5})
        assert value == pytest.approx(found[name]["mean"], rel=1e-14)
    if normalization == "none" and "--self-normalized" in scaling:
        latex = found["trace_of_square"]["mean_latex"]
        assert found["trace"]["mean_latex"] == "d^{2} h" and latex.startswith(r"d^{2} h \left(d^{2} + 2 d h")
        assert latex.endswith(r"\right) \left(1 + \frac{2}{d h}\right)^{-2}")


def test_at_a_hard_edge_the_smallest_eigenvalue_has_a_law_and_the_condition_number_no_mean(values, run):
    found = values("--d-model", 64, "--d-head", 64)
    assert found["spectrum"]["support"] == pytest.approx([0, 432], abs=1e-11)
    assert (found["spectrum"]["hard_edge"], found["spectrum"]["edge_scale"][0]) == (True, None)
    smallest = found["extreme_eigenvalues"]["smallest_eigenvalue"]
    assert (smallest["reason"], smallest["mean"]) == (None, laws.smallest_eigenvalue(64, 64).mean())
    assert smallest["singular_value"]["mean"] < smallest["mean"] ** 0.5
    assert all(entry["reason"] is None for entry in found["statistics"].values())
    absent = [name for name, entry in found["statistics"].items() if entry["mean"] is None]
    assert absent == ["condition_number", "condition_number_singular"]
    assert found["statistics"]["condition_number"]["quantiles"]["0.5"] > 1e6
    text = " ".join(run("law", "--d-model", 64, "--d-head", 64).out.split())
    no_mean = "condition_number has no mean here: E x^p is infinite for p >= 0.5; its quantiles are those of its law"
    assert no_mean in text
    assert "condition_number_singular has no mean here: E x^p is infinite for p >= 1;" in text
    assert "has no mean" not in run("law", "--d-model", "64", "--d-head", "16").out
    assert "lower edge 0 0 hard edge" in text


@pytest.mark.parametrize("d_head", [1, 4])
@pytest.mark.parametrize("own", [(), ("--self-normalized",)])
def test_few_dimensions_keep_what_is_exact_and_say_why_the_rest_is_absent(d_head, own, values, run):
    options = ("--d-model", 64, "--d-head", d_head, *own)
    found = values(*options)
    statistics = found["statistics"]
    assert "a rank of at least 8" in statistics["largest_eigenvalue"]["reason"]
    assert found["exact_moments"]["trace"]["mean"] == pytest.approx(64 * d_head, rel=1e-14)
    assert found["spike"]["on_product"]["threshold"] > 0
    assert found["spike"]["on_product"]["detectable_strength"] == {"0.5": None, "0.9": None}
    assert "a rank of at least 8" in found["spike"]["reason"]
    if d_head > 1 or not own:  # otherwise all of them are constants
        known = [name for name, entry in statistics.items() if entry["reason"] is None]
        assert known == ["trace", "trace_of_square", "log_determinant"]
    ran = run("law", *options)
    assert (ran.status, ran.err) == (0, "")
    assert "No law here of " in ran.out and "it needs a rank of at least 8" in " ".join(ran.out.split())
    assert ("To simulate what has no law here: rmtbase baseline" in ran.out) == (not own)


@pytest.fixture
def shown(run, monkeypatch):
    def law(columns, *options):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda console: True))
        ran = run("law", *options)
        assert (ran.status, ran.err) == (0, "")
        return re.sub(r"\x1b\[[0-9;]*m", "", ran.out)

    return law


TEXTS = [
    (SHAPE, [*laws.NULL_STATISTICS]),
    ((*SHAPE, "--self-normalized", "--normalization", "none"), [*laws.NULL_STATISTICS]),
    (("--dims", "3072,768", "--sigma", 0.02), ["W = X, dimensions 3072 × 768", "σ = 0.02", "2.7648", "Σ λ"]),
    (("--dims", "512,64,512,64", "--self-normalized"), ["X₁ ⋯ X₃ / √512", "hard edge", "condition_number has no"]),
    (("--dims", "64,1", "--self-normalized"), ["λ: the 1 nonzero", "No law here of λ_max", "of these dimensions"]),
    (("--depth", 24, "--sigma", 0.3), ["depth 24, σ = 0.3", "99.1263", "--d-model adds"]),
    (("--depth", 1000, "--sigma", 2, "--d-model", 64), ["d = 64", "hard edge", "Σ λ²", "Mean of ln λ: 636.294"]),
    pytest.param((*SHAPE, "--sigma", 1e9, "--normalization", "none"), [], marks=pytest.mark.exhaustive),
    pytest.param(("--d-model", 1, "--d-head", 1), [], marks=pytest.mark.exhaustive),
    pytest.param(("--d-model", 10**6, "--d-head", 128), [], marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("options", "fragments"), TEXTS)
def test_text_fits_the_terminal_and_cuts_nothing_off(options, fragments, shown):
    for columns in (80, 120):
        text = shown(columns, *options)
        assert max(map(len, text.splitlines())) <= columns and "…" not in text
        for fragment in fragments:
            assert fragment in " ".join(text.split()) or fragment in text


def test_text_has_the_numbers_in_order_each_with_a_note_on_its_accuracy(shown):
    text = shown(80, *SHAPE)
    in_order = ["d_model 768, d_head 64, γ = 0.0833333", "1564.23", "290.441", "688128", "not the law of W_QK"]
    in_order += ["388.595", "1275.41", "λ_max", "1515.99", "normalized_participation_ratio"]
    in_order += ["E Σ λ = d*h*sigma**4", "E Σ λ² = h*(d**2 + 2*d*h + 2*d + h + 3)*sigma**8", "0.000168354", "1.20119"]
    in_order += ["33.3941", "18.6323"]
    places = [text.index(part) for part in in_order]
    assert places == sorted(places)
    marks = re.findall(r"^   .* ([a-z])$", text[text.index("accuracy") : text.index("Moments of")], re.MULTILINE)
    notes = re.findall(r"^([a-z])  (?:exact|asymptotic)\b", text, re.MULTILINE)
    for number in re.findall(r"(?<![\w.])\d[\d.]*", text):
        assert len(number.replace(".", "").lstrip("0")) <= 6, number
    assert len(marks) == len(laws.NULL_STATISTICS)
    assert list(dict.fromkeys(marks)) == notes


def used():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def test_it_is_instant_and_works_where_jax_is_broken_and_does_not_ask_for_it(tmp_path):
    (tmp_path / "jax.py").write_text("raise RuntimeError('this jax is broken')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from rmtbase.cli import main\n"
        "try: main(['law', '--d-model', '768', '--d-head', '64', '--json'])\n"
        "except SystemExit as left: status = left.code\n"
        "print([m for m in ('jax', 'torch', 'matplotlib', 'xarray') if m in sys.modules], status, file=sys.stderr)"
    )
    environment, before = os.environ | {"OPENBLAS_NUM_THREADS": "1"}, used()
    command, options = [sys.executable, "-c", code], {"capture_output": True, "text": True, "cwd": tmp_path}
    ended = subprocess.run(command, env=environment, check=False, **options)
    assert used() - before < 4  # a second or so, half of it the import of SciPy
    assert ended.stderr == "[] 0\n"
    assert strict_json(ended.stdout)["spectrum"]["support"][0] == pytest.approx(290.440529, abs=5e-7)
