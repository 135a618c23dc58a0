"""How far the clock of this machine has been set, which what waits by it must know."""

from __future__ import annotations

import time

BACK = 20.0
"""Seconds that the clock may be set back: so long are messages late."""


class Clock:
    """How far the clock of this machine has been set since it was last asked.

    Dask waits until moments of that clock, not for lengths of time: where it is set on while a connection is made, the
    attempt is over at once, and where it is set back, messages wait for it to come round again.
    """

    def __init__(self) -> None:
        self._highest = self._lowest = self._offset()

    def jump(self) -> float:
        """Seconds that it was set back, or else on, at most; negative for back."""
        now = self._offset()
        self._highest, self._lowest = max(self._highest, now), min(self._lowest, now)
        back, on = now - self._highest, now - self._lowest
        return back if back < -BACK else on

    def words(self) -> str:
        """That it was set, if it was: of which a suspended machine wakes, too."""
        jump = self.jump()
        if abs(jump) <= BACK:
            return ""
        return f"; the clock of this machine was set {'back' if jump < 0 else 'on'} by {abs(jump):,.0f} s meanwhile"

    @staticmethod
    def _offset() -> float:
        return time.time() - time.monotonic()
