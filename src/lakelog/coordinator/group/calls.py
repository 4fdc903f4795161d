"""How a request gets to the shard of its group, and its answer back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.shard import Now, Reply, coordinator_code
from lakelog.runtime.api import Tasks

T = TypeVar("T")


class Calls:
    """`partition_for` gives the partition of a group's id."""

    def __init__(
        self, host: ShardHost[GroupShard], tasks: Tasks, partition_for: Callable[[str], int]
    ) -> None:
        self._host = host
        self._tasks = tasks
        self._partition_for = partition_for

    def shard(self, group_id: str) -> GroupShard:
        """Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._host.shard(self._partition_for(group_id))

    def decide(
        self,
        group_id: str,
        decision: Callable[[GroupShard, Now], Decision],
        refuse: Callable[[ErrorCode], None],
        *,
        nameless: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Lets the shard decide, in the group's turn.

        Args:
            nameless: whether the empty group id is one.
            exclusive: whether the decision may change a consumer group.
        """
        if not group_id and not nameless:
            refuse(ErrorCode.INVALID_GROUP_ID)
            return

        def in_turn(shard: GroupShard, now: Now) -> Decision:
            decide = partial(decision, shard)
            return shard.in_turn(now, group_id, decide, refuse, exclusive=exclusive)

        try:
            self._host.decide(self._partition_for(group_id), in_turn)
        except KafkaError as error:
            refuse(coordinator_code(error.code))

    def now(self, response: T) -> Reply[T]:
        future = self._tasks.future()
        future.set_result(response)
        return future


def settle(future: Any, response: object) -> None:
    """A caller that has gone away has cancelled its future."""
    if not future.done():
        future.set_result(response)
