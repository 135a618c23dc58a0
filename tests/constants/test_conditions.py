"""Every constant says what it holds for, and is rescaled with σ and normalization; those of any chain follow laws."""

import copy
import pickle
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from mpmath import mp

import rmtbase
from rmtbase import constants, laws
from rmtbase.constants import as_latex_sentence, as_sentence, of_one_draw
from rmtbase.errors import ParameterError

SHAPE = {"d_model": 768, "d_head": 64}
SCALES = ({}, {"sigma": 0.02}, {"sigma_q": 1e-5, "sigma_k": 3.0, "normalization": "none"})


def at_shape(function, **scale):
    return function(**{name: SHAPE[name] for name in function.takes(scale.get("normalization", "sqrt_d"))}, **scale)


EVERY = [*constants.constants(), *(at_shape(one, **scale) for one in constants.functions() for scale in SCALES)]


def test_every_constant_states_all_its_conditions():
    for entry in (*EVERY, *constants.functions()):
        of_analysis = entry.name == "zeta_prime_minus_one"
        expected = {"holds"} if of_analysis else {"matrix", "normalization", "sigma", "shape", "convention", "holds"}
        assert set(entry.conditions.stated()) == expected, entry.name
        if not of_analysis:
            assert "σ" in entry.conditions.sigma, entry.name
            assert re.search("limit|exact|order", entry.conditions.holds), entry.name
        for text in entry.conditions.stated().values():
            assert text == text.strip() and "\n" not in text, entry.name


def test_complex_matrices_are_said_to_be_so_and_have_no_transpose():
    for entry in constants.constants():
        of_complex = "complex" in entry.description or "tracy_widom_2" in entry.name
        stated = " ".join(entry.conditions.stated().values())
        assert ("complex" in stated) == of_complex, entry.name
        assert not (of_complex and "ᵀ" in stated), entry.name
        assert (r"X^{\dagger}X" in as_latex_sentence(entry)) == ("tracy_widom_2" in entry.name), entry.name


# Powers of the factor g of W_QK.
DEGREES = {
    "product_upper_singular_edge": 1, "product_upper_edge_scale": 2, "largest_eigenvalue_mean": 2,
    "smallest_eigenvalue_std": 2, "trace_std": 2, "trace_of_square_mean": 4, "trace_of_square_std": 4,
    "spectral_radius": 1, "spike_threshold": 1, "aspect_ratio": 0, "normalized_participation_ratio_std": 0,
    "log_determinant_std": 0, "element_excess_kurtosis": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", DEGREES)
def test_numbers_scale_with_their_power_of_sigma(name):
    function = constants.find(name)
    one, scaled, raw = (at_shape(function, **scale) for scale in SCALES)
    degree = DEGREES[name]
    assert scaled.value == pytest.approx(0.02 ** (2 * degree) * one.value, rel=1e-13)
    assert raw.value == pytest.approx((3e-5 * 768**0.5) ** degree * one.value, rel=1e-13)
    assert scaled.relative_error == one.relative_error
    assert ("any σ" in scaled.conditions.sigma) == (degree == 0)


def test_defaults_are_sigma_one_divided_by_root_d_and_sigma_is_taken_as_it_is_written():
    for function in constants.functions():
        assert at_shape(function).digits(12) == at_shape(function, sigma=1, normalization="sqrt_d").digits(12)
        takes = function.takes("none")
        assert takes in (("d_model", "d_head"), ("d_head",))
        named = function(**{name: SHAPE[name] for name in takes}, normalization="none")
        assert function(*(SHAPE[name] for name in takes), normalization="none").digits(9) == named.digits(9)
    tenth = constants.trace_mean(768, 64, sigma=0.1)
    assert tenth.digits(40) == "4.915200000000000000000000000000000000000"
    both = constants.trace_mean(768, 64, sigma_q=0.1, sigma_k=0.1)
    assert (both.digits(40), both.conditions) == (tenth.digits(40), tenth.conditions)
    with mp.workdps(40):
        scaled = mp.mpf(constants.product_upper_edge(768, 64, sigma=0.1))
        assert abs(scaled * 10**4 / mp.mpf(constants.product_upper_edge(768, 64)) - 1) < mp.mpf(10) ** -38
    stated = constants.product_upper_edge(2048, 128).conditions
    assert (stated.sigma, stated.normalization) == ("σ_Q = σ_K = 1", "divided by √d_model")
    assert constants.product_upper_edge(2048, 128, normalization="none").definition.endswith(r"\sigma_K \sqrt{d}")


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({"sigma": 1, "sigma_k": 2}, "either sigma"),
        ({"sigma": -1}, "sigma = -1"),
        ({"sigma_q": float("nan")}, "sigma_q = nan"),
        ({"sigma_k": True}, "sigma_k = True"),
        ({"normalization": "d"}, "normalization = 'd'"),
        ({"sgima": 2}, r"sgima = 2: expected .* did you mean sigma\?"),
        ({"d_haed": 64}, r"d_haed = 64: expected .* did you mean d_head\?"),
        ({"dims": (768, 64, 768)}, r"dims = \(768, 64, 768\): expected only d_model and d_head: product_upper_edge"),
    ],
)
def test_a_scale_or_a_keyword_that_is_none_is_refused(scale, words):
    with pytest.raises(ParameterError, match=words):
        constants.product_upper_edge(768, 64, **scale)
    for shape in ((768, 64), (768,)):
        with pytest.raises(TypeError, match="d_model is given twice"):
            constants.product_upper_edge(*shape, d_model=999)


