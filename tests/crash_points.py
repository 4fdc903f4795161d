"""Every I/O call of a workload as a crash point, followed by a kill or a power failure.

A workload is a random history by seed, run once. Before each of its calls that change or sync
something, the disk is copied as three crashes would leave it: a kill, a power failure, and a power
failure that keeps some unsynced data. A start from each copy is compared with the history so far.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from compaction_kit import Cleaner
from doubles.disk import MemoryDisk
from doubles.disk_faults import Operation
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import Record, decode_records
from lakelog.replica.partition import Partition
from lakelog.storage.files import CLEANED, SWAP
from lakelog.storage.log import Log
from lakelog.storage.preparation import wait_for
from storage_kit import (
    NOW,
    ManualClock,
    Store,
    aborted_by_segment,
    index_entries,
    make_batch,
    read_batches,
    read_records,
    sole_leader,
)

OPERATIONS = (
    "append",
    "roll",
    "index write",
    "snapshot",
    "checkpoint",
    "compaction swap",
    "truncate",
    "delete",
    "flush",
)


class Point(NamedTuple):
    """A call of a workload: its number, and the step that makes it."""

    workload: str
    call: int
    operation: str


def operation_of(kind: Operation, path: Path) -> str:
    """Which of `OPERATIONS` a call on a file is a part of."""
    name = path.name.removesuffix(".tmp")
    if name.endswith((".deleted", "-delete")):
        return "delete"
    if name.endswith((".cleaned", ".swap")):
        return "compaction swap"
    if name.endswith(".snapshot"):
        return "snapshot"
    if name.endswith("index"):
        return "index write"
    if name.endswith(".log") and kind in ("write", "truncate", "name"):
        return {"write": "append", "truncate": "truncate", "name": "roll"}[kind]
    return (
        "flush" if name.endswith(".log") or ("." not in name and kind == "sync") else "checkpoint"
    )


class SweptDisk(MemoryDisk):
    """Reports each call that changes or syncs something, before it is done."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, names_in_order=False)
        self.on_call: Callable[[int, str], None] | None = None
        self._subject: Path | None = None

    def step(self, operation: Operation, path: Path):  # type: ignore[no-untyped-def]
        if operation != "read" and self.on_call is not None:
            subject = path if self._subject is None else self._subject
            is_new = operation == "truncate" and not self.size(path)
            self.on_call(self.steps, operation_of("name" if is_new else operation, subject))
        return super().step(operation, path)

    @contextmanager
    def _about(self, path: Path) -> Iterator[None]:
        self._subject = path
        try:
            yield
        finally:
            self._subject = None

    def open(self, path: Path, *, create: bool = False):  # type: ignore[no-untyped-def]
        with self._about(path):
            return super().open(path, create=create)

    def rename(self, source: Path, target: Path) -> None:
        with self._about(source if source.suffix in (SWAP, CLEANED) else target):
            super().rename(source, target)

    def remove(self, path: Path) -> None:
        with self._about(path):
            super().remove(path)


def contents_of(disk: MemoryDisk) -> int:
    """A number that two disks share if all their files are equal."""
    tree = disk._tree.items()
    return hash(frozenset((path, node and bytes(node.data)) for path, node in tree))


@dataclass
class History:
    """Acknowledged records, and others that may exist."""

    batches: list[bytes] = field(default_factory=list)
    pending: bytearray | None = None
    """A batch that is being appended."""
    marker_pending: bool = False
    start: int = 0
    durable_start: int = 0
    """The log's start that a checkpoint holds."""
    durable: int = 0
    """Offsets below this survive a power failure."""
    truncated_to: int | None = None
    """While the log is being cut there."""

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).last_offset + 1 if self.batches else 0

    def promise(self) -> Hashable:
        """Whatever `check` goes by."""
        pending = None if self.pending is None else bytes(self.pending)
        ends = self.end, self.start, self.durable_start, self.durable, self.truncated_to
        return *ends, self.marker_pending, pending

    def truncate(self, end: int) -> None:
        self.batches = [b for b in self.batches if read_header(b).last_offset < end]
        self.durable = min(self.durable, end)

    def check(self, log: Log, *, power: bool) -> None:
        """Check that a recovered log is a permitted one."""
        allowed = list(self.batches)
        if self.pending is not None:
            allowed.append(bytes(self.pending))
        least = self.durable if power else self.end
        if self.truncated_to is not None:
            least = min(least, self.truncated_to)
        end, start = log.log_end_offset, log.log_start_offset
        assert self.durable_start <= start, f"a start of {start}: {self.durable_start} was promised"
        assert start <= max(self.start, self.durable_start)
        kept = read_batches(log)
        if self.marker_pending and kept and end == self.end + 1:
            assert read_header(kept[-1]).is_control
            kept.pop()
            end -= 1
        assert least <= end, f"{end} where {least} was promised"
        headers = [(batch, read_header(batch).last_offset) for batch in allowed]
        assert kept == [batch for batch, last in headers if start <= last < end]


