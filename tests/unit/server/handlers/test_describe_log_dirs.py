from __future__ import annotations

import re

import pytest

from lakelog.protocol.replicas import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from lakelog.server.handlers.describe_log_dirs import handle
from memory_broker import DATA, MemoryBroker


def ask(
    world: MemoryBroker, wanted: dict[str, list[int]] | None, version: int = 4
) -> DescribeLogDirsResult:
    topics = None
    if wanted is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in wanted.items()
        ]
    (result,) = world.ask(handle, DescribeLogDirsRequest(topics=topics), version).results
    assert (result.error_code, result.log_dir) == (0, str(DATA))
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


def test_each_partition_has_the_size_of_its_log(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", count=10)
    found = sizes(ask(world, None))
    assert found == {("orders", 0): world.partition("orders").log.size, ("orders", 1): 0}
    assert found["orders", 0] > 0


@pytest.mark.parametrize("wanted", [{"orders": [1, 9], "gone": [0]}, {"orders": [1]}])
def test_only_existing_ones_of_the_named_partitions_are_listed(
    world: MemoryBroker, wanted: dict[str, list[int]]
) -> None:
    world.create("orders", 2)
    assert sizes(ask(world, wanted)) == {("orders", 1): 0}


def test_the_space_of_the_folder_came_with_version_4(world: MemoryBroker) -> None:
    world.disk.capacity = 10_000_000
    new, old = ask(world, None, 4), ask(world, None, 3)
    assert (new.total_bytes, old.total_bytes, old.usable_bytes) == (10_000_000, -1, -1)
    assert 0 < new.usable_bytes < new.total_bytes


def test_a_full_folder_has_its_problem() -> None:
    with MemoryBroker() as world:
        assert ask(world, None).problem == ""
        world.broker.shortages.note_full()
        assert "delete topics or records" in ask(world, None).problem


def test_a_folder_with_partitions_offline_names_them_with_its_other_problems() -> None:
    with MemoryBroker() as world:
        world.create("orders", 2)
        world.partition("orders").take_offline("a bad sector")
        assert ask(world, {}).problem == "1 offline: orders-0 (a bad sector)"
        world.broker.shortages.note_full()
        assert re.match("1 offline: .*; .*delete topics or records", ask(world, {}).problem)