def test_values_are_rounded_to_their_error():
    mean = constants.largest_eigenvalue_mean(768, 64)
    assert mean.error == pytest.approx(constants.largest_eigenvalue_std.value(768, 64) / 64)
    assert mean.rounded() == ("1516.0", "0.7")
    # Near the hard edge a soft lower one is known less well, and from 15 on has the law of a hard one.
    assert constants.smallest_eigenvalue_std(82, 64).relative_error == 1 / 18
    assert constants.smallest_eigenvalue_std(72, 64).relative_error == 1 / 64
    assert constants.smallest_eigenvalue_std(768, 64).relative_error == 1 / 64
    assert mean.rounded(2) == ("1.5e+3", "")
    tiny = constants.largest_eigenvalue_mean(768, 64, sigma=1e-100)  # no double is as small
    assert (tiny.value, tiny.rounded()) == (0, ("1.5160e-397", "7e-401"))
    huge = constants.product_upper_edge(768, 64, sigma=1e300)
    assert (huge.value, huge.error, huge.rounded(4)) == (float("inf"), 0, ("1.564e+1203", ""))
    assert constants.square_product_upper_edge.error == 0
    assert constants.square_product_upper_edge.rounded(4) == ("6.750", "")
    assert constants.tracy_widom_1_mean.rounded(100) == (constants.tracy_widom_1_mean.digits(100), "")


def test_the_sentence_of_an_edge():
    edge = constants.product_upper_edge(d_model=2048, d_head=128, sigma=0.02, normalization="sqrt_d")
    assert as_sentence(edge, 2) == (
        "The upper edge of the squared singular values of W_QK is λ₊ = 6.1×10⁻⁴ for W_QK = W_QᵀW_K of independent "
        "normal entries, "
        "divided by √d_model, σ_Q = σ_K = 0.02, d_model = 2048, d_head = 128 (λ: eigenvalues of W_QKᵀW_QK, the d_head "
        "that are not zero; limit of large matrices at this d_head/d_model); at this size the largest squared singular "
        "value of W_QK is λ_max = (6.029 ± 0.097)×10⁻⁴ (mean ± standard deviation) [1–5], computed with rmtbase "
        f"{rmtbase.__version__} [6]."
    )


def test_a_limit_comes_with_the_mean_and_the_spread_of_one_draw():
    law = laws.largest_eigenvalue(d_model=2048, d_head=128, sigma_q=0.02, sigma_k=0.03)
    said = of_one_draw(constants.product_upper_edge(2048, 128, sigma_q=0.02, sigma_k=0.03))
    mean, spread = map(float, re.fullmatch(r"the largest .* is λ_max = (\S+) ± (\S+) \(mean ± .*", said).groups())
    assert (mean, spread) == pytest.approx((law.mean(), law.std()), rel=0.02)
    assert of_one_draw(constants.product_lower_edge(768, 64)).startswith("the smallest squared singular value of W_QK")
    assert of_one_draw(constants.trace_mean(768, 64)) == ""  # no limit
    assert of_one_draw(constants.product_upper_edge(64, 2)) == ""  # no law of so few eigenvalues


