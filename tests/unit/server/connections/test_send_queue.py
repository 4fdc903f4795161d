"""Responses of bytes and ranges of files, and the waits for the device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from connection_world import FETCH, FakeSlice, FakeWorld, Sink, connect, frame, pages, request


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_file_slices_go_out_between_the_bytes_and_are_released_once(seed: int | None) -> None:
    world, sink, _ = connect(seed)
    data = random.Random(5).randbytes(3_000_000)
    found = FakeSlice(data)
    sink.slices[request(1)] = found
    world.incoming += frame(request(1)) + frame(request(2))
    world.run()
    assert bytes(world.sent) == b"<" + data + b"><" + request(2) + b">"
    assert found.released == 1


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_socket_that_sends_no_files_is_given_their_bytes(seed: int | None, at_once: bool) -> None:
    """As a socket that encrypts."""
    world, sink, _ = connect(seed)
    world.sends_files = False
    data = random.Random(5).randbytes(300_000)
    found = FakeSlice(data)
    found.is_resident = True if at_once else None
    sink.slices[request(1)] = found
    sink.at_once = at_once
    world.incoming += frame(request(1))
    world.run()
    assert bytes(world.sent) == (b"<<<" + data + b">>>" if at_once else b"<" + data + b">")
    assert (found.released, world.files_sent) == (1, 0)


def test_a_cold_range_is_read_ahead_before_it_is_sent() -> None:
    world, sink, _ = connect()
    found = FakeSlice(b"z" * 100)
    sink.slices[request(1)] = found
    world.cold.add(0)
    world.incoming += frame(request(1))
    world.run()
    assert bytes(world.sent) == b"<"
    world.offloaded[0].finish()
    world.run()
    assert bytes(world.sent) == b"<" + b"z" * 100 + b">"


def test_a_thread_is_the_first_at_every_page_that_is_not_there() -> None:
    """The loop sends nothing else (see `send_file`), and that in short turns."""
    world, sink, _ = connect()
    data = random.Random(7).randbytes(5_500_000)
    world.cold = set(pages(0, len(data) + 1_000_000))
    found = sink.slices[request(1)] = FakeSlice(data)
    send_file, turns = world.send_file, []

    def note_send(sock: Any, file: Any, offset: int, count: int) -> int:
        turns.append(count)
        return send_file(sock, file, offset, count)

    world.send_file = note_send  # type: ignore[method-assign]
    world.incoming += frame(request(1))
    world.run()
    for number in range(3):
        assert len(world.offloaded) == number + 1
        world.offloaded[number].finish()
        world.run()
    assert bytes(world.sent) == b"<" + data + b">"
    assert max(turns) == 256 * 1024
    assert (found.released, found.held) == (1, 0)


def test_no_more_is_read_for_a_peer_that_does_not_read() -> None:
    world, sink, _ = connect()
    data = bytes(64 << 20)
    world.cold = set(pages(0, len(data)))
    sink.slices[request(1)] = FakeSlice(data)
    world.room = 500_000
    world.incoming += frame(request(1))
    world.run()
    world.offloaded[0].finish()
    world.run()
    assert len(world.sent) == 500_000
    assert len(world.offloaded) == 1
    assert len(data) - len(world.cold) * 4096 <= 2 << 20


def test_a_reader_that_goes_elsewhere_has_that_read_and_no_more_than_it_asks_for() -> None:
    world, sink, _ = connect()
    data = random.Random(8).randbytes(8 << 20)
    world.cold = set(pages(0, len(data)))
    places = [6 << 20, 1 << 20, 3 << 20]
    for number, start in enumerate(places):
        sink.slices[request(number)] = FakeSlice(data, start, 100_000)
        before = len(world.cold)
        world.incoming += frame(request(number))
        world.run()
        while len(world.sent) < (number + 1) * 100_002:
            next(job for job in world.offloaded if job.callback is not None).finish()
            world.run()
        assert before - len(world.cold) <= 150
    assert bytes(world.sent) == b"".join(b"<" + data[at : at + 100_000] + b">" for at in places)


def test_a_device_that_fails_ends_the_connection() -> None:
    world, sink, connection = connect()
    found = FakeSlice(b"z" * 100_000)
    sink.slices[request(1)] = found
    world.cold.add(0)

    def fail(file: Any, offset: int, size: int) -> bool:
        raise OSError("the device")

    world.read_ahead = fail  # type: ignore[method-assign]
    world.incoming += frame(request(1))
    world.run()
    world.offloaded[0].finish()
    assert connection.closed
    assert (found.released, found.held) == (1, 0)


def test_a_thread_that_cannot_be_started_ends_the_connection() -> None:
    world, sink, connection = connect()
    found = FakeSlice(b"z" * 100_000)
    sink.slices[request(1)] = found
    world.cold.add(0)

    def fail(lane: str, work: Callable[[], Any]) -> Any:
        raise RuntimeError("can't start new thread")

    world.offload = fail  # type: ignore[method-assign]
    world.incoming += frame(request(1))
    world.run()
    assert connection.closed
    assert [str(failure) for failure in sink.failures] == ["can't start new thread"]
    assert (found.released, found.held) == (1, 0)


def test_a_small_range_goes_out_with_the_bytes_around_it() -> None:
    world, sink, _ = connect()
    found = FakeSlice(b"z" * 100)
    sink.slices[request(1)] = found
    world.incoming += frame(request(1))
    world.run()
    assert bytes(world.sent) == b"<" + b"z" * 100 + b">"
    assert (world.sends, world.files_sent, found.released) == (1, 0, 1)


SLICE = random.Random(7).randbytes(100_000)


def fetching(sink: Sink, *numbers: int, data: bytes = SLICE) -> tuple[list[FakeSlice], bytes]:
    """Requests whose slices are sent at once, and all their frames."""
    sink.at_once = True
    bodies = [request(number, FETCH) for number in numbers]
    found = [FakeSlice(data) for _ in bodies]
    sink.slices.update(zip(bodies, found, strict=True))
    for one in found:
        one.is_resident = True
    return found, b"".join(map(frame, bodies))


@pytest.mark.parametrize("room", [0, 1, 3, 4, 60_000, 100_002, 100_003, 100_005, 100_006])
def test_a_slice_for_a_lone_request_is_sent_at_once_as_far_as_there_is_room(room: int) -> None:
    world, sink, _ = connect()
    (found,), frames = fetching(sink, 1)
    world.incoming += frames
    world.room = room
    world.run()
    assert bytes(world.sent) == (b"<<<" + SLICE + b">>>")[:room]
    assert found.released == (room >= 100_003)
    world.room = 1 << 30
    world.run()
    assert bytes(world.sent) == b"<<<" + SLICE + b">>>"
    assert found.released == 1
    world.incoming += frames
    world.run()
    assert len(world.sent) == 2 * 100_006


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [100, 32 * 1024, 32 * 1024 + 1, 1 << 20, 3 << 20])
def test_slices_sent_at_once_or_not_keep_their_order(seed: int, size: int) -> None:
    world, sink, _ = connect(seed)
    data = random.Random(seed).randbytes(size)
    found, frames = fetching(sink, 1, 2, 3, data=data)
    world.incoming += frames
    world.run()
    assert bytes(world.sent) == (b"<<<" + data + b">>>") * 3
    assert [one.released for one in found] == [1, 1, 1]


def test_of_requests_that_came_together_each_waits_for_a_turn_to_send() -> None:
    world, sink, _ = connect()
    _, frames = fetching(sink, 1, 2, data=bytes(1 << 20))
    world.incoming += frames
    assert world.readable is not None
    world.readable()
    assert world.files_sent == 1


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_peer_that_is_gone_while_a_slice_is_sent(calls: int) -> None:
    world, sink, connection = connect()
    (found,), frames = fetching(sink, 1)
    world.incoming += frames
    world.calls_until_gone = calls
    world.run()
    assert connection.closed
    assert found.released == 1
    assert bytes(world.sent) == (b"", b"<<<", b"<<<" + SLICE)[calls]


@pytest.mark.parametrize("room", [0, 1, 105, 106])
def test_a_small_answer_to_a_lone_request_is_sent_at_once(room: int) -> None:
    world, sink, connection = connect()
    (found,), frames = fetching(sink, 1, data=bytes(100))
    world.incoming += frames
    world.room = room
    world.run()
    assert bytes(world.sent) == (b"<<<" + bytes(100) + b">>>")[:room]
    assert found.released == 1
    world.room = 1 << 30
    world.run()
    assert bytes(world.sent) == b"<<<" + bytes(100) + b">>>"
    world.calls_until_gone = 0
    world.incoming += frames
    world.run()
    assert connection.closed
    assert found.released == 2


def read_in_sequence(world: FakeWorld, sink: Sink, data: bytes, size: int) -> list[int]:
    """The connection asks for `size` bytes at a time; how often a thread has read for each."""
    turns = []
    sink.at_once = True
    for number, start in enumerate(range(0, len(data), size)):
        found = sink.slices[request(number, FETCH)] = FakeSlice(data, start, size)
        found.is_resident = bool(number) or None
        before, wanted = len(world.offloaded), (number + 1) * (size + 6)
        world.incoming += frame(request(number, FETCH))
        world.run()
        while len(world.sent) < wanted:
            world.offloaded[-1].finish()
            world.run()
        turns.append(len(world.offloaded) - before)
    return turns


def test_the_loop_is_never_first_at_a_page_that_has_the_kernel_read_ahead() -> None:
    """The bytes behind a cold range look resident, because the kernel has read them ahead."""
    world, sink, _ = connect()
    data = random.Random(9).randbytes(24 << 20)
    world.cold = set(pages(0, 1 << 20))
    world.marked = {place // 4096 for place in range(3 << 20, len(data), 5 << 20)}
    turns = read_in_sequence(world, sink, data, 1 << 20)
    assert [number for number, count in enumerate(turns) if count] == [0, *range(1, 24, 4)]
    assert not world.marked


def test_a_reader_of_resident_ranges_needs_no_thread_any_more() -> None:
    world, sink, _ = connect()
    world.cold = {0}
    turns = read_in_sequence(world, sink, bytes(40 << 20), 1 << 20)
    assert [number for number, count in enumerate(turns) if count] == [0, *range(1, 32, 4)]


def test_a_range_known_not_to_be_resident_is_not_probed_again() -> None:
    """The kernel reads a page when it is probed, so a second probe would find it."""
    world, sink, _ = connect()
    (found,), frames = fetching(sink, 1)
    found.is_resident = False
    world.incoming += frames
    world.run()
    assert (world.files_sent, world.probes) == (0, [])
    world.offloaded[0].finish()
    world.run()
    assert bytes(world.sent) == b"<<<" + SLICE + b">>>"
