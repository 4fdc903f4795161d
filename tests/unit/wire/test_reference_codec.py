"""The compiled codec and the interpreter agree on messages and on malformed bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import reference_codec
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from lakelog.protocol.registry import APIS
from lakelog.wire import codec
from lakelog.wire.primitives import WireError
from random_messages import random_message

MESSAGES = [
    *(kind for api in APIS.values() for kind in (api.request, api.response)),
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]
MUTATIONS = 12


def outcome(decode: Any, kind: Any, data: bytes, version: int) -> Any:
    try:
        return decode(kind, data, version)
    except WireError:
        return "refused"


def mutated(data: bytes, random: Random) -> bytes:
    """Cut off, flipped, grown, or with bytes that make lengths huge or negative."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        position = random.randrange(len(out) + 1)
        match random.randrange(4):
            case 0:
                del out[position:]
            case 1:
                out[position:position] = random.randbytes(random.randrange(1, 5))
            case 2:
                out[position : position + 1] = bytes([random.choice((0, 1, 127, 128, 255))])
            case _:
                out[position : position + 4] = b"\xff\xff\xff\xff"
    return bytes(out)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_both_write_and_read_the_same(kind: Any) -> None:
    random = Random(kind.__name__)
    for version in kind.__versions__:
        message = random_message(kind, version, random)
        data = codec.encode(message, version)
        assert data == reference_codec.encode(message, version)
        assert codec.decode(kind, data, version) == message
        assert reference_codec.decode(kind, data, version) == message


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_both_refuse_the_same(kind: Any) -> None:
    random = Random(kind.__name__)
    for version in kind.__versions__:
        data = codec.encode(random_message(kind, version, random), version)
        for _ in range(MUTATIONS):
            broken = mutated(data, random)
            compiled = outcome(codec.decode, kind, broken, version)
            assert compiled == outcome(reference_codec.decode, kind, broken, version), broken.hex()