def test_every_sentence_has_value_conditions_and_keys():
    for constant in EVERY:
        text, tex = as_sentence(constant), as_latex_sentence(constant)
        assert re.match(r"[A-ZRN√]", text), text
        assert text.endswith(f"computed with rmtbase {rmtbase.__version__} [{len(constant.references) + 1}].")
        stated = constant.conditions.stated().values()
        assert all(phrase in text for phrase in stated) or not constant.conditions.matrix
        assert not re.search(r"[\\{}$]", re.sub(r"_\{[^{}]*\}|_\{[^{}]*_\{?[^{}]*\}?\}", "", text)), text
        assert tex.isascii(), constant.name
        cited = ",".join(re.findall(r"\\cite\{([^}]*)\}", tex)).split(",")
        assert cited == [*constant.references, "rmtbase"], constant.name
        assert set(cited) == set(re.findall(r"^@\w+\{([^,]+),", constant.bibtex(), re.MULTILINE)), constant.name
        assert not re.search(r"(?<!\\)[%&#]", tex), tex
        formulas = re.findall(r"\$([^$]*)\$", tex)
        assert all(one.count("(") == one.count(")") for one in formulas), tex  # none is cut in two


def test_what_is_called_an_eigenvalue_is_one_of_the_matrix_that_is_named():
    # Of XᵀX, X†X, PPᵀ and W_QKᵀW_QK, or complex ones; W_QK itself and a factor have singular values.
    for one in EVERY:
        for what in re.findall(r"[^ ]+ eigenvalues? of [^ ,;]+", f"{one.description} {one.conditions}"):
            assert re.search(r"(XᵀX|X†X|PPᵀ|W_QKᵀW_QK)$|^complex", what), what
        assert not re.search(r"eigenvalues?( of one| $|$)", one.description), one.description


PROGRAMS = {
    "plain": ("pdflatex", "bibtex"),
    "IEEEtran": ("pdflatex", "bibtex", "IEEEtran.bst"),
    "biblatex": ("pdflatex", "biber", "biblatex.sty"),
}


def missing(*files):
    found = {name: shutil.which(name) or (shutil.which("kpsewhich") and run_tex(["kpsewhich", name])) for name in files}
    return [name for name, where in found.items() if not where]


def run_tex(command, folder=None):
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    return ran.stdout if ran.returncode == 0 else ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("style", PROGRAMS)
def test_all_sentences_compile_without_packages_and_each_style_prints_each_arxiv_number_once(style, tmp_path):
    if absent := missing(*PROGRAMS[style], "pdftotext"):
        pytest.skip(f"not installed: {', '.join(absent)}")
    body = "\n\n".join(f"{as_latex_sentence(one)}\n\n$\\displaystyle {one.definition}$" for one in EVERY)
    head, end = "", rf"\bibliographystyle{{{style}}}\bibliography{{all}}"
    if style == "biblatex":
        head, end = r"\usepackage{biblatex}\addbibresource{all.bib}", r"\printbibliography"
    page = rf"\documentclass{{article}}{head}\begin{{document}}{body}\clearpage {end}\end{{document}}"
    (tmp_path / "all.tex").write_text(page, encoding="utf-8")
    every = constants.bibtex(constants.bibliography())
    (tmp_path / "all.bib").write_text(f"{every}\n\n{constants.software().bibtex}\n", encoding="utf-8")
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    for command in (latex, [PROGRAMS[style][1], "all"], latex, latex):
        assert run_tex(command, tmp_path), command
    assert "undefined" not in (tmp_path / "all.log").read_text(errors="replace")
    assert not re.search("warn|error", (tmp_path / "all.blg").read_text(errors="replace").replace("warning$", ""), re.I)
    printed = run_tex(["pdftotext", "all.pdf", "-"], tmp_path).rpartition("References")[2]
    printed = re.sub(r"[\s\u00ad\u2010-]", "", printed)
    for reference in constants.bibliography().values():
        if "eprint" in reference.fields:
            assert printed.count(reference.fields["eprint"].replace("-", "")) == 1, reference.key
    assert f"version{rmtbase.__version__}" in printed.lower()


