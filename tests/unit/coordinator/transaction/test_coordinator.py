from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from transaction_setup import Setup, in_virtual_time

A = ("orders", 0)


@in_virtual_time()
async def test_without_the_partition_there_is_no_coordinator(setup: Setup) -> None:
    producer = await setup.ready()
    setup.coordinator.close()
    assert await setup.add(producer, A) == ErrorCode.NOT_COORDINATOR
    assert await setup.coordinator.verify("t", *producer, [A], add=False) == {
        A: ErrorCode.NOT_COORDINATOR
    }
    assert (await setup.init()).code == ErrorCode.NOT_COORDINATOR


@in_virtual_time(partitions=50)
async def test_the_topics_own_count_decides(setup: Setup) -> None:
    wanted = setup.coordinator.partition_for("t")
    assert wanted == 116 % 50  # "t".hashCode()
    setup.topics.topics[TRANSACTION_TOPIC] = (b"t" * 16, 3)
    assert setup.coordinator.partition_for("t") == 116 % 3
