"""Seeded frames that no decent client sends: requests of every API and version, then damaged.

A frame is bytes as they go over a socket, its size in front, which may be a lie. Some requests stay
whole: their fields are random, which is damage enough.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from lakelog.protocol.api import Api
from lakelog.protocol.registry import APIS
from lakelog.wire.framing import encode_request
from lakelog.wire.primitives import WireError
from random_messages import random_message

_NUMBERS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x01\x86\xa1",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x80\x00",
    b"\x00",
    b"\xff",
)
"""Lengths and counts at their edges: fixed and variable, null, negative, too many."""
_APIS = sorted(APIS.values(), key=lambda api: api.key)
_SIZE = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
NEGOTIATION = b"".join(encode_request(APIS[18], 0, 1, "fuzz", APIS[18].request()))


class Frames:
    """An endless supply from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._mutations: tuple[Callable[[bytearray], bytearray], ...] = (
            self._whole,
            self._flip,
            self._number,
            self._number,
            self._cut,
            self._grow,
            self._repeat,
            self._other_version,
            self._garbage,
        )

    def next(self) -> bytes:
        body = bytearray(self._request())
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            body = self.random.choice(self._mutations)(body)
        size = len(body)
        if self.random.random() < 0.02:
            size = self.random.choice((-1, 0, 3, 7, size - 1, size + 1, 104_857_601, 2**31 - 1))
        return _SIZE.pack(size) + body

    def _request(self) -> bytes:
        while True:
            api: Api = self.random.choice(_APIS)
            version = self.random.randint(api.min_version, api.max_version)
            message = random_message(api.request, version, self.random)
            try:
                parts = encode_request(api, version, self.random.getrandbits(31), "fuzz", message)
            except WireError:
                continue
            return b"".join(bytes(part) for part in parts)[4:]

    def _place(self, body: bytearray) -> int:
        """Behind key and version, or most frames would go nowhere."""
        return self.random.randint(min(4, len(body)), len(body))

    def _whole(self, body: bytearray) -> bytearray:
        return body

    def _flip(self, body: bytearray) -> bytearray:
        for _ in range(self.random.choice((1, 2, 8))):
            start = self._place(body)
            if start < len(body):
                body[start] ^= 1 << self.random.randrange(8)
        return body

    def _number(self, body: bytearray) -> bytearray:
        start, number = self._place(body), self.random.choice(_NUMBERS)
        body[start : start + len(number)] = number
        return body

    def _cut(self, body: bytearray) -> bytearray:
        return body[: self._place(body)]

    def _grow(self, body: bytearray) -> bytearray:
        start = self._place(body)
        body[start:start] = self.random.randbytes(self.random.choice((1, 4, 100)))
        return body

    def _repeat(self, body: bytearray) -> bytearray:
        start = self._place(body)
        part = body[start : start + self.random.choice((1, 7, 50))]
        body[start:start] = part * self.random.choice((1, 20, 200))
        return body

    def _other_version(self, body: bytearray) -> bytearray:
        """Replace the key and version, so that the broker decodes the body by another schema."""
        api: Api = self.random.choice(_APIS)
        version = self.random.randint(-1, api.max_version + 1)
        key = api.key if self.random.random() < 0.9 else self.random.getrandbits(15)
        body[:4] = _KEY_AND_VERSION.pack(key, version)
        return body

    def _garbage(self, body: bytearray) -> bytearray:
        return body[:4] + self.random.randbytes(self.random.choice((4, 40, 400)))
