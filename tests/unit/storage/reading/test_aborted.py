"""Transactions in one log: permission to write, stable offsets, indexes of aborted transactions."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from counted_work import lines_run
from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import iter_batches, read_header
from lakelog.records.control import NO_DECISION, EndTransactionMarker, read_marker
from lakelog.replica.partition import Partition
from lakelog.storage.files import LOG, SNAPSHOT, TXN_INDEX
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.storage.log import Log
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.producers.beginnings import Verification
from lakelog.storage.reading.aborted import AbortedJob, are_in, holder
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.txn_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    decode_aborted,
    encode_aborted,
)
from storage_kit import (
    DATA,
    NOW,
    Store,
    aborted_by_segment,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
    read_batches,
    sole_leader,
)

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)
FOLDER = DATA / "topic-0"


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


def new_log(config: LogConfig | None = None) -> Log:
    return memory_store(config).create()


def aborted(log: Log, offset: int = 0) -> list[AbortedTransaction]:
    """Aborted transactions returned to a consumer that reads from `offset` on."""
    told = set()
    at = offset
    while (found := log.read(at, 1 << 20, end_offset=log.last_stable_offset)) is not None:
        told.update(log.aborted_transactions(at, found))
        at = [header.last_offset for header, _ in iter_batches(found.read())][-1] + 1
        found.release()
    return sorted(told, key=lambda entry: entry.first_offset)


def indexed(log: Log) -> list[AbortedTransaction]:
    return [entry for entries in aborted_by_segment(log) for entry in entries]


def verify(log: Log, producer: tuple[int, int, int], *, bump: bool = False) -> Verification | None:
    return log.producers.start_verification(*producer, NOW, supports_epoch_bump=bump)


def send(
    log: Log,
    producer: tuple[int, int, int],
    verification: Verification | None,
    *,
    transactional: bool = True,
) -> int:
    batch = make_batch(producer=producer, transactional=transactional)
    return log.append(batch, leader_epoch=1, now_ms=NOW, verification=verification).base_offset


# Stable offsets


def test_the_last_stable_offset_waits_for_the_oldest_transaction() -> None:
    log = new_log()
    append(log, make_batch(2))
    assert log.last_stable_offset == 2
    append_in_transaction(log, (1, 0, 0))
    append(log, make_batch(1))
    append_in_transaction(log, (2, 0, 0), 3)
    assert (log.last_stable_offset, log.log_end_offset) == (2, 7)
    append_in_transaction(log, (1, 0, 1))
    append_marker(log, 2, 0, commit=True)
    assert log.last_stable_offset == 2
    append_marker(log, 1, 0, commit=False)
    assert log.last_stable_offset == log.log_end_offset == 10


def test_the_last_stable_offset_is_never_before_the_start() -> None:
    log = new_log()
    append_in_transaction(log, (1, 0, 0), 5)
    log.advance_log_start(3)
    assert log.last_stable_offset == 3


def test_a_read_up_to_the_last_stable_offset_ends_before_the_transaction() -> None:
    log = new_log()
    append(log, make_batch(2))
    append_in_transaction(log, (1, 0, 0), 2)
    assert log.read(2, 1 << 20, end_offset=log.last_stable_offset) is None
    found = log.read(0, 1 << 20, end_offset=log.last_stable_offset)
    assert found is not None
    assert read_header(found.read()).last_offset == 1
    assert len(found.read()) == read_header(found.read()).size
    found.release()


def test_a_marker_is_a_control_batch_with_the_coordinators_epoch() -> None:
    log = new_log()
    append_in_transaction(log, (1, 4, 0))
    append_marker(log, 1, 5, commit=True, coordinator_epoch=9)
    batch = read_batches(log)[-1]
    header = read_header(batch)
    assert (header.base_offset, header.producer_epoch, header.partition_leader_epoch) == (1, 5, 3)
    assert read_marker(batch, header) == EndTransactionMarker(True, 9)
    assert log.producers.entries[1].coordinator_epoch == 9


def test_a_marker_carries_the_brokers_time_where_the_topic_says_so() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    append_marker(log, 1, 0, commit=True, now_ms=NOW + 5)
    header = read_header(read_batches(log)[0])
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW + 5)


# Permission to write


def test_a_transaction_begins_only_with_a_verification() -> None:
    log = new_log()
    assert refused(lambda: send(log, (1, 0, 0), None)) is ErrorCode.INVALID_TXN_STATE
    first = verify(log, (1, 0, 0))
    assert first is not None
    send(log, (1, 0, 0), first)
    assert verify(log, (1, 0, 1)) is None
    send(log, (1, 0, 1), None)


def test_a_verification_is_void_after_a_marker() -> None:
    """A transaction that its coordinator ended meanwhile would hang for ever."""
    log = new_log()
    taken = verify(log, (1, 0, 0))
    append_marker(log, 1, 0, commit=False)
    assert refused(lambda: send(log, (1, 0, 0), taken)) is ErrorCode.NOT_ENOUGH_REPLICAS
    again = verify(log, (1, 0, 0))
    assert again is not taken
    assert refused(lambda: send(log, (1, 0, 0), taken)) is ErrorCode.NOT_ENOUGH_REPLICAS
    send(log, (1, 0, 0), again)


@pytest.mark.parametrize(
    ("version", "epoch", "is_valid"),
    [(2, 3, False), (2, 4, True), (2, 5, True), (0, 4, False), (0, 5, True)],
)
def test_a_marker_voids_verifications_of_its_transaction_and_of_earlier_ones(
    version: int, epoch: int, is_valid: bool
) -> None:
    """With version 2 the epoch of the marker, here 4, is that of the next transaction."""
    log = new_log()
    taken = verify(log, (1, epoch, 0), bump=version == 2)
    append_marker(log, 1, 4, commit=True, transaction_version=version)
    assert (len(log.producers.verifications) == 1) is is_valid
    if is_valid:
        send(log, (1, epoch, 0), taken)
        assert log.last_stable_offset == 1


def test_a_batch_of_the_transaction_before_leaves_the_verification_of_the_next() -> None:
    log = new_log()
    before = verify(log, (1, 0, 0), bump=True)
    taken = verify(log, (1, 1, 0), bump=True)
    send(log, (1, 0, 0), before)
    append_marker(log, 1, 1, commit=False, transaction_version=2)
    send(log, (1, 1, 0), taken)
    assert aborted(log) == [(1, 0, 1, 2)]


def test_batches_that_wait_together_share_a_verification() -> None:
    log = new_log()
    first, second = verify(log, (1, 0, 0)), verify(log, (1, 0, 1))
    assert first is second
    overtaking = refused(lambda: send(log, (1, 0, 1), second))
    assert overtaking is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, (1, 0, 0), first)
    send(log, (1, 0, 1), second)


def test_a_newer_epoch_resets_the_lowest_sequence() -> None:
    log = new_log()
    verify(log, (1, 0, 3))
    taken = verify(log, (1, 1, 7))
    assert taken is not None
    assert (taken.epoch, taken.lowest_sequence) == (1, 7)
    verify(log, (1, 0, 1))
    assert taken.lowest_sequence == 7


def test_with_version_2_a_producer_that_is_not_known_begins_at_0() -> None:
    log = new_log()
    taken = verify(log, (1, 0, 5), bump=True)
    code = refused(lambda: send(log, (1, 0, 5), taken))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log = new_log()
    send(log, (1, 0, 5), verify(log, (1, 0, 5)))


def test_the_next_batch_waits_for_a_lower_sequence_that_is_being_verified() -> None:
    """The next sequence outside of a transaction is no exception."""
    log = new_log()
    append(log, make_batch(producer=(1, 0, 0)))
    verify(log, (1, 0, 1))
    append(log, make_batch(producer=(1, 0, 1)))
    code = refused(lambda: append(log, make_batch(producer=(1, 0, 2))))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_rejected_before_a_missing_verification() -> None:
    log = new_log()
    append_marker(log, 1, 3, commit=False)
    assert refused(lambda: send(log, (1, 2, 0), None)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_verification_of_an_older_epoch_is_refused() -> None:
    log = new_log()
    append_marker(log, 1, 3, commit=False)
    code = refused(lambda: verify(log, (1, 2, 0)))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verifications_that_lead_to_nothing_are_forgotten() -> None:
    log = new_log()
    verify(log, (1, 0, 0))
    log.producers.remove_expired(NOW + log.producers.expiration_ms - 1)
    assert len(log.producers.verifications) == 1
    log.producers.remove_expired(NOW + log.producers.expiration_ms)
    assert len(log.producers.verifications) == 0


def test_a_retry_needs_no_verification() -> None:
    log = new_log()
    append_in_transaction(log, (1, 0, 0), 2)
    append_marker(log, 1, 0, commit=True)
    retry = make_batch(2, producer=(1, 0, 0), transactional=True)
    result = log.append(retry, leader_epoch=1, now_ms=NOW)
    assert result.duplicate
    assert result.base_offset == 0


def test_a_producer_may_not_write_outside_of_its_transaction() -> None:
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    code = refused(lambda: send(log, (1, 0, 1), None, transactional=False))
    assert code is ErrorCode.INVALID_TXN_STATE
    append_marker(log, 1, 0, commit=True)
    send(log, (1, 0, 1), None, transactional=False)


def test_a_new_epoch_is_a_transaction_of_its_own() -> None:
    """The open transaction is of an older epoch: the new one must be verified, and joins it."""
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    assert refused(lambda: send(log, (1, 1, 0), None)) is ErrorCode.INVALID_TXN_STATE
    send(log, (1, 1, 0), verify(log, (1, 1, 0)))
    assert log.producers.entries[1].txn_first_offset == 0
    append_marker(log, 1, 1, commit=False)
    assert aborted(log) == [(1, 0, 2, 3)]


def test_sequences_restart_after_a_marker_that_bumps_the_epoch() -> None:
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 1, commit=True, transaction_version=2)
    code = refused(lambda: append_in_transaction(log, (1, 1, 1)))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append_in_transaction(log, (1, 1, 0))


def test_a_late_batch_of_the_transaction_before_is_fenced() -> None:
    """KAFKA-17754: with version 2 nothing late can reach into the next transaction."""
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 1, commit=True, transaction_version=2)
    assert refused(lambda: send(log, (1, 0, 1), None)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append_in_transaction(log, (1, 1, 0))
    late = refused(lambda: append_marker(log, 1, 1, commit=True, transaction_version=2))
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == 2


@pytest.mark.parametrize(
    ("version", "epoch", "allowed"),
    [(0, 3, False), (0, 4, True), (0, 5, True), (2, 3, False), (2, 4, False), (2, 5, True)],
)
def test_the_epoch_of_a_marker(version: int, epoch: int, allowed: bool) -> None:
    log = new_log()
    append_in_transaction(log, (1, 4, 0))
    if allowed:
        append_marker(log, 1, epoch, commit=True, transaction_version=version)
        assert log.last_stable_offset == 2
        return
    code = refused(lambda: append_marker(log, 1, epoch, commit=True, transaction_version=version))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.last_stable_offset, log.log_end_offset) == (0, 1)


def test_a_marker_may_be_written_twice() -> None:
    """KAFKA-19999: the coordinator cannot know whether the first one was written."""
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    for _ in range(2):
        append_marker(log, 1, 1, commit=False, transaction_version=2)
    assert aborted(log) == [(1, 0, 1, 2)]
    assert log.last_stable_offset == 3


def stored() -> Store:
    store = memory_store()
    store.create()
    return store


def marked(store: Store, decision: int, *, coordinator_epoch: int = 5) -> ErrorCode | None:
    """Write a commit marker of a client before KIP-890; return why it was refused."""
    try:
        append_marker(
            store.log, 1, 0, commit=True, coordinator_epoch=coordinator_epoch, decision=decision
        )
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "then", [lambda store: None, Store.restart, Store.killed], ids=["", "stop", "kill"]
)
def test_a_late_marker_does_not_end_the_next_transaction(then: Callable[[Store], object]) -> None:
    """Its first sending was delayed until the marker was sent again, and the next one began."""
    store = stored()
    append_in_transaction(store.log, (1, 0, 0))
    assert marked(store, 7) is None
    append_in_transaction(store.log, (1, 0, 1))
    then(store)
    for late in (6, 7):
        assert marked(store, late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (store.log.last_stable_offset, store.log.log_end_offset) == (2, 3)
    assert marked(store, 8) is None
    assert store.log.last_stable_offset == 4


def test_a_follower_knows_late_markers() -> None:
    leader, follower = stored(), stored()
    append_in_transaction(leader.log, (1, 0, 0))
    assert marked(leader, 7) is None
    append_in_transaction(leader.log, (1, 0, 1))
    for batch in read_batches(leader.log):
        follower.log.append_fetched(memoryview(batch), now_ms=NOW)
    assert marked(follower, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marked(follower, 8) is None


def test_a_truncated_marker_may_be_sent_again() -> None:
    store = stored()
    append_in_transaction(store.log, (1, 0, 0))
    assert marked(store, 7) is None
    store.log.truncate_to(1)
    assert store.log.last_stable_offset == 0
    assert marked(store, 7) is None
    assert store.log.last_stable_offset == 2


def test_numbers_begin_again_with_each_coordinator() -> None:
    store = stored()
    append_in_transaction(store.log, (1, 0, 0))
    assert marked(store, 7) is None
    append_in_transaction(store.log, (1, 0, 1))
    assert marked(store, 0, coordinator_epoch=6) is None
    append_in_transaction(store.log, (1, 0, 2))
    assert marked(store, 0, coordinator_epoch=6) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marked(store, 8) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marked(store, 1, coordinator_epoch=6) is None


def test_markers_of_older_brokers_and_administrators_have_no_number() -> None:
    """They end any transaction, and later markers of the coordinator keep their order."""
    store = stored()
    append_in_transaction(store.log, (1, 0, 0))
    assert marked(store, 7) is None
    for sequence in (1, 2):
        append_in_transaction(store.log, (1, 0, sequence))
        assert marked(store, NO_DECISION) is None
    append_in_transaction(store.log, (1, 0, 3))
    assert marked(store, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marked(store, 8) is None


def test_a_repeated_marker_leaves_the_verification_of_the_next_transaction() -> None:
    """It has been written again, because the first one need not be committed (KAFKA-19999)."""
    store = stored()
    append_in_transaction(store.log, (1, 0, 0))
    assert marked(store, 7) is None
    verification = verify(store.log, (1, 0, 1))
    assert marked(store, 7) is None
    send(store.log, (1, 0, 1), verification)
    assert store.log.last_stable_offset == 3


def test_an_older_coordinator_is_fenced() -> None:
    log = new_log()
    append_marker(log, 1, 0, commit=True, coordinator_epoch=5)
    code = refused(lambda: append_marker(log, 1, 0, commit=True, coordinator_epoch=4))
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    append_marker(log, 1, 0, commit=True, coordinator_epoch=5)
    assert log.log_end_offset == 2


def test_a_coordinators_batches_have_no_sequence_but_are_of_a_transaction() -> None:
    log = new_log()
    batch = make_batch(2, producer=(1, 0, -1), transactional=True)
    with pytest.raises(KafkaError, match="verified again"):
        log.append(batch, leader_epoch=1, now_ms=NOW, origin="coordinator")
    for _ in range(2):
        verify(log, (1, 0, -1))
        log.append(batch, leader_epoch=1, now_ms=NOW, origin="coordinator")
    assert (log.last_stable_offset, log.log_end_offset) == (0, 4)


def test_the_time_of_a_marker_counts_for_the_expiry_of_its_producer() -> None:
    """KAFKA-9144: or an older coordinator's epoch would be accepted after it."""
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    later = NOW + log.producers.expiration_ms
    append_marker(log, 1, 0, commit=True, now_ms=later)
    assert log.producers.remove_expired(later + log.producers.expiration_ms - 1) == 0
    assert log.producers.remove_expired(later + log.producers.expiration_ms) == 1


