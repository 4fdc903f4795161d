"""A false count, length or tag costs nothing: tested at each place of every message."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hostile_messages import places, smallest_message
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header
from lakelog.wire.primitives import MAX_REQUEST_ELEMENTS, WireError, encode_uvarint

_MESSAGES = [
    *(kind for api in APIS.values() for kind in (api.request, api.response)),
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]
_LEFT = 40
_BYTES_PER_BYTE = 100
_BYTES_ANYWAY = 16 << 10
"""The exception, its text and its traceback."""


@pytest.fixture(autouse=True)
def traced(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count allocations, after the decoders were compiled with correct messages."""
    kind = request.node.callspec.params.get("kind")
    for version in kind.__versions__ if kind is not None else ():
        decode(kind, smallest_message(kind, version), version)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def _refusal(decoding: Callable[[], object]) -> tuple[str, int]:
    """Why it was refused, and how many bytes were allocated at once for that."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        decoding()
    except WireError as error:
        return str(error), tracemalloc.get_traced_memory()[1] - before
    raise AssertionError("it was accepted")


@pytest.mark.parametrize("kind", _MESSAGES, ids=lambda kind: kind.__name__)
def test_lies_are_refused_before_memory_is_taken(kind: Any) -> None:
    for version in kind.__versions__:
        for field in places(kind, version):
            for data in field.lies(_LEFT):
                text, taken = _refusal(partial(decode, kind, data, version))
                assert taken < _BYTES_ANYWAY + _BYTES_PER_BYTE * len(data), (field, text)
                named = field.kind != "array" or field.name in text or "32 bits" in text
                assert named, (field, text)


@pytest.mark.parametrize("kind", _MESSAGES, ids=lambda kind: kind.__name__)
def test_a_request_has_a_limited_number_of_elements_in_whatever_array(kind: Any) -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    for version in kind.__versions__:
        for field in places(kind, version):
            if field.kind == "array":
                data = field.saying(count) + bytes(count * field.smallest)
                text, taken = _refusal(partial(decode, kind, data, version))
                assert taken < _BYTES_ANYWAY + _BYTES_PER_BYTE * len(field.before), (field, text)
                assert f"{field.name} has a count of {count} elements" in text


_LYING_TAGS = {
    "too many": encode_uvarint((1 << 31) - 1) + bytes(_LEFT),
    "one too many": encode_uvarint(65) + b"".join(bytes((tag, 0)) for tag in range(65)),
    "too large": encode_uvarint(1) + encode_uvarint(5) + encode_uvarint((1 << 32) - 1),
    "descending": b"\x02\x05\x00\x04\x00",
    "of more than 32 bits": b"\xff" * 9 + b"\x01",
}


@pytest.mark.parametrize("name", _LYING_TAGS)
def test_tags_of_a_header_are_bounded_too(name: str) -> None:
    data = b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff" + _LYING_TAGS[name]
    _, taken = _refusal(partial(decode_request_header, data, 0, len(data), flexible=True))
    assert taken < _BYTES_ANYWAY
