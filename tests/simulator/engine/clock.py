"""The clock of a simulated machine."""

from __future__ import annotations

from simulator.engine.loop import SimulatedLoop

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """A `Clock` whose wall time may be wrong and may leap.

    The monotonic time is the loop's, until `skew`.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._monotonic_s = 0.0
        self._rate = 1.0
        self._skew_ms = 0
        self._leaps: list[tuple[float, int, int]] = []
        """The loop's time of each leap in seconds, and the skew before and after it."""

    def wall_ms(self) -> int:
        return WALL_START_MS + self._skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._monotonic_s + self._rate * self._loop.time()

    def monotonic_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def skew(self, monotonic_s: float, rate: float) -> None:
        """Have the monotonic time begin at another value, and run `rate` times as fast.

        Only before the first process of the machine reads it.
        """
        self._monotonic_s, self._rate = monotonic_s, rate

    def leap(self, by_ms: int) -> None:
        """Change the wall time by so many milliseconds, forward or backward."""
        before, self._skew_ms = self._skew_ms, self._skew_ms + by_ms
        self._leaps.append((self._loop.time(), before, self._skew_ms))

    def spread_ms(self, since: float) -> float:
        """Return the largest difference of two wall times read since `since`, in milliseconds.

        Either may have been read from this clock or from a correct one. since: seconds of the
        loop's time.
        """
        now_ms, since_ms = self._loop.time() * 1000, since * 1000
        readings = [since_ms, now_ms + self._skew_ms]
        skew_ms = 0
        for at, before, after in self._leaps:
            if at < since:
                skew_ms = after
            else:
                readings += (at * 1000 + before, at * 1000 + after)
        readings.append(since_ms + skew_ms)
        return max(readings) - min(readings)
