from ._decisions import FORMATS, Module, decisions_text, learned_modules, left_out_of
from ._direction_tokens import (
    DirectionReading,
    TokenScores,
    direction_tokens,
    embedding_of,
    nearer_than_chance,
    read_directions,
    readings_headline,
    sides_in_stream,
)
from ._heavy_tails import HeavyTails, heavy_tails
from ._learned_part import LearnedPart, learned_part, learned_part_of
from ._sign_flips import SignCount, SignFlips, sign_flips
from ._signal_tails import TailSummary, summarize_tails
from ._spectral_comparison import SpectralComparison
from ._spectral_signal import SpectralSignal, require_level, spectral_signal
from .measure import MatrixSpectra, signal
from .rows import (
    GroupRow,
    SignalRow,
    SignalSummary,
    discoveries,
    groups_headline,
    groups_not_testable,
    signal_groups,
    signal_headline,
    signal_not_testable,
    signal_rows,
    summarize_signal,
)

__all__ = [
    "FORMATS",
    "DirectionReading",
    "GroupRow",
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
    "decisions_text",
    "direction_tokens",
    "discoveries",
    "embedding_of",
    "groups_headline",
    "groups_not_testable",
    "heavy_tails",
    "learned_modules",
    "learned_part",
    "learned_part_of",
    "left_out_of",
    "nearer_than_chance",
    "read_directions",
    "readings_headline",
    "require_level",
    "sides_in_stream",
    "sign_flips",
    "signal",
    "signal_groups",
    "signal_headline",
    "signal_not_testable",
    "signal_rows",
    "spectral_signal",
    "summarize_signal",
    "summarize_tails",
]
