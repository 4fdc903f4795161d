"""Connections that are idle, stuck, or hold memory that others wait for."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fake_transport import OTHER, FakeSlice, connect, frame, request
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.memory_budget import MemoryBudget, Share
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.authentication import BrokersApart, NoQuotas
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.listeners import ConnectionRegistry
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.connections.reply import Reply
from lakelog.server.connections.sweep import ConnectionSweep
from lakelog.server.requests.admission import Admission

RELEASE = Admission(BrokersApart(()), NoQuotas()).release


def registry_of(
    clock: FakeClock, *connections: Connection, memory: RequestMemory | None = None
) -> ConnectionRegistry:
    """The connections of a sweep."""
    tasks: Any = None
    registry = ConnectionRegistry(clock, LoopIterations(clock, tasks), MemoryBudget(0))
    registry.memory = memory or registry.memory
    for connection in connections:
        registry.add(connection)
    return registry


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ms(self) -> int:
        return int(self.now * 1000)

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def test_a_request_that_does_not_go_on_ends_its_connection() -> None:
    slow_world, _, slow = connect()
    steady_world, sink, steady = connect()
    config, _ = BrokerConfig.from_mapping({})
    clock = FakeClock()
    sweep = ConnectionSweep(
        registry_of(clock, slow, steady),
        lambda: config,
        clock,
        RELEASE,
    )
    for _, connection in ((slow_world, slow), (steady_world, steady)):
        connection.last_active = clock.now
    slow_world.incoming += struct.pack(">ih", 1000, OTHER) + b"z"
    steady_world.incoming += struct.pack(">ih", 1 << 20, OTHER)
    for _ in range(30):
        slow_world.run()
        steady_world.run()
        sweep.run()
        clock.now += 5.0
        if not slow.closed:
            slow_world.incoming += b"z"
        steady_world.incoming += b"y" * 6_000
    assert slow.closed
    assert not steady.closed
    steady_world.incoming += b"y" * (1 << 20)
    steady_world.run()
    assert sink.requests


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_trickling_client_loses_its_memory_once_another_waits(waited_for: bool) -> None:
    """Each of the slow sends 2 KiB/s, which is enough while there is memory for all."""
    memory = RequestMemory(Share(1 << 20))
    slow = [connect(memory=memory) for _ in range(5)]
    good_world, sink, good = connect(memory=memory)
    clock = FakeClock()
    registry = registry_of(clock, *(c for _, _, c in slow), good, memory=memory)
    config, _ = BrokerConfig.from_mapping({})
    sweep = ConnectionSweep(registry, lambda: config, clock, RELEASE)
    for transport, _, connection in slow:
        connection.last_active = clock.now
        transport.incoming += struct.pack(">ihh", 1 << 20, OTHER, 0) + b"y" * 100_000
        transport.run()
    good.last_active = clock.now
    if waited_for:
        good_world.incoming += frame(request(1, size=300_000))
    for _ in range(12):
        for transport, _, connection in slow:
            if not connection.closed:
                transport.incoming += b"y" * 10_240
                transport.run()
        good_world.run()
        sweep.run()
        good_world.run()
        clock.now += 5.0
    assert len(sink.requests) == waited_for
    assert any(connection.closed for _, _, connection in slow) == waited_for
    assert not good.closed


def test_a_fast_large_request_is_not_closed_for_waiting_ones() -> None:
    memory = RequestMemory(Share(1 << 20))
    large_world, sink, large = connect(memory=memory)
    other_world, _, other = connect(memory=memory)
    clock = FakeClock()
    config, _ = BrokerConfig.from_mapping({})
    sweep = ConnectionSweep(
        registry_of(clock, large, other, memory=memory),
        lambda: config,
        clock,
        RELEASE,
    )
    large.last_active = other.last_active = clock.now
    large_world.incoming += struct.pack(">ihh", 8 << 20, OTHER, 0)
    body = (8 << 20) - 4
    while body:
        size = min(body, 1 << 20)
        body -= size
        large_world.incoming += b"y" * size
        large_world.run()
        other_world.incoming += frame(request(1, size=100_000))
        other_world.run()
        sweep.run()
        clock.now += 5.0
    assert len(sink.requests) == 1
    assert not other.closed


def test_half_requests_that_wait_for_each_other_do_not_keep_others_out() -> None:
    """Without shedding the memory would go from one of them to the next, ten seconds each."""
    memory = RequestMemory(Share(4 << 20))
    clock = FakeClock()
    config, _ = BrokerConfig.from_mapping({})
    crowd = [connect(memory=memory) for _ in range(64)]
    good_world, sink, good = connect(memory=memory)
    registry = registry_of(clock, *(c for _, _, c in crowd), good, memory=memory)
    sweep = ConnectionSweep(registry, lambda: config, clock, RELEASE)
    for size in (60_000, 10_000):
        for transport, _, connection in crowd:
            connection.last_active = clock.now
            begin = struct.pack(">ihh", 1 << 20, OTHER, 0) if size == 60_000 else b""
            transport.incoming += begin + b"y" * size
            transport.run()
    assert len(memory.waiting) == 63
    good.last_active = clock.now
    good_world.incoming += frame(request(1, size=50_000))
    good_world.run()
    assert not sink.requests
    for _ in range(10):
        sweep.run()
        for transport, _, connection in crowd:
            if not connection.closed:
                transport.incoming += b"y" * 5_000
                transport.run()
        good_world.run()
        clock.now += 5.0
    assert len(sink.requests) == 1
    assert not good.closed
    assert not all(connection.closed for _, _, connection in crowd)


def test_large_buffers_with_the_begin_of_a_small_request_are_given_back_in_a_shortage() -> None:
    """A few bytes would otherwise hold the buffer of the large request before them."""
    memory = RequestMemory(Share())
    clock = FakeClock()
    config, _ = BrokerConfig.from_mapping({})
    crowd = [connect(memory=memory) for _ in range(6)]
    good_world, sink, good = connect(memory=memory)
    registry = registry_of(clock, *(c for _, _, c in crowd), good, memory=memory)
    sweep = ConnectionSweep(registry, lambda: config, clock, RELEASE)
    small = frame(request(2))
    good.last_active = clock.now
    for transport, _, connection in crowd:
        connection.last_active = clock.now
        transport.incoming += frame(request(1, size=200_000)) + small[:5]
        transport.run()
        assert connection.received.unhandled_bytes == 5
    held = memory.share.used
    sweep.run()
    assert memory.share.used == held > 6 * 200_000, "they stay for the next request"
    memory.share.bytes_max = held
    overdrawing, _, _ = connect(memory=memory)
    for transport in (overdrawing, good_world):
        transport.incoming += frame(request(3, size=50_000))[:-1]
        transport.run()
    assert good.received in memory.waiting
    sweep.run()
    good_world.incoming += b"y"
    good_world.run()
    assert len(sink.requests) == 1
    assert not any(connection.closed for _, _, connection in crowd)
    transport, its_sink, _ = crowd[0]
    transport.incoming += small[5:]
    transport.run()
    assert len(its_sink.requests) == 2


def test_a_client_that_does_not_read_responses_is_closed_eventually() -> None:
    transport, sink, connection = connect()
    slow_world, slow_sink, slow = connect()
    clock = FakeClock()
    config, _ = BrokerConfig.from_mapping({})
    sweep = ConnectionSweep(
        registry_of(clock, connection, slow),
        lambda: config,
        clock,
        RELEASE,
    )
    transport.capacity = slow_world.capacity = 0
    for one, its_sink, owner in ((transport, sink, connection), (slow_world, slow_sink, slow)):
        owner.last_active = clock.now
        its_sink.slices[request(0)] = FakeSlice(bytes(9 << 20))
        one.incoming += frame(request(0))
        one.run()
    for _ in range(8):
        slow_world.capacity += 10_240
        slow_world.run()
        sweep.run()
        clock.now += 5.0
    assert connection.closed
    assert not slow.closed


def test_a_connection_that_is_silent_for_long_is_closed_and_counted() -> None:
    clock = FakeClock()
    config, _ = BrokerConfig.from_mapping({"connections.max.idle.ms": "60000"})
    (_, _, silent), (_, _, waits) = connect(), connect()
    registry = registry_of(clock, silent, waits)
    sweep = ConnectionSweep(registry, lambda: config, clock, RELEASE)
    for connection in (silent, waits):
        connection.last_active = clock.now
    waits.expect(Reply(waits, pipelined=False))
    clock.now += 59
    sweep.run()
    assert not silent.closed
    clock.now += 2
    sweep.run()
    assert (silent.closed, waits.closed) == (True, False)
    assert registry.closings.expired == 1
