"""A thread checks stored data; waiting callers are answered in any case."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar, cast

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Tasks
from lakelog.server.upkeep.stored_checks import NeededCheck, StoredChecks
from lakelog.storage.files import INDEX, LOG
from lakelog.storage.preparation import NotReady
from storage_kit import NOW, Store, append, make_batch, memory_store, sole_leader

T = TypeVar("T")

BATCH_SIZE = len(make_batch(2))


class ThreadsAtOnce:
    def offload(self, lane: str, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work())
        return done


def change(store: Store, suffix: str, position: int, bits: int) -> None:
    file = store.disk.open(store.log.segments[0].path(suffix))
    (byte,) = file.read_at(position, 1)
    file.write_at(position, bytes([byte ^ bits]))
    file.close()


def test_a_reader_gets_the_error_of_an_index_that_cannot_be_rebuilt() -> None:
    store = memory_store(LogConfig(index_interval_bytes=300))
    log = store.create()
    for number in range(30):
        append(log, make_batch(2, timestamp=NOW + number))
    log.roll(store.clock.now_ms)
    append(log, make_batch(2))
    store.directory.close()
    change(store, INDEX, 8 + 7, 1)  # the position of the second entry
    change(store, LOG, 20 * BATCH_SIZE + 8, 0x40)  # a batch's length
    partition = Partition(store.start().logs["topic", 0], sole_leader(3), lambda partition: None)
    checks, answers = StoredChecks(cast("Tasks", ThreadsAtOnce())), 0
    with pytest.raises(KafkaError) as told:
        for asked in range(5):
            assert answers == asked
            try:
                partition.read(0, 1 << 20, min_one=True)
            except NotReady as first:
                needed: list[NeededCheck] = [(partition, first.job)]
                answers += checks_made(checks, needed)
    assert told.value.code == ErrorCode.CORRUPT_MESSAGE
    assert partition.is_online


def checks_made(checks: StoredChecks, needed: list[NeededCheck]) -> int:
    told: list[bool] = []
    checks.run(needed, lambda failures: told.append(not failures))
    return len(told)


class FinishedJob:
    """A `Preparation` that ends with a given result."""

    path = Path("log")
    start = 0
    key = "log"

    def __init__(self, failure: OSError | None = None, bug: Exception | None = None) -> None:
        self.failure = failure
        self._bug = bug

    def run(self) -> None:
        pass

    def finish(self) -> None:
        if self._bug is not None:
            raise self._bug

    def abandon(self) -> None:
        pass


def test_callers_that_wait_for_a_job_with_a_bug_get_an_error() -> None:
    partition = Partition(memory_store().create(), sole_leader(3), lambda partition: None)
    checks = StoredChecks(cast("Tasks", ThreadsAtOnce()))
    told: list[ErrorCode] = []
    for _ in range(2):
        checks.run(
            [(partition, FinishedJob(bug=AssertionError("unexpected result")))],
            lambda failures: told.extend(error.code for error in failures.values()),
        )
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert not partition.is_online


def test_a_job_whose_topic_was_deleted_meanwhile_is_no_failure_of_the_device() -> None:
    partition = Partition(memory_store().create(), sole_leader(3), lambda partition: None)
    checks = StoredChecks(cast("Tasks", ThreadsAtOnce()))
    partition.retire()
    told: list[ErrorCode] = []
    checks.run(
        [(partition, FinishedJob(FileNotFoundError("gone")))],
        lambda failures: told.extend(error.code for error in failures.values()),
    )
    assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert partition.offline_reason is None
