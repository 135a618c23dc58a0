"""The scores of heads as comma-separated values, one row per head."""

from __future__ import annotations

import csv
import io

import xarray as xr

from rmtbase.scoring._heads import require_scores
from rmtbase.shown import shown

_PER_HEAD = (
    "key_head",
    "sigma_q",
    "sigma_k",
    "outliers_above",
    "outliers_below",
    "omnibus_p_value",
    "omnibus_q_value",
    "farthest_statistic",
)
_PER_STATISTIC = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # how a formula begins, in wide letters too
_BEFORE = " \"'"  # what spreadsheets take away before they look for one


def heads_csv(tree: xr.DataTree) -> str:
    """One row per head: layer, head, its σ's and outliers, then ``STATISTIC.VARIABLE`` for each statistic.

    Numbers carry all their digits, so that nothing is lost on the way through. A text that a spreadsheet would run as a
    formula begins with an apostrophe; control characters stand as their escapes.

    Raises:
        ParameterError: it is no scores tree.
    """
    require_scores(tree)
    heads = tree["heads"].to_dataset()
    statistics = heads["statistic"].values.tolist()
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    titles = ["layer", "head", *_PER_HEAD, *(f"{name}.{field}" for name in statistics for field in _PER_STATISTIC)]
    writer.writerow(map(_cell, titles))
    facts = [heads[name].values for name in _PER_HEAD]
    scores = [heads[field].sel(statistic=name).values for name in statistics for field in _PER_STATISTIC]
    layers, indices = heads["layer"].values.tolist(), heads["head"].values.tolist()
    for i, layer in enumerate(layers):
        for j, head in enumerate(indices):
            writer.writerow(map(_cell, [layer, head, *(column[i, j].item() for column in (*facts, *scores))]))
    return file.getvalue()


def _cell(value: object) -> object:
    """A number as it is; a text harmless to who opens the file."""
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip(_BEFORE).startswith(_FORMULA) else text
