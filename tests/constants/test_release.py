"""What was released stays: sets side by side, identifiers, digits, bounds."""

import copy
import json
import pickle
import re
from decimal import Context, Decimal
from pathlib import Path

import pytest
import release_constants
from enclosures import ENCLOSURES, decimal_bounds
from mpmath import mp
from release_constants import changed, record

from exhaustive import mostly_exhaustive
from rmtbase import constants
from rmtbase.constants import KINDS_OF_ERROR, Constant, _record, constant_set, v1
from rmtbase.constants._record import digest
from rmtbase.errors import ParameterError, RecordError

DATA = Path(__file__).parents[1] / "data"
SETS = {path.stem[10:]: json.loads(path.read_text(encoding="utf-8")) for path in DATA.glob("constants-v*.json")}
RELEASED = SETS["v1"]
SHA256 = {"v1": "8cc966b1527d41ca38c778e111912297731c03a83481a83759b3b9081247ba95"}
"""Of each released set, of all but its enclosures: these never change, and a new set comes with a line of its own."""
EVERY = (*v1.constants(), *v1.functions())
EDGE = v1.record["constants"]["square_product_upper_edge"]
OWN = [
    one
    for of_set in constants.sets().values()
    for one in (*of_set.constants(), *of_set.functions())
    if one.released == of_set.release and of_set.date
]
"""What came with each set that is released, not what it took over."""
NUMBERS = [one for one in OWN if isinstance(one, Constant)]
ENCLOSED = [one for one in NUMBERS if one.enclosure]


def test_every_released_set_is_what_it_was():
    released = {name: of_set for name, of_set in constants.sets().items() if of_set.date}
    assert set(released) == set(SETS) == set(SHA256)
    for name, of_set in released.items():
        assert changed(SETS[name], of_set.record) == []
    assert {name: of_set.sha256 for name, of_set in released.items()} == SHA256
    assert digest(RELEASED) == SHA256["v1"]


def test_each_phrase_with_mathematics_has_its_latex_and_each_symbol_its_text():
    phrases = {text for one in EVERY for text in (one.description, *one.conditions.stated().values())}
    phrases |= {one.one_draw.quantity for one in EVERY if one.one_draw}
    assert set(v1.record["latex"]) <= phrases
    assert all(text.latex.isascii() for text in phrases)
    symbols = {one.symbol for one in EVERY} | {one.one_draw.symbol.latex for one in EVERY if one.one_draw}
    assert set(v1.record["symbols"]) <= symbols
    assert not any("\\" in one.symbol_text for one in EVERY)


def test_a_change_names_its_constant():
    record = copy.deepcopy(RELEASED)
    record["constants"]["body_tail_gap"]["digits"] = record["constants"]["body_tail_gap"]["digits"][:-1] + "5"
    record["functions"]["trace_std"]["values"][0]["digits"] = "452.68"
    del record["constants"]["tracy_widom_1_mean"]["conditions"]
    assert changed(RELEASED, record) == ["body_tail_gap", "tracy_widom_1_mean", "trace_std"]
    assert digest(record) != SHA256["v1"]


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.id.partition(".")[2])
def test_what_was_released_of_a_constant_still_holds(one):
    record = SETS[one.released.name]
    stored = {**record["constants"], **record["functions"]}[one.name]
    assert (one.id, one.released.date) == (stored["id"], record["date"])
    assert (one.definition, one.conditions.stated()) == (stored["definition"], stored["conditions"])
    if isinstance(one, Constant):
        digits = one.digits(one.known_digits if one.most_digits <= 100 else 100)
        assert digits == one.published == stored["digits"]
        values = [(one, stored)]
    else:
        assert list(one.parameters) == stored["parameters"]
        values = [(one(**{name: value[name] for name in one.parameters}), value) for value in stored["values"]]
        assert [here.rounded()[0] for here, _ in values] == [value["digits"] for _, value in values]
    for here, value in values:
        assert here.error_kind == value["uncertainty"]["kind"]
        assert here.error == pytest.approx(value["uncertainty"]["absolute"], rel=0.06)
        assert here.relative_error == pytest.approx(value["uncertainty"]["relative"], rel=0.06)


COMPUTED = {"square_product_upper_edge": lambda: mp.mpf(7), "made_up": lambda: mp.mpf(8)}


