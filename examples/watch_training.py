"""Watch a training run: from which step on do heads differ from random heads, and is it safe to say so meanwhile?

A small Llama learns to count. Every ten steps its weights are scored where they are; the trajectory is in run.nc, whole
after each look, and under rmtbase/ in whatever the Trainer reports to.

    python examples/watch_training.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from rmtbase import open_table
from rmtbase.results.trajectory import summarize_trajectory
from rmtbase.watch import WatchCallback

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, head_dim=16, max_position_embeddings=64,
    )
)  # fmt: skip
texts = [{"input_ids": ids, "labels": ids} for ids in (torch.arange(start, start + 32) % 64 for start in range(512))]
arguments = TrainingArguments("run", max_steps=60, learning_rate=1e-3, logging_steps=10, report_to=[], use_cpu=True)
trainer = Trainer(model=model, args=arguments, train_dataset=texts)
watched = WatchCallback(trainer, "run.nc", every=10, budget=None)
trainer.add_callback(watched)
trainer.train()

print(f"\nseconds a look: {', '.join(f'{seconds:.2f}' for seconds in watched.watcher.seconds)}")
for sentence in summarize_trajectory(open_table("run.nc")).sentences():
    print(sentence)
