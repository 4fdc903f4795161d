"""Requests of a connection, in portions of any size, and peers that misbehave."""

from __future__ import annotations

import random
import struct

import pytest

from fake_transport import FETCH, OTHER, PRODUCE, FakeSlice, Sink, connect, frame, request
from lakelog.base.memory_budget import Share
from lakelog.server.connections import receive_buffer
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.limits import SharedLimit
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.log_limits import ClosingLog
from storage_kit import ManualClock


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_answered_in_order_however_the_bytes_arrive(seed: int) -> None:
    transport, sink, _ = connect(seed)
    sizes = random.Random(seed).choices([8, 9, 100, 5_000, 70_000, 300_000], k=12)
    wanted = [request(number, size=size) for number, size in enumerate(sizes)]
    for body in wanted:
        transport.incoming += frame(body)
    transport.run()
    assert sink.requests == wanted
    assert bytes(transport.sent) == b"".join(b"<" + body + b">" for body in wanted)


def test_a_frame_of_a_forbidden_size_ends_the_connection_before_it_is_buffered() -> None:
    for size in (-1, 0, 7, (8 << 20) + 1, 2**31 - 1):
        transport, sink, connection = connect()
        transport.incoming += struct.pack(">ih", size, 0)
        transport.run()
        assert connection.closed
        assert transport.socket_closed
        assert sink.requests == []
        assert len(connection.received.buffer) <= 64 * 1024


def test_memory_grows_with_received_bytes_not_with_the_declared_length() -> None:
    transport, _, connection = connect()
    transport.incoming += struct.pack(">ih", 4 << 20, 0) + b"y" * 100
    transport.run()
    assert len(connection.received.buffer) <= 64 * 1024
    transport.incoming += b"y" * 200_000
    transport.run()
    assert len(connection.received.buffer) <= 4 * 200_100


def test_a_request_waits_for_the_one_before_it() -> None:
    transport, sink, _ = connect()
    sink.wait = True
    transport.incoming += frame(request(1)) + frame(request(2))
    transport.run()
    assert len(sink.requests) == 1
    sink.complete(0)
    transport.run()
    assert len(sink.requests) == 2
    sink.complete(1)
    assert bytes(transport.sent) == b"<" + request(1) + b"><" + request(2) + b">"


def test_an_answer_never_starts_the_next_request_in_the_middle_of_it() -> None:
    """Or many connections, each with a fetch that waits and a produce behind it, would nest."""
    transport, sink, _ = connect()
    sink.wait = True
    transport.incoming += frame(request(1)) + frame(request(2))
    transport.run()
    sink.complete(0)
    assert sink.requests == [request(1)]
    assert bytes(transport.sent) == b"<" + request(1) + b">"
    transport.run()
    assert sink.requests == [request(1), request(2)]


def test_produce_requests_do_not_wait_but_are_answered_in_order() -> None:
    transport, sink, _ = connect()
    sink.wait = True
    bodies = [request(number, PRODUCE) for number in range(3)]
    transport.incoming += b"".join(map(frame, bodies)) + frame(request(9))
    transport.run()
    assert sink.requests == bodies
    sink.complete(2)
    sink.complete(1)
    assert not transport.sent
    sink.complete(0)
    transport.run()
    assert bytes(transport.sent) == b"".join(b"<" + body + b">" for body in bodies)
    assert sink.requests[-1] == request(9)


def test_replies_that_one_event_completes_leave_together() -> None:
    """The fetch of a follower commits the records of many produce requests of one client."""
    transport, sink, connection = connect()
    sink.wait = True
    bodies = [request(number, PRODUCE) for number in range(4)]
    transport.incoming += b"".join(map(frame, bodies))
    transport.run()
    for number in (0, 1, 2):
        sink.complete(number)
    assert not transport.sent
    transport.run()
    assert bytes(transport.sent) == b"".join(b"<" + body + b">" for body in bodies[:3])
    assert transport.sends == 1
    sink.complete(3)
    assert transport.sends == 2, "nothing is left to wait for"
    transport.incoming += b"".join(map(frame, bodies[:2]))
    transport.run()
    sink.complete(4)
    connection.close()
    transport.run()
    assert transport.sends == 2


def test_a_produce_request_that_is_held_up_holds_up_those_behind_it() -> None:
    """A transaction's first batch waits for its coordinator; its second must not overtake it."""
    transport, sink, _ = connect()
    sink.wait = True
    transport.incoming += frame(request(1, PRODUCE))
    transport.run()
    sink.replies[0].pipelined = False
    transport.incoming += frame(request(2, PRODUCE)) + frame(request(3, PRODUCE))
    transport.run()
    assert len(sink.requests) == 1
    sink.complete(0)
    transport.run()
    assert len(sink.requests) == 3


