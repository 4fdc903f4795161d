"""The scan of one segment after an unclean stop."""

from __future__ import annotations

import pytest

from lakelog.storage.files import LOG
from lakelog.storage.segments.checking import UncheckedSlice
from storage_kit import append, make_batch, memory_store


@pytest.mark.parametrize("cut", [0, 10])
def test_readers_do_not_recheck_batches_that_recovery_has_read(cut: int) -> None:
    store = memory_store()
    log = store.create()
    for _ in range(3):
        append(log, make_batch(2))
    segment = log.segments.active
    file = store.disk.open(segment.path(LOG))
    file.truncate(segment.size - cut)
    file.close()
    log = store.killed()
    assert store.directory.recoveries["topic", 0].segments_scanned == 1
    assert log.segments.active.unchecked == 0
    found = log.read(0, 1 << 20, end_offset=log.log_end_offset)
    assert found is not None
    assert not isinstance(found, UncheckedSlice)
    found.release()


@pytest.mark.parametrize(
    ("cut", "flip", "may_have_lost"),
    [(10, None, False), (170, None, False), (0, 60, True), (0, None, False)],
    ids=["end of a write", "within a header", "flipped bit", "whole"],
)
def test_the_beginning_of_a_write_is_no_loss_and_a_damaged_batch_is(
    cut: int, flip: int | None, may_have_lost: bool
) -> None:
    store = memory_store()
    log = store.create()
    start = 0
    for _ in range(3):
        start = log.segments.active.size
        append(log, make_batch(8))
    segment = log.segments.active
    file = store.disk.open(segment.path(LOG))
    end = segment.size - min(cut, segment.size - start - 10)
    file.truncate(end)
    if flip is not None:
        file.write_at(start + flip, b"\xff" * 8)
    file.close()
    store.killed()
    recovery = store.directory.recoveries["topic", 0]
    assert recovery.may_have_lost == may_have_lost
    assert recovery.is_torn == (cut > 0)
