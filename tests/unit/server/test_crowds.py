"""Hundreds of connections that all want something in one loop iteration, beside a client that is
served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fake_transport import (
    FETCH,
    OTHER,
    PRODUCE,
    CrowdedLoop,
    FakeTransport,
    Sink,
    WorkingSink,
    frame,
    request,
)
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchRequest
from lakelog.runtime.loop_iterations import PART_S
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_budget import FREE, Rank
from lakelog.server.fetches.pending import PendingFetch
from lakelog.wire.framing import encode_request
from socketless_broker import SocketlessBroker

CROWD = 600
TAKES_S = 0.0001
WAIT_S_MAX = 0.01
"""Seconds of a good client's response: two iterations of the loop and their overhead."""
Member = tuple[FakeTransport, Sink, Connection]


def join(loop: CrowdedLoop, takes_s: float = TAKES_S) -> Member:
    return loop.connect(WorkingSink(loop, takes_s))


def answer_once(loop: CrowdedLoop, members: list[Member]) -> None:
    """So that they are no new connections."""
    for transport, _, _ in members:
        transport.incoming += frame(request(0, FETCH))
        while not transport.sent:
            loop.iteration()
        del transport.sent[:]


def is_answered(transport: FakeTransport, request_: bytes) -> bool:
    return transport.sent == b"<" + request_ + b">"


def wait_of_good_client(loop: CrowdedLoop, good: FakeTransport, key: int = FETCH) -> float:
    """Seconds until it is answered: it is last of all that are ready in this loop iteration."""
    wanted = request(7, key)
    loop.transports.remove(good)
    loop.transports.append(good)
    good.incoming += frame(wanted)
    begun = loop.now
    while not good.sent:
        loop.iteration()
    assert is_answered(good, wanted)
    del good.sent[:]
    return loop.now - begun


@pytest.mark.parametrize("good_key", [PRODUCE, FETCH, OTHER])
@pytest.mark.parametrize("crowd_key", [PRODUCE, FETCH, OTHER])
def test_the_first_requests_of_a_crowd_keep_no_good_client_waiting(
    crowd_key: int, good_key: int
) -> None:
    loop = CrowdedLoop()
    good = join(loop)
    answer_once(loop, [good])
    crowd = [join(loop) for _ in range(CROWD)]
    for transport, _, _ in crowd:
        transport.incoming += frame(request(1, crowd_key))
    for _ in range(8):
        assert wait_of_good_client(loop, good[0], good_key) <= WAIT_S_MAX
    assert loop.iterations.waiting
    while loop.iterations.waiting:
        begun = loop.now
        loop.iteration()
        assert loop.now - begun <= len(Rank) * (PART_S + TAKES_S)
    assert all(is_answered(transport, request(1, crowd_key)) for transport, _, _ in crowd)


def test_a_crowd_is_answered_in_turns_and_in_the_order_of_coming() -> None:
    loop = CrowdedLoop()
    crowd = [join(loop) for _ in range(CROWD)]
    answer_once(loop, crowd)
    for transport, _, _ in crowd:
        transport.incoming += frame(request(1, FETCH))
    iterations = 0
    while not all(transport.sent for transport, _, _ in crowd):
        begun = loop.now
        loop.iteration()
        iterations += 1
        assert loop.now - begun <= PART_S + (FREE + 1) * TAKES_S
        answered = [bool(transport.sent) for transport, _, _ in crowd]
        assert answered == sorted(answered, reverse=True)
    assert iterations <= CROWD * TAKES_S / PART_S + 2
    assert not loop.iterations.waiting


def test_requests_that_wait_keep_their_order_in_each_connection() -> None:
    loop = CrowdedLoop()
    crowd = [join(loop) for _ in range(200)]
    keys = [PRODUCE, PRODUCE, FETCH, OTHER, PRODUCE, FETCH, FETCH, OTHER] * 3
    requests = [request(number, key) for number, key in enumerate(keys)]
    for transport, _, _ in crowd:
        transport.incoming += b"".join(map(frame, requests))
    while not all(len(sink.requests) == len(requests) for _, sink, _ in crowd):
        assert loop.soon or any(transport.incoming for transport in loop.transports)
        loop.iteration()
    expected = b"".join(b"<" + one + b">" for one in requests)
    assert all(transport.sent == expected for transport, _, _ in crowd)
    assert all(sink.requests == requests for _, sink, _ in crowd)


