"""Trained models: their checkpoints, read lazily, and their weight matrices, head by head.

Importing this room imports neither torch nor transformers nor jax.
"""

from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._demo import demo_revisions
from rmtbase.models._head_shape import HeadShape, head_shape
from rmtbase.models._known_models import KnownModel, known_models
from rmtbase.models._layouts import COMPONENTS, supported_architectures
from rmtbase.models._model import Model
from rmtbase.models._open import open_model
from rmtbase.models._output import check_outputs

__all__ = [
    "COMPONENTS",
    "Checkpoint",
    "HeadShape",
    "KnownModel",
    "Model",
    "check_outputs",
    "demo_revisions",
    "head_shape",
    "known_models",
    "open_model",
    "supported_architectures",
]
