from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.reassignments import Reassignment, plan_reassignments
from lakelog.metadata.image import MetadataImage


def _reassign(
    image: MetadataImage, replicas: Sequence[int] | None, *, partition: int = 0, change: bool = True
) -> tuple[MetadataImage, ErrorCode]:
    move = Reassignment("orders", partition, replicas)
    plan = plan_reassignments(image, [move], allow_replication_factor_change=change)
    (result,) = plan.result
    return image.apply_all(plan.records, image.end), result.error


def test_a_move_to_the_same_brokers_is_done_at_once(image: MetadataImage) -> None:
    assert _reassign(image, [1, 2]) == (image, ErrorCode.NONE)
    after, error = _reassign(image, [2, 1])
    assert error is ErrorCode.NONE
    topic = after.topic("orders")
    assert topic is not None
    partition = topic.partitions[0]
    assert (partition.replicas, partition.leader, partition.partition_epoch) == ((2, 1), 1, 1)


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9], [2, 3]])
def test_replicas_that_cannot_be(image: MetadataImage, replicas: list[int]) -> None:
    assert _reassign(image, replicas) == (image, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def test_the_number_of_replicas_may_be_kept(image: MetadataImage) -> None:
    assert _reassign(image, [1], change=False)[1] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert _reassign(image, [2, 1], change=False)[1] is ErrorCode.NONE


def test_nothing_is_there_to_cancel(image: MetadataImage) -> None:
    assert _reassign(image, None)[1] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    unknown = _reassign(image, None, partition=9)[1]
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_named_twice_is_rejected_both_times(image: MetadataImage) -> None:
    moves = [Reassignment("orders", 0, replicas) for replicas in ([2, 1], [1, 2])]
    plan = plan_reassignments(image, moves)
    assert [each.error for each in plan.result] == [ErrorCode.INVALID_REQUEST] * 2
    assert plan.records == ()
