"""Limits of a read, and the slice that it returns."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import iter_batches
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.epochs import EpochCache
from lakelog.storage.log import Log
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from storage_kit import NOW, append, make_batch


def make_log(folder: Path, config: LogConfig | None = None, *, max_open: int = 8) -> Log:
    config = config or LogConfig()
    handles = HandleCache(PosixDisk(), max_open)
    segment = Segment(handles, folder, 0, config, created_ms=NOW).create()
    return Log(
        *("topic", 0, bytes(16), config),
        SegmentList(folder, handles, [segment]),
        ProducerStateTable(),
        ProducerSnapshots(handles.disk, folder),
        EpochCache(),
        random_below=lambda end: 0,
    )


def read_all(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    found = log.read(offset, max_bytes, end_offset=log.log_end_offset)
    if found is None:
        return []
    try:
        data = found.read()
    finally:
        found.release()
    ranges = [(header.base_offset, header.last_offset) for header, _ in iter_batches(data)]
    assert sum(header.size for header, _ in iter_batches(data)) == len(data)
    return ranges


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (None, True),
        (lambda at: BlockingIOError() if at >= 400 else None, False),
        (lambda at: BlockingIOError() if at < 400 else None, False),
        (lambda at: OSError(errno.EOPNOTSUPP, "as tmpfs and network file systems"), True),
    ],
    ids=["all there", "the next header is not", "the middle is not", "unknown"],
)
def test_a_slice_is_resident_unless_a_read_would_wait(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuses: Callable[[int], OSError | None] | None,
    expected: bool,
) -> None:
    log = make_log(tmp_path)
    size = len(make_batch(1, size=20_000))
    for _ in range(8):
        append(log, make_batch(1, size=20_000))
    preadv = os.preadv

    def asked(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        error = refuses(offset * 100 // size) if refuses is not None and flags else None
        if error is not None:
            raise error
        return preadv(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", asked)
    found = log.read(0, 4 * size, end_offset=8)
    assert found is not None
    assert (found.size, found.is_resident) == (4 * size, expected)
    found.release()


def test_reads_stop_before_the_end_offset_and_within_max_bytes(tmp_path: Path) -> None:
    log = make_log(tmp_path, LogConfig(index_interval_bytes=100))
    size = len(make_batch(2))
    for _ in range(30):
        append(log, make_batch(2))
    found = log.read(10, 1 << 20, end_offset=20)
    assert found is not None
    assert len(found) == 5 * size
    found.release()
    assert log.read(10, size - 1, end_offset=60, min_one=False) is None
    assert log.read(10, 1 << 20, end_offset=10) is None
    for max_bytes in range(size, 8 * size, 17):
        assert (len(read_all(log, 8, max_bytes))) * size <= max_bytes


@pytest.mark.parametrize("known", [True, False])
def test_limits_mean_the_same_whether_or_not_the_batch_is_known(
    tmp_path: Path, known: bool
) -> None:
    log = make_log(tmp_path)
    for _ in range(3):
        append(log, make_batch(2))

    def read(max_bytes: int, *, min_one: bool) -> int:
        if not known:
            log.segments.known_batches.clear()
        found = log.read(2, max_bytes, end_offset=6, min_one=min_one)
        if found is None:
            return 0
        found.release()
        return len(found)

    size = len(make_batch(2))
    for max_bytes in (0, 1, size - 1):
        assert read(max_bytes, min_one=True) == size
        assert read(max_bytes, min_one=False) == 0
    assert read(size, min_one=False) == size
    for min_one in (True, False):
        with pytest.raises(KafkaError) as failure:
            read(-1, min_one=min_one)
        assert failure.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_slice_outlives_eviction(tmp_path: Path) -> None:
    log = make_log(tmp_path, LogConfig(segment_bytes=300), max_open=1)
    batches = [make_batch(1, size=100) for _ in range(6)]
    for batch in batches:
        append(log, batch)
    first = log.read(0, 1000, end_offset=6)
    assert first is not None
    for offset in range(1, 6):
        assert read_all(log, offset)
    assert first.read() == batches[0]
    fd = first.file.fileno()
    first.release()
    assert fd >= 0
    assert first.file.fileno() == -1
