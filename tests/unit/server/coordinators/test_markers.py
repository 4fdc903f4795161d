from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.endings import Marker
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

E = ErrorCode


def marker(topic: str, index: int, *, commit: bool = True) -> Marker:
    return Marker(topic, index, 7, 0, commit, 0, 0)


def begin(world: MemoryBroker, index: int = 0) -> None:
    """Have producer 7 begin a transaction in a partition of `orders`."""
    log = world.partition("orders", index).log
    append_in_transaction(log, (7, 0, 0), now_ms=world.clock.wall_ms())


def test_each_marker_has_its_result(world: MemoryBroker) -> None:
    world.create("orders", 2)
    begin(world)
    wanted = [marker("orders", 0), marker("orders", 9), marker("gone", 0)]
    assert world.run(world.broker.markers.write(wanted)) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert world.partition("orders").last_stable_offset == 2


def test_a_marker_is_answered_when_it_is_durable(world: MemoryBroker) -> None:
    world.create("orders", durability="fsync")
    begin(world)
    assert world.run(world.broker.markers.write([marker("orders", 0)])) == [E.NONE]
    assert world.partition("orders").watermark.offset == 2


def test_begin_appends_before_it_returns(world: MemoryBroker) -> None:
    world.create("orders")
    begin(world)
    outcome = world.broker.markers.begin(marker("orders", 0, commit=False))
    assert world.partition("orders").log.log_end_offset == 2
    assert world.run(outcome) is E.NONE


def test_the_group_coordinator_writes_markers_of_its_topic(coordinators: MemoryBroker) -> None:
    wanted = [marker("__consumer_offsets", 0)]
    assert coordinators.run(coordinators.broker.markers.write(wanted)) == [E.NONE]
    assert coordinators.partition("__consumer_offsets").log.log_end_offset == 1


def test_a_marker_needs_min_insync_replicas(world: MemoryBroker) -> None:
    world.create("orders", min_insync_replicas="2")
    begin(world)
    assert world.run(world.broker.markers.write([marker("orders", 0)])) == [E.NOT_ENOUGH_REPLICAS]
    assert world.partition("orders").log.log_end_offset == 1


def test_a_marker_that_is_not_replicated_in_time_has_an_unknown_outcome(
    world: MemoryBroker,
) -> None:
    world.create("orders")
    begin(world)
    world.change_leader("orders", 1, (1, 2), raises=0)
    assert world.run(world.broker.markers.write([marker("orders", 0)])) == [E.REQUEST_TIMED_OUT]
    assert world.partition("orders").log.log_end_offset == 2
