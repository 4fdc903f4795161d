"""Prepares the state for the bad requests, on any broker, by single frames."""

from __future__ import annotations

from typing import Any

from client_apis import CLIENT_APIS
from conformance.case import World, made
from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lakelog.protocol.transactions import InitProducerIdRequest
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, described, produce, topic_id_of

SERVED = {api.name for api in CLIENT_APIS.values()}
SESSION_MS = 300_000
_CONSUMER = "AAAAAAAAAAAAAAAAAAAAAQ"
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
        producer_id=eventually(lambda: _producer_id(client, None), 60.0, "a producer id")[0],
        transaction=_transaction(client),
        consumer_member=_consumer(client, [topic, compacted]),
    )


def _producer_id(client: WireClient, transaction: str | None) -> tuple[int, int] | None:
    """Id and epoch; Kafka has none to give for a moment after its start."""
    request = InitProducerIdRequest(transactional_id=transaction, transaction_timeout_ms=SESSION_MS)
    answer = client.call(request, 4)
    return None if answer.error_code else (answer.producer_id, answer.producer_epoch)


def _transaction(client: WireClient) -> tuple[int, int]:
    if "EndTxn" not in SERVED:
        return -1, -1
    name = "conformance-transaction"

    def ready() -> tuple[int, int] | None:
        client.call(FindCoordinatorRequest(key=name, key_type=1), 2)
        return _producer_id(client, name)

    return eventually(ready, 60.0, "the transaction coordinator")


def _consumer(client: WireClient, topics: list[str]) -> tuple[str, int]:
    """A member whose epoch has risen twice, so that older epochs are not 0.

    It only ever subscribes to more: giving up partitions would have to be confirmed.
    """
    if "ConsumerGroupHeartbeat" not in SERVED:
        return "", -1

    def beat(epoch: int, subscription: list[str] | None) -> int:
        request = made(
            "groups",
            "ConsumerGroupHeartbeatRequest",
            group_id="conformance-consumer",
            member_id=_CONSUMER,
            member_epoch=epoch,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=subscription,
            topic_partitions=[] if epoch == 0 else None,
        )
        answer = client.call(request, 1)
        assert answer.error_code == 0, answer
        member_epoch: int = answer.member_epoch
        return member_epoch

    def next_epoch(before: int, subscription: list[str]) -> int:
        epoch = beat(before, subscription)
        return epoch if epoch != before else eventually(lambda: new_epoch(before), what="an epoch")

    def new_epoch(before: int) -> int | None:
        epoch = beat(before, None)
        return epoch if epoch != before else None

    epoch = 0
    for subscription in (topics[:1], topics, [*topics, "no-such-topic"]):
        epoch = next_epoch(epoch, subscription)
    return _CONSUMER, epoch


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
