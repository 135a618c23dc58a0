"""Train the bundled demo model, or one of its twins, and write its checkpoints.

    python studies/demo_model/train.py --out build/demo_model

A step's batch is a function of (seed, step) alone, and the state is saved as training goes on, so the same
command continues a run that was interrupted and draws the batches that an uninterrupted run would have drawn.
"""

import argparse
import copy
import csv
import json
import math
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import Corpus, load
from held_out import CONTEXT, bits_per_byte
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

LOG_COLUMNS: tuple[str, ...] = (
    "step",
    "tokens",
    "learning_rate",
    "train_bits_per_byte",
    "held_out_bits_per_byte",
    "seconds",
)


MODELS = ("demo", "mha", "qk-norm", "neox", "wide-heads")
"""The demo model, and those that differ from it in how attention is made; see :func:`make_config`."""


def make_config(name: str = "demo") -> PretrainedConfig:
    """Make the architecture: 4 layers, 8 query heads of size 16, width 128; tokens are bytes.

    ``demo``: Llama with 4 key heads. ``mha``: the same with 8. ``qk-norm``: the demo with a norm of each query and key,
    as in Qwen3. ``neox``: 8 key heads, queries, keys and values in one tensor, LayerNorm, biases, and an MLP of two
    matrices with as many weights as the three of the others, one after attention as there; rotary in all positions.
    ``wide-heads``: the demo with 4 query heads of size 32, each with a key head of its own.
    """
    sizes = {"vocab_size": 256, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8}
    common = sizes | {"max_position_embeddings": CONTEXT, "initializer_range": 0.02, "tie_word_embeddings": True}
    common |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    if name == "neox":
        return GPTNeoXConfig(**common, intermediate_size=480, rotary_pct=1.0, use_parallel_residual=False)
    gated = common | {"intermediate_size": 320, "head_dim": 16, "num_key_value_heads": 8 if name == "mha" else 4}
    if name == "wide-heads":
        gated |= {"head_dim": 32, "num_attention_heads": 4}
    return Qwen3Config(**gated, rms_norm_eps=1e-6) if name == "qk-norm" else LlamaConfig(**gated)


def make_model(seed: int, name: str = "demo") -> PreTrainedModel:
    """Make the model at step 0: every projection i.i.d. N(0, 0.02²), drawn by transformers from `seed`."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(make_config(name))


def batch_at(text: NDArray[np.uint8], seed: int, step: int, batch_size: int) -> torch.Tensor:
    """Windows at uniform offsets into the training text, shape (batch_size, CONTEXT + 1)."""
    rng = np.random.default_rng([seed, step])
    offsets = rng.integers(0, text.size - CONTEXT, size=batch_size)
    return torch.from_numpy(text[offsets[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))


def learning_rate_at(step: int, steps: int, peak: float, warm_up: int) -> float:
    """Linear warm-up to `peak`, then a half cosine to a twentieth of it at the last step."""
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - 1 - warm_up)
    return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizer(model: torch.nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices (the embedding among them) and leaves the norms' gains alone."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8)


def held_out_sample(corpus: Corpus, pieces: int = 32, length: int = 1024) -> list[NDArray[np.uint8]]:
    """Select a fixed, evenly spread part of the held-out bytes for the loss curve; evaluate.py takes all of them."""
    text = np.concatenate(list(corpus.held_out.values()))
    starts = np.linspace(0, text.size - length, pieces).astype(int)
    return [text[start : start + length] for start in starts]


def save_revision(model: PreTrainedModel, folder: Path) -> None:
    """Write one checkpoint in Hugging Face's format, weights in float16 (the embedding once: it is tied)."""
    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the file in one move: a kill leaves the old state or the new one."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def write_log(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, LOG_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = load()
    text = np.concatenate(list(corpus.train.values()))
    sample = held_out_sample(corpus)
    model = make_model(args.seed, args.model)
    optimizer = make_optimizer(model, args.weight_decay)
    state_path = args.out / "state.pt"
    recipe = ("model", "seed", "steps", "batch_size", "peak", "warm_up", "weight_decay")
    settings = {key: getattr(args, key) for key in recipe} | {"corpus": corpus.sha256}
    first, wall, cpu, rows = 0, 0.0, 0.0, []
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        if state["settings"] != settings:
            raise SystemExit(f"{state_path} belongs to another run: {state['settings']}, not {settings}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, wall, cpu, rows = state["step"], state["wall"], state["cpu"], state["rows"]
        print(f"continuing at step {first}", flush=True)
        if first == args.steps and (args.out / "training.json").exists():
            return

    wall_start, cpu_start = time.perf_counter() - wall, time.process_time() - cpu
    recent: list[float] = []
    for step in range(first, args.steps + 1):
        if step == args.steps or step % args.every == 0 or step in args.keep:
            model.eval()
            held_out = bits_per_byte(model, sample)[0]
            model.train()
            row = {
                "step": step,
                "tokens": step * args.batch_size * CONTEXT,
                "learning_rate": f"{learning_rate_at(step, args.steps, args.peak, args.warm_up):.6g}",
                "train_bits_per_byte": f"{sum(recent) / len(recent):.4f}" if recent else "",
                "held_out_bits_per_byte": f"{held_out:.4f}",
                "seconds": f"{time.perf_counter() - wall_start:.1f}",
            }
            recent.clear()
            if not rows or rows[-1]["step"] < step:
                rows.append(row)
            write_log(args.out / "loss_curve.csv", rows)
            print(*(f"{key} {value}" for key, value in row.items()), sep="  ", flush=True)
            if step in args.keep:
                save_revision(model, args.out / f"step-{step}")
            state = {
                "settings": settings,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "wall": time.perf_counter() - wall_start,
                "cpu": time.process_time() - cpu_start,
                "rows": rows,
            }
            save_state(state_path, state)
        if step == args.steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, args.steps, args.peak, args.warm_up)
        tokens = batch_at(text, args.seed, step, args.batch_size)
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item() / math.log(2))

    save_revision(model, args.out / "final")
    summary = {
        **settings,
        "corpus": corpus.describe(),
        "context": CONTEXT,
        "tokens_seen": args.steps * args.batch_size * CONTEXT,
        "parameters": sum(p.numel() for p in model.parameters()),
        "wall_seconds": round(time.perf_counter() - wall_start, 1),
        "process_cpu_seconds": round(time.process_time() - cpu_start, 1),
        "threads": args.threads,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPU cores",
        "revisions": {**{f"step-{step}": step for step in sorted(args.keep)}, "final": args.steps},
    }
    (args.out / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, log and state")
    parser.add_argument("--model", choices=MODELS, default="demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--peak", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--warm-up", type=int, default=200, help="steps of linear warm-up")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--keep", type=int, nargs="*", default=[0, 200, 1000], help="steps to write as step-N")
    parser.add_argument("--every", type=int, default=100, help="steps between points of the loss curve")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
