"""Random messages of every declared (message, version) through Kafka's own classes and back."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from lakelog.coordinator.group.records import (
    CONSUMER_GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lakelog.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode, encode
from lakelog.wire.schema import Message, Struct, array, int32, string, struct
from random_messages import random_message
from wire_oracle import JavaOracle, JavaRefusedError, Target

pytestmark = pytest.mark.java

TRANSACTION_RECORDS = "org.apache.kafka.coordinator.transaction.generated"
GROUP_RECORDS = "org.apache.kafka.coordinator.group.generated"
MESSAGES_A_VERSION = 12


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class TopicRequest(Struct):
    name: str = string()


class DescribeTopicPartitionsRequest(Message, versions="0", flexible="0+"):
    """Declared here for its nullable struct, a shape that no declared API has yet."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


API_MESSAGES = [kind for api in APIS.values() for kind in (api.request, api.response)]
TARGETS = [
    *(Target.of(kind) for kind in API_MESSAGES),
    Target.of(ConsumerProtocolAssignment),
    Target.of(ConsumerProtocolSubscription),
    Target.of(DescribeTopicPartitionsRequest),
    Target.of(OffsetCommitKey, GROUP_RECORDS),
    Target.of(OffsetCommitValue, GROUP_RECORDS),
    Target.of(GroupMetadataKey, GROUP_RECORDS),
    Target.of(GroupMetadataValue, GROUP_RECORDS),
    *(Target.of(kind, GROUP_RECORDS) for pair in CONSUMER_GROUP_RECORDS.values() for kind in pair),
    Target.of(TransactionLogKey, TRANSACTION_RECORDS),
    Target.of(TransactionLogValue, TRANSACTION_RECORDS),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaOracle]:
    with JavaOracle() as running:
        yield running


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.kind.__name__)
def test_java_and_lakelog_read_the_messages_of_each_other(
    oracle: JavaOracle, target: Target
) -> None:
    random = Random(target.kind.__name__)
    for version in target.kind.__versions__:
        for _ in range(MESSAGES_A_VERSION):
            message = random_message(target.kind, version, random)
            ours = encode(message, version)
            theirs = oracle.read_and_write(target.java, version, ours)
            assert theirs == ours, (version, message)
            assert decode(target.kind, theirs, version) == message


def test_the_oracle_objects_to_a_wrong_message(oracle: JavaOracle) -> None:
    target = Target.of(APIS[0].request)
    good = encode(target.kind(transactional_id="t"), 9)
    with pytest.raises(JavaRefusedError):
        oracle.read_and_write(target.java, 9, good[:-1])
