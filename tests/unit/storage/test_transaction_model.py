"""Random histories of producers and markers, compared with a list of the written batches.

The model keeps only that list. It derives from the whole list each time which producers have an
open transaction, the last stable offset, the aborted transactions, and whether the next batch is
acceptable.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import KafkaError
from lakelog.records.batch import iter_batches
from lakelog.storage.log import Log
from storage_kit import NOW, Store, aborted_by_segment, append_marker, make_batch, memory_store

CONFIG = LogConfig(
    segment_bytes=1200, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1
)
PRODUCERS = 4
FENCED, GAP, STATE, COORDINATOR = 47, 45, 48, 52


class Written(NamedTuple):
    """A batch of one producer (-1: of none), or a marker if `commit` is not none."""

    first: int
    last: int
    producer_id: int
    epoch: int
    sequence: int
    transactional: bool
    commit: bool | None = None
    coordinator_epoch: int = -1


class Aborted(NamedTuple):
    producer_id: int
    first: int
    last: int
    stable: int


@dataclass
class Model:
    written: list[Written] = field(default_factory=list)
    start: int = 0
    durable: int = 0
    """Offsets below this must survive a power failure."""

    @property
    def end(self) -> int:
        return self.written[-1].last + 1 if self.written else 0

    def of(self, producer_id: int) -> list[Written]:
        return [entry for entry in self.written if entry.producer_id == producer_id]

    def open_at(self, end: int) -> dict[int, int]:
        """Producer to first offset of each transaction that is under way at an offset."""
        found: dict[int, int] = {}
        for entry in self.written:
            if entry.first >= end:
                break
            if entry.commit is not None:
                found.pop(entry.producer_id, None)
            elif entry.transactional:
                found.setdefault(entry.producer_id, entry.first)
        return found

    @property
    def stable(self) -> int:
        first = min(self.open_at(self.end).values(), default=self.end)
        return max(first, min(self.start, self.end))

    def aborted(self) -> list[Aborted]:
        found = []
        for entry in self.written:
            if entry.commit is False:
                first = self.open_at(entry.first).get(entry.producer_id)
                if first is not None:
                    stable = min(self.open_at(entry.last + 1).values(), default=entry.last + 1)
                    found.append(Aborted(entry.producer_id, first, entry.last, stable))
        return found

    def state(self) -> dict[int, tuple[int, int, int, int, int]]:
        """Epoch, last sequence and offset in it, coordinator epoch, first of the transaction."""
        found = {}
        transactions = self.open_at(self.end)
        for producer_id in range(PRODUCERS):
            history = self.of(producer_id)
            if history:
                epoch = history[-1].epoch
                data = [e for e in history if e.commit is None and e.epoch == epoch]
                last = (data[-1].sequence + data[-1].last - data[-1].first) if data else -1
                coordinator = [e.coordinator_epoch for e in history if e.commit is not None]
                found[producer_id] = (
                    epoch,
                    last,
                    data[-1].last if data else -1,
                    coordinator[-1] if coordinator else -1,
                    transactions.get(producer_id, -1),
                )
        return found

    def refusal(self, batch: Written, verified: bool) -> int:
        """Why a client's batch may not be written; 0 if it may."""
        history = self.of(batch.producer_id)
        epoch = history[-1].epoch if history else -1
        first = self.open_at(self.end).get(batch.producer_id)
        if batch.epoch < epoch:
            return FENCED
        running = first is not None and batch.epoch == epoch
        if batch.transactional and not running and not verified:
            return STATE
        data = [e for e in history if e.commit is None and e.epoch == epoch]
        due = 0
        if data and batch.epoch == epoch:
            due = data[-1].sequence + data[-1].last - data[-1].first + 1
        if history and batch.sequence != due:
            return GAP
        return STATE if first is not None and not batch.transactional else 0

    def marker_refusal(self, producer_id: int, epoch: int, coordinator: int, version: int) -> int:
        history = self.of(producer_id)
        if not history:
            return 0
        known = history[-1].epoch
        running = producer_id in self.open_at(self.end)
        if epoch < known or (version == 2 and epoch == known and running):
            return FENCED
        markers = [entry for entry in history if entry.commit is not None]
        return COORDINATOR if markers and markers[-1].coordinator_epoch > coordinator else 0

    def truncate(self, offset: int) -> None:
        self.written = [entry for entry in self.written if entry.last < offset]
        self.start = min(self.start, self.end)
        self.durable = min(self.durable, self.end)


