"""Places of batches that are likely to be read next."""

from __future__ import annotations

from lakelog.storage.known_batches import KnownBatches
from storage_kit import append, make_batch, memory_store


def test_a_batch_is_forgotten_however_long_ago_it_was_noted() -> None:
    log = memory_store().create()
    append(log, make_batch())
    known = KnownBatches()
    for offset in range(200):
        known.note(offset, (log.active_segment, offset, None))
    for offset in (150, 199):
        assert known.find(offset) is not None
        known.forget(offset)
        assert known.find(offset) is None
    older = [offset for offset in range(128) if known.find(offset) is not None]
    assert older, "notes of the generation before are kept"
    known.forget(older[0])
    assert known.find(older[0]) is None
