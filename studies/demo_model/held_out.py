"""Bits per byte of a byte-level causal model; every byte but a file's first is scored once, in context."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

CONTEXT = 256
STRIDE = 128


def windows(text: NDArray[np.uint8], context: int = CONTEXT, stride: int = STRIDE) -> Iterator[tuple[int, int, int]]:
    """Cover bytes 1 … n−1 of a text, each scored exactly once.

    Yields:
        (start, stop, first): feed bytes start … stop−1, read the predictions of bytes first … stop. A byte
        is predicted from at least `context − stride` bytes before it, or from all of them near the start.
    """
    first = 1
    while first < text.size:
        stop = min(text.size - 1, context if first == 1 else first + stride - 1)
        yield max(0, stop - context), stop, first
        first = stop + 1


@torch.no_grad()
def bits_per_byte(
    model: torch.nn.Module, texts: Iterable[NDArray[np.uint8]], batch_size: int = 16
) -> tuple[float, int]:
    """Mean −log₂ p(byte | bytes before it in the same text) and the number of bytes scored.

    Args:
        model: a causal language model that maps token ids (batch, length) to `.logits`.
        texts: each is scored on its own; its first byte is context only.
        batch_size: windows in one forward pass. Short ones are padded at the end: a causal model ignores it.
    """
    jobs = [(text, *window) for text in texts for window in windows(text)]
    total, count = 0.0, 0
    for at in range(0, len(jobs), batch_size):
        batch = jobs[at : at + batch_size]
        width = max(stop - start for _, start, stop, _ in batch)
        tokens = torch.zeros(len(batch), width, dtype=torch.long)
        targets = torch.full((len(batch), width), -100)
        for row, (text, start, stop, first) in enumerate(batch):
            tokens[row, : stop - start] = torch.from_numpy(text[start:stop].astype(np.int64))
            targets[row, first - 1 - start : stop - start] = torch.from_numpy(text[first : stop + 1].astype(np.int64))
        logits = model(input_ids=tokens, use_cache=False).logits.float()
        total += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
        ).item()
        count += int((targets >= 0).sum())
    return total / math.log(2) / count, count