def test_the_software_is_cited_as_the_citation_file_says():
    repository = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    assert constants.citation_file() == re.sub(r"(?m)^version: .*$", f"version: {rmtbase.__version__}", repository)
    wheel = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    assert wheel["build"]["targets"]["wheel"]["force-include"] == {"CITATION.cff": "rmtbase/CITATION.cff"}
    citation = yaml.safe_load(constants.citation_file())
    software = constants.software()
    assert citation["version"] == rmtbase.__version__
    assert software.title == citation["title"]
    assert [author["name"] for author in citation["authors"]] == [software.fields["author"].strip("{}")]
    assert software.fields["note"] == f"Version {citation['version']}"
    assert software.fields["year"] == str(citation.get("date-released", constants.current_set().date))[:4]


CHAINS = [
    ((512, 64, 512, 64), {}),
    ((3072, 768), {"sigmas": 0.02}),
    ((100, 7, 50, 30, 20), {"sigmas": [1, 2, 0.5, 0.1], "normalization": "none"}),
]


@pytest.mark.parametrize(("dims", "scale"), CHAINS)
def test_edges_are_those_of_the_law(dims, scale):
    chain = constants.chain_constants(dims, **scale)
    given = dict(scale)
    if isinstance(given.get("sigmas"), float):
        given["sigma"] = given.pop("sigmas")
    law = laws.GaussianChain(dims=dims, **given)
    found = [chain[f"chain_{side}_edge"].value for side in ("lower", "upper")]
    np.testing.assert_allclose(found, law.support, rtol=1e-12)
    scales = {side: chain.get(f"chain_{side}_edge_scale") for side in ("lower", "upper")}
    for constant, expected in zip(scales.values(), law.edge_scale, strict=True):
        assert (constant is None) == (expected is None)
        assert constant is None or constant.value == pytest.approx(expected, rel=1e-11)
    mean = laws.largest_eigenvalue(dims=dims, **given).mean()
    assert chain["chain_largest_eigenvalue_mean"].value == pytest.approx(mean, rel=1e-11)


@pytest.mark.parametrize("factors", [1, 2, 3, 5])
def test_square_chains_have_the_edge_of_fuss_and_catalan(factors):
    """(L + 1)^(L + 1) / L^L n^L, and 4 n for one matrix."""
    edge = constants.chain_constants([64] * (factors + 1), normalization="none")["chain_upper_edge"]
    with mp.workdps(80):
        known = mp.mpf(factors + 1) ** (factors + 1) / mp.mpf(factors) ** factors * 64**factors
        assert abs(mp.mpf(edge.digits(60)) / known - 1) < mp.mpf(10) ** -58


def test_it_can_be_cited_with_its_conditions_and_kept():
    edge = constants.chain_constants((512, 64, 512, 64), sigmas=0.02)["chain_upper_edge"]
    said = constants.as_sentence(edge)
    for words in ("divided by √512", "σ = 0.02", "dimensions 512 × 64 × 512 × 64", "[1, 2], computed with rmtbase"):
        assert words in said
    assert "burda_2010_rectangular" in edge.bibtex() or "Burda" in edge.bibtex()
    assert edge.error_kind == "exact"
    for again in (pickle.loads(pickle.dumps(edge)), copy.deepcopy(edge)):
        assert again.digits(50) == edge.digits(50)


def test_what_is_no_chain_is_refused():
    for name, *arguments in (
        ("dims", (8, 0)),
        ("dims", (8,)),
        ("sigma", (8, 4, 8), -1.0),
        ("normalization", (8, 4), 1.0, "sqrt_d"),
        ("normalization", (8, 4, 8), 1.0, "unit"),
        ("sigmas", (8, 4, 8), [1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ParameterError, match=name):
            constants.chain_constants(*arguments)
