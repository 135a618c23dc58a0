"""Distance of heads from the null, and the smallest p-values that the null can give."""

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from rmtbase.nulls import distance_from_moments
from rmtbase.parameters import require_p_values
from rmtbase.statistics import SPECTRAL_STATISTICS


def signed_distance(scores: xr.Dataset) -> Float[np.ndarray, "..."]:
    """Return z of each statistic, or of its logarithm if it is positive and unbounded, as the measure of distance.

    If the null has no standard deviation, z is the normal quantile of the p-value.
    """
    parts = (scores[name] for name in ("z_score", "observed", "null_mean", "null_std"))
    logarithmic = [name for name, statistic in SPECTRAL_STATISTICS.items() if statistic.on_log_scale]
    on_log_scale = scores["statistic"].isin(logarithmic)
    z, value, mean, std, on_log_scale = (part.values for part in xr.broadcast(*parts, on_log_scale))
    distance, of_log = z.astype(float), on_log_scale & (std > 0)
    distance[of_log] = np.sign(z[of_log]) * distance_from_moments(True, value[of_log], mean[of_log], std[of_log])
    return distance


def farthest_distance(heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    """Return the :func:`signed_distance` of each head's farthest statistic; NaN if a head was not scored."""
    ordered = heads.transpose("layer", "head", "statistic", ...)
    places = {name: place for place, name in enumerate(ordered["statistic"].values.tolist())}
    # An unscored head has no farthest statistic; all its values are NaN, so any index will do.
    farthest = np.array([[places.get(name, 0) for name in row] for row in ordered["farthest_statistic"].values])
    return np.take_along_axis(signed_distance(ordered), farthest[..., None], axis=-1)[..., 0]


def layer_p_value_floors(tree: xr.DataTree) -> tuple[Float[np.ndarray, " layer"], Float[np.ndarray, " layer"]]:
    """Return the smallest p-values that each layer's null can give, for one statistic and for the omnibus test.

    These are 2 / (n + 1) and 1 / (n + 1) for n draws, the smallest p-value of an analytic null, or 0 if the file does
    not record them.
    """
    null = tree["null"].to_dataset()
    shapes, places = [dict(tree.attrs)], np.zeros(tree["heads"].sizes.get("layer", 1), dtype=int)
    if "layer_shape" in null:
        columns = null["null_draws"].values.tolist(), null["p_value_floor"].values.tolist()
        shapes = [{"null_draws": draws, "p_value_floor": floor} for draws, floor in zip(*columns, strict=True)]
        places = null["layer_shape"].values
    floors = []
    for shape in shapes:
        draws = shape.get("null_draws")
        of_draws = (0.0, 0.0) if draws is None else (2 / (int(draws) + 1), 1 / (int(draws) + 1))
        smallest = float(shape.get("p_value_floor", 0.0))
        floors.append((smallest, smallest) if tree.attrs.get("null_method") == "analytic" else of_draws)
    single, joint = np.array(floors)[places].T
    return single, joint


def at_p_value_floor(p_value: Float[np.ndarray, "..."], floor: ArrayLike) -> Bool[np.ndarray, "..."]:
    """Mark the p-values that equal their floor, in the broadcast shape: they are only bounds."""
    return require_p_values("p_value", p_value) <= np.asarray(floor) * (1 + 1e-9)
