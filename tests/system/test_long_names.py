"""Names as long as the protocol allows are answered, with an error code where they are too long."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from client_apis import CLIENT_APIS
from lakelog.protocol.api import Api
from lakelog.protocol.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from lakelog.wire.shapes import Field
from wire_client import WireClient, batch_of, fetch, produce

LONGEST = 32_767
_PRODUCE = 0
_ANSWERED = [api for api in CLIENT_APIS.values() if api.key != _PRODUCE]


def _message(kind: Any, version: int, text: str) -> Any:
    """One element in each array, and `text` in each string."""
    return kind(
        **{
            field.name: _value(field, version, text)
            for field in kind.__fields__
            if version in field.versions
        }
    )


def _value(field: Field, version: int, text: str) -> Any:
    value: Any = field.default
    if field.struct is not None:
        value = _message(field.struct, version, text)
    elif field.type_name == "string":
        value = text
    elif field.type_name == "bytes":
        value = b""
    elif field.type_name == "uuid":
        value = bytes(16)
    elif field.is_array:
        value = 0
    return [value] if field.is_array else value


@pytest.mark.parametrize("api", _ANSWERED, ids=lambda api: api.name)
def test_every_api_answers_names_of_any_length(bootstrap: str, api: Api) -> None:
    lowest, highest = api.min_version, api.max_version
    for version in (lowest, highest):
        for text in ("n" * LONGEST, "\N{GREEK SMALL LETTER ALPHA}" * (LONGEST // 2)):
            with WireClient(bootstrap, client_id=text) as client:
                client.call(_message(api.request, version, text), version)


def test_a_long_client_id_produces_and_fetches_again_and_again(bootstrap: str, topic: str) -> None:
    """The second request of a kind would be compared with the first, and is too long for that."""
    with WireClient(bootstrap, client_id="c" * LONGEST) as client:
        for number in range(4):
            assert produce(client, topic, batch_of(b"value")).base_offset == number
        for _ in range(4):
            assert fetch(client, topic, 0).high_watermark == 4


@pytest.mark.parametrize("instance_id", [None, "i" * LONGEST])
def test_a_member_with_a_long_name_is_given_an_id(bootstrap: str, instance_id: str | None) -> None:
    request = JoinGroupRequest(
        group_id=f"long-{uuid.uuid4().hex}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with WireClient(bootstrap, client_id="c" * LONGEST) as client:
        assert client.call(FindCoordinatorRequest(key=request.group_id), 3).error_code == 0
        first = client.call(request, 9)
        assert first.member_id.startswith("i" * 255 if instance_id else "c" * 255)
        request.member_id = first.member_id
        assert client.call(request, 9).error_code == 0


def test_librdkafka_with_a_long_client_id(bootstrap: str, topic: str) -> None:
    client_id = "c" * 20_000
    common = {"bootstrap.servers": bootstrap, "client.id": client_id}
    producer = Producer({**common, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    group = f"group-{topic}"
    consumer = Consumer({**common, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        got = [message.value() for message in consumer.consume(100, timeout=60)]
        consumer.commit(asynchronous=False)
        admin = AdminClient({**common})
        described = admin.describe_consumer_groups([group])[group].result(60)
        assert [member.client_id for member in described.members] == [client_id]
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
        found = admin.list_consumer_group_offsets(wanted)[group].result(60)
        assert found.topic_partitions[0].offset == 100
    finally:
        consumer.close()
    assert got == [b"%d" % number for number in range(100)]