def check(log: Log, model: Model) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    assert log.last_stable_offset == model.stable
    state = {}
    for producer_id, entry in log.producers.entries.items():
        last = entry.batches[-1].last_offset if entry.batches else -1
        state[producer_id] = (
            entry.epoch,
            entry.last_sequence,
            last,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    assert state == model.state()
    floor = log.segments[0].base_offset
    expected = [tuple(entry) for entry in model.aborted() if entry.last >= floor]
    aborted = aborted_by_segment(log)
    assert [tuple(entry) for entries in aborted for entry in entries] == expected


def check_reads(log: Log, model: Model, rng: random.Random) -> None:
    """With the aborted transactions of its fetches, a consumer drops exactly their records."""
    dropped = {(entry.producer_id, entry.first, entry.last) for entry in model.aborted()}
    at = rng.randint(model.start, max(model.start, model.stable))
    while (found := log.read(at, 400, end_offset=model.stable)) is not None:
        told = log.aborted_transactions(at, found)
        assert [e.first_offset for e in told] == sorted(e.first_offset for e in told)
        headers = [header for header, _ in iter_batches(found.read())]
        found.release()
        for header in headers:
            assert header.last_offset < model.stable
            if header.is_control:
                continue
            is_dropped = header.is_transactional and any(
                producer_id == header.producer_id and first <= header.base_offset < last
                for producer_id, first, last in dropped
            )
            is_told = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset < entry.last_offset
                for entry in told
            )
            assert is_told == is_dropped
        at = headers[-1].last_offset + 1


def produce(log: Log, model: Model, rng: random.Random) -> None:
    """Mostly the batch that is due, sometimes a wrong epoch, sequence or kind, or unverified."""
    producer_id = rng.randrange(PRODUCERS)
    epoch, last, _, _, first = model.state().get(producer_id, (0, -1, -1, -1, -1))
    sequence = last + 1
    if rng.random() < 0.1:
        epoch, sequence = epoch + 1, 0
    elif rng.random() < 0.1:
        epoch, sequence = max(0, epoch + rng.choice([-1, 0])), sequence + rng.choice([1, 7])
    transactional = first >= 0 or rng.random() < 0.6
    if rng.random() < 0.05:
        transactional = not transactional
    count = rng.randint(1, 3)
    wanted = Written(model.end, model.end + count - 1, producer_id, epoch, sequence, transactional)
    verified = rng.random() < 0.9
    expected = model.refusal(wanted, verified)
    producer = producer_id, epoch, sequence
    batch = make_batch(count, producer=producer, transactional=transactional)
    log.producers.verifications.held.pop(producer_id, None)
    try:
        verification = None
        if verified and transactional:
            verification = log.producers.start_verification(
                *producer, NOW, supports_epoch_bump=False
            )
        result = log.append(batch, leader_epoch=0, now_ms=NOW, verification=verification)
    except KafkaError as error:
        assert error.code == expected, wanted
        return
    assert (expected, result.base_offset, result.duplicate) == (0, wanted.first, False)
    model.written.append(wanted)


