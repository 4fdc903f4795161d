"""A leader and its controller, between which a test loses and delays single requests.

The leader's `IsrManager` and `ControllerLink` come from production, over a peer that follows
a script: the fault enters where one attempt meets the network. The controller decides with
production's plan on an image of its own, and the leader's image follows only when a test lets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Planner
from lakelog.metadata.records import BrokerRecord, PartitionRecord, Record, TopicRecord
from lakelog.protocol.brokers import AlterPartitionRequest, AlterPartitionResponse
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.relays import ControllerLink, Relays
from lakelog.server.inter_broker.exchange import PeerDisconnectedError, PeerTimedOutError
from lakelog.server.inter_broker.silence import Silence
from lakelog.server.replication.isr_manager import IsrManager
from memory_broker import InlineTasks
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from storage_kit import NOW, TOPIC_ID, make_batch, memory_store

T = TypeVar("T")

LEADER, FOLLOWER, CONTROLLER, EPOCH = 1, 2, 3, 7
LAG_MAX_MS = 60_000
Deliver = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class ControllersLog:
    """The image on which the controller decides: what `Controller` uses of a `MetadataLog`."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    async def submit(self, plan: Planner[T]) -> T:
        planned = plan(self.image)
        if planned.records:
            self.write(*planned.records)
        return planned.result

    def write(self, *records: Record) -> None:
        self.image = self.image.apply_all(records, self.image.end + 1)


class ScriptedPeer:
    """The connection to the controller. Each attempt meets the next outcome of the script.

    Outcomes: "answered"; "answer lost" after the controller has carried the request out; "late",
    which times out, and arrives when the test calls `deliver_late`. The last one is repeated.
    """

    node_id = CONTROLLER

    def __init__(self, deliver: Deliver, script: list[str]) -> None:
        self.deliver = deliver
        self.script = script
        self.late: list[AlterPartitionRequest] = []
        self.codes: list[int] = []
        """The error codes of the answers, in the order of the attempts."""

    async def request(
        self, message: AlterPartitionRequest, *, timeout_s: float, newest: int | None = None
    ) -> AlterPartitionResponse:
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if outcome == "late":
            self.late.append(message)
            await asyncio.sleep(timeout_s)
            raise PeerTimedOutError("no response in time")
        response = await self.deliver(message)
        if outcome == "answer lost":
            raise PeerDisconnectedError("the connection was lost")
        self.codes += [each.error_code for topic in response.topics for each in topic.partitions]
        return response

    async def deliver_late(self) -> None:
        """Let the late requests arrive."""
        late, self.late = self.late, []
        for message in late:
            await self.deliver(message)


class LeadersView:
    """The leader's metadata: what `ControllerLink` uses of a `MetadataLog`."""

    controller_id = CONTROLLER

    def __init__(self, scene: LateAnswers) -> None:
        self._scene = scene

    @property
    def image(self) -> MetadataImage:
        return self._scene.image

    async def refresh(self) -> None:
        if not self._scene.reads_store:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the store cannot be read")
        self._scene.follow()


class LateAnswers:
    """A partition with the replicas 1 to 3, of which 1 leads and 3 is in sync.

    replicas: in the order of preference.
    keeps_leaders: whether the controller has `auto.leader.rebalance.enable=false`.

    Three records are committed, and broker 2 has them: its leader proposes it in the next loop
        iteration.
    """

    def __init__(
        self,
        *script: str,
        replicas: tuple[int, ...] = (LEADER, FOLLOWER, CONTROLLER),
        keeps_leaders: bool = False,
    ) -> None:
        self.loop = SimulatedLoop(None)
        clock, tasks = SimulatedClock(self.loop), InlineTasks(self.loop)
        brokers = [BrokerRecord(each, bytes([each]) * 16, EPOCH, (), None) for each in (1, 2, 3)]
        state = PartitionRecord(TOPIC_ID, 0, replicas, (LEADER, CONTROLLER), LEADER, 5, 8)
        first = MetadataImage().apply_all([*brokers, TopicRecord("t", TOPIC_ID), state], 1)
        self.log = ControllersLog(first)
        self.image = first
        """The leader's."""
        self.reads_store = True
        self._config = {"auto.leader.rebalance.enable": str(not keeps_leaders).lower()}
        self.controller = self.controller_with(self.log)
        self.peer = ScriptedPeer(
            lambda request: self.controller.alter_partition(request), list(script)
        )
        view, peer = cast("Any", LeadersView(self)), cast("Any", lambda _: self.peer)
        relays = Relays(LEADER, view, peer, peer, Silence(9.0, 0.25), tasks)
        link = ControllerLink(LEADER, view, peer, clock, tasks, relays)
        self.isr_manager = IsrManager(
            LEADER,
            lambda: self.image,
            lambda request: alter(link, request),
            LAG_MAX_MS,
            clock,
            tasks,
        )
        store = memory_store(LogConfig(min_insync_replicas=2))
        self.partition = Partition(store.create("t"), self.role(), lambda _: None)
        self.clock = clock
        self.partition.append(make_batch(3), NOW)
        self.fetch(CONTROLLER, 3)
        self.fetch(FOLLOWER, 3)
        self.isr_manager.note_role(self.partition)
        self.isr_manager.start()

    def controller_with(self, log: ControllersLog) -> Controller:
        return Controller(
            CONTROLLER,
            cast("Any", log),
            SimulatedClock(self.loop),
            InlineTasks(self.loop),
            BrokerConfig(self._config),
            cast("Any", None),
            cast("Any", None),
            Silence(9.0, 0.25),
        )

    def role(self) -> Role:
        state = self.image.partition(TOPIC_ID, 0)
        assert state is not None
        return Role.in_image(state, LEADER)

    def state(self) -> PartitionImage:
        """The committed state of the partition."""
        state = self.log.image.partition(TOPIC_ID, 0)
        assert state is not None
        return state

    def fetch(self, node_id: int, offset: int) -> None:
        self.partition.note_fetch(node_id, EPOCH, offset, self.clock.monotonic_ms())

    def append_without_the_follower(self) -> None:
        """Append a record that broker 3 copies and broker 2 does not."""
        self.partition.append(make_batch(1), NOW)
        self.fetch(CONTROLLER, self.partition.log.log_end_offset)

    def follow(self) -> None:
        """Have the leader read the metadata log."""
        self.image = self.log.image
        if self.partition.role != self.role():
            self.partition.assume(self.role(), self.clock.monotonic_ms())
            self.isr_manager.note_role(self.partition)

    def run(self, work: Awaitable[Any]) -> None:
        self.loop.run_until_complete(asyncio.ensure_future(work, loop=self.loop))

    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self.isr_manager.stop()
        self.pass_time(0)
        self.loop.close()


def alter(link: ControllerLink, request: AlterPartitionRequest) -> Awaitable[Any]:
    async def here() -> AlterPartitionResponse:
        raise AssertionError("the controller is another broker")

    return link.ask_once(request, here, is_own=True)