def made_up_v2(date="2031-01-01"):
    """Revises one number of v1, adds one, withdraws one."""
    words = {field: text for field, text in EDGE.items() if field not in ("digits", "enclosure")}
    stored = {"square_product_upper_edge": {"digits": "7.000"}, "made_up": {"digits": "8.000", "enclosure": ["8", "8"]}}
    headings = list(v1.groups())
    record = {
        "set": "v2",
        "date": date,
        "groups": {headings[1]: ["square_product_upper_edge"], "New": ["made_up"]},
        "constants": {name: words | (numbers if date else {}) for name, numbers in stored.items()},
        "withdrawn": ["body_tail_gap"],
    }
    return constant_set(record, COMPUTED, before=constants.sets()["v1"])


def test_a_later_set_revises_adds_and_withdraws_beside_the_first():
    v2 = made_up_v2()
    assert (v2.name, v2.date) == ("v2", "2031-01-01")
    assert (v2.square_product_upper_edge.digits(4), v2.made_up.digits(4)) == ("7.000", "8.000")
    assert v2.square_product_upper_edge.id == "rmtbase:constants.v2/square_product_upper_edge"
    assert v2.made_up.enclosure == ("8", "8")
    assert v2.tracy_widom_1_mean is v1.tracy_widom_1_mean, "what is not revised keeps its identifier"
    with pytest.raises(AttributeError, match="the set v2 has no 'body_tail_gap'"):
        _ = v2.body_tail_gap
    assert set(v2.groups()) == {*v1.groups(), "New"}
    assert len(v2.constants()) == len(v1.constants())
    assert v1.square_product_upper_edge.digits(4) == constants.square_product_upper_edge.digits(4) == "6.750"
    assert v1.body_tail_gap.id == "rmtbase:constants.v1/body_tail_gap"
    assert constants.sets()["v1"].sha256 == SHA256["v1"]


def test_a_set_that_is_prepared_computes_what_is_not_recorded_yet():
    v2 = made_up_v2(date="")
    assert (v2.made_up.published, v2.made_up.digits(3)) == ("", "8.00")
    assert "not released" in repr(v2)
    made = record(v2, "2031-01-01")
    assert made["withdrawn"] == ["body_tail_gap"]
    digits = {name: Decimal(one["digits"]) for name, one in made["constants"].items()}
    assert digits == {"square_product_upper_edge": 7, "made_up": 8}
    with pytest.raises(ParameterError, match="withdrawn = 'body_tail_gpa': expected constants of v1"):
        prepared = {"set": "v2", "date": "", "groups": {}, "withdrawn": ["body_tail_gpa"]}
        constant_set(prepared, {}, before=v1)
    other = {"set": "v1", "date": "2026-11-23", "groups": {}, "constants": {"made_up": EDGE}}
    for computed in ({}, COMPUTED):
        with pytest.raises(ParameterError, match="of the record of v1: once it is released, new ones come with a new"):
            constant_set(other, computed)


def test_a_revised_number_is_not_enclosed_by_the_definition_before_it(monkeypatch):
    v2 = made_up_v2(date="")
    assert "enclosure" not in record(v2, "2031-01-01")["constants"]["square_product_upper_edge"]
    of_v1 = ENCLOSURES["rmtbase:constants.v1/square_product_upper_edge"]
    monkeypatch.setitem(release_constants.ENCLOSURES, v2.square_product_upper_edge.id, of_v1)
    with pytest.raises(SystemExit, match=r"v2/square_product_upper_edge: 7\.0+ does not lie in \['6\.75', '6\.75'\]"):
        record(v2, "2031-01-01")


