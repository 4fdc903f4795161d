"""Topic creation by simulated clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from simulator.clients.client import Client

_SMALL = {"internal.segment.bytes": "3000", "segment.index.bytes": "120"}
_AGAIN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # while a broker is down
)
_UNASSIGNABLE = ErrorCode.INVALID_REPLICA_ASSIGNMENT
"""While a broker is down, or has been unregistered."""


async def create_topic(
    client: Client,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    *,
    replicas: int | None = None,
) -> bool:
    """Create a topic with small segments; return whether this request created it.

    replicas: as many as in the plan by default.

    False after a lost response, too: another client may have created it.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas or client.context.plan.replicas,
        configs=_configs(config),
    )
    while True:
        code = await _create(client, topic)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return code == ErrorCode.NONE
        if code not in _AGAIN:
            client.unexpected(f"CreateTopics of {name}", code)
            return False
        await client.pause(0.1, 0.5)


async def create_assigned(client: Client, name: str, replicas: Sequence[Sequence[int]]) -> None:
    """Create a topic with these replicas of each partition, in one attempt.

    It fails if it exists, or while brokers are down.
    """
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
        for index, each in enumerate(replicas)
    ]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=_configs({}),
    )
    code = await _create(client, topic)
    if code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS, *_AGAIN, _UNASSIGNABLE):
        client.unexpected(f"CreateTopics of {name}", code)


async def _create(client: Client, topic: CreatableTopic) -> int:
    (answer,) = (await client.ask(CreateTopicsRequest(topics=[topic]), 5)).topics
    code: int = answer.error_code
    return code


def _configs(config: Mapping[str, str]) -> list[CreatableTopicConfig]:
    settings = {**_SMALL, **config}
    return [CreatableTopicConfig(name=key, value=text) for key, text in settings.items()]


async def add_partitions(
    client: Client, name: str, count: int, replicas: Sequence[Sequence[int]]
) -> bool:
    """Have a topic grow to `count` partitions; return whether it has so many.

    replicas: of each new partition. One attempt: False while their brokers are down.
    """
    assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=5_000)
    (answer,) = (await client.ask(request, 3)).results
    if answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
        return True  # the second one after a lost response
    if answer.error_code not in (*_AGAIN, _UNASSIGNABLE):
        client.unexpected(f"CreatePartitions of {name}", answer.error_code)
    return False
