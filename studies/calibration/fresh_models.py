"""Freshly initialised models of many architectures, as their own code draws them, scored as live modules.

For each: which initialisation its scores say is at hand, the share of heads with an omnibus p-value below 0.05, and how
many are flagged at a false discovery rate of 5 %. Writes ``fresh_models.json``.

    python studies/calibration/fresh_models.py
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import rmtbase
from rmtbase.models import open_model
from rmtbase.nulls._kurtosis_null import initialization

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "sims"))
from tiny_models import Profile, make_config, model_classes  # noqa: E402  # it lies in the folder that was just added

_NAMES = (
    "gpt2 gpt_neox gptj gpt_neo gpt_bigcode opt bloom falcon codegen phi phi3 stablelm starcoder2 llama mistral "
    "mixtral qwen2 qwen3 gemma gemma2 olmo olmo2 cohere granite deepseek_v3 bert roberta electra deberta-v2 modernbert "
    "t5 bart whisper vit clip"
)
ARCHITECTURES = tuple(_NAMES.split())
PROFILE = Profile(n_layers=4, n_heads=8, n_key_heads=8, d_head=32, d_model=256, d_mlp=512, vocab=512)
LEVEL = 0.05


def scored(architecture: str, seed: int) -> dict[str, Any]:
    """Score one fresh model and summarize its scores."""
    torch.manual_seed(seed)
    module = model_classes(architecture)[0](make_config(architecture, PROFILE)).eval()
    tree = rmtbase.score(open_model(module, name=architecture))
    p_value = tree["heads"]["omnibus_p_value"].values
    p_value = p_value[np.isfinite(p_value)]
    return {
        "architecture": architecture,
        "initialisation": initialization(tree["matrices"].to_dataset()) or "none that is known",
        "heads": int(p_value.size),
        f"omnibus_p_below_{LEVEL}": round(float((p_value < LEVEL).mean()), 4),
        f"omnibus_q_below_{LEVEL}": int((tree["heads"]["omnibus_q_value"].values < LEVEL).sum()),
        "null": tree.attrs["table"],
        "proof": next((note for note in json.loads(tree.attrs["notes"]) if note.startswith("proved")), ""),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "fresh_models.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=ARCHITECTURES)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    found = [scored(architecture, args.seed) for architecture in args.only]
    for one in found:
        print(*(str(value) for value in list(one.values())[:5]), sep="\t")
    content = {"transformers": transformers.__version__, "seed": args.seed, "models": found}
    args.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
