from ._decisions import Module, learned_modules
from ._direction_tokens import DirectionReading, TokenScores, direction_tokens, read_directions
from ._heavy_tails import HeavyTails, heavy_tails
from ._learned_part import LearnedPart, learned_part, learned_part_of
from ._sign_flips import SignCount, SignFlips, sign_flips
from ._signal_tails import TailSummary, summarize_tails
from ._spectral_comparison import SpectralComparison
from ._spectral_signal import SpectralSignal, require_level, spectral_signal
from .measure import MatrixSpectra, signal
from .rows import SignalRow, SignalSummary, discoveries, signal_rows, summarize_signal

__all__ = [
    "DirectionReading",
    "HeavyTails",
    "LearnedPart",
    "MatrixSpectra",
    "Module",
    "SignCount",
    "SignFlips",
    "SignalRow",
    "SignalSummary",
    "SpectralComparison",
    "SpectralSignal",
    "TailSummary",
    "TokenScores",
    "direction_tokens",
    "discoveries",
    "heavy_tails",
    "learned_modules",
    "learned_part",
    "learned_part_of",
    "read_directions",
    "require_level",
    "sign_flips",
    "signal",
    "signal_rows",
    "spectral_signal",
    "summarize_signal",
    "summarize_tails",
]
