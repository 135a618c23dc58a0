"""The page of the docs that lists every model type, and how it is read."""

import re
from collections.abc import Collection, Mapping
from typing import Any

TORCH = "the torch route"
"""How a type is read that the table lacks."""


_WIDEST = (
    "llama mistral mixtral qwen2 qwen3 qwen2_moe qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3 gpt2 gpt_neo "
    "gpt_neox gptj gpt_bigcode opt bloom falcon mpt codegen starcoder2 stablelm cohere cohere2 olmo olmo2 granite "
    "deepseek_v2 deepseek_v3 gpt_oss llama4 qwen3_next glm4 smollm3 bert roberta distilbert albert electra "
    "deberta-v2 xlm-roberta mpnet modernbert camembert esm longformer t5 mt5 bart mbart pegasus marian m2m_100 "
    "whisper wav2vec2 hubert vit deit dinov2 beit swin clip siglip llava qwen2_vl qwen2_5_vl blip "
)
WIDEST = tuple(_WIDEST.split())
"""The 70 model types in widest use: those of the hub's most downloaded models of text, images and speech."""


def page(content: Mapping[str, Any], others: Mapping[str, str], proved: Collection[str]) -> str:
    """Write the page of the documentation that lists the architectures.

    Args:
        content: the table.
        others: the types that it does not have -> how they are read, or that and why they are refused.
        proved: the types of the table that were proved from a folder with this version of ``transformers``.
    """
    entries = content["types"]
    unproved = set(entries) - set(proved)
    earlier = [name for name, how in others.items() if EARLIER.search(how)]
    by_torch = [name for name, how in others.items() if how.startswith(TORCH)]
    wholly = [name for name in by_torch if EARLIER.sub("", others[name]) == TORCH]
    own = ([one for one in held["variants"] if one.get("stacks")] for held in entries.values())
    known = [[_norms_known(one, content["norms"]) for one in variants] for variants in own if variants]
    widest = sum(name in entries or name in by_torch for name in WIDEST)
    lines = [
        "# Architectures",
        "",
        f"Every model type of `transformers` {content['transformers']}: {len(entries)} are read by the table that "
        f"rmtbase ships, without torch, and {len(by_torch)} more by the torch route, {len(wholly)} of them wholly and "
        "the others but for the modules named. Of each a tiny random model was built whose sizes differ "
        "pairwise, saved to a folder, and opened from there as a user's checkpoint is. Those of the table were then "
        "compared with q·k of their own modules for every head and pair of positions, by a script that shares no code "
        "with the torch route; those of the torch route were proved as every model is: "
        "q·k of the forward pass is xᵀ W_QK x′, to rounding. What is not proved is refused.",
        "",
        *_left_to_do(len(entries), len(unproved), len(earlier)),
        f"For {sum(map(all, known))} of the {len(known)} types of the table that have attention of their own "
        "the norms in front of queries and keys and behind them are known too, with what they store (a gain, or what "
        "differs from one) and what stands in front of the first layer: they were told apart by forward passes with "
        "other gains, and `--fold norms` takes them in. Of the others it is refused.",
        "",
        "Made by `python sims/make_architectures.py`; `--check` proves every entry of the table again, `--page` makes "
        "this page alone, and `--check --norms` proves the norms, `--check --scales` the scales of the logits, and "
        "`--check --either` that a model in memory and its folder give the same sites, names and bits, or the same "
        "refusal.",
        "",
        f"## The {len(WIDEST)} in widest use",
        "",
        f"{widest} of {len(WIDEST)} are read.",
        "",
        "| type | read by |",
        "|---|---|",
        *(f"| `{name}` | {_read_by(name, entries, others, unproved)} |" for name in WIDEST),
        "",
        "## All",
        "",
        "| type | read by |",
        "|---|---|",
        *(f"| `{name}` | {_read_by(name, entries, others, unproved)} |" for name in sorted({*entries, *others})),
    ]
    return "\n".join(lines) + "\n"


EARLIER = re.compile(r" \(transformers [\d.]+\)$")
"""How a row ends that was found with an earlier version."""
_IN_MEMORY = "; proved in memory alone"


def _left_to_do(n_types: int, n_unproved: int, n_earlier: int) -> list[str]:
    """Write a paragraph that counts the types still to be proved from a folder with this version."""
    parts = []
    if n_unproved:
        parts.append(
            f"{n_unproved} of the {n_types} types of the table are marked as proved in memory alone: an earlier "
            "version proved them, and their folders have not been run through the proof yet"
        )
    if n_earlier:
        parts.append(f"{n_earlier} other rows name the earlier version that they were found with")
    return [". ".join(part[0].upper() + part[1:] for part in parts) + ".", ""] if parts else []


def _norms_known(variant: Mapping[str, Any], norms: Mapping[str, Any]) -> bool:
    """Return True if the norms before and after the queries and keys are known for every stack of a variant."""
    needed = {"query_input_norm", "key_input_norm", "query_norm", "key_norm"}
    return "norms" in variant and all(needed <= set(norms[name]) for name in variant["norms"]["of"])


def _read_by(name: str, entries: Mapping[str, Any], others: Mapping[str, str], unproved: Collection[str] = ()) -> str:
    if name in entries:
        stacks = {part["stack"] for one in entries[name]["variants"] for part in one.get("parts", ())}
        left = {key for one in entries[name]["variants"] for key in one.get("unread", ())}
        parts = f": {', '.join(sorted(stacks))}" if stacks else ""
        unread = f"; not read: {', '.join(sorted(left))}" if left else ""
        return f"the table{parts}{unread}{_IN_MEMORY if name in unproved else ''}"
    return _harmless(others[name])


def _harmless(reason: str) -> str:
    """Shorten a reason to one line of a table, without paths."""
    text = re.sub(r"(/[\w.\-]+){2,}", "…", " ".join(reason.split())).replace("|", "/")
    earlier = EARLIER.search(text)
    words = re.sub(r"/config.json: |You can install it.*|Please note.*", "", EARLIER.sub("", text))[:160].strip()
    return words + (earlier[0] if earlier else "")
