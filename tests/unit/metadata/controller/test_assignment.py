from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.assignment import (
    PARTITIONS_PER_REQUEST_MAX,
    check_manual,
    check_room,
    choose_replicas,
    new_partitions,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import PartitionRecord

TOPIC = b"t" * 16


def test_assigned_replicas_are_returned_in_the_order_of_partitions(image: MetadataImage) -> None:
    assert check_manual(image, {5: [2, 1], 4: [1, 3]}, 4) == [(1, 3), (2, 1)]


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ({0: [1], 2: [1]}, "without gaps"),
        ({1: [1]}, "without gaps"),
        ({0: []}, "partition 0 has no replicas"),
        ({0: [1], 1: [2, 2]}, "partition 1 names a broker twice"),
        ({0: [1], 1: [1, 2]}, "different numbers"),
        ({0: [1, 9]}, "broker 9 is not registered"),
    ],
)
def test_a_wrong_assignment_is_rejected_with_the_reason(
    image: MetadataImage, assignments: dict[int, list[int]], problem: str
) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        check_manual(image, assignments)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_must_be_as_many_brokers_as_replicas(image: MetadataImage) -> None:
    assert all(len(set(replicas)) == 3 for replicas in choose_replicas(image, 4, 3, 0))
    with pytest.raises(KafkaError, match=r"replication factor 4 exceeds .* 3"):
        choose_replicas(image, 1, 4, 0)


def test_a_request_is_limited_to_one_entry_of_the_log() -> None:
    check_room(PARTITIONS_PER_REQUEST_MAX)
    with pytest.raises(KafkaError, match="at most 10000 partitions; use several requests"):
        check_room(PARTITIONS_PER_REQUEST_MAX + 1)


def test_the_first_replica_leads_a_new_partition() -> None:
    assert new_partitions(TOPIC, [(2, 1)], 7) == [
        PartitionRecord(TOPIC, 7, (2, 1), (2, 1), 2, 0, 0)
    ]