def test_a_large_request_behind_a_waiting_one_is_still_received() -> None:
    transport, sink, _ = connect()
    sink.wait = True
    big = request(2, PRODUCE, size=1 << 20)
    transport.incoming += frame(request(1)) + frame(request(3)) + frame(big)[:100_000]
    transport.run()
    sink.complete(0)
    transport.run()
    sink.wait = False
    sink.complete(1)
    transport.incoming += frame(big)[100_000:]
    transport.run()
    assert sink.requests == [request(1), request(3), big]


def test_requests_behind_large_responses_go_on_when_those_leave_at_once() -> None:
    transport, sink, connection = connect()
    requests = [request(number, FETCH) for number in range(60)]
    sink.slices = {request: FakeSlice(bytes(32 * 1024)) for request in requests}
    transport.incoming += b"".join(map(frame, requests))
    transport.run()
    assert sink.requests == requests
    assert not connection.received.unhandled_bytes


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    transport, sink, connection = connect()
    transport.capacity = 0
    big = request(0, size=1 << 20)
    for _ in range(40):
        transport.incoming += frame(big)
    transport.run()
    assert transport.incoming
    assert len(sink.requests) < 12
    transport.capacity = 1 << 30
    transport.run()
    assert len(sink.requests) == 40
    assert not connection.closed


def test_closing_releases_slices_and_abandons_waiting_requests() -> None:
    transport, sink, connection = connect()
    found = FakeSlice(b"z" * 100_000)
    sink.slices[request(1)] = found
    transport.capacity = 0
    transport.incoming += frame(request(1))
    transport.run()
    sink.wait = True
    transport.incoming += frame(request(2))
    transport.run()
    abandoned: list[int] = []
    sink.replies[1].on_abandon = lambda: abandoned.append(1)
    transport.eof = True
    transport.run()
    assert connection.closed
    assert found.released == 1
    assert abandoned == [1]
    late = FakeSlice(b"late")
    sink.replies[1].complete([late])
    assert late.released == 1
    assert sink.closed == 1


def test_a_file_that_a_thread_reads_from_is_held_until_it_has() -> None:
    transport, sink, connection = connect()
    found = FakeSlice(b"z" * 100)
    sink.slices[request(1)] = found
    transport.cold.add(0)
    transport.incoming += frame(request(1))
    transport.run()
    connection.close()
    assert (found.released, found.held) == (1, 1)
    transport.offloaded[0].finish()
    assert (found.released, found.held) == (1, 0)
    assert len(transport.offloaded) == 1


