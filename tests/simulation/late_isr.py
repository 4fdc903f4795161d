"""A schedule: a request for an ISR arrives after the next one of its leader was refused.

The refusal does not settle the first request, which proposes the same member for the same state. If
the member is unfenced again by then, it must not join the ISR without the records that were
committed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from lakelog.server.replication.in_sync import InSyncReplicas
from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.cluster.nemesis import ClusterNemesis
from lakelog.testing.simulation.cluster.plan import SESSION_S
from lakelog.testing.simulation.cluster.scene import controls


@dataclass
class SlowRequests:
    """The requests of a leader that add a follower to the ISR of one of its partitions.

    The first is lost for the leader, and arrives later. The second waits on its way.
    """

    in_sync: InSyncReplicas
    topic_id: bytes
    partition: int
    follower: int
    count: int = 0
    may_arrive: dict[int, asyncio.Event] = field(
        default_factory=lambda: {1: asyncio.Event(), 2: asyncio.Event()}
    )
    codes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._alter = self.in_sync._alter
        self.in_sync._alter = self.alter

    async def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self._code_of(request.topics, self._adds) is None or self.count == 2:
            return await self._alter(request)
        self.count += 1
        if self.count == 1:
            self.in_sync._tasks.spawn(self._deliver(1, request), name="late request")
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return await self._deliver(2, request)

    async def _deliver(self, number: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await self.may_arrive[number].wait()
        response = await self._alter(request)
        code = self._code_of(response.topics, lambda each: True)
        self.codes[number] = response.error_code if code is None else code
        return response

    def _adds(self, partition: Any) -> bool:
        return self.follower in [each.broker_id for each in partition.new_isr_with_epochs]

    def _code_of(self, topics: list[Any], is_meant: Callable[[Any], bool]) -> int | None:
        """Return the error code of the partition, 0 in a request; None without the partition."""
        for topic in topics:
            for each in topic.partitions:
                is_same = (topic.topic_id, each.partition_index) == (self.topic_id, self.partition)
                if is_same and is_meant(each):
                    return getattr(each, "error_code", 0)
        return None


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not is_so():  # noqa: ASYNC110 - an image has no event
            await asyncio.sleep(0.01)


def roles(nemesis: ClusterNemesis) -> tuple[bytes, int, BrokerHost, BrokerHost] | None:
    """Return a partition with topic id, leader and in-sync follower that are not controllers."""
    controller = next(filter(controls, nemesis._hosts), None)
    topic = nemesis._cluster.image.topic("orders")
    if controller is None or topic is None:
        return None
    for number, state in sorted(topic.partitions.items()):
        others = {host.node_id for host in nemesis._hosts if host is not controller}
        if state.leader in others and set(state.isr) == set(state.replicas):
            (follower,) = others - {state.leader}
            hosts = nemesis._hosts
            return topic.topic_id, number, hosts[state.leader - 1], hosts[follower - 1]
    return None


class LateIsr:
    """The schedule, once in a world.

    `codes` are the errors of the late request (1) and of the refused one (2).
    """

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self._has_begun = False

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the fault "cut store" of a cluster's nemesis."""
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        found = roles(nemesis)
        if self._has_begun or found is None:
            return
        self._has_begun = True
        topic_id, number, leader, follower = found
        third = next(host for host in nemesis._hosts if host not in (leader, follower))

        def is_in_sync() -> bool:
            present = nemesis._cluster.image.partition(topic_id, number)
            return present is not None and follower.node_id in present.isr

        def is_fenced() -> bool:
            return follower.node_id in nemesis._cluster.image.fenced

        follower.pause()
        await until(lambda: not is_in_sync())
        assert leader.server is not None
        in_sync = leader.server._replicas.in_sync
        slow = SlowRequests(in_sync, topic_id, number, follower.node_id)
        follower.resume()
        await until(lambda: slow.count == 2)
        follower.pause()
        await until(is_fenced)
        slow.may_arrive[2].set()
        await until(lambda: 2 in slow.codes)
        await asyncio.sleep(SESSION_S)  # in which records are committed without the follower
        ways = [(leader.name, follower.name), (follower.name, leader.name)]
        for way in ways:
            nemesis._network.cut(*way)
        follower.resume()
        await until(lambda: not is_fenced())
        slow.may_arrive[1].set()
        await until(lambda: 1 in slow.codes)
        self.codes = slow.codes
        leader.kill()
        third.kill()
        await asyncio.sleep(2 * SESSION_S)
        nemesis._network.mend(ways)
        await asyncio.gather(leader.bring_back(), third.bring_back())