TEXT = json.dumps(dict(v1.record))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TEXT[:50_000], "no record (JSONDecodeError)"),
        ("[]", "no record"),
        ('{"set": "v1", "date": "2026-11-23", "constants": []}', "no record (AttributeError)"),
        (TEXT.replace('"-1.20653357458202481442', '"-1.20653357458202481443', 1), "a record with the digest"),
        (TEXT.replace('["-1.2065335745820', '["-1.2065335745821', 1), "bounds of tracy_widom_1_mean"),
        (TEXT.replace('["-1.2065335745820', '["x-1.206533574582', 1), "no record (InvalidOperation)"),
    ],
)
def test_a_damaged_record_is_refused(text, found, tmp_path, monkeypatch):
    (tmp_path / "v1.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr(_record, "files", lambda package: tmp_path)
    with pytest.raises(RecordError) as told:
        _record.read_record("v1", SHA256["v1"])
    assert str(told.value).startswith(f"{tmp_path / 'v1.json'}: found {found}")
    assert str(told.value).endswith("expected constants.v1 as released; install rmtbase again")


def test_a_set_cannot_be_changed():
    assert v1 is constants.v1 is constants.sets()["v1"]
    assert {one.name for one in EVERY} <= set(dir(v1))
    for change in (lambda: setattr(v1, "body_tail_gap", 1), lambda: delattr(v1, "date")):
        with pytest.raises(AttributeError, match=r"cannot (assign to|delete) field"):
            change()
    with pytest.raises(AttributeError, match="perhaps tracy_widom_1_mean"):
        _ = v1.tracy_widom_1_maen
    with pytest.raises(TypeError):
        v1.record["date"] = "2000-01-01"


def test_identifiers_are_unique_and_find_what_they_name():
    assert len({one.id for one in EVERY}) == len(EVERY)
    for one in EVERY:
        assert re.fullmatch(r"rmtbase:constants\.v1/[a-z][a-z0-9_]+", one.id)
        assert constants.find(one.id) is v1.find(one.id) is v1.find(one.name) is one
        assert pickle.loads(pickle.dumps(one)).id == one.id
    at_shape = constants.product_upper_edge(768, 64, sigma=0.02)
    assert at_shape.id == constants.product_upper_edge.id


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("rmtbase:constants.v1/tracy_widom_1_maen", "perhaps rmtbase:constants.v1/tracy_widom_1_mean"),
        ("rmtbase:constants.v9/tracy_widom_1_mean", "set = 'v9': expected one of v1"),
        ("other:constants.v1/tracy_widom_1_mean", "the identifier of a constant; perhaps rmtbase:constants.v1"),
        ("rmtbase:constants.v1/", "the identifier of a constant; `rmtbase constants` lists them"),
    ],
)
def test_an_unknown_identifier_is_refused(identifier, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        constants.find(identifier)


def test_errors_are_numbers_of_a_named_kind():
    at = {"d_model": 768, "d_head": 64}
    here = [one(**{name: at[name] for name in one.parameters}) for one in v1.functions()]
    for one in (*v1.constants(), *here):
        assert one.error_kind in KINDS_OF_ERROR
        assert (one.error == 0) == (one.relative_error == 0) == (one.error_kind == "exact"), one.name
    assert {one.error_kind for one in (*v1.constants(), *here)} == {"exact", "numerical", "asymptotic"}
    assert {one.name for one in v1.constants()} <= {one.name for one in ENCLOSED}
    assert {one.id for one in ENCLOSED} == {one.id for one in NUMBERS if one.id in ENCLOSURES}


@pytest.mark.parametrize("one", mostly_exhaustive(ENCLOSED, always=20), ids=lambda one: one.id.partition(".")[2])
def test_ball_arithmetic_encloses_released_digits_and_stored_bounds(one):
    ends, released = tuple(map(Decimal, one.enclosure)), Decimal(one.published)
    rounded = Context(prec=len(released.as_tuple().digits)).plus
    assert ends[1] - ends[0] <= abs(ends[1]) * Decimal("1e-108")
    assert rounded(ends[0]) == released == rounded(ends[1])
    low, high = (Decimal(end) for end in decimal_bounds(ENCLOSURES[one.id], 20))
    assert low <= ends[0] <= ends[1] <= high
    assert low <= released <= high
    assert high - low <= abs(high) * Decimal("1e-18")


# Digits as printed in the On-Line Encyclopedia of Integer Sequences.
PRINTED = {
    "A002194": "1.732050807568877293527446341505872366942805253810380628055806979451933016908800037081146186757248575",
    "A010503": "0.707106781186547524400844362104849039284835937688474036588339868995366239231053519425193767163820786",
    "A084448": "0.165421143700450929213919660242780642764036380335201783666522306357359699666577172759525100332508755",
    "A104956": "2.598076211353315940291169512258808550414207880715570942083710469177899525363200055621719280135872863",
}


def test_oeis_has_the_same_digits():
    told = {one.oeis: one for one in EVERY if one.oeis}
    assert set(told) == set(PRINTED)
    for number, one in told.items():
        ours, printed = one.published.lstrip("-"), PRINTED[number]
        assert ours[:-1] == printed[: len(ours) - 1], number  # theirs are cut, ours rounded
