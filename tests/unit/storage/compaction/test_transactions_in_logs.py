"""Compaction of logs with transactions, as `read_committed` consumers see it."""

from __future__ import annotations

import random

import pytest

from compaction_kit import Cleaner
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import decode_records
from lakelog.storage.log import Log
from storage_kit import append, append_marker, memory_store

CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)
Row = tuple[int, bytes | None, bytes | None]


class TransactionLog:
    """A log, its committed records, and its open transactions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = memory_store(CONFIG)
        self.store.create()
        self.cleaner = Cleaner(self.store)
        self.committed: list[Row] = []
        self.ongoing: dict[int, list[Row]] = {}
        self.sequences: dict[int, int] = {}

    @property
    def log(self) -> Log:
        return self.store.log

    def write(self, producer: int) -> None:
        """Producer 0 has no transactions."""
        builder, rows = BatchBuilder(self.rng.choice([0, 4])), []
        for _ in range(self.rng.randint(1, 3)):
            key = b"%d" % self.rng.randrange(7)
            value = None if self.rng.random() < 0.2 else self.rng.randbytes(20)
            builder.append(self.store.clock.now_ms, key, value)
            rows.append((key, value))
        now = self.store.clock.now_ms
        if not producer:
            base = append(self.log, builder.build(), now_ms=now)
            self.committed += [(base + n, *row) for n, row in enumerate(rows)]
            return
        sequence = self.sequences.get(producer, 0)
        verification = self.log.producers.start_verification(
            producer, 0, sequence, now, supports_epoch_bump=False
        )
        batch = builder.build(producer, 0, sequence, is_transactional=True)
        base = self.log.append(
            batch, leader_epoch=3, now_ms=now, verification=verification
        ).base_offset
        self.sequences[producer] = sequence + len(rows)
        done = self.ongoing.setdefault(producer, [])
        done += [(base + n, *row) for n, row in enumerate(rows)]

    def end(self, producer: int, *, commit: bool) -> None:
        append_marker(self.log, producer, 0, commit=commit, now_ms=self.store.clock.now_ms)
        rows = self.ongoing.pop(producer)
        if commit:
            self.committed += rows

    def step(self) -> None:
        producer = self.rng.randrange(4)
        if producer in self.ongoing and self.rng.random() < 0.5:
            self.end(producer, commit=self.rng.random() < 0.5)
        else:
            self.write(producer)

    def clean(self) -> None:
        self.log.roll(self.store.clock.now_ms)
        self.log.flush()
        self.store.clock.now_ms += self.rng.choice([10, 600])
        self.cleaner.run(last_stable_offset=self.log.last_stable_offset)


def read_committed(log: Log) -> list[Row]:
    """Records that a `read_committed` consumer returns from batches and aborted transactions."""
    rows: list[Row] = []
    at, end = log.log_start_offset, log.last_stable_offset
    while (found := log.read(at, 500, end_offset=end)) is not None:
        aborted = log.aborted_transactions(at, found)
        first = {entry.producer_id: [] for entry in aborted}  # type: ignore[var-annotated]
        for entry in aborted:
            first[entry.producer_id].append((entry.first_offset, entry.last_offset))
        for header, batch in iter_batches(found.read()):
            at = header.last_offset + 1
            spans = first.get(header.producer_id, [])
            hidden = header.is_transactional and any(
                start <= header.base_offset < stop for start, stop in spans
            )
            if not header.is_control and not hidden:
                records = decode_records(batch, header, 1 << 20)
                rows += [(r.offset, r.key, r.value) for r in records]
        found.release()
    return rows


def check(transactions: TransactionLog) -> None:
    cleaned, stable = transactions.cleaner.cleaned or 0, transactions.log.last_stable_offset
    rows = read_committed(transactions.log)
    visible = sorted(row for row in transactions.committed if row[0] < stable)
    assert set(rows) <= set(visible), "nothing uncommitted is read"
    newest = {key: offset for offset, key, _ in visible if offset < cleaned}
    found = {row[0] for row in rows}
    for offset, key, value in visible:
        if offset >= cleaned or (newest[key] == offset and value is not None):
            assert offset in found, "the last committed value"
        elif newest[key] != offset:
            assert offset not in found


@pytest.mark.parametrize("seed", range(20))
def test_readers_of_committed_records(seed: int) -> None:
    transactions = TransactionLog(seed)
    for _ in range(6):
        for _ in range(transactions.rng.randint(2, 16)):
            transactions.step()
        transactions.clean()
        check(transactions)
        match transactions.rng.randrange(3):
            case 0:
                transactions.store.restart()
            case 1:
                transactions.store.killed()
        assert transactions.store.directory.failed == {}
        check(transactions)
        assert transactions.log.last_stable_offset == min(
            (rows[0][0] for rows in transactions.ongoing.values()),
            default=transactions.log.log_end_offset,
        )
    for producer, sequence in transactions.sequences.items():
        entry = transactions.log.producers.entries[producer]
        assert entry.last_sequence == (sequence - 1) & 0x7FFFFFFF
    for producer in list(transactions.ongoing):
        transactions.end(producer, commit=True)
    check(transactions)


def test_an_open_transaction_stops_the_cleaning() -> None:
    transactions = TransactionLog(1)
    transactions.write(0)
    transactions.write(1)
    for _ in range(40):
        transactions.write(0)
    transactions.clean()
    assert (transactions.cleaner.cleaned or 0) <= transactions.log.last_stable_offset
    before = transactions.log.last_stable_offset
    transactions.end(1, commit=False)
    transactions.write(0)
    transactions.clean()
    assert (transactions.cleaner.cleaned or 0) > before
    aborted = {row[0] for row in read_committed(transactions.log)}
    assert before not in aborted
