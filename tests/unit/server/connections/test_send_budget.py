"""What all connections together send in one iteration of the loop: bytes are counted, not times."""

from __future__ import annotations

import pytest

from fake_transport import FETCH, CrowdedLoop, FakeSlice, FakeTransport, frame, request
from lakelog.server.connections.send_budget import ITERATION_BYTES, SMALL
from lakelog.server.connections.send_queue import SEND_SIZE_MAX

MIB = 1 << 20
CROWD = 40


def crowd(loop: CrowdedLoop, size: int, *, at_once: bool = False) -> list[FakeTransport]:
    """Connections whose sockets take everything, each with one request for so many bytes."""
    transports = []
    for _ in range(CROWD):
        transport, sink, _ = loop.connect()
        wanted = request(1, FETCH)
        sink.slices[wanted] = FakeSlice(bytes(size))
        sink.slices[wanted].is_resident = True
        sink.at_once = at_once
        transport.incoming += frame(wanted)
        transports.append(transport)
    return transports


@pytest.mark.parametrize(("size", "at_once"), [(3 * MIB, False), (MIB, True), (100_000, True)])
def test_all_together_send_a_bounded_part_and_each_gets_its_share(size: int, at_once: bool) -> None:
    loop = CrowdedLoop()
    transports = crowd(loop, size, at_once=at_once)
    iterations = 0
    while any(len(transport.sent) <= size for transport in transports):
        assert loop.iteration() <= ITERATION_BYTES + 100 * CROWD
        parts = sorted(len(transport.sent) for transport in transports)
        assert parts[-1] - parts[0] <= SEND_SIZE_MAX + 100
        iterations += 1
    assert CROWD * size / ITERATION_BYTES <= iterations <= 2 * CROWD * size / ITERATION_BYTES + 5
    assert loop.iterations.sending.waiting == 0
    assert not loop.soon or loop.iteration() == 0


def test_a_small_response_does_not_wait_for_large_ones() -> None:
    loop = CrowdedLoop()
    crowd(loop, 20 * MIB)
    good, _, _ = loop.connect()
    for number in range(10):
        loop.iteration()
        good.incoming += frame(request(number))
        loop.iteration()
        assert bytes(good.sent) == b"<" + request(number) + b">"
        del good.sent[:]


def test_a_late_response_waits_for_its_turn_unless_it_is_small() -> None:
    loop = CrowdedLoop()
    crowd(loop, 20 * MIB)
    asked, sink, _ = loop.connect()
    sink.wait = True
    asked.incoming += frame(request(1))
    loop.iteration()
    loop.iterations.sending.left = 0
    sink.replies[0].complete([bytes(SMALL + 1)])
    assert not asked.sent
    assert loop.iterations.sending.waiting
    while not asked.sent:
        loop.iteration()
    assert len(asked.sent) == SMALL + 1
    asked.incoming += frame(request(2))
    loop.iteration()
    loop.iterations.sending.left = 0
    sink.replies[1].complete([bytes(SMALL)])
    assert len(asked.sent) == SMALL + 1 + SMALL


def test_small_responses_take_nothing_of_a_loop_iteration() -> None:
    loop = CrowdedLoop()
    asked, _, _ = loop.connect()
    for number in range(10):
        asked.incoming += frame(request(number))
        loop.iteration()
    assert asked.sent
    assert loop.iterations.sending.left == ITERATION_BYTES


def test_a_loop_iteration_is_used_to_its_last_byte() -> None:
    loop = CrowdedLoop()
    crowd(loop, 3 * MIB)
    loop.iteration()
    loop.iterations.sending.left = 1
    late, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(MIB))
    late.incoming += frame(request(1))
    assert late.readable
    late.readable()
    assert late.sent
    assert loop.iterations.sending.left <= 0


def test_a_loop_iteration_resumes_no_connection_that_could_not_send() -> None:
    iterations = CrowdedLoop().iterations
    sending, resumed = iterations.sending, list[int]()
    for number in range(1000):

        def resume(number: int = number) -> None:
            resumed.append(number)
            sending.spend(ITERATION_BYTES // 4)

        sending.wait(resume)
    iterations.loop_iterations.next_iteration()
    assert resumed == [0, 1, 2, 3]
    assert sending.waiting == 996


def test_a_single_reader_sends_as_much_in_a_loop_iteration_as_before() -> None:
    loop = CrowdedLoop()
    transport, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(20 * MIB))
    transport.incoming += frame(request(1))
    assert [loop.iteration() for _ in range(19)] == [SEND_SIZE_MAX] * 19


def test_full_sockets_keep_no_other_waiting() -> None:
    loop = CrowdedLoop()
    for transport in crowd(loop, 20 * MIB):
        transport.capacity = 10_000
    quick, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(20 * MIB))
    quick.incoming += frame(request(1))
    for _ in range(21):
        loop.iteration()
    assert len(quick.sent) > 20 * MIB


def test_a_connection_that_is_closed_while_it_waits_leaves_its_turn_to_others() -> None:
    loop = CrowdedLoop()
    waiting = crowd(loop, 3 * MIB)
    found = [loop.connect() for _ in range(5)]
    for transport, sink, _ in found:
        sink.slices[request(1, FETCH)] = FakeSlice(bytes(3 * MIB))
        transport.incoming += frame(request(1, FETCH))
    loop.iteration()
    for _, sink, connection in found:
        connection.close()
        assert sink.slices[request(1, FETCH)].released == 1
    while any(len(transport.sent) <= 3 * MIB for transport in waiting):
        assert loop.iteration()
    assert all(len(transport.sent) < 10 for transport, _, _ in found)
