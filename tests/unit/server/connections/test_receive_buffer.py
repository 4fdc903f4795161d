from __future__ import annotations

import struct

from lakelog.base.memory_budget import Share
from lakelog.server.connections.receive_buffer import (
    BUFFER_SIZE_MIN,
    FIRST_BUFFER_SIZE,
    ReceiveBuffer,
)
from lakelog.server.connections.request_memory import RequestMemory


def received(memory: RequestMemory, data: bytes) -> ReceiveBuffer:
    """A buffer that `data` was received into."""
    buffer = ReceiveBuffer(memory)
    while buffer.end < len(data):
        assert buffer.free_capacity(lambda: None, stalled=False)
        more = data[buffer.end : len(buffer.buffer)]
        buffer.view[buffer.end : buffer.end + len(more)] = more
        buffer.end += len(more)
    return buffer


def test_the_first_buffer_is_outside_the_budget() -> None:
    memory = RequestMemory(Share(1))
    buffer = received(memory, bytes(FIRST_BUFFER_SIZE))
    assert (len(buffer.buffer), memory.share.used) == (FIRST_BUFFER_SIZE, 0)


def test_a_buffer_waits_for_the_budget_and_asks_again() -> None:
    memory = RequestMemory(Share(BUFFER_SIZE_MIN))
    asked: list[str] = []
    first, second, third = (received(memory, bytes(FIRST_BUFFER_SIZE)) for _ in range(3))
    assert first.free_capacity(lambda: None, stalled=False)
    assert second.free_capacity(lambda: None, stalled=False), "one may overdraw"
    assert not third.free_capacity(lambda: asked.append("third"), stalled=False)
    assert third.is_waiting
    second.close()
    assert asked == ["third"]
    assert not third.is_waiting


def test_missing_bytes_of_a_request() -> None:
    memory = RequestMemory(Share(0))
    assert ReceiveBuffer(memory).missing_bytes == 0
    assert received(memory, b"\0\0").missing_bytes == 2
    assert received(memory, struct.pack(">i", 100) + bytes(30)).missing_bytes == 70


def test_a_buffer_shrinks_only_if_its_content_is_small() -> None:
    memory = RequestMemory(Share(0))
    buffer = received(memory, bytes(10_000))
    buffer.shrink()
    assert buffer.unhandled_bytes == 10_000
    buffer.start = 9_990
    buffer.shrink()
    assert (buffer.start, buffer.end, len(buffer.buffer)) == (0, 10, FIRST_BUFFER_SIZE)
    assert (buffer.held_bytes, memory.share.used) == (0, 0)
