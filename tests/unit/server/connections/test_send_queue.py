"""Responses of bytes and ranges of files, and the waits for the device."""

from __future__ import annotations

import errno
import random
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from fake_transport import FETCH, FakeSlice, FakeTransport, Sink, connect, frame, pages, request
from lakelog.server.connections.send_queue import SendQueue


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_file_slices_go_out_between_the_bytes_and_are_released_once(seed: int | None) -> None:
    transport, sink, _ = connect(seed)
    data = random.Random(5).randbytes(3_000_000)
    found = FakeSlice(data)
    sink.slices[request(1)] = found
    transport.incoming += frame(request(1)) + frame(request(2))
    transport.run()
    assert bytes(transport.sent) == b"<" + data + b"><" + request(2) + b">"
    assert found.released == 1


@pytest.mark.parametrize("size", [100, 100_000])
def test_the_reply_to_a_lone_request_is_not_queued(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoded request is answered as fast as a learned one."""
    transport, sink, connection = connect()
    monkeypatch.setattr(SendQueue, "queue", pytest.fail)
    records = sink.slices[request(1, FETCH)] = FakeSlice(bytes(size))
    records.is_resident = True
    for number in (1, 2):
        transport.incoming += frame(request(number, FETCH))
        transport.run()
    answer = b"<" + request(2, FETCH) + b">"
    assert bytes(transport.sent) == b"<" + bytes(size) + b">" + answer
    assert (records.released, connection.responses.unsent) == (1, 0)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_socket_that_sends_no_files_is_given_their_bytes(seed: int | None, at_once: bool) -> None:
    """As a socket that encrypts."""
    transport, sink, _ = connect(seed, sends_files=False)
    data = random.Random(5).randbytes(300_000)
    found = FakeSlice(data)
    found.is_resident = True if at_once else None
    sink.slices[request(1)] = found
    sink.at_once = at_once
    transport.incoming += frame(request(1))
    transport.run()
    assert bytes(transport.sent) == (b"<<<" + data + b">>>" if at_once else b"<" + data + b">")
    assert (found.released, transport.files_sent) == (1, 0)


def test_a_cold_range_is_read_ahead_before_it_is_sent() -> None:
    transport, sink, _ = connect()
    found = FakeSlice(b"z" * 100)
    sink.slices[request(1)] = found
    transport.cold.add(0)
    transport.incoming += frame(request(1))
    transport.run()
    assert bytes(transport.sent) == b"<"
    transport.offloaded[0].finish()
    transport.run()
    assert bytes(transport.sent) == b"<" + b"z" * 100 + b">"


def test_a_thread_is_the_first_at_every_page_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop sends nothing else (see `send_file`), and that in short turns."""
    send_file, iterations = FakeTransport.send_file, []

    def note_send(transport: FakeTransport, sock: Any, file: Any, offset: int, count: int) -> int:
        iterations.append(count)
        return send_file(transport, sock, file, offset, count)

    monkeypatch.setattr(FakeTransport, "send_file", note_send)
    transport, sink, _ = connect()
    data = random.Random(7).randbytes(5_500_000)
    transport.cold = set(pages(0, len(data) + 1_000_000))
    found = sink.slices[request(1)] = FakeSlice(data)
    transport.incoming += frame(request(1))
    transport.run()
    for number in range(3):
        assert len(transport.offloaded) == number + 1
        transport.offloaded[number].finish()
        transport.run()
    assert bytes(transport.sent) == b"<" + data + b">"
    assert max(iterations) == 256 * 1024
    assert (found.released, found.held) == (1, 0)


def test_no_more_is_read_for_a_peer_that_does_not_read() -> None:
    transport, sink, _ = connect()
    data = bytes(64 << 20)
    transport.cold = set(pages(0, len(data)))
    sink.slices[request(1)] = FakeSlice(data)
    transport.capacity = 500_000
    transport.incoming += frame(request(1))
    transport.run()
    transport.offloaded[0].finish()
    transport.run()
    assert len(transport.sent) == 500_000
    assert len(transport.offloaded) == 1
    assert len(data) - len(transport.cold) * 4096 <= 2 << 20


def test_a_reader_that_goes_elsewhere_has_that_read_and_no_more_than_it_asks_for() -> None:
    transport, sink, _ = connect()
    data = random.Random(8).randbytes(8 << 20)
    transport.cold = set(pages(0, len(data)))
    offsets = [6 << 20, 1 << 20, 3 << 20]
    for number, start in enumerate(offsets):
        sink.slices[request(number)] = FakeSlice(data, start, 100_000)
        before = len(transport.cold)
        transport.incoming += frame(request(number))
        transport.run()
        while len(transport.sent) < (number + 1) * 100_002:
            next(job for job in transport.offloaded if job.callback is not None).finish()
            transport.run()
        assert before - len(transport.cold) <= 150
    assert bytes(transport.sent) == b"".join(
        b"<" + data[at : at + 100_000] + b">" for at in offsets
    )


def test_a_device_that_fails_ends_the_connection() -> None:
    transport, sink, connection = connect()
    found = FakeSlice(b"z" * 100_000)
    sink.slices[request(1)] = found
    transport.cold.add(0)

    def fail(file: Any, offset: int, size: int) -> bool:
        raise OSError(errno.EIO, "the device")

    transport.read_ahead = fail  # type: ignore[method-assign]
    transport.incoming += frame(request(1))
    transport.run()
    transport.offloaded[0].finish()
    transport.run()
    assert connection.closed
    assert (found.released, found.held) == (1, 0)
    assert sink.unreadable == [(found.file, errno.EIO)]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("sends_files", [False, True])
def test_a_file_that_cannot_be_read_while_it_is_sent_is_reported(
    at_once: bool, sends_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_send(*arguments: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def fail_to_read(offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(FakeTransport, "send_file", fail_to_send)
    transport, sink, connection = connect(sends_files=sends_files)
    (found,), frames = fetching(sink, 1)
    sink.at_once = at_once
    found.file.read_at = fail_to_read  # type: ignore[method-assign]
    transport.incoming += frames
    transport.run()
    assert connection.closed
    assert found.released == 1
    assert sink.unreadable == [(found.file, errno.EIO)]


@pytest.mark.parametrize("error", [ConnectionResetError(104, ""), ssl.SSLSyscallError(5, "")])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_peer_that_is_gone_is_no_failure_of_the_file(
    at_once: bool, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> int:
        raise error

    monkeypatch.setattr(FakeTransport, "send_file", fail)
    transport, sink, connection = connect()
    (found,), frames = fetching(sink, 1)
    sink.at_once = at_once
    transport.incoming += frames
    transport.run()
    assert connection.closed
    assert (found.released, sink.unreadable) == (1, [])


def test_a_thread_that_cannot_be_started_ends_the_connection() -> None:
    transport, sink, connection = connect()
    found = FakeSlice(b"z" * 100_000)
    sink.slices[request(1)] = found
    transport.cold.add(0)

    def fail(lane: str, work: Callable[[], Any]) -> Any:
        raise RuntimeError("can't start new thread")

    transport.offload = fail  # type: ignore[method-assign]
    transport.incoming += frame(request(1))
    transport.run()
    assert connection.closed
    assert [str(failure) for failure in sink.failures] == ["can't start new thread"]
    assert (found.released, found.held) == (1, 0)


def test_a_small_range_goes_out_with_the_bytes_around_it() -> None:
    transport, sink, _ = connect()
    found = FakeSlice(b"z" * 100)
    sink.slices[request(1)] = found
    transport.incoming += frame(request(1))
    transport.run()
    assert bytes(transport.sent) == b"<" + b"z" * 100 + b">"
    assert (transport.sends, transport.files_sent, found.released) == (1, 0, 1)


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


@pytest.mark.parametrize("capacity", [0, 1, 3, 4, 60_000, 100_002, 100_003, 100_005, 100_006])
def test_a_slice_for_a_lone_request_is_sent_at_once_as_far_as_there_is_room(capacity: int) -> None:
    transport, sink, _ = connect()
    (found,), frames = fetching(sink, 1)
    transport.incoming += frames
    transport.capacity = capacity
    transport.run()
    assert bytes(transport.sent) == (b"<<<" + SLICE + b">>>")[:capacity]
    assert found.released == (capacity >= 100_003)
    transport.capacity = 1 << 30
    transport.run()
    assert bytes(transport.sent) == b"<<<" + SLICE + b">>>"
    assert found.released == 1
    transport.incoming += frames
    transport.run()
    assert len(transport.sent) == 2 * 100_006


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [100, 32 * 1024, 32 * 1024 + 1, 1 << 20, 3 << 20])
def test_slices_sent_at_once_or_not_keep_their_order(seed: int, size: int) -> None:
    transport, sink, _ = connect(seed)
    data = random.Random(seed).randbytes(size)
    found, frames = fetching(sink, 1, 2, 3, data=data)
    transport.incoming += frames
    transport.run()
    assert bytes(transport.sent) == (b"<<<" + data + b">>>") * 3
    assert [one.released for one in found] == [1, 1, 1]


def test_of_requests_that_came_together_each_waits_for_a_loop_iteration_to_send() -> None:
    transport, sink, _ = connect()
    _, frames = fetching(sink, 1, 2, data=bytes(1 << 20))
    transport.incoming += frames
    assert transport.readable is not None
    transport.readable()
    assert transport.files_sent == 1


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_peer_that_is_gone_while_a_slice_is_sent(calls: int) -> None:
    transport, sink, connection = connect()
    (found,), frames = fetching(sink, 1)
    transport.incoming += frames
    transport.calls_until_gone = calls
    transport.run()
    assert connection.closed
    assert found.released == 1
    assert bytes(transport.sent) == (b"", b"<<<", b"<<<" + SLICE)[calls]


@pytest.mark.parametrize("capacity", [0, 1, 105, 106])
def test_a_small_answer_to_a_lone_request_is_sent_at_once(capacity: int) -> None:
    transport, sink, connection = connect()
    (found,), frames = fetching(sink, 1, data=bytes(100))
    transport.incoming += frames
    transport.capacity = capacity
    transport.run()
    assert bytes(transport.sent) == (b"<<<" + bytes(100) + b">>>")[:capacity]
    assert found.released == 1
    transport.capacity = 1 << 30
    transport.run()
    assert bytes(transport.sent) == b"<<<" + bytes(100) + b">>>"
    transport.calls_until_gone = 0
    transport.incoming += frames
    transport.run()
    assert connection.closed
    assert found.released == 2


def read_in_sequence(transport: FakeTransport, sink: Sink, data: bytes, size: int) -> list[int]:
    """The connection asks for `size` bytes at a time; how often a thread has read for each."""
    iterations = []
    sink.at_once = True
    for number, start in enumerate(range(0, len(data), size)):
        found = sink.slices[request(number, FETCH)] = FakeSlice(data, start, size)
        found.is_resident = bool(number) or None
        before, wanted = len(transport.offloaded), (number + 1) * (size + 6)
        transport.incoming += frame(request(number, FETCH))
        transport.run()
        while len(transport.sent) < wanted:
            transport.offloaded[-1].finish()
            transport.run()
        iterations.append(len(transport.offloaded) - before)
    return iterations


def test_the_loop_is_never_first_at_a_page_that_has_the_kernel_read_ahead() -> None:
    """The bytes behind a cold range look resident, because the kernel has read them ahead."""
    transport, sink, _ = connect()
    data = random.Random(9).randbytes(24 << 20)
    transport.cold = set(pages(0, 1 << 20))
    transport.marked = {offset // 4096 for offset in range(3 << 20, len(data), 5 << 20)}
    iterations = read_in_sequence(transport, sink, data, 1 << 20)
    assert [number for number, count in enumerate(iterations) if count] == [0, *range(1, 24, 4)]
    assert not transport.marked


def test_a_reader_of_resident_ranges_needs_no_thread_any_more() -> None:
    transport, sink, _ = connect()
    transport.cold = {0}
    iterations = read_in_sequence(transport, sink, bytes(40 << 20), 1 << 20)
    assert [number for number, count in enumerate(iterations) if count] == [0, *range(1, 32, 4)]


def test_a_range_known_not_to_be_resident_is_not_probed_again() -> None:
    """The kernel reads a page when it is probed, so a second probe would find it."""
    transport, sink, _ = connect()
    (found,), frames = fetching(sink, 1)
    found.is_resident = False
    transport.incoming += frames
    transport.run()
    assert (transport.files_sent, transport.probes) == (0, [])
    transport.offloaded[0].finish()
    transport.run()
    assert bytes(transport.sent) == b"<<<" + SLICE + b">>>"
