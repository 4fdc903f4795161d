"""The processes of other brokers that were alive after this one had started.

After a power failure of all hosts, the metadata store still counts the former processes as alive
until their sessions end. So does the first broker that is back, and it becomes the controller. A
new partition whose ISR held such processes alone would have no leader any more: their successors
cannot prove that they lack nothing of it. So a process is a member of the ISR of a new partition
only after this one has reached it or heard from it. A broker calls the others from its start on,
so it lacks such processes only for a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelog.metadata.image import MetadataImage
from lakelog.runtime.api import Tasks, complete, pause
from lakelog.server.authentication import Process

PATIENCE_S = 3.0
"""A first call takes no longer."""


class ReachableBrokers:
    """The registered processes of other brokers that one process has reached or heard from."""

    def __init__(self, node_id: int, tasks: Tasks) -> None:
        self._node_id = node_id
        self._tasks = tasks
        self._processes: dict[int, Process] = {}
        self._called: dict[int, Process] = {}
        """The processes whose first call is over, with or without a response."""
        self._waiting: dict[Any, Callable[[], MetadataImage]] = {}
        """The futures of calls of `complete`, with their images."""

    def note(self, process: Process) -> None:
        """Note that a process is alive."""
        self._processes[process.node_id] = process
        self.note_called(process)

    def note_called(self, process: Process) -> None:
        """Note that a call of a process is over."""
        self._called[process.node_id] = process
        for future, image in self._waiting.items():
            if not self._without(image(), self._called):
                complete(future)

    def lacking(self, image: MetadataImage) -> frozenset[int]:
        """Return the brokers that are not fenced, and whose processes may all have ended."""
        return self._without(image, self._processes)

    async def wait(self, image: Callable[[], MetadataImage]) -> None:
        """Return when every broker that is not fenced was called, or after `PATIENCE_S`.

        image: returns the one in force.
        """
        if not self._without(image(), self._called):
            return
        over = self._tasks.future()
        self._waiting[over] = image
        try:
            await pause(self._tasks, PATIENCE_S, over)
        finally:
            del self._waiting[over]

    def _without(self, image: MetadataImage, processes: dict[int, Process]) -> frozenset[int]:
        return frozenset(
            node_id
            for node_id, broker in image.brokers.items()
            if node_id != self._node_id
            and not broker.is_fenced
            and processes.get(node_id) != Process(node_id, broker.incarnation_id)
        )
