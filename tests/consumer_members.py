"""Members of the consumer protocol, as protocol messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from group_setup import Setup
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_versioned,
    encode_versioned,
)
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    MemberPartitions,
)

GROUP = "readers"

Owned = dict[bytes, set[int]]


@dataclass
class Consumer:
    """A client process of the consumer protocol."""

    setup: Setup
    member_id: str
    topics: list[str] | None = field(default_factory=lambda: ["orders"])
    group: str = GROUP
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 30_000
    epoch: int = 0
    owned: Owned = field(default_factory=dict)

    async def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send one full heartbeat, and adopt the response at once."""
        response: ConsumerGroupHeartbeatResponse = await self.ask(**changes)
        if not response.error_code:
            self.take(response)
        return response

    def ask(self, *, version: int = 1, **changes: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=[
                MemberPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in self.owned.items()
                if partitions
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.setup.coordinator.consumer_group_heartbeat(
            request, version, "client", "/127.0.0.1"
        )

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {
                topic.topic_id: set(topic.partitions)
                for topic in response.assignment.topic_partitions
            }

    async def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response: ConsumerGroupHeartbeatResponse = await self.ask(
            member_epoch=epoch, rebalance_timeout_ms=-1, subscribed_topic_names=None
        )
        self.epoch, self.owned = 0, {}
        return response

    def of(self, topic: str = "orders") -> set[int]:
        topic_id = self.setup.topics.topics[topic][0]
        return self.owned.get(topic_id, set())


async def settle(*members: Consumer, rounds: int = 8) -> None:
    """Send heartbeats until no member has a step to take."""
    for _ in range(rounds):
        for member in members:
            response = await member.beat()
            assert response.error_code == 0, response


def group_of(setup: Setup, group: str = GROUP) -> ConsumerGroup:
    partition = setup.coordinator.partition_for(group)
    found = setup.coordinator._host.shard(partition).state.consumer_groups.get(group)
    assert found is not None
    return found


def snapshot(setup: Setup) -> dict[str, Any]:
    """Return the durable state of all consumer groups, for comparison."""
    groups: dict[str, Any] = {}
    for shard in setup.coordinator._host.active_shards():
        for group_id, group in shard.state.consumers.by_id.items():
            fields = dict(vars(group))
            del fields["refresh_due"]
            groups[group_id] = fields
    return groups


async def describe(setup: Setup, group: str = GROUP) -> DescribedConsumerGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    response = await setup.coordinator.admin.consumer_group_describe(request)
    described: DescribedConsumerGroup = response.groups[0]
    return described


def subscription(
    topics: list[str], owned: dict[str, list[int]] | None = None, version: int = 3
) -> bytes:
    """Return the protocols of a classic member of type `consumer`."""
    message = ConsumerProtocolSubscription(topics=topics)
    if version >= 1:
        message.owned_partitions = [
            TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in (owned or {}).items()
        ]
    return encode_versioned(message, version)


def assignment(partitions: dict[str, list[int]]) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=each) for topic, each in partitions.items()
        ]
    )
    return encode_versioned(message, 3)


def assigned(data: Any) -> dict[str, list[int]]:
    message = decode_versioned(ConsumerProtocolAssignment, data)
    return {each.topic: each.partitions for each in message.assigned_partitions}
