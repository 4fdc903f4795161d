from __future__ import annotations

from random import Random
from typing import Any

import pytest

import reference_codec
from lakelog.protocol.api import Api
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.registry import APIS
from lakelog.wire import codec
from lakelog.wire.codec import decode, encode
from lakelog.wire.primitives import WireError, encode_uvarint
from lakelog.wire.schema import Message, Struct, array, count_elements, uuid
from random_messages import random_message
from sample_messages import FULL, Cargo, Choice, Item, Names, Numbers

# By hand from the layouts in lakelog.wire.primitives.
GOLDEN = {
    0: "fffe 0002c3b6 00000002 000161 0000 00000002 0000000000000001 ffffffffffffffff "
    "00000003 7a7a7a",
    1: "fffe 0002c3b6 00000002 000161 00000001 0000 00000007 00000002 0000000000000001 "
    "ffffffffffffffff 00000002 7879 00000003 7a7a7a",
    2: "fffe 03c3b6 03 0261 00000001 00 01 00000007 00 03 0000000000000001 ffffffffffffffff "
    "03 7879 04 7a7a7a 01 01 02 026e",
    3: "fffe 03c3b6 03 0261 00000001 00 01 00000007 00 03 0000000000000001 ffffffffffffffff "
    "03 7879 04 7a7a7a 02 00 07 0262 00000007 00 01 02 026e",
}


@pytest.mark.parametrize("version", GOLDEN)
def test_golden_bytes(version: int) -> None:
    data = bytes.fromhex(GOLDEN[version])
    assert encode(FULL, version) == data
    assert reference_codec.encode(FULL, version) == data
    decoded = decode(Cargo, data, version)
    assert encode(decoded, version) == data


def test_nulls_where_the_version_has_them() -> None:
    empty = Cargo(owner=None, items=None, blob=None, batch=None)
    for version in (2, 3):
        assert decode(Cargo, encode(empty, version), version) == empty
    assert encode(empty, 2) == bytes.fromhex("0000 00 00 01 00 00 00")


def test_null_and_empty_are_distinguished() -> None:
    message = Cargo(owner="", items=[], blob=b"", batch=b"")
    decoded = decode(Cargo, encode(message, 2), 2)
    assert (decoded.owner, decoded.items, decoded.blob, decoded.batch) == ("", [], b"", b"")


def test_a_message_inside_a_larger_buffer() -> None:
    data = bytearray(b"??" + encode(FULL, 3) + b"???")
    decoded = decode(Cargo, data, 3, 2, len(data) - 3)
    assert decoded == FULL
    assert isinstance(decoded.batch, memoryview)
    assert decoded.batch.obj is data


def test_strings_have_a_limit_in_flexible_versions_too() -> None:
    longest = Names(names=["x" * 32_767])
    for version in (0, 1):
        assert decode(Names, encode(longest, version), version) == longest
        with pytest.raises(WireError):
            encode(Names(names=["x" * 32_768]), version)
    data = b"\x02" + encode_uvarint(32_769) + b"x" * 32_768 + b"\x00"
    with pytest.raises(WireError, match="32768 bytes"):
        decode(Names, data, 1)


def test_unsigned_and_floating_numbers() -> None:
    message = Numbers(small=65_535, large=2**32 - 1, real=-0.5, flag=True, key=bytes(range(16)))
    data = bytes.fromhex("ffff ffffffff bfe0000000000000 01") + bytes(range(16)) + b"\0"
    assert encode(message, 0) == data
    assert decode(Numbers, data, 0) == message


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        (Choice(), 0, "ff ff"),
        (Choice(left=Item(name="a")), 0, "01 000161 ff"),
        (Choice(right=Item(name="a")), 0, "ff 01 000161"),
        (Choice(), 1, "ff 00"),
        (Choice(left=Item()), 1, "01 01 00000007 00 00"),
        (Choice(right=Item(name="a")), 1, "ff 01 00 08 01 0261 00000007 00"),
    ],
)
def test_nullable_structs(message: Choice, version: int, data: str) -> None:
    assert encode(message, version) == bytes.fromhex(data)
    assert reference_codec.encode(message, version) == bytes.fromhex(data)
    assert decode(Choice, bytes.fromhex(data), version) == message


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(WireError, match="Cargo has versions 0-3"):
        encode(FULL, version)
    with pytest.raises(WireError, match="Cargo has versions 0-3"):
        decode(Cargo, b"", version)


def test_the_texts_of_all_errors_are_cut() -> None:
    def texts(kind: Any) -> Any:
        for field in kind.__fields__:
            if field.name.endswith("error_message"):
                yield kind, field
            elif field.struct is not None:
                yield from texts(field.struct)

    found = [each for api in APIS.values() for each in texts(api.response)]
    assert len(found) > 15
    assert [(kind, field.name) for kind, field in found if not field.is_cut] == []


class Keys(Message, versions="0-1", flexible="1+"):
    keys: list[bytes] = array(uuid)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_arrays_of_uuids(version: int, count: int) -> None:
    message = Keys(keys=[bytes([number]) * 16 for number in range(count)])
    data = encode(message, version)
    assert decode(Keys, data, version) == message
    assert reference_codec.encode(message, version) == data


def walked(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(walked, value))
    if isinstance(value, Struct):
        return sum(walked(getattr(value, field.name)) for field in value.__fields__)
    return 0


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_all_arrays_of_all_messages_are_counted(api: Api) -> None:
    random = Random(api.key)
    for kind in (api.request, api.response):
        for version in kind.__versions__:
            message = random_message(kind, version, random)
            assert count_elements(message) == walked(message)


def depth(kind: type[Struct]) -> int:
    return 1 + max((depth(each.struct) for each in kind.__fields__ if each.struct), default=0)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_no_message_is_nested_so_deep_that_a_decoder_could_run_out_of_stack(api: Api) -> None:
    """And how deep it is, is declared: nothing that a peer sends makes it deeper."""
    assert max(depth(api.request), depth(api.response)) <= 8


def test_tags_within_unknown_tags_are_skipped() -> None:
    nested = b""
    while len(nested) < 20_000:
        nested = b"\x01\x40" + encode_uvarint(len(nested)) + nested
    frame = encode(MetadataRequest(topics=[]), 12)[:-1] + b"\x01\x40"
    message = frame + encode_uvarint(len(nested)) + nested
    assert codec.decode(MetadataRequest, message, 12).topics == []
    assert reference_codec.decode(MetadataRequest, message, 12).topics == []


def test_elements_of_elements_count() -> None:
    request = FetchRequest(
        topics=[FetchTopic(partitions=[FetchPartition() for _ in range(n)]) for n in (3, 0)],
        forgotten_topics_data=[ForgottenTopic(partitions=[1, 2, 3, 4])],
    )
    assert count_elements(request) == 2 + 3 + 1 + 4
