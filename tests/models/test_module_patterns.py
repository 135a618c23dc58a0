"""Names of modules as an adapter's settings choose them: as PEFT does, in bounded time for any pattern."""

import itertools
import re
import time

import hypothesis
import peft
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists

from rmtbase.models.formats._module_patterns import first_match, is_targeted, matches


def test_modules_are_chosen_as_peft_chooses_them():
    modules = [
        f"{before}layers.{layer}.{part}"
        for before in ("model.", "model.language_model.", "")
        for layer in (0, 1, 10)
        for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.experts.1.up_proj", "mlp.gate_proj")
    ]
    unsloth = (
        r"(?:.*?(?:vision|image|language|text).*?(?:self_attn|attention|mlp).*?(?:k_proj|v_proj|q_proj|up_proj).*?)|"
        r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:k_proj|q_proj|gate_proj)))"
    )
    targets = [
        unsloth, r".*\.(q|k)_proj", r".*_proj$", "model.*", r"^(?!.*mlp).*", r"model\.layers\.(0|1\d*)\..+?k_proj",
        r".*layers\.\d{2,}\.\w+\.[kq]_proj", ["q_proj"], ["self_attn.q_proj", "up_proj"],
        ["model.layers.0.mlp.gate_proj"],
    ]  # fmt: skip
    more = [
        {}, {"exclude_modules": r".*\.1\..*"}, {"exclude_modules": ["k_proj"]}, {"layers_to_transform": [0, 10]},
        {"layers_to_transform": 1, "layers_pattern": "layers"}, {"layers_to_transform": [1], "layers_pattern": ["h"]},
        {"layers_to_transform": [1], "layers_pattern": ["experts", "layers"]}, {"modules_to_save": ["mlp"]},
    ]  # fmt: skip
    chosen = 0
    for target, restriction in itertools.product(targets, more):
        if isinstance(target, str) and "layers_to_transform" in restriction:
            continue  # peft refuses it
        config = peft.LoraConfig(target_modules=target, **restriction)
        for module in modules:
            expected = bool(check_target_module_exists(config, module))
            assert is_targeted({"target_modules": target} | restriction, module) == expected, (target, restriction)
            chosen += expected
    assert 300 < chosen < 1500


_PIECES = st.recursive(
    st.sampled_from(["a", "b", ".", r"\.", r"\d", "[ab]", "[^a]", r"\w", "^", "$", r"\b", "1"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{,2}?"])).map(
            lambda of: f"({of[0]}){of[1]}"
        ),
        inner.map("(?={})".format),
        inner.map("(?!{})".format),
    ),
    max_leaves=8,
)


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(pattern=_PIECES, names=st.lists(st.text("ab.1", max_size=6), min_size=1, max_size=8))
def test_patterns_match_as_those_of_the_standard_library(pattern, names):
    for name in names:
        assert matches(pattern, name) == (re.fullmatch(pattern, name) is not None)
        assert (first_match([pattern], name) is None) == (re.match(rf"(.*\.)?({pattern})$", name) is None)


def test_no_pattern_takes_long():
    name = "a" * 300 + "!"
    started = time.process_time()
    for pattern in ("(a+)+b", "(a|a)*b", "(a|aa)+$", "(.*)*x", "a?" * 200 + "a" * 200, "((((){200}){200}){200}){200}b"):
        assert not matches(pattern, name)
    assert time.process_time() - started < 5
