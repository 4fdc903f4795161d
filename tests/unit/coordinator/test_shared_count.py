from __future__ import annotations

from lakelog.coordinator.shared_count import ShardCount, SharedCount


def test_a_shard_counts_from_the_end_of_its_loading_to_its_close() -> None:
    total = SharedCount()
    loading, loaded = ShardCount(total), ShardCount(total)
    loaded.open()
    loading.add(3)
    loaded.add(2)
    assert total.total == 2
    loading.open()
    assert total.total == 5
    loading.add(-1)
    loading.close()
    loading.add(1)
    assert total.total == 2


def test_a_shard_that_was_dropped_while_loading_leaves_the_total_alone() -> None:
    total = SharedCount()
    dropped = ShardCount(total)
    dropped.add(3)
    dropped.close()
    assert total.total == 0
