"""Trained models: their checkpoints, read lazily, and their weight matrices, head by head.

Importing this room imports neither torch nor transformers nor jax.
"""

from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._head_shape import HeadShape, head_shape
from rmtbase.models._hub import KnownModel, known_models
from rmtbase.models._layouts import COMPONENTS, supported_architectures
from rmtbase.models._model import Model
from rmtbase.models._open import demo_revisions, open_model, require_other_files

__all__ = [
    "COMPONENTS",
    "Checkpoint",
    "HeadShape",
    "KnownModel",
    "Model",
    "demo_revisions",
    "head_shape",
    "known_models",
    "open_model",
    "require_other_files",
    "supported_architectures",
]
