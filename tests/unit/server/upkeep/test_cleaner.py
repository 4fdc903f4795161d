"""Compaction beside a running broker: helpers that work, lie and die, and logs that change."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from doubles.disk_faults import Operation
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.log_config import LogConfig
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import ProcessUsage
from lakelog.server.upkeep import cleaner
from lakelog.server.upkeep.cleaner import Cleaner
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.compaction import swap
from lakelog.storage.compaction.clean import compact
from lakelog.storage.compaction.job import (
    Answer,
    CleanedGroup,
    CompactionFailed,
    CompactionJob,
    encode_answer,
)
from lakelog.storage.files import CLEANED, INDEX, LOG, SWAP
from lakelog.storage.marks import BOOT_ID
from storage_kit import DATA, NOW, Store, make_batch, memory_store, read_records, sole_leader

CONFIG = LogConfig(
    segment_bytes=400,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=0,
)
SILENT = b"silent"
Work = Callable[[MemoryDisk, CompactionJob], Iterator[Answer | bytes]]


def honest(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer]:
    yield from compact(disk, job, lambda size: None)


def dying(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer | bytes]:
    yield b""


def dying_later(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer | bytes]:
    yield next(iter(compact(disk, job, lambda size: None)))
    yield b'{"kind": "do'


def then_fail(
    operation: Operation, suffix: str, skip: int, code: int, disk: MemoryDisk, job: CompactionJob
) -> Iterator[Answer]:
    """The broker's next operation of this kind fails, after the work of an honest helper."""
    for answer in compact(disk, job, lambda size: None):
        if isinstance(answer, CleanedGroup):
            disk.fail(operation, code, suffix=suffix, skip=skip)
        yield answer


def failing(kind: str, disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer]:
    yield CompactionFailed(kind, "for a reason")


@dataclass
class FakeChild:
    disk: MemoryDisk
    work: Work
    answers: Iterator[Answer | bytes] = field(default_factory=lambda: iter(()))
    ended: bool = False

    async def send(self, line: bytes) -> None:
        self.answers = self.work(self.disk, CompactionJob.decode(line))

    async def receive(self) -> bytes:
        await asyncio.sleep(0)
        answer = next(self.answers)
        if answer == SILENT:
            await asyncio.Event().wait()
        return answer if isinstance(answer, bytes) else encode_answer(answer)

    async def end(self) -> int:
        self.ended = True
        return 0


@dataclass
class FakeProcesses:
    disk: MemoryDisk
    works: list[Work]
    children: list[FakeChild] = field(default_factory=list)

    async def start(self, module: str) -> FakeChild:
        if not self.works:
            raise OSError("no more processes")
        self.children.append(FakeChild(self.disk, self.works.pop(0)))
        return self.children[-1]

    def usage(self) -> ProcessUsage:
        raise NotImplementedError


class Bench:
    """One partition with something to compact, and a cleaner whose ticks are given by hand."""

    def __init__(self, store: Store, *works: Work) -> None:
        self.store = store
        disk = store.disk
        assert isinstance(disk, MemoryDisk)
        self.log = store.create()
        self.partition = Partition(self.log, sole_leader(0), lambda partition: None)
        self.fill()
        self.partitions = PartitionRegistry()
        self.partitions.add(self.partition)
        self.processes = FakeProcesses(disk, list(works))
        self.checkpoints = 0
        self.retained: list[Partition] = []
        self.shortages: list[OSError] = []
        tasks = AsyncioTasks(asyncio.get_running_loop())
        settings = {"log.cleaner.backoff.ms": "3600000"}
        self.config = BrokerConfig(settings)
        self.cleaner = Cleaner(
            self.partitions,
            store.directory,
            lambda: self.config,
            store.clock,
            tasks,
            self.processes,
            self._checkpoint,
            lambda partition: partition.log.flush(),
            self.retained.append,
            self.shortages.append,
            StoredChecks(tasks),
        )

    def _checkpoint(self) -> None:
        self.checkpoints += 1

    def fill(self) -> None:
        for number in range(12):
            self.partition.append(make_batch(timestamp=NOW + number), NOW)
        self.log.flush()

    async def tick(self) -> None:
        """One look around, and the end of all that it began."""
        self.cleaner._tick()
        workers = list(self.cleaner._workers)
        await asyncio.gather(*workers, return_exceptions=True)
        await asyncio.sleep(0)

    @property
    def cleaned(self) -> int:
        return self.store.directory.cleaner_offsets.get(("topic", 0), 0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_log_that_is_due_is_compacted_and_the_helper_ended() -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), honest)
        before = len(read_records(bench.log))
        await bench.tick()
        active = bench.log.segments.active.base_offset
        assert bench.cleaned == active
        assert len(read_records(bench.log)) < before
        assert bench.checkpoints == 1
        counts = bench.cleaner.counts
        assert (counts.rounds, counts.dirtiest_ratio) == (1, 0.0)
        assert counts.bytes_written < counts.bytes_read
        assert [child.ended for child in bench.processes.children] == [True]
        assert bench.retained == [bench.partition]
        await bench.tick()
        assert len(bench.processes.children) == 1, "nothing is left to do"
        await bench.cleaner.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("setting", "value"), [("log.cleaner.enable", "false"), ("log.cleaner.threads", "0")]
)
def test_it_may_be_switched_off(setting: str, value: str) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG))
        bench.config = BrokerConfig({setting: value})
        await bench.tick()
        assert bench.cleaned == 0
        await bench.cleaner.stop()

    run(scenario())


