from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.server.monitoring.tail import RequestTail
from lakelog.server.requests.metrics import RequestMetrics
from memory_broker import MemoryBroker


class Header(NamedTuple):
    version: int = 4
    client_id: str = "a client"


def note(
    requests: RequestMetrics,
    kind: type[FetchRequest] | type[HeartbeatRequest] = HeartbeatRequest,
    client_id: str = "a client",
) -> None:
    header = Header(client_id=client_id)
    requests.on_noteworthy(api_for(kind), header, "10.0.0.1:4", 0.001, 50)


def read(world: MemoryBroker, lines: AsyncGenerator[bytes, None]) -> list[dict[str, Any]]:
    text: bytes = world.run(anext(lines))
    return [json.loads(line) for line in text.splitlines()]


def test_a_watcher_sees_the_requests_that_it_asked_for(world: MemoryBroker) -> None:
    requests = world.broker.requests
    lines = RequestTail(world.clock, api="HEARTBEAT", client_id="a client").lines(requests)
    assert read(world, lines) == [{"watching": True}]
    note(requests, FetchRequest)
    note(requests, client_id="another")
    note(requests)
    (found,) = read(world, lines)
    assert (found["api"], found["client_id"], found["size_bytes"]) == ("Heartbeat", "a client", 50)
    assert found["time_ms"] == world.clock.wall_ms()
    world.run(lines.aclose())


def test_a_slow_watcher_learns_how_many_it_missed(world: MemoryBroker) -> None:
    requests = world.broker.requests
    lines = RequestTail(world.clock).lines(requests)
    read(world, lines)
    for _ in range(10_003):
        note(requests)
    assert read(world, lines)[-1] == {"missed": 3}
    world.run(lines.aclose())


def test_without_a_watcher_nothing_is_kept(world: MemoryBroker) -> None:
    requests = world.broker.requests
    quiet = requests.noteworthy_s
    lines = RequestTail(world.clock).lines(requests)
    read(world, lines)
    assert requests.noteworthy_s < 0 <= quiet
    world.run(lines.aclose())
    assert requests.noteworthy_s == quiet