def check_derived(store: Store) -> None:
    """Check that derived files and state equal those derived from the log alone."""
    log = store.log
    for batch in read_batches(log):
        header = read_header(batch)
        epoch = log.leader_epochs.epoch_of(header.last_offset)
        assert epoch == header.partition_leader_epoch, (header, log.leader_epochs.entries)
    assert log.recovery_point <= log.log_end_offset
    before = [entry[:2] for entry in index_entries(log)]
    aborted = aborted_by_segment(log)
    producers = producer_states(log)
    for segment in log.segments:
        segment.rebuild_index("asked for")
    assert [entry[:2] for entry in index_entries(log)] == before
    if log.segments[0].base_offset == 0:
        offsets, log.snapshots.offsets = log.snapshots.offsets, []
        log.rebuild_producers(log.segments)
        log.snapshots.offsets = offsets
        again = producer_states(log)
        assert again == producers, f"{again} by the log alone, {producers}"
        assert aborted_by_segment(log) == aborted


def producer_states(log: Log) -> dict[int, tuple[object, ...]]:
    """The state in a snapshot: the last batch, and one time for batches and markers."""
    return {
        producer: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.txn_first_offset,
            *(batch[:3] for batch in entry.batches[-1:]),
        )
        for producer, entry in log.producers.entries.items()
    }


class Workload:
    """A random history of one log. `weights` say how often each action is taken.

    With `flush_messages=1` an append is acknowledged when it is durable.
    """

    def __init__(
        self, name: str, actions: str, *, seed: int = 0, length: int = 60, **config: object
    ) -> None:
        self.name = name
        self._actions = actions.split()
        self._rng = random.Random(f"{name} {seed}")
        self._length = length
        self.config = LogConfig(**(SMALL | config))  # type: ignore[arg-type]
        self.history: Any = History()
        self._clock = ManualClock()
        self._disk = SweptDisk(self._clock)
        self._epoch = 3
        self._seen: set[Hashable] = set()
        """The same disk with the same promises is checked once."""

    def run(self, *, every: int = 1) -> Counter[Point]:
        """Sweeps every so many of its calls; how many disks were looked at for each."""
        looked: Counter[Point] = Counter()
        self._store = Store(self._disk, self._clock, self.config)
        log = self._store.create()
        log.flush()
        self._store.directory.write_checkpoints()
        self._lead(log)

        def on_call(call: int, operation: str) -> None:
            if call % every == 0:
                point = Point(self.name, call, operation)
                for what, disk, power in self._copies(call):
                    looked[point] += 1
                    case = power, contents_of(disk), self.history.promise()
                    if case not in self._seen:
                        self._seen.add(case)
                        self._check(f"{point} {what}", disk, power=power)

        self._disk.on_call = on_call
        for _ in range(self._length):
            getattr(self, "_" + self._rng.choice(self._actions))()
        self._disk.on_call = None
        self._check("the end", self._disk.copy_after_kill(), power=False)
        return looked

    def _copies(self, call: int) -> Iterator[tuple[str, MemoryDisk, bool]]:
        yield "killed", self._disk.copy_after_kill(), False
        yield "power", self._disk.copy_after_crash(), True
        yield "torn", self._disk.copy_after_crash(SeededRandom(call)), True

    def _check(self, what: str, disk: MemoryDisk, *, power: bool) -> None:
        store = Store(disk, ManualClock(self._clock.now_ms), self.config)
        try:
            assert store.directory.failed == {}
            self.history.check(store.log, power=power)
            check_derived(store)
            batches = read_batches(store.log)
            assert read_batches(store.restart()) == batches
            assert store.directory.clean
            assert store.directory.recoveries == {}
        except BaseException as error:
            error.add_note(f"{self.name}: {what}")
            raise

    # Steps

    def _lead(self, log: Log) -> None:
        self._partition = Partition(log, sole_leader(self._epoch), lambda _: None)
        self._partition.assume(sole_leader(self._epoch), 0)

    @property
    def _log(self) -> Log:
        return self._store.log

    def _append(self, **options: object) -> None:
        rng, history = self._rng, self.history
        batch = make_batch(
            rng.randint(1, 4),
            size=rng.choice([1, 20, 200]),
            timestamp=NOW + rng.randint(-1000, 1000),
            codec=rng.randint(0, 4),
            **options,  # type: ignore[arg-type]
        )
        history.pending = batch
        producer = options.get("producer", (-1, -1, -1))
        verification = None
        if options.get("transactional"):
            assert isinstance(producer, tuple)
            verification = self._partition.start_verification(
                producer[0], producer[1], producer[2], NOW, supports_epoch_bump=False
            )
        wait_for(partial(self._partition.append, batch, NOW, verification=verification))
        history.batches.append(bytes(batch))
        history.pending = None
        if self.config.flush_messages == 1:
            history.durable = history.end

    def _sequence(self, producer: int) -> tuple[int, int, int]:
        entry = self._log.producers.entries.get(producer)
        return producer, 0, 0 if entry is None else entry.last_sequence + 1

    def _produce(self) -> None:
        self._append(producer=self._sequence(self._rng.randrange(3)))

    def _transact(self) -> None:
        self._append(producer=self._sequence(10 + self._rng.randrange(3)), transactional=True)

    def _mark(self) -> None:
        producer = 10 + self._rng.randrange(3)
        self.history.marker_pending = True
        commit, append = self._rng.random() < 0.4, self._partition.append_marker
        wait_for(partial(append, producer, 0, commit, 0, NOW, transaction_version=0))
        self.history.batches.append(read_batches(self._log)[-1])
        self.history.marker_pending = False
        if self.config.flush_messages == 1:
            self.history.durable = self.history.end

    def _roll(self) -> None:
        self._log.roll(NOW)

    def _flush(self) -> None:
        self._log.flush()
        self.history.durable = self.history.end

    def _checkpoint(self) -> None:
        start = self._log.log_start_offset
        self._store.directory.write_checkpoints({("topic", 0): self._log.log_end_offset})
        self.history.durable_start = start

    def _truncate(self) -> None:
        history, log = self.history, self._log
        offset = self._rng.randint(log.log_start_offset, log.log_end_offset)
        bases = [read_header(batch).base_offset for batch in history.batches]
        ends = [read_header(batch).last_offset + 1 for batch in history.batches]
        inside = [base for base, end in zip(bases, ends, strict=True) if base < offset < end]
        history.truncated_to = min([offset, *inside])
        if history.truncated_to < log.log_start_offset:
            history.truncated_to = None
            return
        log.truncate_to(offset)
        history.truncate(history.truncated_to)
        history.truncated_to = None

    def _delete(self) -> None:
        history, log = self.history, self._log
        if history.durable > log.log_start_offset:
            history.start = self._rng.randint(log.log_start_offset, history.durable)
            log.advance_log_start(history.start)
        log.delete_old_segments(NOW)
        log.delete_old_segments(NOW)

    def _delete_records(self) -> None:
        """DeleteRecords up to the last record; answered after the checkpoint."""
        history = self.history
        before = self._rng.randint(self._log.log_start_offset, self._partition.watermark.offset)
        history.start = max(history.start, before)
        assert self._partition.delete_records(before) == history.start
        self._checkpoint()

    def _restart(self) -> None:
        self._store.restart()
        self.history.durable = self.history.end
        self.history.durable_start = self.history.start
        self._epoch += 1
        self._lead(self._log)


