"""Amounts by which heads differ: distances, the smallest p-values, moved shares, relations."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from rmtbase.nulls import UpperPoint, distance_from_moments
from rmtbase.parameters import require_p_values
from rmtbase.shown import in_one_line, percent
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present
from rmtbase.words import counted, listing

_FIRST = 3  # heads named as those that differ most


def signed_distance(scores: xr.Dataset) -> Float[np.ndarray, "..."]:
    """Return z of each statistic, or of its logarithm if it is positive and unbounded; the p-value's without a std."""
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
    """Return the smallest p-values of one statistic, 2/(n + 1), and of all, 1/(n + 1), or those of an analytic null."""
    null, names = tree["null"].to_dataset(), ("null_draws", "p_value_floor")
    shapes, places = [[tree.attrs.get(name) for name in names]], np.zeros(tree["heads"].sizes.get("layer", 1), int)
    if "layer_shape" in null:
        shapes, places = np.transpose([null[name].values for name in names]).tolist(), null["layer_shape"].values
    floors = []
    for draws, floor in shapes:
        of_draws = (0.0, 0.0) if draws is None else (2 / (int(draws) + 1), 1 / (int(draws) + 1))
        floors.append((float(floor or 0.0),) * 2 if tree.attrs.get("null_method") == "analytic" else of_draws)
    single, joint = np.array(floors)[places].T
    return single, joint


def at_p_value_floor(p_value: Float[np.ndarray, "..."], floor: ArrayLike) -> Bool[np.ndarray, "..."]:
    """Mark the p-values that equal their floor, in the broadcast shape: they are only bounds."""
    return require_p_values("p_value", p_value) <= np.asarray(floor) * (1 + 1e-9)


class Towards(StrEnum):
    """Larger part of a moved share above the 95 % point of random heads, or both parts if both are above it."""

    FEWER = "fewer"
    MORE = "more"
    BOTH = "both"
    NOT_TOLD = ""


class HowMuch(NamedTuple):
    # share of ‖W‖² to move between the ordered directions to give a random head's mean spectrum, and its two parts
    moved_share: float = math.nan
    moved_towards_fewer: float = math.nan
    moved_towards_more: float = math.nan
    moved_share_equal_axes: float = math.nan  # moved share with equal axes; NaN if it is not known
    towards: Towards = Towards.NOT_TOLD
    relation: float = math.nan  # R of keys and queries; NaN if it is not defined
    mostly_axes: bool = False  # whether equal axes take away more than half of a moved share above the 95 % point


def upper_points(tree: xr.DataTree, name: str = "moved_share_upper") -> Float[np.ndarray, "layer head"]:
    """Return the 95 % point of the moved share of random heads for each head, or its error; NaN if not known."""
    heads, null = tree["heads"].to_dataset(), tree["null"].to_dataset()
    point = null[name].values
    if "layer_shape" in null:
        point = point[null["layer_shape"].values][:, None]
    return np.broadcast_to(point, (heads.sizes["layer"], heads.sizes["head"]))


def upper_range(tree: xr.DataTree, places: Bool[np.ndarray, "layer head"]) -> tuple[UpperPoint, ...]:
    names = "moved_share_upper", "moved_share_upper_standard_error"
    columns = (upper_points(tree, name)[places].tolist() for name in names)
    known = [point for point in map(UpperPoint, *columns) if math.isfinite(point.value)]
    return (min(known, key=lambda point: point.value), max(known, key=lambda point: point.value)) if known else ()


def places_of(mask: Bool[np.ndarray, "layer head"]) -> list[tuple[int, int]]:
    return [(layer, head) for layer, head in np.argwhere(mask).tolist()]


