"""Topic creation by simulated clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from simulator.clients.client import Client

_SMALL = {"internal.segment.bytes": "3000", "segment.index.bytes": "120"}
_AGAIN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # while a broker is down
)


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
    settings = {**_SMALL, **config}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas or client.context.plan.replicas,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
    )
    while True:
        (answer,) = (await client.ask(CreateTopicsRequest(topics=[topic]), 5)).topics
        if answer.error_code == 0:
            return True
        if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if answer.error_code not in _AGAIN:
            client.unexpected(f"CreateTopics of {name}", answer.error_code)
            return False
        await client.pause(0.1, 0.5)
