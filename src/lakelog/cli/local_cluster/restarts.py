"""The pauses before a process that ended by itself is started again."""

from __future__ import annotations

_FIRST_S = 0.5
_LONGEST_S = 30.0
_STEADY_S = 60.0


class Restarts:
    """The pauses of one process: they double until it has run for a minute."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_S

    def pause_s(self, ran_s: float) -> float:
        """Return the next pause in seconds, given how long the process has run."""
        if ran_s >= _STEADY_S:
            self._pause_s = _FIRST_S
        pause = self._pause_s
        self._pause_s = min(2 * pause, _LONGEST_S)
        return pause
