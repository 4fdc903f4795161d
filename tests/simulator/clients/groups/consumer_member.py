"""A member of a consumer group of KIP-848: it releases revoked partitions and then reports it.

Some members subscribe with a regular expression that matches the topic of the others. A static
member leaves for a while and joins again, as another process, with its previous assignment.
"""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import ConsumerGroupHeartbeatRequest, MemberPartitions
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from simulator.checkers.membership_history import Lease
from simulator.clients.client import RETRIABLE
from simulator.clients.groups.member import EXPELLED, GroupClient
from simulator.network.connection import NoResponse

_SESSION_S = 6.0
_REBALANCE_MS = 10_000
_LEAVE = -1
_LEAVE_FOR_A_WHILE = -2


class ConsumerMember(GroupClient):
    """A member of epoch `_epoch`; 0 while it joins."""

    _epoch = 0
    _member_id = ""
    _by_regex = False
    _topic_ids: dict[bytes, str]

    def replaced(self) -> ConsumerMember:
        return ConsumerMember(
            self.context, self.next_name, self.group, self.topic_partitions, self.role
        )

    async def run(self) -> None:
        await self.find_coordinator()
        await self.stay_down()
        self._topic_ids = {
            await self._topic_id(name): name for name in {self.topic_partitions[0][0]}
        }
        while not self.is_over:
            self._begin()
            await self._stay()
            await self.pause(0.0, 0.5)
        self.owned = frozenset()
        await self._leave()

    async def _stay(self) -> None:
        """Send heartbeats until the broker expels the member, or for some time."""
        beats = self.rng.randint(5, 60 if self.instance is None else 20)
        while beats > 0 or self.conditions.is_settling:
            if self.is_over or not await self._beat():
                return
            beats -= 1
            await self._read()
            await self.pause(0.1, 0.9)
        if self.rng.random() < 0.5:
            await self._leave()
        self.owned = frozenset()
        await self.stay_down()
        if self.instance is not None and self._epoch > 0 and self.rng.random() < 0.5:
            await self._act_as_zombie()

    async def _act_as_zombie(self) -> None:
        """Send requests as a process that slept, after its member left."""
        await self.commit(self.some_place(self.topic_partitions), self._epoch, self._member_id)
        await self._beat()
        self.owned = frozenset()

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
        """Begin as another process; the broker may still count the previous one as a member."""
        if self.instance is None:
            self.members.give_up(self.group, self._member_id)
        self._epoch, self.owned = 0, frozenset()
        self._member_id = f"{self.name}-{self.rng.randrange(1 << 30)}"
        self._by_regex = self.rng.random() < 0.4

    async def _beat(self) -> bool:
        """Send a heartbeat; return False if the member has to join again."""
        sent, starts, fenced = self.now, self.context.brokers.starts, self._is_fenced
        try:
            answer = await self.connection.call(self._heartbeat(), 1)
        except NoResponse:
            return self.now - sent < _SESSION_S
        code = answer.error_code
        if code in EXPELLED:
            return False
        if code == ErrorCode.FENCED_INSTANCE_ID:
            await self._on_fenced(starts)
            return False
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self.instance is not None:
            self.findings.counts["unreleased instances"] += 1
        elif code:
            if code not in RETRIABLE:
                self.unexpected("ConsumerGroupHeartbeat", code)
        else:
            self.expect_refused("a heartbeat", self._member_id, fenced)
            self._take(answer, sent, starts)
        return True

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            instance_id=self.instance,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=None if self._by_regex else sorted(self._topic_ids.values()),
            subscribed_topic_regex=self._regex if self._by_regex else None,
            topic_partitions=self._owned(),
        )

    def _take(self, answer: Any, sent: float, starts: int) -> None:
        if self._epoch == 0:
            self.held(self._member_id, sent, starts, written=True)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = frozenset(
                (self._topic_ids[topic.topic_id], index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
            self.note("assigned", self._epoch, sorted(self.owned))
            self.findings.counts["assigned by regex"] += self._by_regex and bool(self.owned)
        # The coordinator of a cluster measures the session with a monotonic clock that may be fast.
        rate = 1.0 if self.context.plan.replicas == 1 else 0.98
        lease = Lease(self._owner, self.owned, sent + rate * _SESSION_S)
        self.members.lease(self.group, lease, self.now)

    @property
    def _owner(self) -> str:
        return self.instance or self._member_id

    @property
    def _is_fenced(self) -> bool:
        return self.is_fenced(self._member_id)

    async def _on_fenced(self, starts: int) -> None:
        """Sometimes commit as the fenced member, which must fail."""
        self.owned = frozenset()
        self.was_fenced(self._member_id, starts)
        if self.rng.random() < 0.5:
            await self.commit(self.some_place(self.topic_partitions), self._epoch, self._member_id)
        await self.pause(0.5, 4.0)

    @property
    def _regex(self) -> str:
        name = self.topic_partitions[0][0]
        return f"{name[:-1]}[{name[-1]}]"

    def _owned(self) -> list[MemberPartitions]:
        """Return the owned partitions for a heartbeat; a joining member has none."""
        if not self.owned:
            return []
        return [
            MemberPartitions(
                topic_id=topic_id,
                partitions=sorted(index for topic, index in self.owned if topic == name),
            )
            for topic_id, name in self._topic_ids.items()
        ]

    async def _read(self) -> None:
        if not self.owned:
            return
        partition = self.some_place(sorted(self.owned))
        if self.rng.random() < 0.5:
            await self.commit(partition, self._epoch, self._member_id)
        else:
            await self.fetch_offset(partition)

    async def _leave(self) -> None:
        """Leave the group; a static member mostly for a while, and keeps its assignment."""
        epoch = _LEAVE
        if self.instance is not None and self.rng.random() < 0.7:
            epoch = _LEAVE_FOR_A_WHILE
        elif self._epoch > 0:
            self.members.give_up(self.group, self._owner)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            instance_id=self.instance,
            member_epoch=epoch,
        )
        try:
            await self.connection.call(request, 1)
        except NoResponse:
            return
