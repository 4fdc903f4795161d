"""A valid batch that is huge when decompressed uses little memory wherever it is read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest

from bombs import BOMBS, XERIAL, batch_with
from compaction_kit import Cleaner
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import read_header
from lakelog.records.compression import Codec
from lakelog.replica import topic_rules
from lakelog.storage import validation
from lakelog.storage.compaction import clean
from lakelog.storage.errors import CorruptLog
from lakelog.storage.reading import timestamps
from lakelog.storage.validation import SlowBatchError
from storage_kit import NOW, make_batch, memory_store, newest_record, record_at

LIMIT = 4 << 20
ZEROS = 64 << 20
LARGE = LogConfig(max_message_bytes=8 << 20)
LYING_CHUNKS = {
    "a snappy chunk of 2^31 - 1": XERIAL + b"\x7f\xff\xff\xff" + bytes(100),
    "a snappy chunk of -1": XERIAL + b"\xff\xff\xff\xff" + bytes(100),
    "raw snappy of 2^31 - 1": b"\xff\xff\xff\xff\x07" + bytes(100),
}


def _bomb(codec: Codec) -> bytearray:
    return batch_with(BOMBS[codec](ZEROS), codec)


BATCHES: dict[str, Callable[[], bytearray]] = {
    **{codec.name.lower(): partial(_bomb, codec) for codec in BOMBS},
    **{name: partial(batch_with, content, Codec.SNAPPY) for name, content in LYING_CHUNKS.items()},
}


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (validation, timestamps, clean):
        monkeypatch.setattr(module, "DECODED_BYTES_MAX", LIMIT)


@pytest.fixture(params=BATCHES)
def batch(request: pytest.FixtureRequest) -> bytearray:
    return BATCHES[request.param]()


def _peak(work: Callable[[], object], *kinds: type[Exception]) -> int:
    """Peak memory in bytes until `work` raised one of `kinds`, or returned."""
    tracemalloc.start()
    try:
        with pytest.raises(kinds) if kinds else nullcontext():
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_produced_to_a_topic_whose_records_are_looked_at(batch: bytearray) -> None:
    compacted = LogConfig(max_message_bytes=8 << 20, cleanup_policy=frozenset({"compact"}))
    log = memory_store(compacted).create()
    append = partial(log.append, batch, leader_epoch=1, now_ms=NOW)
    assert _peak(append, SlowBatchError, KafkaError) < 2 * validation.DECODED_AT_ONCE + 2 * len(
        batch
    )
    header = read_header(batch)
    read = partial(validation.read_records, batch, header, compacted)
    assert _peak(read, KafkaError) < 2 * LIMIT + 2 * len(batch)
    assert log.log_end_offset == 0


def test_produced_to_a_topic_with_a_codec_of_its_own(batch: bytearray) -> None:
    config = LogConfig(max_message_bytes=8 << 20, compression_type="uncompressed")
    at_once = partial(topic_rules.recompressed, batch, config)
    assert _peak(at_once, SlowBatchError) < 2 * validation.DECODED_AT_ONCE + 2 * len(batch)
    header = read_header(batch)
    with pytest.raises(KafkaError) as refusal:
        topic_rules.recompressed_slowly(batch, header, config)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    slowly = partial(topic_rules.recompressed_slowly, batch, header, config)
    assert _peak(slowly, KafkaError) < 2 * LIMIT + 2 * len(batch)


def test_a_topic_may_allow_less() -> None:
    """Uncompressed records are limited by `max.message.bytes` alone."""
    small = LogConfig.from_values(
        {"max.decompressed.message.bytes": "500", "cleanup.policy": "compact"}
    )
    packed, plain = (make_batch(10, size=100, codec=codec) for codec in (4, 0))
    log = memory_store(small).create()
    header = read_header(packed)
    with pytest.raises(SlowBatchError):
        log.append(packed, leader_epoch=1, now_ms=NOW)
    with pytest.raises(KafkaError, match="500 bytes"):
        validation.read_records(packed, header, small)
    log.append(plain, leader_epoch=1, now_ms=NOW)
    gzipped = small._replace(cleanup_policy=frozenset({"delete"}), compression_type="gzip")
    with pytest.raises(SlowBatchError):
        topic_rules.recompressed(packed, gzipped)
    with pytest.raises(KafkaError, match="500 bytes"):
        topic_rules.recompressed_slowly(packed, header, gzipped)
    log = memory_store(gzipped).create()
    log.append(packed, leader_epoch=1, now_ms=NOW)
    assert newest_record(log) is not None, "it came in, and so it can be searched"


def test_found_by_a_search_for_a_time(batch: bytearray) -> None:
    log = memory_store(LARGE).create()
    log.append(batch, leader_epoch=1, now_ms=NOW)
    for search in (partial(record_at, log, NOW), partial(newest_record, log)):
        tracemalloc.start()
        try:
            found = search()
        except CorruptLog:
            found = None
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 2 * LIMIT + 4 * len(batch)
        assert found in (None, (NOW, 0, 1)), "damaged, or what its header says"


def test_found_by_compaction(batch: bytearray) -> None:
    """In a topic that has become compacted after it was written."""
    store = memory_store(LARGE)
    log = store.create()
    log.append(batch, leader_epoch=1, now_ms=NOW)
    log.roll(NOW)
    log.flush()
    log.append(make_batch(), leader_epoch=1, now_ms=NOW)
    log.use_config(
        LogConfig(
            max_message_bytes=8 << 20,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
        )
    )
    cleaner = Cleaner(store)
    assert _peak(cleaner.run) < 2 * LIMIT + 4 * len(batch) + (4 << 20)
    assert cleaner.last is not None
    assert cleaner.last.stats.unreadable_batches == 1, "it stays as it is"
    assert log.log_end_offset == 2


def test_compaction_accepts_batches_older_than_a_lowered_limit() -> None:
    store = memory_store(LogConfig())
    log = store.create()
    log.append(make_batch(10, size=100, codec=Codec.GZIP), leader_epoch=1, now_ms=NOW)
    log.roll(NOW)
    log.flush()
    log.append(make_batch(), leader_epoch=1, now_ms=NOW)
    values = {
        "max.decompressed.message.bytes": "500",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
    }
    log.use_config(LogConfig.from_values(values))
    cleaner = Cleaner(store)
    assert cleaner.run() is not None
    assert cleaner.cleaned == 10
