"""Scoring: how far each head and each matrix of a model is from random, with calibrated p-values."""

from rmtbase.scoring._attention import attention_class
from rmtbase.scoring._changes import changes
from rmtbase.scoring._composition import composition
from rmtbase.scoring._composition_summary import (
    ComposedPair,
    CompositionSummary,
    KindSummary,
    summarize_composition,
)
from rmtbase.scoring._csv import heads_csv, matrices_csv
from rmtbase.scoring._decisions import FORMATS, Module, decisions_text, learned_modules, left_out_of
from rmtbase.scoring._depth_fitter import DepthFitter, depth_fitter
from rmtbase.scoring._direction_tokens import (
    DirectionReading,
    TokenScores,
    direction_tokens,
    embedding_of,
    nearer_than_chance,
    read_directions,
    readings_headline,
    sides_in_stream,
)
from rmtbase.scoring._effective_depth import EffectiveDepth, effective_depth
from rmtbase.scoring._element_summary import ElementsSummary, summarize_elements
from rmtbase.scoring._find_null import ANALYTIC, NULLS, OF_A_TABLE, Wanted, draws_for, find_null
from rmtbase.scoring._head_elements import ElementMode
from rmtbase.scoring._head_factors import head_dims, head_sigmas
from rmtbase.scoring._heads import circuit_scores, circuits_of, require_scores
from rmtbase.scoring._heavy_tails import HeavyTails, heavy_tails
from rmtbase.scoring._latent_null import LatentNull
from rmtbase.scoring._learned_part import LearnedPart, learned_part, learned_part_of
from rmtbase.scoring._matrices import matrix_p_value_floors
from rmtbase.scoring._model_depths import effective_depths
from rmtbase.scoring._not_testable import (
    NotTestable,
    headline,
    not_testable_json,
    not_testable_words,
    plural,
    reasons_of,
    recorded,
)
from rmtbase.scoring._read_matrices import LAYERS
from rmtbase.scoring._score import MatrixMode, score, score_heads
from rmtbase.scoring._signal import MatrixSpectra, signal
from rmtbase.scoring._signal_rows import (
    GroupRow,
    SignalRow,
    SignalSummary,
    discoveries,
    groups_headline,
    groups_not_testable,
    signal_csv,
    signal_groups,
    signal_headline,
    signal_not_testable,
    signal_rows,
    summarize_signal,
)
from rmtbase.scoring._signal_tails import TailSummary, summarize_tails
from rmtbase.scoring._spectral_comparison import SpectralComparison
from rmtbase.scoring._spectral_signal import SpectralSignal, spectral_signal
from rmtbase.scoring._summary import (
    HeadFinding,
    Summary,
    at_p_value_floor,
    farthest_distance,
    layer_p_value_floors,
    p_value_floors,
    signed_distance,
    summarize_scores,
)
from rmtbase.scoring._why import LEVEL, QUESTIONS, TESTS, WhySummary, summarize_why, verdict

__all__ = [
    "ANALYTIC",
    "FORMATS",
    "LAYERS",
    "LEVEL",
    "NULLS",
    "OF_A_TABLE",
    "QUESTIONS",
    "TESTS",
    "ComposedPair",
    "CompositionSummary",
    "DepthFitter",
    "DirectionReading",
    "EffectiveDepth",
    "ElementMode",
    "ElementsSummary",
    "GroupRow",
    "HeadFinding",
    "HeavyTails",
    "KindSummary",
    "LatentNull",
    "LearnedPart",
    "MatrixMode",
    "MatrixSpectra",
    "Module",
    "NotTestable",
    "SignalRow",
    "SignalSummary",
    "SpectralComparison",
    "SpectralSignal",
    "Summary",
    "TailSummary",
    "TokenScores",
    "Wanted",
    "WhySummary",
    "at_p_value_floor",
    "attention_class",
    "changes",
    "circuit_scores",
    "circuits_of",
    "composition",
    "decisions_text",
    "depth_fitter",
    "direction_tokens",
    "discoveries",
    "draws_for",
    "effective_depth",
    "effective_depths",
    "embedding_of",
    "farthest_distance",
    "find_null",
    "groups_headline",
    "groups_not_testable",
    "head_dims",
    "head_sigmas",
    "headline",
    "heads_csv",
    "heavy_tails",
    "layer_p_value_floors",
    "learned_modules",
    "learned_part",
    "learned_part_of",
    "left_out_of",
    "matrices_csv",
    "matrix_p_value_floors",
    "nearer_than_chance",
    "not_testable_json",
    "not_testable_words",
    "p_value_floors",
    "plural",
    "read_directions",
    "readings_headline",
    "reasons_of",
    "recorded",
    "require_scores",
    "score",
    "score_heads",
    "sides_in_stream",
    "signal",
    "signal_csv",
    "signal_groups",
    "signal_headline",
    "signal_not_testable",
    "signal_rows",
    "signed_distance",
    "spectral_signal",
    "summarize_composition",
    "summarize_elements",
    "summarize_scores",
    "summarize_signal",
    "summarize_tails",
    "summarize_why",
    "verdict",
]