def mark(log: Log, model: Model, rng: random.Random) -> None:
    running = list(model.open_at(model.end))
    producer_id = rng.choice(running) if running and rng.random() < 0.8 else rng.randrange(4)
    epoch, _, _, coordinator, _ = model.state().get(producer_id, (0, -1, -1, -1, -1))
    version = rng.choice([0, 2])
    epoch = max(0, epoch + rng.choice([-1, 0, 0, 1, 1, 1]))
    coordinator = max(0, coordinator + rng.choice([-1, 0, 0, 0, 1]))
    commit = rng.random() < 0.4
    expected = model.marker_refusal(producer_id, epoch, coordinator, version)
    try:
        offset = append_marker(
            log,
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator,
            transaction_version=version,
        )
    except KafkaError as error:
        assert error.code == expected
        return
    assert (expected, offset) == (0, model.end)
    model.written.append(Written(offset, offset, producer_id, epoch, -1, True, commit, coordinator))


def step(store: Store, model: Model, rng: random.Random, *, retention: bool) -> None:
    """Retention and power failures do not meet: with both, a producer may rightly be forgotten."""
    log = store.log
    rare = ["truncate", "flush", "restart", "kill", "retention" if retention else "power"]
    match rng.choice(["produce"] * 12 + ["mark"] * 6 + ["plain"] * 2 + rare):
        case "produce":
            produce(log, model, rng)
        case "mark":
            mark(log, model, rng)
        case "plain":
            batch = make_batch(2)
            base = log.append(batch, leader_epoch=0, now_ms=NOW).base_offset
            model.written.append(Written(base, base + 1, -1, -1, -1, False))
        case "truncate" if model.end > model.start and rng.random() < 0.5:
            offset = rng.randint(max(model.start, model.end - 12), model.end)
            log.truncate_to(offset)
            model.truncate(offset)
        case "flush":
            log.flush()
            store.directory.write_checkpoints()
            model.durable = model.end
        case "restart":
            store.restart()
            model.durable = model.end
        case "kill":
            store.killed()
        case "power":
            assert isinstance(store.disk, MemoryDisk)
            store.disk.crash(SeededRandom(rng.getrandbits(32)))
            store.start()
            assert store.directory.failed == {}
            end = store.log.log_end_offset
            assert model.durable <= end <= model.end
            model.truncate(end)
        case "retention" if model.durable > model.start:
            model.start = rng.randint(model.start, model.durable)
            log.advance_log_start(model.start)
            log.delete_old_segments(NOW)
            store.directory.write_checkpoints()


@pytest.mark.parametrize("seed", range(24))
def test_a_random_history(seed: int) -> None:
    rng = random.Random(seed)
    store = memory_store(CONFIG)
    model = Model()
    store.create().flush()
    store.directory.write_checkpoints()
    for _ in range(120):
        step(store, model, rng, retention=seed % 2 == 0)
        if rng.random() < 0.3:
            check(store.log, model)
    check(store.log, model)
    check_reads(store.log, model, rng)
    check(store.restart(), model)
    check_reads(store.log, model, rng)


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "power", "torn"])
def test_a_stop_at_every_step_of_markers_rolls_and_flushes(how: str) -> None:
    """The history is the same each time; only the step at which it stops moves on."""
    stop, finished = 0, False
    while not finished:
        rng = random.Random(4)
        store = memory_store(CONFIG)
        disk = store.disk
        assert isinstance(disk, MemoryDisk)
        model = Model()
        log = store.create()
        log.flush()
        store.directory.write_checkpoints()
        disk.stop_at = disk.steps + stop
        try:
            for number in range(34):
                (mark if number % 3 == 2 else produce)(log, model, rng)
                if number % 9 == 8:
                    log.flush()
                    store.directory.write_checkpoints()
                    model.durable = model.end
            finished = True
        except DiskStopped:
            pass
        if how == "kill":
            disk.kill()
        else:
            disk.crash(SeededRandom(stop) if how == "torn" else None)
        store.start()
        assert store.directory.failed == {}
        if store.log.log_end_offset > model.end:
            store.log.truncate_to(model.end)  # written, and never heard of
        assert model.durable <= store.log.log_end_offset
        model.truncate(store.log.log_end_offset)
        check(store.log, model)
        stop += 1
    assert stop > 60