def test_helpers_are_bounded_in_any_configuration() -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG))
        values = {"log.cleaner.threads": "100", "log.cleaner.dedupe.buffer.size": str(32 << 30)}
        bench.config = BrokerConfig(values)
        assert bench.cleaner._helpers_allowed == 32
        assert bench.cleaner._limits().map_bytes == 1 << 30
        await bench.cleaner.stop()

    run(scenario())


@pytest.mark.parametrize("work", [dying, dying_later])
def test_a_log_whose_helpers_die_is_given_up_after_some(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), work, work, work, honest)
        for _ in range(5):
            await bench.tick()
        assert bench.cleaner.counts.helper_deaths == 3
        assert bench.cleaner.uncleanable == {bench.partition}
        assert len(bench.processes.children) == 3
        assert all(child.ended for child in bench.processes.children)
        await bench.cleaner.stop()

    run(scenario())
    assert "topic-0 is not compacted until a restart: 3 helpers died" in caplog.text


def test_one_death_is_forgotten_after_a_success() -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), dying, honest, dying, dying, honest)
        for _ in range(2):
            await bench.tick()
        assert bench.cleaned > 0
        bench.fill()
        for _ in range(3):
            await bench.tick()
        assert bench.cleaner.uncleanable == set()
        assert bench.cleaned == bench.log.segments.active.base_offset
        await bench.cleaner.stop()

    run(scenario())


def test_a_damaged_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), partial(failing, "corrupt"), honest)
        await bench.tick()
        await bench.tick()
        assert bench.cleaner.uncleanable == {bench.partition}
        assert len(bench.processes.children) == 1
        await bench.cleaner.stop()

    run(scenario())
    assert "topic-0 is not compacted until a restart: for a reason" in caplog.text


@pytest.mark.parametrize("kind", ["missing", "shortage", "io"])
def test_other_failures_are_tried_again(kind: str) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), partial(failing, kind), honest)
        bench.store.directory.ownership.trust_page_cache()
        await bench.tick()
        assert (bench.cleaned, bench.cleaner.uncleanable) == (0, set())
        assert bench.store.disk.exists(DATA / BOOT_ID) is (kind != "io")
        await bench.tick()
        assert bench.cleaned > 0
        await bench.cleaner.stop()

    run(scenario())


def test_segments_that_went_meanwhile_are_not_brought_back() -> None:
    async def scenario() -> None:
        store = memory_store(CONFIG._replace(cleanup_policy=frozenset({"compact", "delete"})))

        def overtaken(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer]:
            found = list(compact(disk, job, lambda size: None))
            bench.log.advance_log_start(bench.log.segments.active.base_offset)
            bench.log.delete_old_segments(NOW)
            yield from found

        bench = Bench(store, overtaken)
        await bench.tick()
        assert [segment.base_offset for segment in bench.log.segments] == [
            bench.log.segments.active.base_offset
        ]
        assert bench.cleaned == 0 and bench.partition.offline_reason is None
        await bench.cleaner.stop()

    run(scenario())


def test_a_topic_that_is_deleted_meanwhile_stays_deleted() -> None:
    async def scenario() -> None:
        def overtaken(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer]:
            found = list(compact(disk, job, lambda size: None))
            bench.partitions.remove(bench.partition)
            bench.store.directory.schedule_delete(bench.log)
            yield from found

        bench = Bench(memory_store(CONFIG), overtaken)
        await bench.tick()
        names = bench.store.disk.list(bench.store.path)
        assert not [name for name in names if name == "topic-0"]
        assert bench.cleaned == 0
        await bench.cleaner.stop()

    run(scenario())


def test_a_device_that_fails_in_a_swap_takes_the_partition_offline() -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), honest)
        disk = bench.store.disk
        assert isinstance(disk, MemoryDisk)
        disk.fail("sync", 5, suffix="topic-0")
        await bench.tick()
        assert bench.partition.offline_reason is not None
        await bench.cleaner.stop()

    run(scenario())


SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT]


