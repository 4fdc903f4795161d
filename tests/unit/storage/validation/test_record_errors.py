"""The records because of which a batch is rejected (KIP-467)."""

from __future__ import annotations

from collections import deque

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.builder import BatchBuilder
from lakelog.records.heads import RecordHead
from lakelog.storage.validation.batches import WALKED_AT_ONCE
from lakelog.storage.validation.record_errors import RecordsRefusedError, checking_records
from storage_kit import NOW, append, make_batch, memory_store

DAY = 86_400_000


def test_a_bound_on_old_timestamps_looks_at_the_oldest_record() -> None:
    log = memory_store(LogConfig(message_timestamp_before_max_ms=DAY)).create()
    builder = BatchBuilder(2)
    for age in (0, 2 * DAY, 0):
        builder.append(NOW - age, b"k", b"v")
    with pytest.raises(KafkaError) as failure:
        log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    assert failure.value.code == ErrorCode.INVALID_TIMESTAMP
    append(log, make_batch(timestamp=NOW - DAY))


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_needs_keys(codec: int) -> None:
    """KIP-467; librdkafka 0011."""
    log = memory_store(LogConfig(cleanup_policy=frozenset({"compact", "delete"}))).create()
    builder = BatchBuilder(codec)
    builder.append(NOW, b"k", b"v")
    builder.append(NOW, None, b"v")
    with pytest.raises(KafkaError) as failure:
        log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    assert failure.value.code == ErrorCode.INVALID_RECORD
    append(log, make_batch(codec=codec))


def test_of_very_many_records_without_a_key_the_first_are_named() -> None:
    log = memory_store(LogConfig(cleanup_policy=frozenset({"compact"}))).create()
    builder = BatchBuilder()
    builder.extend(NOW, [b""] * WALKED_AT_ONCE, 1 << 30)
    with pytest.raises(RecordsRefusedError) as refused:
        append(log, builder.build())
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [place for place, _ in refused.value.errors] == list(range(1000))


def refused(heads: list[RecordHead], config: LogConfig) -> RecordsRefusedError:
    with pytest.raises(RecordsRefusedError) as error:
        deque(checking_records(heads, config, NOW))
    return error.value


BOTH = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    message_timestamp_before_max_ms=DAY,
    message_timestamp_after_max_ms=10,
)


def test_one_wrong_timestamp_makes_the_error_one_of_timestamps() -> None:
    error = refused([(0, NOW, False), (1, NOW, True), (2, NOW + 11, True)], BOTH)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [place for place, _ in error.errors] == [0, 2]
    assert f"timestamp {NOW + 11} is not in {NOW - DAY} to {NOW + 10}" in error.errors[1][1]


def test_a_record_has_one_error_at_most() -> None:
    error = refused([(0, NOW + 11, False)], BOTH)
    assert error.code is ErrorCode.INVALID_RECORD
    assert len(error.errors) == 1


@pytest.mark.parametrize("timestamp", [NOW - DAY, NOW + 10, -1])
def test_bounds_are_inclusive_and_a_record_without_a_timestamp_is_accepted(timestamp: int) -> None:
    deque(checking_records([(0, timestamp, True)], BOTH, NOW))


def test_timestamps_of_the_broker_have_no_bounds() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    deque(checking_records([(0, NOW + DAY, True)], config, NOW))


def test_the_message_names_three_records() -> None:
    error = refused([(number, NOW, False) for number in range(5)], BOTH)
    assert error.message.startswith("5 records were refused; the first: record 0: ")
    assert "record 2: " in error.message
    assert "record 3: " not in error.message
    assert refused([(0, NOW, False)], BOTH).message.startswith("1 record was refused; the first: ")


def test_a_check_ends_after_a_thousand_errors() -> None:
    """A batch of a kilobyte may hold millions of records."""
    heads = iter([(number, NOW, False) for number in range(5000)])
    with pytest.raises(RecordsRefusedError) as error:
        deque(checking_records(heads, BOTH, NOW))
    assert len(error.value.errors) == 1000
    assert len(list(heads)) == 4000