@dataclass
class CompactedHistory(History):
    """Keys and their values; compaction may have dropped values with a newer one."""

    records: list[Record] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else 0

    def check(self, log: Log, *, power: bool) -> None:
        written = {record.offset: record for record in self.records}
        if self.pending is not None:
            header = read_header(self.pending)
            pending = decode_records(self.pending, header, 1 << 20)
            written |= {record.offset: record for record in pending}
        end = log.log_end_offset
        assert (self.durable if power else self.end) <= end
        kept = {record.offset: record for record in read_records(log)}
        assert list(kept) == sorted(kept)
        assert kept.items() <= written.items()
        newest = {record.key: offset for offset, record in written.items() if offset < end}
        assert set(newest.values()) <= kept.keys(), "the last value of its key"


class Compactions(Workload):
    """A log of keys that is compacted now and then."""

    def __init__(self, name: str, actions: str, **options: object) -> None:
        super().__init__(name, actions, cleanup_policy=frozenset({"compact"}), **options)  # type: ignore[arg-type]
        self.history = CompactedHistory()

    def _write(self) -> None:
        rng, history = self._rng, self.history
        builder = BatchBuilder(rng.randint(0, 4))
        for _ in range(rng.randint(1, 4)):
            builder.append(NOW, b"key %d" % rng.randrange(6), rng.randbytes(rng.choice([5, 90])))
        history.pending = batch = builder.build(*self._sequence(rng.randrange(3)))
        wait_for(partial(self._partition.append, batch, NOW))
        history.records += decode_records(batch, read_header(batch), 1 << 20)
        history.pending = None

    def _clean(self) -> None:
        self._roll()
        self._flush()
        Cleaner(self._store).run()
        self._log.delete_old_segments(NOW)


SMALL: dict[str, object] = {
    "segment_bytes": 1500,
    "index_interval_bytes": 150,
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
}


def workloads() -> list[Workload]:
    often = "append append append append produce produce produce "
    return [
        Workload("appends", often + "roll flush"),
        Workload("each append durable", often + "checkpoint", flush_messages=1),
        Workload("flushes and checkpoints", often + "flush checkpoint"),
        Workload("starts and stops", often + "restart checkpoint", length=40),
        Workload("truncations", often + "truncate truncate flush checkpoint", length=90),
        Workload("deletions", often + "flush delete delete checkpoint", length=90),
        Workload("deleted records", often + "flush delete_records delete_records delete roll"),
        Compactions("compactions", "write write write write write clean checkpoint", length=35),
        Workload("transactions", "append transact transact mark roll flush checkpoint"),
        Workload(
            "each transaction durable",
            "append transact transact mark checkpoint",
            flush_messages=1,
        ),
        Workload("everything", often + "transact mark roll flush checkpoint delete restart"),
    ]
