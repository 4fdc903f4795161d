"""The codes that clients get for failed appends to a coordinator's partition."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.shard import (
    NOT_APPENDED,
    PRODUCER_REFUSED,
    ShardCount,
    SharedCount,
    coordinator_code,
)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_passing_failure_makes_the_client_retry(failure: ErrorCode, expected: ErrorCode) -> None:
    assert coordinator_code(failure) is expected


@pytest.mark.parametrize(
    "failure", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_a_lost_partition_makes_the_client_find_another_coordinator(failure: ErrorCode) -> None:
    assert coordinator_code(failure) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("failure", sorted(PRODUCER_REFUSED))
def test_a_fenced_producer_learns_the_reason(failure: ErrorCode) -> None:
    assert coordinator_code(failure) is failure


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    ],
)
def test_the_client_is_not_blamed_for_a_batch_of_the_coordinator(failure: ErrorCode) -> None:
    assert coordinator_code(failure) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_append_with_an_unknown_outcome_is_not_among_the_rejected_ones() -> None:
    """The host reads the log again instead of dropping records that may be committed."""
    unknown = {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
    }
    assert not unknown & NOT_APPENDED


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