def test_large_requests_count_by_their_size() -> None:
    loop, size, takes_s = CrowdedLoop(), 1 << 20, 0.002
    crowd = [join(loop, takes_s) for _ in range(40)]
    for transport, _, _ in crowd:
        transport.incoming += frame(request(1, PRODUCE, size))
    while not all(transport.sent for transport, _, _ in crowd):
        begun = loop.now
        loop.iteration()
        assert loop.now - begun <= 2 * takes_s


@pytest.mark.parametrize("count", [1, 3])
def test_requests_are_counted_one_by_one_and_by_their_bytes(count: int) -> None:
    loop = CrowdedLoop()
    transport, sink, _ = join(loop)
    for _ in range(count):
        transport.incoming += frame(request(1, PRODUCE, 70_000))
    while len(sink.requests) < count:
        assert loop.iterations.left > 0
        loop.iteration()
    assert loop.iterations.left == FREE - count - 2 * count


@pytest.mark.parametrize("ending", ["end", "reset", "broken pipe"])
def test_connections_that_all_end_in_one_loop_iteration_are_closed_in_several(ending: str) -> None:
    loop = CrowdedLoop()
    good = join(loop)
    answer_once(loop, [good])
    crowd = [join(loop) for _ in range(CROWD)]
    for transport, _, connection in crowd:
        if ending == "broken pipe":
            transport.capacity = 0
            connection.responses.queue(b"unsent")
            connection.flush()
            transport.capacity, transport.calls_until_gone = 1, 0
        else:
            transport.eof, transport.is_reset = True, ending == "reset"
    assert wait_of_good_client(loop, good[0]) <= WAIT_S_MAX
    closed = sum(connection.closed for _, _, connection in crowd)
    assert FREE <= closed < CROWD
    assert loop.iterations.waiting == CROWD - closed
    assert not any(transport.readable or transport.writable for transport, _, _ in crowd)
    while closed < CROWD:
        begun = loop.now
        loop.iteration()
        assert loop.now - begun <= PART_S + TAKES_S
        closed, before = sum(connection.closed for _, _, connection in crowd), closed
        assert closed > before
    assert all(sink.closed == 1 for _, sink, _ in crowd)
    assert all(transport.socket_closed and not transport.readable for transport, _, _ in crowd)
    assert not loop.iterations.waiting


def test_a_connection_that_is_closed_while_it_waits_is_not_handled() -> None:
    loop = CrowdedLoop()
    crowd = [join(loop) for _ in range(CROWD)]
    for transport, _, _ in crowd:
        transport.incoming += frame(request(1, FETCH))
    loop.iteration()
    handled = [sink for _, sink, _ in crowd if sink.requests]
    for _, _, connection in crowd:
        connection.close()
    while loop.soon:
        loop.iteration()
    assert [sink for _, sink, _ in crowd if sink.requests] == handled
    assert not loop.iterations.waiting


def test_fetches_that_take_long_share_the_iterations_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of thousands of partitions is small where nothing has changed in its session."""
    handled = 0

    async def scenario() -> None:
        broker = SocketlessBroker(tmp_path)
        await broker.start()
        start = PendingFetch.start

        def start_slowly(self: PendingFetch) -> None:
            nonlocal handled
            handled += 1
            broker.clock.now_ms += 40
            start(self)

        monkeypatch.setattr(PendingFetch, "start", start_slowly)
        request = FetchRequest(max_bytes=1 << 20, topics=[])
        frame = b"".join(encode_request(api_for(FetchRequest), 12, 1, "client", request))
        sockets = []
        for _ in range(20):
            broker.connect()
            sockets.append(broker.socket)
        for sock in sockets:
            sock.incoming += frame
            assert sock.readable is not None
            sock.readable()
        assert handled <= 2
        for _ in sockets:
            await asyncio.sleep(0)
        assert all(sock.sent for sock in sockets)
        await broker.stop()

    asyncio.run(scenario())
