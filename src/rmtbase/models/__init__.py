"""Trained models, in checkpoints or in memory, read lazily: their weight matrices, head by head.

Importing this room imports neither torch nor transformers nor jax.
"""

from rmtbase.models._array_model import ArrayModel
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._head_shape import HeadShape, head_shape
from rmtbase.models._hub import KnownModel, known_models
from rmtbase.models._layout_table import known_types as supported_architectures
from rmtbase.models._layouts import COMPONENTS
from rmtbase.models._model import Model
from rmtbase.models._open import demo_revisions, open_model, require_other_files
from rmtbase.models._sites import Place, Site
from rmtbase.models._split_qkv import split_qkv
from rmtbase.models._weight_matrices import WeightMatrices

__all__ = [
    "COMPONENTS",
    "ArrayModel",
    "Checkpoint",
    "HeadShape",
    "KnownModel",
    "Model",
    "Place",
    "Site",
    "WeightMatrices",
    "demo_revisions",
    "head_shape",
    "known_models",
    "open_model",
    "require_other_files",
    "split_qkv",
    "supported_architectures",
]
