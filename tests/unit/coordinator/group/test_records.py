from __future__ import annotations

import pytest

from lakelog.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    decode_record,
    encode_record,
)
from lakelog.wire.codec import encode
from lakelog.wire.primitives import WireError

KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def test_an_offset_is_written_as_version_4_with_its_topic_id() -> None:
    value = OffsetCommitValue(
        offset=9, leader_epoch=2, metadata="m", commit_timestamp=77, topic_id=b"i" * 16
    )
    key_bytes, value_bytes = encode_record(OffsetRecord(KEY, value))
    assert key_bytes == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert value_bytes is not None
    assert value_bytes[:2] == b"\x00\x04"
    assert decode_record(key_bytes, value_bytes) == OffsetRecord(KEY, value)


def test_an_offset_that_expires_by_itself_is_written_as_version_1() -> None:
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=77, expire_timestamp=99)
    key_bytes, value_bytes = encode_record(OffsetRecord(KEY, value))
    assert value_bytes is not None
    assert value_bytes[:2] == b"\x00\x01"
    assert decode_record(key_bytes, value_bytes) == OffsetRecord(KEY, value)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_is_read(version: int) -> None:
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=77)
    key_bytes = encode_record(OffsetRecord(KEY, None))[0]
    written = version.to_bytes(2, "big") + encode(value, version)
    assert decode_record(key_bytes, written) == OffsetRecord(KEY, value)


def test_the_oldest_key_of_an_offset_is_read() -> None:
    key_bytes = b"\x00\x00" + encode_record(OffsetRecord(KEY, None))[0][2:]
    assert decode_record(key_bytes, None) == OffsetRecord(KEY, None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i" if version >= 3 else None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=5 if version >= 1 else -1,
        session_timeout=6,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=8 if version >= 2 else -1,
        members=[member],
    )
    record = GroupRecord(GroupMetadataKey(group="g"), value)
    written = version.to_bytes(2, "big") + encode(value, version)
    assert decode_record(encode_record(record)[0], written) == record


def test_a_group_is_written_as_version_3() -> None:
    record = GroupRecord(GroupMetadataKey(group="g"), GroupMetadataValue(generation=1))
    key_bytes, value_bytes = encode_record(record)
    assert key_bytes[:2] == b"\x00\x02"
    assert value_bytes is not None
    assert value_bytes[:2] == b"\x00\x03"


def test_types_from_the_future_are_passed_over() -> None:
    assert decode_record(b"\x00\x63" + b"whatever", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x01\x00\x05g", None),
        (b"\x00\x02\x00\x01g", b"\x00\x63"),
        (b"\x00\x02\x00\x01g", b"\x00"),
        (b"\x00\x02\x00\x01gx", b"\x00\x03"),
    ],
)
def test_malformed_ones_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode_record(key, value)
