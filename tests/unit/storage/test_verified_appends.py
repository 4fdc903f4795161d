"""Which batches a log refuses for their records: by the header always, by a walk as configured."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.topic_config import LogConfig
from lakelog.base.topic_keys import VERIFY_ALL, VERIFY_NONE, VERIFY_SAMPLED
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec, compress
from lakelog.storage.log import Log
from lakelog.storage.validate import SAMPLED_MAX, SlowBatchError
from poison import COUNT_MAX, REFUSED, Poison, garbage, poisoned, sealed
from storage_kit import NOW, append, make_batch, memory_store, read_records

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
    assert log.append_run([batch], leader_epoch=3, now_ms=NOW) == []


@pytest.mark.parametrize("run", [False, True])
def test_a_record_takes_seven_bytes_at_least(run: bool) -> None:
    """One less is refused, whether the batch comes alone or in a run."""
    log = make_log(VERIFY_NONE)
    for _ in range(2):
        append(log, make_batch(timestamp=NOW - 1))
    for size, taken in ((21, True), (20, False)):
        batch = sealed(bytes(size), Codec.NONE, 3, time_ms=NOW - 1, max_timestamp=NOW - 1)
        if run:
            offsets = log.append_run([memoryview(batch)], leader_epoch=3, now_ms=NOW)
            assert len(offsets) == taken
        else:
            assert (refusal(log, batch, sampled=False) is None) == taken


def test_the_smallest_records_that_there_are_fit_however_they_are_compressed() -> None:
    log = make_log(VERIFY_ALL)
    for codec in Codec:
        builder = BatchBuilder(codec)
        for _ in range(4_000):
            builder.append(NOW, None, None)
        assert refusal(log, builder.build()) is None
    assert len(read_records(log)) == 20_000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("poison", REFUSED, ids=lambda poison: poison.name)
def test_what_is_looked_at_is_refused(poison: Poison, codec: Codec) -> None:
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


def test_what_is_not_sampled_is_not_looked_at() -> None:
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


def test_what_takes_long_is_left_to_another_turn() -> None:
    log = make_log()
    many = BatchBuilder()
    many.append(NOW, b"key", b"value", [("", None)] * SAMPLED_MAX)
    for batch in (many.build(), make_batch(6_000, size=1), make_batch(4_000, size=400, codec=4)):
        with pytest.raises(SlowBatchError) as raised:
            log.append(batch, leader_epoch=3, now_ms=NOW, sampled=True)
        assert raised.value.sampled
        assert refusal(log, batch, sampled=False) is None


def test_takes_runs_unless_each_record_is_looked_at() -> None:
    assert [make_log(verify).takes_runs for verify in MODES] == [True, False, True]
