"""Live processes that a controller does not register: they cannot reach it, or it answers nothing.

A starting broker accepts no connections, so that no other one can ask it whether it reaches the
controller. The metadata store shows it: a process that lives there, and that the metadata log does
not register, still waits for the controller.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.store.api import ControllerTerm


class Unregistered:
    """The waiting processes under one term, and how long this process has seen each wait.

    Args:
        step_s_max: the longest time that counts between two observations. This process may have
            been paused for longer, while the controller answered.
    """

    def __init__(self, step_s_max: float) -> None:
        self._step_s_max = step_s_max
        self._term: ControllerTerm | None = None
        self._observed_s = 0.0
        self._waited_s: dict[tuple[int, bytes], float] = {}

    def observe(
        self, image: MetadataImage, live: Mapping[int, bytes], term: ControllerTerm, now_s: float
    ) -> None:
        """Note the processes that wait now.

        live: incarnation ids by node id. now_s: on the monotonic clock.
        """
        if term != self._term:  # they may just not have reached the new controller yet
            self._term, self._waited_s = term, {}
        elapsed_s = min(now_s - self._observed_s, self._step_s_max)
        self._observed_s = now_s
        registered = {each.broker_id: each.incarnation_id for each in image.brokers.values()}
        self._waited_s = {
            process: self._waited_s.get(process, -elapsed_s) + elapsed_s
            for process in live.items()
            if registered.get(process[0]) != process[1]
        }

    def forget(self) -> None:
        """Count from now on: the controller has answered."""
        self._waited_s = {}

    def waiting(self, at_least_s: float = 0.0) -> frozenset[int]:
        """Return the brokers whose processes have waited for so long."""
        return frozenset(
            node_id for (node_id, _), waited_s in self._waited_s.items() if waited_s >= at_least_s
        )
