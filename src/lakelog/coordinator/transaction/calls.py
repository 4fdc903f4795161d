"""How a request gets to the shard of its transactional id, and its answer back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.shard import Now, coordinator_code
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.runtime.api import Tasks


class _Waiting(NamedTuple):
    is_needed: Callable[[TransactionShard], bool]
    decide: Callable[[int], None]
    refuse: Callable[[ErrorCode], None]


class Calls:
    """`partition_for` gives the partition of a transactional id.

    `new_producer_id` reserves a producer id, which takes time; it raises `KafkaError`.
    """

    def __init__(
        self,
        host: ShardHost[TransactionShard],
        tasks: Tasks,
        partition_for: Callable[[str], int],
        new_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._host = host
        self._tasks = tasks
        self._partition_for = partition_for
        self._new_producer_id = new_producer_id
        self._waiting: dict[str, list[_Waiting]] = {}
        """Who came while a producer id was reserved for the same transactional id."""

    def shard(self, transactional_id: str) -> TransactionShard:
        """Raises INVALID_REQUEST, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self._host.shard(self._partition_for(transactional_id))

    def decide(
        self,
        transactional_id: str,
        decision: Callable[[TransactionShard, Now], Decision],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        if not transactional_id:
            refuse(ErrorCode.INVALID_REQUEST)
            return
        try:
            self._host.decide(self._partition_for(transactional_id), decision)
        except KafkaError as error:
            refuse(coordinator_code(error.code))

    def with_producer_id(
        self,
        transactional_id: str,
        is_needed: Callable[[TransactionShard], bool],
        decide: Callable[[int], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        """Reserves a producer id first if the decision needs one.

        One at a time for a transactional id: who has it decides, and whoever came meanwhile, for a
        client repeats what takes long, is looked at anew.
        """
        try:
            needed = is_needed(self._host.shard(self._partition_for(transactional_id)))
        except KafkaError as error:
            refuse(error.code)
            return
        if not needed:
            decide(-1)
            return
        waiting = _Waiting(is_needed, decide, refuse)
        if transactional_id in self._waiting:
            self._waiting[transactional_id].append(waiting)
            return
        self._waiting[transactional_id] = []
        name = f"producer id for {transactional_id}"
        self._tasks.spawn(self._reserve(transactional_id, waiting), name=name)

    async def _reserve(self, transactional_id: str, first: _Waiting) -> None:
        code, new_id = ErrorCode.UNKNOWN_SERVER_ERROR, -1
        try:
            new_id = await self._new_producer_id()
            code = ErrorCode.NONE
        except KafkaError as error:
            code = coordinator_code(error.code)
        finally:
            others = self._waiting.pop(transactional_id)
            if code is not ErrorCode.NONE:
                for each in (first, *others):
                    each.refuse(code)
        if code is ErrorCode.NONE:
            first.decide(new_id)
            for each in others:
                self.with_producer_id(transactional_id, *each)


def settle(future: Any, answer: object) -> None:
    """A caller that has gone away has cancelled its future."""
    if not future.done():
        future.set_result(answer)
