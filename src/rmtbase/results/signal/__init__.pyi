from ._heavy_tails import HeavyTails, heavy_tails
from ._learned_part import LearnedPart, learned_part
from ._spectral_signal import SpectralSignal, spectral_signal
from .measure import signal
from .rows import SignalRow, TailSummary, signal_rows, summarize_tails

__all__ = [
    "HeavyTails",
    "LearnedPart",
    "SignalRow",
    "SpectralSignal",
    "TailSummary",
    "heavy_tails",
    "learned_part",
    "signal",
    "signal_rows",
    "spectral_signal",
    "summarize_tails",
]
