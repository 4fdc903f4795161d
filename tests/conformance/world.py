"""Sets up what the bad requests are about, on any broker, by single frames."""

from __future__ import annotations

from typing import Any

from broker_process import eventually
from conformance.case import World
from lakelog.base.errors import ErrorCode
from lakelog.protocol.find_coordinator import FindCoordinatorRequest
from lakelog.protocol.init_producer_id import InitProducerIdRequest
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lakelog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lakelog.protocol.sync_group import SyncGroupRequest
from wire_client import (
    WireClient,
    batch_of,
    create_topic,
    described,
    produce,
    topic_id_of,
)

SESSION_MS = 300_000
_NOT_READY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


def build_world(client: WireClient) -> World:
    topic, compacted = "conformance", "conformance-compacted"
    create_topic(client, topic, 2)
    create_topic(client, compacted, 1, {"cleanup.policy": "compact"})
    assert produce(client, topic, batch_of(b"a", b"b", b"c")).error_code == 0
    instance = "instance-1"
    member, generation = _stable(client, "conformance-group", None)
    static_member, _ = _stable(client, "conformance-static", instance)
    _commit(client, "conformance-empty", topic)
    return World(
        node=described(client, topic).partitions[0].leader_id,
        topic=topic,
        topic_id=topic_id_of(client, topic),
        compacted=compacted,
        group="conformance-group",
        member=member,
        generation=generation,
        static_group="conformance-static",
        static_member=static_member,
        instance=instance,
        empty_group="conformance-empty",
        producer_id=eventually(lambda: _producer_id(client), 30.0, "a producer id"),
    )


def _producer_id(client: WireClient) -> int | None:
    """Kafka has none to give for a moment after its start."""
    answer = client.call(InitProducerIdRequest(transactional_id=None), 4)
    return answer.producer_id if answer.error_code == 0 else None


def join_request(group: str, member: str = "", **changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return JoinGroupRequest(**(fields | changes))


def _stable(client: WireClient, group: str, instance: str | None) -> tuple[str, int]:
    """A group of one member that has synced; its id and the generation."""

    def join(member: str) -> Any:
        return client.call(join_request(group, member, group_instance_id=instance), 7)

    def ready() -> Any:
        client.call(FindCoordinatorRequest(key=group), 2)
        answer = join("")
        return None if answer.error_code in _NOT_READY else answer

    joined = eventually(ready, 60.0, "the group coordinator")
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = join(joined.member_id)
    assert joined.error_code == 0, joined
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )
    assert client.call(sync, 3).error_code == 0
    return joined.member_id, joined.generation_id


def _commit(client: WireClient, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    answer = client.call(request, 7)
    assert answer.topics[0].partitions[0].error_code == 0, answer
