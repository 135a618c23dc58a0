"""Joint cumulants from joint moments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TypeVar

Powers = tuple[int, ...]
Ring = TypeVar("Ring")


def joint_cumulant(variables: Powers, moment: Callable[[Powers], Ring], cumulant: Callable[[Powers], Ring]) -> Ring:
    """Return the joint cumulant of the variables, one or more, named by integers and repeated where they occur again.

    From E prod_{i in S} x_i = sum over the blocks B of S with its first element of kappa(B) E prod_{i not in B} x_i,
    which is the sum over all set partitions of S, sorted by the block of that element (Speed 1983). In any ring.

    Args:
        variables: S.
        moment: E of the product of the variables it is given.
        cumulant: this function at fixed ``moment``, for fewer variables; cached by the caller, who knows what to keep.
    """
    first, rest = variables[0], variables[1:]
    total = moment(variables)
    for size in range(len(rest)):
        for chosen in combinations(range(len(rest)), size):
            block = (first, *(rest[i] for i in chosen))
            others = tuple(x for i, x in enumerate(rest) if i not in chosen)
            total = total - cumulant(block) * moment(others)  # type: ignore[operator]
    return total
