"""Random histories of members of one group, with invariants that hold at every moment."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from consumer_members import Consumer, assigned, assignment, snapshot, subscription
from coordinator_members import heartbeat, join, leave, sync
from group_setup import Setup
from lakelog.assignors import ASSIGNORS, Member
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_versioned

LOST_AFTER_S = 6.0
HEARTBEAT_S = 3.0
REJOIN = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
}
REJOIN_WITH_ID = {ErrorCode.ILLEGAL_GENERATION}
RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


@dataclass
class Client:
    """A client process: it joins, sends heartbeats, revokes before it adopts, leaves or dies."""

    consumer: Consumer
    number: int
    is_classic: bool = False
    """Whether it uses the classic protocol, with eager rebalances."""
    alive: bool = False
    incarnation: int = 0
    highest: int = 0
    """The highest epoch in a response since it joined."""
    task: asyncio.Task[None] | None = None
    joined: Any = None


@dataclass
class Model:
    setup: Setup
    random: random.Random
    clients: list[Client] = field(default_factory=list)
    epochs: tuple[int, int] = (0, 0)
    works: bool = False
    """Whether the network works."""
    done: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def chance(self, share: float) -> bool:
        return not self.works and self.random.random() < share

    # Clients

    def start(self, client: Client) -> None:
        client.incarnation += 1
        consumer = client.consumer
        consumer.member_id = f"c{client.number}-{client.incarnation}"
        client.alive = True
        live = self.live_classic if client.is_classic else self.live
        client.task = asyncio.ensure_future(live(client, client.incarnation))

    async def live(self, client: Client, incarnation: int) -> None:
        self.forget(client)
        while client.alive and client.incarnation == incarnation:
            answer = await self.deliver(client)
            if client.incarnation == incarnation and client.alive and answer is not None:
                await self.react(client, answer)
            await asyncio.sleep(HEARTBEAT_S * (0.5 + self.random.random()))

    async def deliver(self, client: Client) -> Any:
        """Return the response to one heartbeat, or None if it was lost."""
        consumer = client.consumer
        if self.chance(0.1):
            await asyncio.sleep(LOST_AFTER_S)
            return None
        await asyncio.sleep(self.delay())
        reply = consumer.ask()
        if self.chance(0.1):
            reply = consumer.ask()
            self.count("doubled")
        answer = await reply
        await asyncio.sleep(self.delay())
        if self.chance(0.1):
            self.count("lost")
            await asyncio.sleep(LOST_AFTER_S)
            return None
        return answer

    def delay(self) -> float:
        return 0.0 if self.works else self.random.choice((0.0, 0.0, 0.1, 1.0, 4.0))

    async def react(self, client: Client, answer: Any) -> None:
        consumer = client.consumer
        if answer.error_code in REJOIN:
            self.count("fenced")
            self.forget(client)
            return
        if answer.error_code:
            assert answer.error_code in RETRY, answer
            return
        assert answer.member_epoch >= client.highest, "a member's epoch went back"
        client.highest = consumer.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        assigned = {
            topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions
        }
        kept = {topic: consumer.owned.get(topic, set()) & assigned[topic] for topic in assigned}
        slow = kept != consumer.owned and self.chance(0.3)
        if slow:
            await asyncio.sleep(self.random.choice((1, 5)))
            if not client.alive or client.highest != answer.member_epoch:
                return
        consumer.owned = kept
        self.check()
        consumer.owned = assigned
        self.count("assigned")
        self.check()

    async def live_classic(self, client: Client, incarnation: int) -> None:
        client.consumer.member_id = ""
        self.forget(client)
        while client.alive and client.incarnation == incarnation:
            await asyncio.sleep(HEARTBEAT_S * self.random.random())
            code = await (self.join(client) if client.joined is None else self.beat(client))
            if code in REJOIN:
                self.count("fenced")
                client.consumer.member_id = ""
                self.forget(client)
            elif code == ErrorCode.REBALANCE_IN_PROGRESS or code in REJOIN_WITH_ID:
                self.forget(client)
            else:
                assert not code or code in RETRY or code == ErrorCode.MEMBER_ID_REQUIRED, code

    async def join(self, client: Client) -> int:
        """Take one step of a join: revoke partitions before, adopt them after the last step."""
        consumer = client.consumer
        consumer.owned = {}
        data = subscription(["orders", "clicks"])
        answer = await join(
            self.setup,
            consumer.member_id,
            instance_id=consumer.instance_id,
            protocols=(("range", data),),
            session_timeout_ms=15_000,
            rebalance_timeout_ms=12_000,
        )
        if answer.member_id:
            consumer.member_id = answer.member_id
        if answer.error_code:
            return int(answer.error_code)
        shares = self.shares(answer) if answer.leader == answer.member_id else {}
        synced = await sync(self.setup, answer, shares, instance_id=consumer.instance_id)
        if synced.error_code or not client.alive:
            return int(synced.error_code)
        client.joined = answer
        topics = self.setup.topics.topics
        given = assigned(synced.assignment) if synced.assignment else {}
        consumer.owned = {topics[name][0]: set(each) for name, each in given.items()}
        self.count("assigned")
        self.check()
        return 0

    def shares(self, answer: Any) -> dict[str, bytes]:
        members = [
            Member(
                each.member_id,
                frozenset(decode_versioned(ConsumerProtocolSubscription, each.metadata).topics),
            )
            for each in answer.members
        ]
        counts = {name: count for name, (_, count) in self.setup.topics.topics.items()}
        shares = ASSIGNORS["range"](members, counts)
        return {member_id: assignment(share) for member_id, share in shares.items()}

    async def beat(self, client: Client) -> int:
        instance_id = client.consumer.instance_id
        return await heartbeat(self.setup, client.joined, instance_id=instance_id)

    def forget(self, client: Client) -> None:
        client.joined = None
        client.highest = 0
        client.consumer.epoch, client.consumer.owned = 0, {}

    def die(self, client: Client) -> None:
        client.alive = False
        client.consumer.owned = {}

    async def leave(self, client: Client) -> None:
        client.alive = False
        consumer = client.consumer
        consumer.owned = {}
        self.count("left")
        if client.is_classic:
            await leave(self.setup, (consumer.member_id, consumer.instance_id))
            return
        epoch = -1 if consumer.instance_id is None or self.random.random() < 0.3 else -2
        await consumer.ask(member_epoch=epoch, subscribed_topic_names=None, rebalance_timeout_ms=-1)

    # Invariants

    @property
    def group(self) -> ConsumerGroup | None:
        shards = self.setup.coordinator._host.active_shards()
        return shards[0].state.consumer_groups.get("readers") if shards else None

    def check(self) -> None:
        group = self.group
        if group is None or not group.members:
            self.epochs = (0, 0)
            return
        held: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for key in member.held():
                assert held.setdefault(key, member.member_id) == member.member_id, (
                    f"two members own {key}"
                )
        assert held == group.owners
        for client in self.clients:
            self.check_client(client, held, group)
        now = (group.epoch, group.assignment_epoch)
        assert now >= self.epochs, "an epoch went back"
        assert group.assignment_epoch <= group.epoch
        self.epochs = now

    def check_client(
        self, client: Client, held: dict[tuple[bytes, int], str], group: ConsumerGroup
    ) -> None:
        member_id = client.consumer.member_id
        if not client.alive or member_id not in group.members:
            return
        for topic_id, partitions in client.consumer.owned.items():
            for partition in partitions:
                owner = held.get((topic_id, partition))
                assert owner == member_id, f"{member_id} believes to have {partition} of {owner}"

    # Restarts and steps

    async def restart(self) -> None:
        settled = not self.setup.log.in_flight and self.group is not None
        before = snapshot(self.setup) if settled else None
        await self.setup.restart()
        if before is not None:
            assert snapshot(self.setup) == before, "memory differed from the log"
        self.check()
        self.count("restarted")

    async def step(self) -> None:
        await asyncio.sleep(self.random.choice((0.1, 1, 3, 8)))
        self.check()
        if self.random.random() < 0.05:
            await self.restart()
        if self.random.random() < 0.05:
            self.change_topics()
        if (group := self.group) is not None and group.classic_members():
            self.count("mixed")
        client = self.random.choice(self.clients)
        luck = self.random.random()
        if not client.alive:
            if luck < 0.7:
                self.start(client)
        elif luck < 0.1:
            self.die(client)
        elif luck < 0.25:
            await self.leave(client)
        elif luck < 0.35:
            client.consumer.topics = self.random.choice(([], ["orders"], ["orders", "clicks"]))

    def change_topics(self) -> None:
        topic_id, count = self.setup.topics.topics["orders"]
        self.setup.topics.topics["orders"] = (topic_id, count + 1)
        self.setup.coordinator.on_topics_changed({"orders"}, are_new=False)

    async def settle(self) -> None:
        """Stop all failures, with equal subscriptions: soon all partitions are assigned."""
        self.works = True
        self.setup.log.fate = lambda: "ok"
        self.setup.log.delay_s = lambda: 0.0
        for client in self.clients[:4]:
            if not client.alive:
                self.start(client)
        for client in self.clients:
            client.consumer.topics = ["orders", "clicks"]
        for _ in range(40):
            await asyncio.sleep(HEARTBEAT_S)
            self.check()
        alive = [client.consumer for client in self.clients if client.alive]
        loads = sorted(sum(map(len, each.owned.values())) for each in alive)
        topics = self.setup.topics.topics
        assert sum(loads) == topics["orders"][1] + topics["clicks"][1], (
            f"not all is read: {[(c, c.task) for c in self.clients]}, {snapshot(self.setup)}"
        )
        assert loads[-1] - loads[0] <= 1, f"not shared fairly: {loads}"
        assert self.group is not None
        assert self.group.state == "Stable"
        await self.restart()
        for client in self.clients:
            client.alive = False
            if client.task is not None:
                await client.task
