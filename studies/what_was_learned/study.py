"""Effect on a model when its heads keep only the directions they have learned, or only the rest.

    python studies/demo_model/train.py --model wide-heads --out build/wide-heads
    python studies/what_was_learned/study.py build/wide-heads/final build/wide-heads/step-1000

writes results.json beside this file (or where ``--out`` says): bits per byte of held-out text, of each checkpoint.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filters import VARIANTS, filtered
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, PreTrainedModel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "demo_model"))
from corpus import load  # noqa: E402
from held_out import bits_per_byte  # noqa: E402
from train import held_out_sample  # noqa: E402


def changed(model: PreTrainedModel, variant: str, only: tuple[int, int] | None = None) -> list[int]:
    """Change all heads of a model, or one (layer, head); how many directions each has learned."""
    ranks = []
    for layer, block in enumerate(model.model.layers):
        attention, heads = block.self_attn, model.config.num_attention_heads
        q, k = (one.weight.detach().double().numpy() for one in (attention.q_proj, attention.k_proj))
        stacks = [one.reshape(heads, -1, one.shape[-1]).copy() for one in (q, k)]
        for head in range(heads):
            w_q, w_k, part = filtered(stacks[0][head], stacks[1][head], variant)
            ranks.append(int(part.values.size))
            if only in (None, (layer, head)):
                stacks[0][head], stacks[1][head] = w_q, w_k
        for projection, stack in zip((attention.q_proj, attention.k_proj), stacks, strict=True):
            projection.weight.data = torch.from_numpy(stack.reshape(-1, stack.shape[-1])).float()
    return ranks


def study(folder: Path, texts: list[NDArray[np.uint8]], one_by_one: bool) -> dict[str, Any]:
    """Bits per byte of every variant, of all heads at once and, if asked, of each by itself."""

    def of(variant: str, only: tuple[int, int] | None = None) -> float:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        found["directions"] = changed(model, variant, only)
        return round(bits_per_byte(model, texts)[0], 5)

    found: dict[str, Any] = {}
    found["bits_per_byte"] = {variant: of(variant) for variant in VARIANTS}
    config = AutoModelForCausalLM.from_pretrained(folder).config
    found |= {"layers": config.num_hidden_layers, "heads": config.num_attention_heads, "d_head": config.head_dim}
    if one_by_one:
        places = [(layer, head) for layer in range(found["layers"]) for head in range(found["heads"])]
        found["each_head"] = {
            variant: [of(variant, place) for place in places]
            for variant in ("shrunken", "truncated", "rest", "nothing")
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="+", help="folders; the last one's heads one by one, too")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    args = parser.parse_args()
    texts = held_out_sample(load())
    record = {folder.name: study(folder, texts, one_by_one=folder == args.checkpoint[-1]) for folder in args.checkpoint}
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, one in record.items():
        print(name, one["bits_per_byte"], one["directions"])


if __name__ == "__main__":
    main()
