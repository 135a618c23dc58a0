"""What a configuration says of the law of its weights."""

import pytest
from transformers import GPT2Config, GPT2Model

from rmtbase.models import inspect_model, open_model


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"init_method": "trunc_normal_"}, "'init_method' is 'trunc_normal_': trunc_normal_ of torch"),
        ({"weight_init": {"name": "truncated_normal"}}, "--initialization normal"),
        ({"init_fn": "orthogonal_"}, "--initialization orthogonal"),
        ({"initializer_cutoff_factor": 2.0}, "cut at 2 standard deviations: --initialization truncated_normal"),
        ({"initializer_cutoff_factor": "2"}, None),
        ({"init_method": "normal", "name": "trunc_normal"}, None),
    ],
)
def test_a_truncated_or_orthogonal_initializer_is_explained(settings, said):
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, **settings)
    notes = [note for note in inspect_model(open_model(GPT2Model(config))).notes if note.startswith("configuration:")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]
