"""The processes of other brokers: those alive after this one had started, and those just lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelog.metadata.image import MetadataImage
from lakelog.runtime.api import Tasks, Timer, complete, pause
from lakelog.server.authentication import Process

PATIENCE_S = 3.0
"""A first call takes no longer."""


class ReachableBrokers:
    """The registered processes of other brokers that one process has reached or heard from.

    After a power failure of all hosts, the metadata store still counts the former processes as
    alive until their sessions end. So does the first broker that is back, and it becomes the
    controller. A new partition whose ISR held such processes alone would have no leader any more:
    their successors cannot prove that they lack nothing of it. So a process is a member of the ISR
    of a new partition only after this one has reached it or heard from it. A broker calls the
    others from its start on, so it lacks such processes only for a moment.
    """

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


FAILURE_PATIENCE_S = 0.5
"""A killed broker is fenced within about a tenth of a second; another loss proves nothing."""
LISTED_S = 60.0


class FailedBrokers:
    """The other brokers whose connections have just ended, and the recently fenced ones.

    A client that loses the leader of a partition asks for the metadata in the same millisecond. The
    rules are for librdkafka:

    - An answer at once would name the lost leader again, and librdkafka asks again a second later.
      So the answer waits until the broker is fenced, or is connected again, for a moment at most.
    - When librdkafka learns in one answer that a partition has a new leader and that the old one
      has left, it drops the partition from both, and finds it again a second later.
    - librdkafka 2.10 and later never again connect to a broker that was missing in one answer, even
      if it returns, while they remember it as the coordinator of a group: the next
      `send_offsets_to_transaction` then waits for ever (librdkafka's issue 5511).

    For the last two, a fenced broker is listed for longer than a restart takes. A client that tries
    it is refused, and tries another. The list ends, because admin clients that ask every broker, as
    for groups, report an error for it. A broker that is unregistered is listed no longer.

    It is true from the end of a connection until the metadata says what became of the broker.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._failed: dict[int, Timer] = {}
        self._waiting: list[Any] = []
        """The futures of calls of `complete`."""
        self._listed: dict[int, Timer] = {}
        self._serving: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._failed)

    def is_listed(self, node_id: int) -> bool:
        """Return whether this fenced broker is still in the metadata that clients get."""
        return node_id in self._listed

    def add(self, node_id: int) -> None:
        """Note that the connection to a broker has ended. A fenced broker leads nothing."""
        if node_id in self._serving and node_id not in self._failed:
            self._failed[node_id] = self._tasks.call_later(
                FAILURE_PATIENCE_S, self.resolved, node_id
            )

    def resolved(self, node_id: int) -> None:
        """Wait no longer for the metadata of a broker."""
        timer = self._failed.pop(node_id, None)
        if timer is not None:
            timer.cancel()
        if not self._failed:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                complete(future)

    def follow(self, image: MetadataImage) -> None:
        """Resolve the failures of brokers that do not serve, and list the newly fenced ones.

        An image does not state how long a broker has been fenced. So in the first one, each that
        has replicas is new: it has served before.
        """
        registered = frozenset(image.brokers)
        serving = registered - image.fenced
        served = self._serving or _with_replicas(image)
        for node_id in self._listed.keys() - registered:
            self._unlist(node_id)
        for node_id in (served & registered) - serving:
            self._unlist(node_id)
            self._listed[node_id] = self._tasks.call_later(LISTED_S, self._unlist, node_id)
        for node_id in serving & self._listed.keys():
            self._unlist(node_id)
        self._serving = serving
        for node_id in self._failed.keys() - serving:
            self.resolved(node_id)

    async def wait(self) -> None:
        """Return when every failure is resolved, or after `FAILURE_PATIENCE_S`."""
        if not self._failed:
            return
        future = self._tasks.future()
        self._waiting.append(future)
        await pause(self._tasks, FAILURE_PATIENCE_S, future)

    def close(self) -> None:
        """Forget all failures."""
        for node_id in list(self._failed):
            self.resolved(node_id)
        for node_id in list(self._listed):
            self._unlist(node_id)

    def _unlist(self, node_id: int) -> None:
        timer = self._listed.pop(node_id, None)
        if timer is not None:
            timer.cancel()


def _with_replicas(image: MetadataImage) -> frozenset[int]:
    partitions = (partition for topic in image.topics for partition in topic.partitions.values())
    return frozenset(node_id for partition in partitions for node_id in partition.replicas)
