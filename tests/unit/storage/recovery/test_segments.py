"""The scan of one segment after an unclean stop."""

from __future__ import annotations

import pytest

from lakelog.storage.names import LOG
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
