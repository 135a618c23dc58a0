"""The registry is complete: nothing without definition and reference, every reference in the bibliography."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files

import pytest

import rmtbase
from rmtbase import constants
from rmtbase.constants import Constant
from rmtbase.errors import ParameterError
from rmtbase.laws import smallest_eigenvalue

ENTRIES = [*constants.constants(), *constants.functions()]
TEXTS = ("name", "symbol", "description", "definition", "conditions", "method", "uncertainty")


def a_constant(**changes):
    return replace(constants.square_product_upper_edge, **changes)


@pytest.mark.parametrize("field", TEXTS)
def test_a_constant_without_one_of_its_texts_cannot_be_made(field):
    with pytest.raises(ParameterError, match=field):
        a_constant(**{field: ""})
    with pytest.raises(ParameterError, match=field):
        replace(constants.product_upper_edge, **{field: ""})
    with pytest.raises(ParameterError, match="references"):
        a_constant(references=())
    with pytest.raises(TypeError, match="compute"):
        Constant(name="x", symbol="x", description="x", definition="x", method="x", references=("ma_2012",))  # type: ignore[call-arg]


def test_names_are_unique_lower_case_attributes():
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names) == sum(len(entries) for entries in constants.groups().values())
    for entry in ENTRIES:
        assert re.fullmatch(r"[a-z][a-z0-9_]+", entry.name)
        assert getattr(rmtbase.constants, entry.name) is entry
        assert entry.name in dir(constants)
    with pytest.raises(AttributeError, match="tracy_widom_1_mean"):
        _ = constants.tracy_widom_1_maen


def test_every_reference_is_in_the_bibliography_and_every_entry_is_used():
    cited = {key for entry in ENTRIES for key in entry.references}
    assert cited == set(constants.bibliography())
    known = {constant.name for constant in constants.constants()}
    with pytest.raises(ParameterError, match="nobody_1900"):
        constants.bibtex(["nobody_1900"])
    for entry in ENTRIES:
        assert entry.reference == entry.references[0]
        assert set(entry.parents) <= known - {entry.name}
        assert entry.bibtex().count("\n@") == len(set(entry.references)), "rmtbase beside its references"


REQUIRED = {
    "article": {"author", "title", "journal", "volume", "pages", "year"},
    "book": {"author", "title", "publisher", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "misc": {"author", "title", "year", "eprint"},
}


def test_every_bibliography_entry_has_what_its_kind_requires():
    references = constants.bibliography().values()
    for reference in references:
        assert set(reference.fields) >= REQUIRED[reference.kind], reference.key
        assert reference.key.endswith(reference.fields["year"]) or reference.fields["year"] in reference.key
        assert re.fullmatch(r"1[89]\d\d|20\d\d", reference.fields["year"])
        assert re.fullmatch(r"10\.\d{4,}/\S+", reference.fields.get("doi", "10.1000/x"))
        assert re.fullmatch(r"([a-z-]+/\d{7}|\d{4}\.\d{4,5})", reference.fields.get("eprint", "1234.5678"))
        if "eprint" in reference.fields:
            assert reference.fields["archivePrefix"] == "arXiv"
            assert not {"url", "note", "howpublished"} & set(reference.fields), "the number would be printed twice"
        assert not re.search(r"[{}$\\]", reference.title)
    assert [reference.key for reference in references] == sorted(reference.key for reference in references)


def test_the_bibliography_holds_every_line_of_its_file():
    text = files("rmtbase.constants").joinpath("references.bib").read_text(encoding="utf-8")
    references = constants.bibliography().values()
    of_file = []
    for one in references:
        fields = "".join(f"  {name:<9} = {{{value}}},\n" for name, value in one.fields.items())
        of_file.append(f"@{one.kind}{{{one.key},\n{fields}}}\n")
    assert text == "\n".join(of_file)
    for reference, entry in zip(references, of_file, strict=True):
        lines = reference.bibtex.splitlines()
        added = [line for line in lines if line not in entry.splitlines()]
        assert [line for line in lines if line not in added] == entry.splitlines()
        number = f"  note      = {{arXiv:{reference.fields.get('eprint')}}},"
        assert added == ([number, "  options   = {eprint=false},"] if "eprint" in reference.fields else [])
        assert not any(unbalanced(value) for value in reference.fields.values())


def unbalanced(tex: str) -> bool:
    depth = 0
    for sign in re.sub(r"\\[{}]", "", tex):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return True
    return depth != 0


COMMANDS = re.compile(
    "Big|Bigl|Bigr|Delta|Gamma|arg|bigl|bigr|choose|delta|ell|exp|frac|gamma|hat|in|infty|int|lambda|ldots|lim|ln|mathrm"
    "|max|mbox|min|mu|nu|overline|pi|pm|psi|quad|rho|sigma|sqrt|sum|tau|textstyle|theta|to|top|varphi|zeta"
)
"""Of LaTeX without any package."""


def test_latex_is_balanced_and_of_known_commands_in_rows_of_six_cells():
    for tex in (tex for entry in ENTRIES for tex in (entry.symbol, entry.definition)):
        assert not unbalanced(tex) and tex.isascii() and "$" not in tex, tex
        assert all(COMMANDS.fullmatch(command) for command in re.findall(r"\\([A-Za-z]+)", tex)), tex
        assert not re.search(r"\^[^{\\]\^|_[^{\\]_", tex), tex  # double scripts
    powers = constants.as_latex([constants.element_divergence_1, a_constant(compute=lambda: 12345, published="")], 3)
    assert "$0.215$" in powers and r"$1.23 \times 10^{4}$" in powers
    head, *rows = constants.as_latex(ENTRIES, 12).splitlines()
    assert head.startswith("% name & symbol & value") and len(rows) == len(ENTRIES)
    for row in rows:
        assert row.count(" & ") == 5 and row.endswith(r" \\")
        assert not unbalanced(row) and not re.search(r"(?<!\\)[%#]", row)


def test_json_survives_a_round_trip_with_digits_as_strings():
    plain = json.loads(json.dumps(constants.as_json(ENTRIES, 40)))
    for entry, fields in zip(ENTRIES, plain, strict=True):
        assert fields["name"] == entry.name and set(fields["references"]) == set(entry.references)
        assert fields["conditions"] == entry.conditions.stated()
        if isinstance(entry, Constant):
            assert (fields["value"], fields["uncertainty"]) == (entry.digits(40), entry.uncertainty)
        else:
            assert (fields["value"], fields["parameters"]) == (None, list(entry.parameters))


SHAPES = [
    ((768,), "d_head = None"),
    ((), "d_model = None"),
    ((768, 64, 3), "depends on nothing else"),
    ((64, 768), "at most d_model = 64"),
    ((768, 0), "a positive integer"),
    ((True, True), "a positive integer"),
]


def test_a_function_is_called_by_position_or_by_name_and_refuses_what_is_no_shape():
    at = constants.product_upper_edge
    assert at(768, 64).digits(12) == at(d_head=64, d_model=768).digits(12) == "1564.22613785"
    assert constants.aspect_ratio(768, 64).definition == constants.aspect_ratio.definition
    for shape, words in SHAPES:
        with pytest.raises(ParameterError, match=words):
            at(*shape)


def test_a_hard_edge_has_no_tracy_widom_scale_and_a_law_of_its_own():
    with pytest.raises(ParameterError, match="hard"):
        constants.product_lower_edge_scale(64, 64)
    assert constants.product_lower_edge(64, 64).digits(5) == "0"
    law = smallest_eigenvalue(64, 64)
    for name, value in (("smallest_eigenvalue_mean", law.mean()), ("smallest_eigenvalue_std", law.std())):
        assert constants.find(name)(64, 64).value == pytest.approx(value, rel=1e-9)
        for shape in ((3, 3), (64, 3)):
            with pytest.raises(ParameterError, match="a rank of at least 4"):
                constants.find(name)(*shape)


def test_the_room_takes_in_neither_jax_nor_scipy_and_works_without_jax():
    assert importlib.util.find_spec("scipy") is not None
    code = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "from rmtbase import constants\n"
        "heavy = [name for name in ('scipy', 'numpy', 'matplotlib', 'torch') if name in sys.modules]\n"
        "print(heavy, constants.tracy_widom_2_mean.digits(10), constants.trace_mean.value(768, 64))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("[] -1.771086807 49152.0\n", "")
