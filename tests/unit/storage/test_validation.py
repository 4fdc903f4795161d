"""Which batches a log refuses for their records: by the header always, by a walk as configured."""

from __future__ import annotations

from collections import deque

import pytest

from counted_work import lines_run
from lakelog.base.config.keys.topics import VERIFY_ALL, VERIFY_NONE, VERIFY_SAMPLED
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec, compress
from lakelog.records.record import RecordHead
from lakelog.storage.log import Log
from lakelog.storage.validation import (
    DECODED_AT_ONCE,
    SAMPLED_MAX,
    WALKED_AT_ONCE,
    RecordsRefusedError,
    SlowBatchError,
    checking_records,
)
from poison import COUNT_MAX, REFUSED, Poison, garbage, poisoned, sealed
from storage_kit import NOW, append, make_batch, memory_store, read_records

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
    assert [index for index, _ in refused.value.errors] == list(range(1000))


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
    assert [index for index, _ in error.errors] == [0, 2]
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


FEWER = REFUSED[0]
MODES = (VERIFY_SAMPLED, VERIFY_ALL, VERIFY_NONE)


def make_log(verify: str = VERIFY_SAMPLED, **config: object) -> Log:
    return memory_store(LogConfig(records_verify=verify, **config)).create()  # type: ignore[arg-type]


def refusal(log: Log, batch: bytearray, *, sampled: bool = True) -> ErrorCode | None:
    end = log.log_end_offset
    try:
        log.append(batch, leader_epoch=3, now_ms=NOW, sampled=sampled)
    except KafkaError as error:
        assert log.log_end_offset == end
        return error.code
    return None


