from __future__ import annotations

import pytest

from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_versioned,
    encode_versioned,
)
from lakelog.wire.primitives import WireError

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["t", "u"],
    user_data=b"\x01",
    owned_partitions=[TopicPartition(topic="t", partitions=[0, 2])],
    generation_id=5,
    rack_id="r",
)


def test_golden_bytes() -> None:
    expected = "0001 00000002 000174 000175 00000001 01 00000001 000174 00000002 00000000 00000002"
    assert encode_versioned(SUBSCRIPTION, 1) == bytes.fromhex(expected)
    assignment = ConsumerProtocolAssignment(assigned_partitions=SUBSCRIPTION.owned_partitions)
    expected = "0000 00000001 000174 00000002 00000000 00000002 ffffffff"
    assert encode_versioned(assignment, 0) == bytes.fromhex(expected)


def test_round_trip_with_the_fields_of_the_version() -> None:
    assert decode_versioned(ConsumerProtocolSubscription, encode_versioned(SUBSCRIPTION, 3)) == (
        SUBSCRIPTION
    )
    older = decode_versioned(ConsumerProtocolSubscription, encode_versioned(SUBSCRIPTION, 0))
    assert older == ConsumerProtocolSubscription(topics=["t", "u"], user_data=b"\x01")


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    data = b"\x00\x09" + encode_versioned(SUBSCRIPTION, 3)[2:] + b"something new"
    assert decode_versioned(ConsumerProtocolSubscription, data) == SUBSCRIPTION


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_a_malformed_blob_is_rejected(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_versioned(ConsumerProtocolSubscription, data)