def test_a_producer_in_a_transaction_does_not_expire() -> None:
    log = new_log()
    append_in_transaction(log, (1, 0, 0))
    assert log.producers.remove_expired(NOW + 10 * log.producers.expiration_ms) == 0
    assert log.last_stable_offset == 0


# Aborted transactions


def test_overlapping_transactions_are_sorted_by_first_offset() -> None:
    log = new_log(SMALL)
    append_in_transaction(log, (1, 0, 0))
    append_in_transaction(log, (2, 0, 0))
    append_in_transaction(log, (3, 0, 0))
    append_marker(log, 2, 0, commit=False)
    append_marker(log, 3, 0, commit=True)
    append_marker(log, 1, 0, commit=False)
    for sequence in range(9):
        append_in_transaction(log, (4, 0, sequence * 2), 2)
    append_marker(log, 4, 0, commit=False)
    assert len(log.segments) > 2
    first, second, fourth = aborted(log)
    assert (first[:3], second[:3]) == ((1, 0, 5), (2, 1, 3))
    assert second.last_stable_offset == 0
    assert fourth == (4, 6, 24, 25)
    assert aborted(log, 4) == [first, fourth]
    assert aborted(log, 6) == [fourth]
    assert aborted(log, 24) == [fourth]
    append(log, make_batch(1))
    assert aborted(log, 25) == []


