"""Consumer groups under random members, a bad network, restarts and a log that fails (KIP-848).

A client has one heartbeat under way, as over one connection: it may get lost on the way there or
back, be delivered twice, or take long. What has to hold, at every moment:

- no partition is held by two members: what one has, and what it has not said it gave up, is its
  own; and no client in the group believes to have more than that;
- epochs of the group, of its assignment and of each member only grow;
- memory is what the log says: a restart changes nothing.

And in the end, when everything works again, whoever is there has a fair share of all.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumer_members import Consumer, snapshot
from coordinator_world import World, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig
from lakelog.coordinator.group.consumer import ConsumerGroup

SEEDS = 24
STEPS = 60
CLIENTS = 8
PARTITIONS = 12
LOST_AFTER_S = 6.0
HEARTBEAT_S = 3.0
REJOIN = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
}
RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


@dataclass
class Client:
    """A process: it joins, beats, gives up before it takes, leaves or dies."""

    consumer: Consumer
    number: int
    alive: bool = False
    incarnation: int = 0
    highest: int = 0
    """The greatest epoch it was told since it joined."""
    task: asyncio.Task[None] | None = None


@dataclass
class Model:
    world: World
    random: random.Random
    clients: list[Client] = field(default_factory=list)
    epochs: tuple[int, int] = (0, 0)
    works: bool = False
    """Whether the network does."""
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
        client.task = asyncio.ensure_future(self.live(client, client.incarnation))

    async def live(self, client: Client, incarnation: int) -> None:
        self.forget(client)
        while client.alive and client.incarnation == incarnation:
            answer = await self.deliver(client)
            if client.incarnation == incarnation and client.alive and answer is not None:
                await self.react(client, answer)
            await asyncio.sleep(HEARTBEAT_S * (0.5 + self.random.random()))

    async def deliver(self, client: Client) -> Any:
        """The answer to one heartbeat, or None if it got lost."""
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

    def forget(self, client: Client) -> None:
        client.highest = 0
        client.consumer.epoch, client.consumer.owned = 0, {}

    def die(self, client: Client) -> None:
        client.alive = False
        client.consumer.owned = {}

    async def leave(self, client: Client) -> None:
        client.alive = False
        consumer = client.consumer
        consumer.owned = {}
        epoch = -1 if consumer.instance_id is None or self.random.random() < 0.3 else -2
        await consumer.ask(member_epoch=epoch, subscribed_topic_names=None, rebalance_timeout_ms=-1)
        self.count("left")

    # What has to hold

    @property
    def group(self) -> ConsumerGroup | None:
        shards = self.world.coordinator._host.active_shards()
        return shards[0].state.consumer("readers") if shards else None

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        held: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for key in member.held():
                assert held.setdefault(key, member.member_id) == member.member_id, f"two have {key}"
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

    # The world

    async def restart(self) -> None:
        settled = not self.world.log.in_flight and self.group is not None
        before = snapshot(self.world) if settled else None
        await self.world.restart()
        if before is not None:
            assert snapshot(self.world) == before, "memory differed from the log"
        self.check()
        self.count("restarted")

    async def step(self) -> None:
        await asyncio.sleep(self.random.choice((0.1, 1, 3, 8)))
        self.check()
        if self.random.random() < 0.05:
            await self.restart()
        if self.random.random() < 0.05:
            self.change_topics()
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
        topic_id, count = self.world.topics.topics["orders"]
        self.world.topics.topics["orders"] = (topic_id, count + 1)
        self.world.coordinator.on_topics_changed({"orders"}, are_new=False)

    async def settle(self) -> None:
        """Everything works, and everybody reads the same: soon it is shared out."""
        self.works = True
        self.world.log.fate = lambda: "ok"
        self.world.log.delay_s = lambda: 0.0
        for client in self.clients[:3]:
            if not client.alive:
                self.start(client)
        for client in self.clients:
            client.consumer.topics = ["orders", "clicks"]
        for _ in range(30):
            await asyncio.sleep(HEARTBEAT_S)
            self.check()
        alive = [client.consumer for client in self.clients if client.alive]
        loads = sorted(sum(map(len, each.owned.values())) for each in alive)
        topics = self.world.topics.topics
        assert sum(loads) == topics["orders"][1] + topics["clicks"][1], "not all is read"
        assert loads[-1] - loads[0] <= 1, f"not shared fairly: {loads}"
        assert self.group is not None
        assert self.group.state == "Stable"
        await self.restart()
        for client in self.clients:
            client.alive = False
            if client.task is not None:
                await client.task


async def _play(world: World, seed: int) -> dict[str, int]:
    source = random.Random(seed)
    world.topics.topics["orders"] = (b"o" * 16, PARTITIONS)
    world.log.delay_s = lambda: source.choice((0.0, 0.0, 0.01, 0.2, 2.0))
    world.log.fate = lambda: source.choices(("ok", "refused", "lost", "kept"), (91, 3, 3, 3))[0]
    model = Model(world, source)
    for number in range(CLIENTS):
        instance_id = f"s{number}" if number < 2 else None
        consumer = Consumer(
            world, "", instance_id=instance_id, assignor=source.choice((None, None, "range"))
        )
        consumer.rebalance_timeout_ms = 20_000
        model.clients.append(Client(consumer, number))
        model.start(model.clients[-1])
    for _ in range(STEPS):
        await model.step()
    for client in model.clients:
        client.consumer.assignor = "uniform"
    await model.settle()
    return model.done


@pytest.mark.parametrize("first", range(0, SEEDS, 12))
def test_random_histories(first: int) -> None:
    interval_ms = 1000 if first else 0
    config = GroupConfig(
        partitions=1,
        consumer=ConsumerConfig(
            session_timeout_ms=15_000,
            heartbeat_interval_ms=3_000,
            assignment_interval_ms=interval_ms,
        ),
    )
    done: dict[str, int] = {}
    for seed in range(first, first + 12):

        async def scenario(world: World, seed: int = seed) -> dict[str, int]:
            try:
                return await _play(world, seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        for what, count in run(scenario, config, seed).items():
            done[what] = done.get(what, 0) + count
    for what in ("assigned", "fenced", "left", "doubled", "lost", "restarted"):
        assert done.get(what, 0) > 10, f"hardly anything happened: {done}"
