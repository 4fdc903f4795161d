"""Shared by the storage tests: batches, logs on a disk in memory, and ways to read them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import CorruptRecord, iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import NO_DECISION, EndTransactionMarker
from lakelog.records.record import Record, decode_records
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.role import Role
from lakelog.runtime.api import Disk
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.log import Log
from lakelog.storage.preparation import wait_for
from lakelog.storage.reading.aborted import aborted_in
from lakelog.storage.reading.timestamps import Search, TimestampOffset, Work
from lakelog.storage.segments.txn_index import AbortedTransaction

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
DATA = Path("/data")


class ManualClock:
    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def monotonic_ms(self) -> int:
        return int(self.now_ms)


def sole_leader(leader_epoch: int) -> Role:
    """The role of a broker that is the only replica."""
    return Role(leader_epoch, leader_id=1, is_leader=True, isr=(1,))


def create_log(
    directory: LogDirectory, topic: str, partition: int, topic_id: bytes, config: LogConfig
) -> Log:
    """Create an empty log of a directory, as the broker does in a thread and on its loop."""
    log = directory.make_log(topic, partition, topic_id, config)
    directory.add_log(log)
    return log


def partitions_in_memory(clock: ManualClock, count: int) -> PartitionRegistry:
    """Return partitions of topic `t`, with empty logs on a disk in memory."""
    directory = LogDirectory(DATA, MemoryDisk(clock), clock, SeededRandom(1))
    directory.open(None, 1)
    partitions = PartitionRegistry()
    for index in range(count):
        log = create_log(directory, "t", index, TOPIC_ID, LogConfig())
        partitions.add(Partition(log, sole_leader(0), lambda _: None))
    return partitions


def make_batch(
    count: int = 1,
    *,
    size: int = 20,
    timestamp: int = NOW,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    """Records of `size` bytes whose timestamps rise by 1 ms; `producer` is id, epoch, sequence."""
    builder = BatchBuilder(codec)
    for number in range(count):
        builder.append(timestamp + number, b"key", b"%0*d" % (size, number))
    producer_id, epoch, sequence = producer
    return builder.build(producer_id, epoch, sequence, is_transactional=transactional)


def append_in_transaction(
    log: Log, producer: tuple[int, int, int], count: int = 1, *, size: int = 20, now_ms: int = NOW
) -> int:
    """Verifies the producer as its coordinator would have it, then appends `count` records."""
    verification = log.producers.start_verification(*producer, now_ms, supports_epoch_bump=False)
    batch = make_batch(count, size=size, producer=producer, transactional=True, timestamp=now_ms)
    return log.append(batch, leader_epoch=3, now_ms=now_ms, verification=verification).base_offset


def append_marker(
    log: Log,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    now_ms: int = NOW,
    transaction_version: int = 0,
    decision: int = NO_DECISION,
) -> int:
    append_one = partial(
        log.append_marker,
        producer_id,
        epoch,
        EndTransactionMarker(commit, coordinator_epoch, decision),
        leader_epoch=3,
        now_ms=now_ms,
        transaction_version=transaction_version,
    )
    return wait_for(append_one)[0]


def append(log: Log, batch: bytearray, *, now_ms: int = NOW, leader_epoch: int = 3) -> int:
    return log.append(batch, leader_epoch=leader_epoch, now_ms=now_ms).base_offset


def read_batches(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch from `offset` to the end, fetched as a consumer would."""
    batches: list[bytes] = []
    at = log.log_start_offset if offset is None else offset
    while (found := log.read(at, max_bytes, end_offset=log.log_end_offset)) is not None:
        data = found.read()
        found.release()
        whole = list(iter_batches(data))
        assert sum(len(batch) for _, batch in whole) == len(data)
        batches.extend(bytes(batch) for _, batch in whole)
        at = whole[-1][0].last_offset + 1
    return batches


def record_at(log: Log, timestamp: int) -> TimestampOffset | None:
    """Return the first record at or after a time (ms)."""
    return at_once(log.search_time(timestamp))


def newest_record(log: Log) -> TimestampOffset | None:
    """Return the first record that has the greatest timestamp."""
    return at_once(log.search_time(None))


def at_once(search: Search) -> TimestampOffset | None:
    """Return the result of a search, after all its steps."""
    try:
        work = next(search)
        while True:
            work = next(search) if work is None else _send(search, work)
    except StopIteration as stop:
        found: TimestampOffset | None = stop.value
        return found


def _send(search: Search, work: Work) -> Work | None:
    try:
        result = work()
    except CorruptRecord as error:
        return search.throw(error)
    return search.send(result)


def aborted_by_segment(log: Log) -> list[list[AbortedTransaction]]:
    """Return the aborted transactions of each segment, after the jobs that this needs."""
    ask = partial(aborted_in, log.segments, log.snapshots)
    return [list(wait_for(partial(ask, segment))) for segment in log.segments]


def read_records(log: Log) -> list[Record]:
    return [
        record
        for batch in read_batches(log)
        for header, _ in iter_batches(batch)
        for record in decode_records(batch, header, 1 << 24)
        if record.offset >= log.log_start_offset
    ]


@dataclass
class Store:
    """A data folder that can be stopped, killed and started again."""

    disk: Disk
    clock: ManualClock = field(default_factory=ManualClock)
    config: LogConfig = field(default_factory=LogConfig)
    path: Path = DATA
    known: set[bytes] = field(default_factory=lambda: {TOPIC_ID})
    max_open: int = 16
    directory: LogDirectory = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> LogDirectory:
        self.directory = LogDirectory(
            self.path, self.disk, self.clock, SeededRandom(1), max_open_files=self.max_open
        )
        self.directory.open(None, 1)
        self.directory.load_logs(lambda topic, topic_id: self.config, self.known)
        return self.directory

    @property
    def memory_disk(self) -> MemoryDisk:
        """The disk, which must be one in memory."""
        assert isinstance(self.disk, MemoryDisk)
        return self.disk

    def create(self, topic: str = "topic", partition: int = 0) -> Log:
        return create_log(self.directory, topic, partition, TOPIC_ID, self.config)

    @property
    def log(self) -> Log:
        return self.directory.logs["topic", 0]

    def restart(self) -> Log:
        """A clean stop and a start."""
        self.directory.close()
        self.start()
        return self.log

    def killed(self) -> Log:
        """`kill -9` and a start."""
        assert isinstance(self.disk, MemoryDisk)
        self.disk.kill()
        self.start()
        return self.log


def memory_store(config: LogConfig | None = None) -> Store:
    clock = ManualClock()
    return Store(MemoryDisk(clock), clock, config or LogConfig())


def open_files(folder: Path) -> list[str]:
    """Return the names of the files below `folder` that this process has open."""
    paths = []
    for number in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this list
            paths.append(number.readlink())
    return sorted(path.name for path in paths if folder in path.parents)


def index_entries(
    log: Log, first: int = 0
) -> list[tuple[list[int], list[int], list[int], list[int]]]:
    """The indexes of the segments from number `first` on, as they are in memory."""
    found = []
    for segment in list(log.segments)[first:]:
        index = segment.index
        found.append(
            (
                list(index.offsets),
                list(index.positions),
                list(index.times),
                list(index.time_offsets),
            )
        )
    return found
