from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import pytest

from lakelog.base.memory_budget import Share
from lakelog.server.connections.receive_buffer import (
    BUFFER_SIZE_MIN,
    FIRST_BUFFER_SIZE,
    ReceiveBuffer,
    RequestMemory,
)
from lakelog.server.connections.reply import Reply


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
    assert third in third._memory.waiting
    second.close()
    assert asked == ["third"]
    assert third not in third._memory.waiting


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


def never() -> None:
    raise AssertionError("nothing has been given back")


def test_without_a_limit_everything_is_granted() -> None:
    memory = RequestMemory(Share(0))
    assert memory.take("a", 1 << 40, never)
    assert not memory.is_short


def test_one_owner_overdraws_and_the_others_wait_until_it_gives_back() -> None:
    memory, asked = RequestMemory(Share(100)), []
    assert memory.take("a", 90, never)
    assert memory.take("b", 90, never), "b overdraws"
    assert not memory.take("c", 1, lambda: asked.append("c"))
    assert memory.take("b", 10, never), "the owner that has overdrawn may go further"
    assert memory.waiting["c"].size == 1
    memory.give("b", 100)
    assert (asked, memory.waiting, memory.is_short) == (["c"], {}, False)
    assert memory.take("c", 1, never)
    assert (memory.of("a"), memory.of("b"), memory.of("c"), memory.share.used) == (90, 0, 1, 91)


class Peer:
    closed = False

    def on_reply(self, reply: Reply) -> None: ...


WAITING = [f"w{number}" for number in range(10)]


def crowded() -> tuple[RequestMemory, list[str]]:
    """Ten owners wait for 30 bytes each; "a" holds 100 of 100, and "b" has overdrawn by 20."""
    memory, asked = RequestMemory(Share(100)), []
    assert memory.take("a", 100, never)
    assert memory.take("b", 20, never)
    for name in WAITING:
        assert not memory.take(name, 30, lambda name=name: asked.append(name))  # type: ignore[misc]
    return memory, asked


def test_only_owners_whose_bytes_fit_are_resumed_and_one_may_overdraw() -> None:
    memory, asked = crowded()
    memory.give("b", 20)
    assert asked == ["w0"], "it overdraws"
    memory.give("a", 70)
    assert asked == ["w0", "w1"]
    assert memory.share.used == 90, "promised memory counts as used"
    assert memory.take(WAITING[1], 30, never)
    assert memory.take(WAITING[0], 10, never), "it wants less by now"
    assert memory.share.used == 70
    memory.give(WAITING[0], 10)
    assert asked == ["w0", "w1", "w2", "w3"], "one fits, one overdraws"
    assert len(memory.waiting) == 6
    memory.share.check()


def test_bytes_promised_to_an_owner_that_leaves_go_to_the_next() -> None:
    memory, asked = crowded()
    memory.give("b", 20)
    for number, name in enumerate(WAITING):
        assert asked == WAITING[: number + 1]
        memory.leave(name)
    assert (memory.waiting, memory.is_short, memory.share.used) == ({}, False, 100)


def test_an_owner_that_leaves_waits_no_longer() -> None:
    memory = RequestMemory(Share(10))
    memory.take("a", 20, never)
    assert not memory.take("b", 1, never)
    memory.leave("b")
    memory.give("a", 20)
    assert (memory.share.used, memory.is_short) == (0, False)


def test_optional_memory_leaves_half_of_the_budget_to_others() -> None:
    memory = RequestMemory(Share(100))
    assert memory.try_take("a", 50)
    assert not memory.try_take("a", 1)


def test_memory_that_exists_anyway_is_counted_while_it_does() -> None:
    memory = RequestMemory(Share(10))
    reply = Reply(Peer(), pipelined=False)

    async def hold() -> None:
        with memory.holding(reply, 1000):
            assert memory.share.used == 1000

    asyncio.run(hold())
    assert memory.share.used == 0
    assert reply.on_abandon is None


@pytest.mark.parametrize(("size", "ends"), [(11, True), (10, False)])
def test_a_closed_connection_ends_its_task_while_memory_is_short(size: int, ends: bool) -> None:
    memory, completed = RequestMemory(Share(10)), []

    async def hold(peer: Peer) -> None:
        peer.closed = True
        with memory.holding(Reply(peer, pipelined=False), size):
            await asyncio.sleep(0)
            completed.append(size)

    with suppress(asyncio.CancelledError):
        asyncio.run(hold(Peer()))
    assert completed == ([] if ends else [size])
    assert memory.share.used == 0
