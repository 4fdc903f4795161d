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
from lakelog.wire.codec import encode
from lakelog.wire.elements import count_elements
from lakelog.wire.primitives import encode_uvarint
from lakelog.wire.schema import Struct
from random_messages import random_message


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