@pytest.mark.parametrize("code", SHORTAGES)
def test_a_log_that_cannot_be_looked_at_for_a_shortage_is_compacted_later(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async def scenario() -> None:
        def fail(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        bench = Bench(memory_store(CONFIG), honest)
        with monkeypatch.context() as short:
            short.setattr(cleaner, "examine", fail)
            await bench.tick()
        assert [error.errno for error in bench.shortages] == [code]
        assert bench.cleaner.uncleanable == set()
        await bench.tick()
        assert bench.cleaned > 0
        await bench.cleaner.stop()

    run(scenario())


def test_nothing_is_compacted_while_space_is_kept_for_what_frees_some() -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), honest)
        bench.store.directory.space_guard.rejects_writes = True
        await bench.tick()
        assert (bench.cleaned, len(bench.processes.children)) == (0, 0)
        bench.store.directory.space_guard.rejects_writes = False
        await bench.tick()
        assert bench.cleaned > 0
        await bench.cleaner.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("operation", "suffix", "skip", "code"),
    [
        *(("name", CLEANED, skip, code) for skip in (0, 1) for code in SHORTAGES),
        ("sync", "topic-0", 0, errno.EMFILE),
        ("sync", "topic-0", 0, errno.ENFILE),
        *(("name", name, 0, errno.ENOSPC) for name in (INDEX, LOG)),
    ],
)
def test_a_swap_is_put_off_while_there_is_a_shortage(
    operation: Operation, suffix: str, skip: int, code: int
) -> None:
    """In each of its steps; nothing of it is left, and the log is as before."""

    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), partial(then_fail, operation, suffix, skip, code))
        store, names = bench.store, bench.store.disk.list(bench.log.folder)
        records, before = read_records(bench.log), bench.log.size
        await bench.tick()
        assert bench.partition.offline_reason is None
        assert [error.errno for error in bench.shortages] == [code]
        assert (bench.cleaned, bench.log.size) == (0, before)
        assert store.disk.list(bench.log.folder) == names
        assert read_records(bench.log) == records
        bench.processes.works.append(honest)
        await bench.tick()
        assert bench.cleaned == bench.log.segments.active.base_offset
        kept = read_records(bench.log)
        assert len(kept) < len(records)
        await bench.cleaner.stop()
        assert read_records(store.killed()) == kept

    run(scenario())


@pytest.mark.parametrize("number", range(12))
def test_a_kill_while_a_swap_is_undone_leaves_the_log_whole(number: int) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), partial(then_fail, "sync", "topic-0", 0, errno.EMFILE))
        disk, records = bench.store.disk, read_records(bench.log)
        assert isinstance(disk, MemoryDisk)
        undo = swap.undo_swap

        def killed(*arguments: Any) -> None:
            disk.stop_at = disk.steps + number
            undo(*arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(swap, "undo_swap", killed)
            await bench.tick()
        await bench.cleaner.stop()
        found = read_records(bench.store.killed())
        assert found == records[-len(found) :]
        assert (found == records) is (number > 0), "undone, or completed if that has not begun"
        left = disk.list(bench.store.log.folder)
        assert not [name for name in left if name.endswith((CLEANED, SWAP))]

    run(scenario())


def test_a_sync_that_reports_a_full_disk_takes_the_partition_offline() -> None:
    """Records that it should have flushed may be lost."""

    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG), partial(then_fail, "sync", "topic-0", 0, errno.ENOSPC))
        await bench.tick()
        assert bench.partition.offline_reason is not None
        await bench.cleaner.stop()

    run(scenario())


@pytest.mark.parametrize("code", SHORTAGES)
def test_a_helper_that_cannot_be_started_for_a_shortage_is_started_later(code: int) -> None:
    async def scenario() -> None:
        async def fail(module: str) -> FakeChild:
            raise OSError(code, os.strerror(code))

        bench = Bench(memory_store(CONFIG), honest)
        with pytest.MonkeyPatch.context() as short:
            short.setattr(bench.processes, "start", fail)
            await bench.tick()
        assert [error.errno for error in bench.shortages] == [code]
        await bench.tick()
        assert bench.cleaned > 0
        await bench.cleaner.stop()

    run(scenario())


def test_stopping_ends_the_helpers() -> None:
    async def scenario() -> None:
        def silent(disk: MemoryDisk, job: CompactionJob) -> Iterator[Answer | bytes]:
            asked.set()
            yield SILENT

        asked = asyncio.Event()
        bench = Bench(memory_store(CONFIG), silent)
        bench.cleaner._tick()
        await asked.wait()
        (child,) = bench.processes.children
        await bench.cleaner.stop()
        assert child.ended

    run(scenario())


def test_nothing_is_said_while_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = Bench(memory_store(CONFIG._replace(min_cleanable_dirty_ratio=1.0)))
        await bench.tick()
        await bench.cleaner.stop()

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert caplog.text == ""
