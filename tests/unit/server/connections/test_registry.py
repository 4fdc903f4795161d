from __future__ import annotations

from typing import Any

from fake_transport import connect
from lakelog.base.memory_budget import MemoryBudget
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.connections.registry import ConnectionRegistry
from storage_kit import ManualClock


def test_connections_are_counted_by_host_until_they_are_closed() -> None:
    tasks: Any = None
    registry = ConnectionRegistry(
        ManualClock(), LoopIterations(ManualClock(), tasks), MemoryBudget(0)
    )
    first, second = (connect()[2] for _ in range(2))
    for connection in (first, second):
        registry.add(connection)
    assert (len(registry), list(registry)) == (2, [first, second])
    assert (registry.count_from("127.0.0.1"), registry.count_from("10.0.0.1")) == (2, 0)
    for _ in range(2):
        registry.discard(first)
    assert (list(registry), registry.count_from("127.0.0.1")) == ([second], 1)


def test_a_connection_that_was_never_added_may_be_discarded() -> None:
    tasks: Any = None
    registry = ConnectionRegistry(
        ManualClock(), LoopIterations(ManualClock(), tasks), MemoryBudget(0)
    )
    registry.discard(connect()[2])
    assert len(registry) == 0