def test_only_transactions_in_the_slice_count() -> None:
    log = new_log(LogConfig(index_interval_bytes=0))
    for sequence in range(20):
        append_in_transaction(log, (1, 0, sequence))
        append_marker(log, 1, 0, commit=False)
    found = log.read(0, 300, end_offset=log.last_stable_offset)
    assert found is not None
    told = log.aborted_transactions(0, found)
    found.release()
    assert [entry.first_offset for entry in told] in ([0, 2], [0, 2, 4])


def test_a_segment_without_aborted_transactions_has_no_index() -> None:
    store = memory_store(SMALL)
    log = store.create()
    for sequence in range(12):
        append_in_transaction(log, (1, 0, sequence))
        append_marker(log, 1, 0, commit=True)
    assert not [name for name in store.disk.list(FOLDER) if name.endswith(TXN_INDEX)]
    assert not log.segments.has_aborted


def test_the_index_is_bytes_as_kafka_writes_them() -> None:
    data = encode_aborted([AbortedTransaction(257, 1, 3, 2)])
    assert data.hex() == "0000" + "".join(f"{number:016x}" for number in (257, 1, 3, 2))
    assert len(data) == ENTRY_SIZE


def test_an_index_that_would_end_a_search_too_early_is_refused() -> None:
    entries = [AbortedTransaction(1, 0, 5, 1), AbortedTransaction(2, 1, 9, 10)]
    assert decode_aborted(encode_aborted(entries), 0, 20) == entries
    entries[0] = AbortedTransaction(1, 0, 5, 3)
    assert decode_aborted(encode_aborted(entries), 0, 20) is None


