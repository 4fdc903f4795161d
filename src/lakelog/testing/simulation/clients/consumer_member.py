"""A member of a consumer group of KIP-848, which gives up what it is told to, and then says so.

Some of them subscribe by a regular expression, which matches the very topic of the others.
"""

from __future__ import annotations

from lakelog.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.testing.simulation.clients.client import RETRIABLE
from lakelog.testing.simulation.clients.groups import EXPELLED, GroupClient
from lakelog.testing.simulation.ledger import Place
from lakelog.testing.simulation.offsets_ledger import Lease
from lakelog.testing.simulation.wire import Lost

_SESSION_S = 6.0
_REBALANCE_MS = 10_000
_LEAVE = -1


class ConsumerMember(GroupClient):
    _epoch = 0
    _member_id = ""
    _mine: frozenset[Place] = frozenset()
    _by_regex = False
    _topic_ids: dict[bytes, str]

    def replaced(self) -> ConsumerMember:
        return ConsumerMember(self.world, self.next_name, self.group, self.places)

    async def run(self) -> None:
        await self.find_coordinator()
        self._topic_ids = {await self._topic_id(name): name for name in {self.places[0][0]}}
        while not self.world.is_ending:
            self._begin()
            for _ in range(self.rng.randint(5, 60)):
                if self.world.is_ending or not await self._beat():
                    break
                await self._read()
                await self.pause(0.1, 0.9)
            else:
                if self.rng.random() < 0.5:
                    await self._leave()
        await self._leave()

    async def _topic_id(self, name: str) -> bytes:
        while True:
            topics = [MetadataRequestTopic(name=name)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            (topic,) = (await self.ask(request, 12)).topics
            if topic.error_code == 0:
                topic_id: bytes = topic.topic_id
                return topic_id
            await self.pause(0.1, 0.5)

    def _begin(self) -> None:
        self.world.offsets.give_up(self.group, self._member_id)
        self._epoch, self._mine = 0, frozenset()
        self._member_id = f"{self.name}-{self.rng.randrange(1 << 30)}"
        self._by_regex = self.rng.random() < 0.4

    async def _beat(self) -> bool:
        """False if the member has to begin anew."""
        sent = self.world.loop.time()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=None if self._by_regex else sorted(self._topic_ids.values()),
            subscribed_topic_regex=self._regex if self._by_regex else None,
            topic_partitions=self._owned(),
        )
        try:
            answer = await self.connection.call(request, 1)
        except Lost:
            return self.world.loop.time() - sent < _SESSION_S
        if answer.error_code in EXPELLED:
            return False
        if answer.error_code:
            if answer.error_code not in RETRIABLE:
                self.unexpected("ConsumerGroupHeartbeat", answer.error_code)
            return True
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._mine = frozenset(
                (self._topic_ids[topic.topic_id], index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
            self.note("assigned", self._epoch, sorted(self._mine))
            self.ledger.counts["assigned by regex"] += self._by_regex and bool(self._mine)
        lease = Lease(self._member_id, self._mine, sent + _SESSION_S)
        self.world.offsets.lease(self.group, lease, self.world.loop.time())
        return True

    @property
    def _regex(self) -> str:
        name = self.places[0][0]
        return f"{name[:-1]}[{name[-1]}]"

    def _owned(self) -> list[TopicPartitions]:
        """Only partitions that it has; one that joins has none."""
        if not self._mine:
            return []
        return [
            TopicPartitions(
                topic_id=topic_id,
                partitions=sorted(index for topic, index in self._mine if topic == name),
            )
            for topic_id, name in self._topic_ids.items()
        ]

    async def _read(self) -> None:
        if not self._mine:
            return
        place = self.some_place(sorted(self._mine))
        if self.rng.random() < 0.5:
            await self.commit(place, self._epoch, self._member_id)
        else:
            await self.fetch_offset(place)

    async def _leave(self) -> None:
        self.world.offsets.give_up(self.group, self._member_id)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=_LEAVE
        )
        try:
            await self.connection.call(request, 1)
        except Lost:
            return