def test_a_violation_closes_the_connection() -> None:
    transport, sink, connection = connect()
    sink.violate = True
    transport.incoming += frame(request(1))
    transport.run()
    assert connection.closed
    assert sink.closed == 1


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
def test_an_exception_of_a_request_or_its_response_ends_the_connection(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise kind("planted")

    for owner, name in ((Sink, "on_request"), (Connection, "_take_requests")):
        transport, sink, connection = connect()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            transport.incoming += frame(request(1))
            transport.run()
        assert connection.closed
        assert isinstance(sink.failures[0], kind)


def test_without_memory_to_receive_into_the_connection_ends_and_the_budget_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = RequestMemory(Share(1 << 20))
    transport, sink, connection = connect(memory=memory)

    class NoMemory(bytearray):
        def __new__(cls, size: int) -> NoMemory:
            if size > 4096:
                raise MemoryError
            return super().__new__(cls)

    monkeypatch.setattr(receive_buffer, "bytearray", NoMemory, raising=False)
    transport.incoming += frame(request(1, size=300_000))
    transport.run()
    assert connection.closed
    assert isinstance(sink.failures[0], MemoryError)
    assert memory.share.used == 0


def test_an_idle_connection_holds_no_buffer() -> None:
    transport, sink, connection = connect()
    transport.incoming += frame(request(1))
    transport.run()
    connection.drop_idle_buffer()
    assert len(connection.received.buffer) == 0
    transport.incoming += frame(request(2))[:5]
    transport.run()
    connection.drop_idle_buffer()
    transport.incoming += frame(request(2))[5:]
    transport.run()
    assert sink.requests == [request(1), request(2)]


def test_half_requests_share_one_budget_and_small_ones_are_heard_all_the_same() -> None:
    memory = RequestMemory(Share(1 << 20))
    half = struct.pack(">ihh", 1 << 20, OTHER, 0) + b"y" * 900_000
    first, second, third = (connect(memory=memory) for _ in range(3))
    for transport, _, _ in (first, second, third):
        transport.incoming += half
        transport.run()
    assert third[0].readable is None
    assert memory.share.used < 3 << 20
    transport, sink, _ = connect(memory=memory)
    transport.incoming += frame(request(1))
    transport.run()
    assert len(sink.requests) == 1
    for transport, _, _ in (first, second, third):
        transport.incoming += b"y" * ((1 << 20) - 900_004)
    for _ in range(3):
        for transport, _, _ in (first, second, third):
            transport.run()
    assert [len(sink.requests) for _, sink, _ in (first, second, third)] == [1, 1, 1]
    for _, _, connection in (first, second, third):
        connection.close()
    assert memory.share.used == 0


def test_a_large_buffer_is_given_back_as_soon_as_its_request_is_handled() -> None:
    memory = RequestMemory(Share(0))
    transport, sink, connection = connect(memory=memory)
    transport.incoming += frame(request(1, size=6 << 20))
    transport.run()
    assert len(sink.requests) == 1
    assert memory.share.used == 0
    assert len(connection.received.buffer) == 0


@pytest.mark.parametrize(("key", "most"), [(OTHER, 1), (PRODUCE, 64)])
def test_many_requests_of_one_connection_leave_the_loop_to_others(key: int, most: int) -> None:
    """Thousands fit into a buffer; one iteration of the loop must not handle them all."""
    transport, sink, connection = connect()
    transport.incoming += b"".join(frame(request(number, key)) for number in range(5_000))
    handled = 0
    while len(sink.requests) < 5_000:
        if transport.soon:
            transport.soon.popleft()()
        else:
            assert transport.readable is not None
            transport.readable()
        assert len(sink.requests) - handled <= most
        assert connection.received.unhandled_bytes < 600_000
        assert len(transport.soon) <= 1
        handled = len(sink.requests)
    assert bytes(transport.sent).startswith(b"<" + request(0, key) + b"><" + request(1, key) + b">")
    assert transport.readable is not None


def test_unread_responses_share_one_limit() -> None:
    unread = SharedLimit(Share(2_500_000), ClosingLog(ManualClock()), "unread responses")
    crowd = [connect(unread=unread) for _ in range(4)]
    connections = [connection for _, _, connection in crowd]
    file_world, file_sink, of_file = crowd[0]
    file_sink.slices[request(2)] = FakeSlice(bytes(9 << 20))
    file_world.capacity = 0
    file_world.incoming += frame(request(2))
    file_world.run()
    assert 512 <= unread.total < 600, "records in a file take no memory, but their range does"
    for (transport, _, _), size in zip(crowd[1:], [900_000, 800_000, 700_000], strict=True):
        transport.capacity = 0
        transport.incoming += frame(request(1, size=size))
        transport.run()
    assert 2_400_000 < unread.total < 2_500_000
    crowd[3][0].incoming += frame(request(1, size=150_000))
    crowd[3][0].run()
    assert [connection.closed for connection in connections] == [False, True, False, False]
    for transport, _, _ in crowd:
        transport.capacity = 20 << 20
        transport.run()
    assert unread.total == 0
    assert not of_file.closed


def test_one_response_too_many_waits_until_some_are_read() -> None:
    transport, sink, connection = connect()
    transport.capacity = 0
    for number in range(10):
        transport.incoming += frame(request(number, size=400_000))
    transport.run()
    assert len(sink.requests) == 3
    assert connection.responses.unread_memory < 1_300_000
    transport.capacity = 1 << 30
    transport.run()
    assert len(sink.requests) == 10


def test_a_short_rest_keeps_no_large_buffer() -> None:
    memory = RequestMemory(Share(0))
    transport, sink, connection = connect(memory=memory)
    transport.incoming += frame(request(1, size=60_000)) + frame(request(2, size=50))[:20]
    transport.run()
    assert connection.received.held_bytes
    connection.drop_idle_buffer()
    assert (connection.received.held_bytes, memory.share.used) == (0, 0)
    transport.incoming += frame(request(2, size=50))[20:] + frame(request(3, size=60_000))
    transport.run()
    assert len(sink.requests) == 3


def test_a_muted_connection_handles_requests_after_its_time_only() -> None:
    transport, sink, connection = connect()
    connection.mute(0.5)
    bodies = [request(number) for number in range(3)]
    for body in bodies:
        transport.incoming += frame(body)
    transport.run()
    assert sink.requests == []
    ((delay_s, end),) = transport.timers
    assert delay_s == 0.5
    end()
    transport.run()
    assert sink.requests == bodies
    assert bytes(transport.sent) == b"".join(b"<" + body + b">" for body in bodies)


def test_a_muted_client_that_leaves_is_closed_at_once() -> None:
    transport, sink, connection = connect()
    connection.mute(0.5)
    transport.incoming += frame(request(1))
    transport.eof = True
    transport.run()
    assert connection.closed
    for _, end in transport.timers:
        end()
    transport.run()
    assert sink.requests == []


def test_responses_are_sent_while_a_connection_is_muted() -> None:
    transport, sink, connection = connect()
    transport.capacity = 0
    transport.incoming += frame(request(1))
    transport.run()
    connection.mute(0.5)
    transport.capacity = 1 << 30
    transport.run()
    assert bytes(transport.sent) == b"<" + request(1) + b">"
    assert sink.requests == [request(1)]