def how_much(tree: xr.DataTree) -> dict[tuple[int, int], HowMuch]:
    """Return how much each head of a scores tree differs, by its place along (layer, head)."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    upper = upper_points(tree)
    # Resampled copies keep unequal axes, and of an update s B A the basis between B and A is free.
    free = tree.attrs["null_method"] == "resampled" or "updates" in tree.attrs
    unknown = np.full(upper.shape, np.nan)
    names = ("moved_share", "moved_towards_fewer", "moved_towards_more", "moved_share_equal_axes", "relation")
    values = {name: heads[name].values if name in heads else unknown for name in names}
    share, fewer, more, equal, _ = values.values()
    above = share > upper
    mostly_axes = above & (equal < 0.5 * share) & (not free)
    both = np.minimum(fewer, more) > upper
    towards = np.select([~above, both, fewer >= more], [Towards.NOT_TOLD, Towards.BOTH, Towards.FEWER], Towards.MORE)
    amounts = {}
    for place in places_of(heads_present(heads)):
        parts: dict[str, Any] = {name: float(array[place]) for name, array in values.items()}
        amount = HowMuch(**parts)
        amounts[place] = amount._replace(towards=Towards(str(towards[place])), mostly_axes=bool(mostly_axes[place]))
    return amounts


@in_one_line
@dataclass(frozen=True)
class Moved:
    heads: tuple[tuple[str, HowMuch], ...] = ()  # names and amounts, by decreasing moved share
    upper: tuple[UpperPoint, ...] = ()  # smallest and largest 95 % point of random heads; nothing if none is known
    symbol: str = "W_QK"  # symbol of the matrix that was scored
    against: str = "random heads"  # what the heads were compared with

    def sentences(self) -> Iterator[str]:
        if not self.heads:
            return
        line = f"Moved share of ‖{self.symbol}‖²: {_shares(self.heads[:_FIRST])}"
        if len(self.heads) > _FIRST:
            middle = percent(float(np.median([amount.moved_share for _, amount in self.heads])))
            line += f"; of the {len(self.heads)} the median is {middle}, the least {_shares(self.heads[-1:])}"
        ends = dict.fromkeys(f"{percent(end.value)} (± {100.0 * end.standard_error:.1g})" for end in self.upper)
        chance = f" 95% of {self.against} have less than {' to '.join(ends)}." if ends else ""
        yield f"{line}.{chance}"
        of_axes = [(name, amount) for name, amount in self.heads if amount.mostly_axes]
        if of_axes:
            middle = percent(float(np.median([amount.moved_share_equal_axes for _, amount in of_axes])))
            named = listing([name for name, _ in of_axes], _FIRST)
            median = "its moved share" if len(of_axes) == 1 else "their median"
            yield f"Mostly because axes are unequal: {named}; with equal axes {median} is {middle}."


@in_one_line
@dataclass(frozen=True)
class Related:
    heads: tuple[tuple[str, float], ...] = ()  # names of the heads with q < ``level`` and their R, by decreasing R
    tested: int = 0  # number of heads for which R is defined
    upper: float = math.nan  # largest 95 % point of R over the tested heads, for unrelated queries and keys
    level: float = 0.05  # false discovery rate

    def sentences(self) -> Iterator[str]:
        if not self.heads:
            return
        named = ", ".join(f"{name} ({percent(value)})" for name, value in self.heads[:_FIRST])
        if len(self.heads) > _FIRST:
            middle = percent(float(np.median([value for _, value in self.heads])))
            named += f"; of the {len(self.heads)} the median is {middle}"
        yield (
            f"Related queries and keys in {len(self.heads)} of {counted(self.tested, 'head')} (R, false "
            f"discovery rate {self.level:.0%}): {named}. 95% of unrelated ones have less than {percent(self.upper)}."
        )


def related_heads(heads: xr.Dataset, names: dict[tuple[int, int], str], level: float) -> Related:
    """Find the heads with a relation of keys to queries at a false discovery rate; none where it is not measured."""
    if "relation" not in heads:
        return Related(level=level)
    value, q, upper = (heads[name].values for name in ("relation", "relation_q_value", "relation_upper"))
    places = sorted(places_of(q < level), key=lambda place: -value[place])
    largest = float(np.nanmax(upper)) if np.isfinite(upper).any() else math.nan
    related = tuple((names[place], float(value[place])) for place in places)
    return Related(related, int(np.isfinite(value).sum()), largest, level)


def _shares(heads: Sequence[tuple[str, HowMuch]]) -> str:
    """List heads with their moved shares, and the directions of these unless they are towards fewer directions."""
    texts = []
    for name, amount in heads:
        fewer, more = percent(amount.moved_towards_fewer), percent(amount.moved_towards_more)
        both = f": {fewer} towards fewer and {more} towards more directions"
        directions = {Towards.MORE: ", towards more directions", Towards.BOTH: both}
        texts.append(f"{name} ({percent(amount.moved_share)}{directions.get(amount.towards, '')})")
    return ", ".join(texts)