@pytest.mark.parametrize("verify", MODES)
@pytest.mark.parametrize("codec", list(Codec))
def test_counts_that_cannot_be_are_always_refused(codec: Codec, verify: str) -> None:
    log = make_log(verify)
    payload = compress(codec, bytes(make_batch(2)[61:]))
    for count in (COUNT_MAX, len(payload) * 1032 // 7 + 1):
        assert refusal(log, sealed(payload, codec, count), sampled=False) is (
            ErrorCode.INVALID_RECORD
        )
    assert refusal(log, sealed(b"", codec, 1), sampled=False) is ErrorCode.INVALID_RECORD
    batch = memoryview(sealed(payload, codec, COUNT_MAX))
    assert log.append_coalesced([batch], leader_epoch=3, now_ms=NOW) == []


@pytest.mark.parametrize("run", [False, True])
def test_a_record_takes_seven_bytes_at_least(run: bool) -> None:
    """One less is refused, whether the batch comes alone or in a run."""
    log = make_log(VERIFY_NONE)
    for _ in range(2):
        append(log, make_batch(timestamp=NOW - 1))
    for size, taken in ((21, True), (20, False)):
        batch = sealed(bytes(size), Codec.NONE, 3, time_ms=NOW - 1, max_timestamp=NOW - 1)
        if run:
            offsets = log.append_coalesced([memoryview(batch)], leader_epoch=3, now_ms=NOW)
            assert len(offsets) == taken
        else:
            assert (refusal(log, batch, sampled=False) is None) == taken


def test_the_smallest_records_fit_with_any_codec() -> None:
    for verify, count in ((VERIFY_NONE, 4_000), (VERIFY_ALL, WALKED_AT_ONCE)):
        log = make_log(verify)
        for codec in Codec:
            builder = BatchBuilder(codec)
            for _ in range(count):
                builder.append(NOW, None, None)
            assert refusal(log, builder.build()) is None
        assert len(read_records(log)) == len(Codec) * count


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("poison", REFUSED, ids=lambda poison: poison.name)
def test_invalid_records_are_rejected_where_they_are_walked(poison: Poison, codec: Codec) -> None:
    for verify, sampled in ((VERIFY_SAMPLED, True), (VERIFY_ALL, False), (VERIFY_ALL, True)):
        log = make_log(verify)
        assert refusal(log, poisoned(poison, codec), sampled=sampled) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("verify", [VERIFY_SAMPLED, VERIFY_ALL])
def test_what_cannot_be_decompressed_is_refused(verify: str) -> None:
    log = make_log(verify)
    for name, batch in garbage():
        try:
            code = refusal(log, batch)
        except SlowBatchError as error:  # of some codecs damage looks like size
            assert error.sampled, name
        else:
            assert code is ErrorCode.INVALID_RECORD, name


def test_records_that_are_not_sampled_are_not_walked() -> None:
    batch = poisoned(Poison("three of four", FEWER.content + FEWER.content, 3), Codec.NONE)
    for verify, sampled in ((VERIFY_SAMPLED, False), (VERIFY_NONE, True), (VERIFY_NONE, False)):
        assert refusal(make_log(verify), bytearray(batch), sampled=sampled) is None


def test_the_first_batch_of_a_producer_in_a_log_is_looked_at() -> None:
    def batch(producer: int, sequence: int) -> bytearray:
        payload = bytes(make_batch(3)[61:]) + b"\0"
        return sealed(payload, Codec.NONE, 3, producer=(producer, 0, sequence))

    log = make_log()
    assert refusal(log, batch(7, 0), sampled=False) is ErrorCode.INVALID_RECORD
    append(log, make_batch(3, producer=(7, 0, 0)))
    assert refusal(log, batch(7, 3), sampled=False) is None, "it is known"
    assert refusal(log, batch(8, 0), sampled=False) is ErrorCode.INVALID_RECORD
    assert refusal(make_log(VERIFY_NONE), batch(8, 0), sampled=False) is None


def test_times_that_only_the_records_have_are_refused() -> None:
    far = Poison("a far future", _future(), 2)
    for codec in Codec:
        assert refusal(make_log(), poisoned(far, codec)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(make_log(message_timestamp_type="LogAppendTime"), poisoned(far, 0)) is None


def _future() -> bytes:
    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    builder.append(NOW + (1 << 40), None, b"v")
    return bytes(builder.build()[61:])


def with_headers(records: int, headers: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(NOW, b"key", b"value", [("", None)] * headers)
    return builder.build()


def decompressed(size: int, codec: Codec) -> bytearray:
    """A batch of three records that takes `size` bytes decompressed, and something."""
    return make_batch(3, size=size // 3, codec=codec)


LONG = {
    "many records": make_batch(WALKED_AT_ONCE + 1, size=1),
    "many headers": with_headers(1, SAMPLED_MAX),
    "some headers in each record": with_headers(100, 30),
    **{
        f"{codec.name.lower()} of many bytes": decompressed(DECODED_AT_ONCE, codec)
        for codec in Codec
        if codec
    },
}
SHORT = {
    "many records": make_batch(
        WALKED_AT_ONCE,
        size=1,
    ),
    "some headers": with_headers(50, 10),
    "many bytes": decompressed(500_000, Codec.NONE),
    **{
        f"{codec.name.lower()} of some bytes": decompressed(DECODED_AT_ONCE - 100, codec)
        for codec in Codec
        if codec
    },
}


@pytest.mark.parametrize("name", LONG)
def test_what_takes_long_is_left_to_another_loop_iteration(name: str) -> None:
    log = make_log()
    with pytest.raises(SlowBatchError) as raised:
        log.append(LONG[name], leader_epoch=3, now_ms=NOW, sampled=True)
    assert raised.value.sampled
    assert refusal(log, LONG[name], sampled=False) is None


@pytest.mark.parametrize("name", SHORT)
def test_short_walks_are_done_at_once(name: str) -> None:
    log, batch = make_log(), bytearray(SHORT[name])
    assert lines_run(lambda: refusal(log, batch)) < 50 * WALKED_AT_ONCE
    assert log.log_end_offset


def test_takes_runs_unless_each_record_is_looked_at() -> None:
    assert [make_log(verify).can_coalesce for verify in MODES] == [True, False, True]
