"""Trained models, in checkpoints or in memory, and their weight matrices, read head by head on demand.

Importing this package imports neither torch nor transformers nor jax.
"""

from rmtbase.arguments import check_public
from rmtbase.models._array_model import ArrayModel
from rmtbase.models._difference import Difference, difference, opened_from, require_other_files
from rmtbase.models._head_shape import head_shape
from rmtbase.models._initialize import initialize
from rmtbase.models._inspection import Inspection, inspect_model
from rmtbase.models._model import Model
from rmtbase.models._open import open_model, require_model
from rmtbase.models._revisions import Revision, Series, find_series
from rmtbase.models._weight_matrices import WeightMatrices
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._demo import demo_revisions, token_names
from rmtbase.models.files._hub import KnownModel, known_models
from rmtbase.models.layouts._expressions import (
    Expression,
    Gained,
    Product,
    Rows,
    Scaled,
    Stacked,
    Tensor,
    Turned,
    take_rows,
)
from rmtbase.models.layouts._layout_table import known_types as supported_architectures
from rmtbase.models.layouts._layouts import COMPONENTS, EXPERT_COMPONENTS, FUSED_COMPONENTS, split_qkv
from rmtbase.models.layouts._sites import MatrixName, Place, Site

__all__ = [
    "ArrayModel",
    "Difference",
    "Expression",
    "KnownModel",
    "Model",
    "Place",
    "Series",
    "Site",
    "Tensor",
    "WeightMatrices",
    "demo_revisions",
    "find_series",
    "initialize",
    "known_models",
    "open_model",
    "require_model",
    "split_qkv",
    "supported_architectures",
    "take_rows",
]

check_public(globals())
