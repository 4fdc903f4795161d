"""Places of batches that are likely to be read next."""

from __future__ import annotations

from counted_work import lines_run
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.log import Log
from lakelog.storage.segments.known_batches import KnownBatches
from storage_kit import append, make_batch, memory_store


def test_a_batch_is_forgotten_however_long_ago_it_was_noted() -> None:
    log = memory_store().create()
    append(log, make_batch())
    known = KnownBatches()
    for offset in range(200):
        known.note(offset, (log.segments.active, offset, None))
    for offset in (150, 199):
        assert known.find(offset) is not None
        known.forget(offset)
        assert known.find(offset) is None
    older = [offset for offset in range(128) if known.find(offset) is not None]
    assert older, "notes of the generation before are kept"
    known.forget(older[0])
    assert known.find(older[0]) is None


def test_a_reader_in_sequence_does_not_search_the_index() -> None:
    log = memory_store(LogConfig(index_interval_bytes=1 << 20)).create()
    for _ in range(1000):
        append(log, make_batch(size=100))
    first = read_lines(log, 500)
    following = read_lines(log, 501)
    assert following < first / 10, "the batch after the last one read is known"


def read_lines(log: Log, offset: int) -> int:
    def read() -> None:
        found = log.read(offset, 1, end_offset=log.log_end_offset)
        assert found is not None
        found.release()

    return lines_run(read)