def test_a_marker_lies_in_its_segment_or_the_index_is_another_ones() -> None:
    for last, is_inside in ((9, False), (10, True), (19, True), (20, False)):
        data = encode_aborted([AbortedTransaction(0, 3, last, last + 1)])
        assert (decode_aborted(data, 10, 20) is not None) is is_inside


# After a stop


def filled() -> Store:
    store = memory_store(SMALL)
    log = store.create()
    for number in range(30):
        append_in_transaction(log, (number % 3, number // 6, number // 3 % 2))
        if number % 6 == 5:
            for producer_id in range(2):
                append_marker(log, producer_id, number // 6, commit=producer_id == 1)
    return store


def damage(store: Store, how: str | int, suffix: str) -> None:
    """An int flips a bit of that byte in each file."""
    for name in store.disk.list(FOLDER):
        if not name.endswith(suffix):
            continue
        data = bytearray(store.disk.read(FOLDER / name))
        match how:
            case "zero":
                data[:] = bytes(len(data))
            case "cut":
                del data[-1:]
            case "grown":
                data += data[-ENTRY_SIZE:]
            case "version":
                data[1] = 7
            case "order":
                data[18:26] = b"\x7f" * 8
            case int(byte):
                data[byte] ^= 1
        store.disk.write_atomic(FOLDER / name, data)


def test_after_a_kill_the_indexes_are_rebuilt() -> None:
    store = filled()
    expected, stable = indexed(store.log), store.log.last_stable_offset
    for how in ("version", "cut"):
        damage(store, how, TXN_INDEX)
        damage(store, how, SNAPSHOT)
        log = store.killed()
        assert (indexed(log), log.last_stable_offset) == (expected, stable)


def test_a_transaction_under_way_is_taken_up_after_a_clean_stop() -> None:
    store = filled()
    store.restart()
    assert refused(lambda: send(store.log, (1, 9, 0), None)) is ErrorCode.INVALID_TXN_STATE
    first = store.log.producers.entries[2].txn_first_offset
    assert store.log.last_stable_offset == first == 2
    append_in_transaction(store.log, (2, 4, 2))
    append_marker(store.log, 2, 5, commit=False)
    assert aborted(store.log)[1][:2] == (2, first)
    assert store.log.last_stable_offset == store.log.log_end_offset


def test_a_marker_goes_with_its_entry_where_a_full_segment_is_found_after_a_stop() -> None:
    """That it is full is known when its index has been read, which is not done at a start."""
    store = memory_store(LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 0, commit=False)
    for number in range(3):
        append_in_transaction(log, (2, 0, number))
    assert (log.segments.active.indexes.full, len(log.segments)) == (True, 1)
    log = store.restart()
    append_marker(log, 2, 0, commit=False)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    expected = [(1, 0, 1, 2), (2, 2, 5, 6)]
    assert aborted(log) == expected
    damage(store, "version", f"{0:020d}{TXN_INDEX}")
    assert aborted(store.restart()) == expected


def test_truncation_forgets_later_aborted_transactions() -> None:
    store = filled()
    before = indexed(store.log)
    store.log.truncate_to(before[2].last_offset)
    assert indexed(store.log) == before[:2]
    store.log.truncate_to(1)
    assert indexed(store.log) == []
    assert store.log.last_stable_offset == 0
    assert not [name for name in store.disk.list(FOLDER) if name.endswith(TXN_INDEX)]


def test_retention_takes_the_indexes_along() -> None:
    store = filled()
    log = store.log
    expected = indexed(log)
    keep = log.segments[3].base_offset
    log.advance_log_start(keep)
    log.delete_old_segments(NOW)
    log.delete_old_segments(NOW)
    left = [entry for entry in expected if entry.last_offset >= keep]
    assert 0 < len(left) < len(expected)
    assert indexed(log) == left
    names = [name for name in store.disk.list(FOLDER) if name.endswith(TXN_INDEX)]
    assert names
    assert all(int(name[:20]) >= keep for name in names)


# When a write fails


@pytest.mark.parametrize("suffix", [".log", TXN_INDEX])
@pytest.mark.parametrize("partial", [0, 20])
def test_a_marker_that_cannot_be_written_leaves_no_trace(suffix: str, partial: int) -> None:
    store = memory_store()
    log = store.create()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 0, commit=False)
    append_in_transaction(log, (1, 0, 1))
    disk.fail("write", errno.ENOSPC, suffix=suffix, partial=partial)
    with pytest.raises(OSError):
        append_marker(log, 1, 0, commit=False)
    assert (log.last_stable_offset, log.log_end_offset) == (2, 3)
    assert aborted(log) == [(1, 0, 1, 2)]
    append_marker(log, 1, 0, commit=True)
    log = store.restart()
    assert aborted(log) == [(1, 0, 1, 2)]
    assert store.disk.size(FOLDER / f"{0:020d}{TXN_INDEX}") == ENTRY_SIZE


def write_part(disk: MemoryDisk, path: Path, how: str) -> None:
    """Of a file that was written with these bytes, and not synced."""
    data = encode_aborted([AbortedTransaction(0, 0, 10, 5)])
    parts = {"empty": b"", "a part": data, "cut": data[:-1], "zero": bytes(len(data))}
    disk.write_atomic(path, parts[how])


@pytest.mark.parametrize("keeps_known_logs", [True, False])
@pytest.mark.parametrize("how", ["as the power left it", "empty", "a part", "cut", "zero"])
def test_no_index_need_be_durable(how: str, keeps_known_logs: bool) -> None:
    """Segments below the recovery point are not scanned again while `known-logs` is whole."""
    store = filled()
    expected = indexed(store.log)
    assert len([segment for segment in store.log.segments if segment.txn_index]) > 1
    store.log.flush()
    store.directory.write_checkpoints()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    disk.crash()
    if how != "as the power left it":
        for segment in store.log.segments:
            write_part(disk, segment.path(TXN_INDEX), how)
    if not keeps_known_logs:
        disk.remove(DATA / KNOWN_LOGS)
    store.start()
    assert indexed(store.log) == expected
    store.restart()
    assert indexed(store.log) == expected


def test_a_flush_syncs_no_transaction_index() -> None:
    log = filled().log
    job = log.begin_flush()
    assert job is not None
    assert [path for path in job.names if path.suffix == TXN_INDEX] == []
    job.run()
    log.finish_flush(job)


def test_an_aborted_transaction_ends_with_a_marker_of_its_own_producer() -> None:
    log = new_log()
    for producer_id in (1, 2):
        append_in_transaction(log, (producer_id, 0, 0))
    append_in_transaction(log, (1, 0, 1))
    for producer_id in (1, 2):
        append_marker(log, producer_id, 0, commit=False)
    segment, entries = log.segments[0], indexed(log)
    assert [(entry.producer_id, entry.last_offset) for entry in entries] == [(1, 3), (2, 4)]
    find = partial(holder, log.segments)
    assert are_in(find, segment, entries)
    of_the_other, of_no_marker = (entries[0]._replace(last_offset=last) for last in (4, 2))
    assert not are_in(find, segment, [of_the_other])
    assert not are_in(find, segment, [of_no_marker])


@pytest.mark.parametrize(
    "how", ["zero", "cut", "grown", "version", "order", *range(0, ENTRY_SIZE - 1, 3), 9, 17, 25]
)
def test_an_index_that_cannot_be_right_is_rebuilt(how: str | int) -> None:
    store = filled()
    expected = indexed(store.log)
    assert len(expected) == 5
    store.directory.close()
    damage(store, how, TXN_INDEX)
    store.start()
    assert indexed(store.log) == expected


def _many_aborted() -> Store:
    """A closed segment with three hundred aborted transactions, and another one."""
    store = memory_store()
    log = store.create()
    for number in range(300):
        append_in_transaction(log, (1, 0, number))
        append_marker(log, 1, 0, commit=False)
    log.roll(NOW)
    append_in_transaction(log, (1, 0, 300))
    append_marker(log, 1, 0, commit=False)
    return store


def _fetch_committed(log: Log, jobs: list[Preparation]) -> list[AbortedTransaction]:
    """As the loop does it; what threads do has been done by `jobs`."""
    partition = Partition(log, sole_leader(3), lambda partition: None)
    partition.assume(sole_leader(3), 0)
    for _ in range(6):
        try:
            found = partition.read_committed(0, 1 << 20, min_one=True)
        except NotReady as first:
            trace = sys.gettrace()
            sys.settrace(None)
            first.job.run()
            sys.settrace(trace)
            first.job.finish()
            assert first.job.failure is None
            jobs.append(first.job)
        else:
            assert found is not None
            found.release()
            return list(found.aborted)
    raise AssertionError("a fetch is never ready")


def test_a_transaction_index_is_read_and_compared_by_a_job() -> None:
    store = _many_aborted()
    expected = indexed(store.log)
    log = store.restart()
    jobs: list[Preparation] = []
    told: list[AbortedTransaction] = []
    lines = lines_run(lambda: told.extend(_fetch_committed(log, jobs)))
    assert told == expected[:300]
    assert [type(job) for job in jobs].count(AbortedJob) == 1
    assert lines < 300 * 30, "a comparison alone takes about a hundred lines an entry"
    for segment in log.segments:
        assert segment.handle is None or segment.handle.readers == 0


@pytest.mark.parametrize("position", [9, 17, 25])
def test_a_wrong_transaction_index_is_not_believed_after_a_job(position: int) -> None:
    """The producer, and where a transaction begins and ends."""
    store = _many_aborted()
    expected = indexed(store.log)
    store.directory.close()
    path = store.log.segments[0].path(TXN_INDEX)
    data = bytearray(store.disk.read(path))
    data[34 * 20 + position] ^= 1
    store.disk.write_atomic(path, bytes(data))
    log = store.start().logs["topic", 0]
    assert _fetch_committed(log, []) == expected[:300]


def test_entries_read_before_a_truncation_are_not_used() -> None:
    log = _many_aborted().restart()
    index = log.segments[0].txn_index
    assert index is not None
    job = AbortedJob(log.segments, log.snapshots, log.segments[0], index)
    job.run()
    log.truncate_to(20)
    job.finish()
    assert [entry.last_offset for entry in indexed(log)] == list(range(1, 20, 2))


def test_a_job_ignores_findings_about_a_segment_that_compaction_replaced() -> None:
    """Only the last batch of the segment in which an aborted transaction began is left."""
    store = memory_store()
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    left = log.segments.active.size
    append(log, make_batch())
    log.roll(NOW)
    append_marker(log, 1, 0, commit=False)
    log.roll(NOW)
    expected = indexed(log)
    log = store.restart()
    old, segment, _ = log.segments
    assert segment.txn_index is not None
    job = AbortedJob(log.segments, log.snapshots, segment, segment.txn_index)
    last = old.open().file.read_at(left, old.size - left)
    new = Segment(old._handles, old.folder, old.base_offset, log.config, created_ms=NOW)
    new.size, new.next_offset, new.sealed = len(last), old.next_offset, True
    log.segments.replace([old], new, NOW)
    store.disk.write_atomic(new.path(LOG), last)
    job.run()
    job.finish()
    assert job.failure is None
    assert indexed(log) == expected


def test_an_index_that_grew_since_the_start_is_believed_when_it_is_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = memory_store()
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 0, commit=False)
    log = store.restart()
    append_in_transaction(log, (1, 0, 1))
    append_marker(log, 1, 0, commit=False)
    expected = indexed(log)
    log.roll(NOW)
    log.segments[0].unload()
    caplog.clear()
    assert indexed(log) == expected
    assert caplog.messages == []
