from __future__ import annotations

from collections.abc import Iterable

import pytest

from lakelog.server.monitoring.detail import compat, detail
from lakelog.server.monitoring.sources import Sources
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction


@pytest.fixture
def sources(world: MemoryBroker) -> Sources:
    """A broker with `orders`, whose partition 1 ends at 4, before an open transaction of 1."""
    world.create("orders", 11)
    world.append("orders", 1, count=4)
    log = world.partition("orders", 1).log
    append_in_transaction(log, (7, 0, 0), now_ms=world.clock.wall_ms())
    world.partition("orders", 1).note_flush()
    return world._server._monitoring._sources


def samples(lines: Iterable[str], name: str, *labels: str) -> list[float]:
    """Return the numbers of a name, in the order of their lines, with all of these labels."""
    found = (line for line in lines if line.startswith(f"{name}{{"))
    return [float(line.rpartition(" ")[2]) for line in found if all(one in line for one in labels)]


def test_a_partition_has_one_line_for_each_number(sources: Sources) -> None:
    lines = list(detail(sources))
    place = 'topic="orders",partition="1"'
    expected = {
        "log_start_offset": 0,
        "log_end_offset": 5,
        "high_watermark": 5,
        "last_stable_offset": 4,
        "segments": 1,
        "producers": 1,
    }
    shown = {name: samples(lines, f"lakelog_partition_{name}", place) for name in expected}
    assert shown == {name: [number] for name, number in expected.items()}


def test_partitions_are_in_numerical_order(world: MemoryBroker, sources: Sources) -> None:
    world.append("orders", 10, count=9)
    lines = list(detail(sources))
    ends = samples(lines, "lakelog_partition_log_end_offset")
    assert ends == [0, 5, *[0] * 8, 9]


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_the_other_exporters_names_show_replicas_that_lag(
    world: MemoryBroker, sources: Sources, isr: tuple[int, ...]
) -> None:
    world.change_leader("orders", 1, (1, 2), index=1)
    world.change_leader("orders", 1, isr, index=1)
    lines = list(compat(sources))
    place = 'topic="orders",partition="1"'
    assert samples(lines, "kafka_topic_partition_in_sync_replica", place) == [len(isr)]
    name = "kafka_topic_partition_under_replicated_partition"
    assert samples(lines, name, place) == [len(isr) < 2]
    assert samples(lines, "kafka_topic_partitions", 'topic="orders"') == [11]
    assert samples(lines, "kafka_topic_partition_current_offset", place) == [5]
