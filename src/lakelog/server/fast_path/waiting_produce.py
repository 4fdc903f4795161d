"""Produce requests that were appended together, and wait together for their commit.

They have one place among the replies of their connection. The followers fetch their batches in one
response, as a rule, so that no request waits for another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.errors import KafkaError
from lakelog.replica.partition import Partition
from lakelog.server.appends.acknowledgement import Appended, reply_when_settled
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context

_BYTES = 2048
_REQUEST_BYTES = 256


def kept_bytes(requests: int) -> int:
    """Return an upper bound of the memory of so many requests that wait together."""
    return _BYTES + requests * _REQUEST_BYTES


class CoalescedRequests(NamedTuple):
    """Requests of one connection whose batches were appended with one write.

    `numbers` are their correlation ids, `sizes` their bytes, `offsets` the first ones of their
    batches; `end_offset` is exclusive, in `leader_epoch`.
    """

    partition: Partition
    leader_epoch: int
    log_start_offset: int
    numbers: list[int]
    sizes: list[int]
    offsets: list[int]
    end_offset: int

    @classmethod
    def of(
        cls, partition: Partition, numbers: list[int], sizes: list[int], offsets: list[int]
    ) -> CoalescedRequests:
        """Return the group that was just appended."""
        log = partition.log
        epoch, start, end = partition.leader_epoch, log.log_start_offset, log.log_end_offset
        return cls(partition, epoch, start, numbers, sizes, offsets, end)


class WaitingProduce:
    """A group until it is answered: as a whole when the last batch is committed.

    Args:
        context: of the first request; the others have no place of their own.
        held: bytes of `RequestMemory` that it holds, see `kept_bytes`.
        committed: returns the responses of the group when all batches are committed.
        failed: returns the response of one request, given its number, its first offset and its
            error, or None if it was committed.
    """

    __slots__ = ("_broker", "_committed", "_context", "_failed", "_group", "_held")

    def __init__(
        self,
        broker: Broker,
        context: Context,
        group: CoalescedRequests,
        held: int,
        committed: Callable[[CoalescedRequests], bytes],
        failed: Callable[[CoalescedRequests, int, KafkaError | None], bytes],
    ) -> None:
        self._broker = broker
        self._context = context
        self._group = group
        self._committed = committed
        self._failed = failed
        self._held = held

    def wait(self, deadline: float) -> None:
        """Wait for the commit, or until `deadline` (monotonic clock, seconds)."""
        group, context, purgatory = self._group, self._context, self._broker.purgatory
        context.on_complete = self._on_complete
        context.connection.expect(context)
        last = Appended(group.partition, group.end_offset, group.leader_epoch)
        reply_when_settled(context, [last], self._complete, purgatory, deadline, self._release)

    def _complete(self) -> None:
        group = self._group
        if self._error(group.end_offset) is None:
            self._context.complete([self._committed(group)])
            return
        # Earlier batches than this one may be committed, and each has a response of its own.
        ends = (*group.offsets[1:], group.end_offset)
        answers = [self._failed(group, n, self._error(end)) for n, end in enumerate(ends)]
        self._context.complete([b"".join(answers)])

    def _error(self, end_offset: int) -> KafkaError | None:
        group = self._group
        try:
            Appended(group.partition, end_offset, group.leader_epoch).check()
        except KafkaError as error:
            return error
        return None

    def _on_complete(self, context: Context) -> None:
        self._release()
        for size in self._group.sizes:
            context.size_bytes = size
            self._broker.requests.on_late(context)

    def _release(self) -> None:
        held, self._held = self._held, 0
        self._broker.request_memory.give(self._context, held)
