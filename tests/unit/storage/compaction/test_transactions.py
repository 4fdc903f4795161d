"""Transactions under compaction: aborted data goes and never comes back, markers stay long enough.

The segments are written by hand, as the broker lays them out, and cleaned without a log around.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.records.batch import BatchHeader, iter_batches, patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import ABORT, COMMIT
from lakelog.records.record import Record, decode_records
from lakelog.storage.compaction.clean import compact
from lakelog.storage.compaction.job import (
    CleanedGroup,
    CompactionDone,
    CompactionJob,
    LastRecord,
    Source,
)
from lakelog.storage.files import CLEANED, LOG, TXN_INDEX, file_name
from storage_kit import NOW, ManualClock

FOLDER = Path("/data/topic-0")
RETENTION_MS = 1000


@dataclass
class Segments:
    """One closed segment after the other, and one open segment that is only read for markers."""

    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(ManualClock()))
    sources: list[Source] = field(default_factory=list)
    batches: bytearray = field(default_factory=bytearray)
    base: int = 0
    end: int = 0
    cleaned: int = 0
    now_ms: int = NOW

    def __post_init__(self) -> None:
        self.disk.make_dirs(FOLDER)

    def add(self, builder: BatchBuilder, **options: object) -> int:
        batch = builder.build(**options)  # type: ignore[arg-type]
        patch_offset_and_epoch(batch, 0, self.end, 0)
        self.batches += batch
        self.end += builder.count
        return self.end - builder.count

    def data(
        self, *pairs: tuple[bytes, bytes | None], producer: int = -1, sequence: int = 0
    ) -> int:
        builder = BatchBuilder()
        for key, value in pairs:
            builder.append(NOW, key, value)
        if producer < 0:
            return self.add(builder)
        return self.add(
            builder,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def marker(self, producer: int, kind: int) -> int:
        builder = BatchBuilder()
        builder.append(NOW, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
        return self.add(
            builder,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
        )

    def close(self) -> None:
        path = FOLDER / file_name(self.base, LOG)
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.write_at(0, self.batches)
        self.sources.append(Source(self.base, self.end, len(self.batches), NOW))
        self.batches, self.base = bytearray(), self.end

    def clean(
        self, *, segments: int | None = None, producers: dict[int, LastRecord] | None = None
    ) -> list[bytes]:
        """Cleans the first segments, all by default; returns their transaction indexes."""
        count = len(self.sources) if segments is None else segments
        job = CompactionJob(
            folder=FOLDER,
            segments=tuple(self.sources[:count]),
            later=tuple(self.sources[count:]),
            first_dirty_offset=self.cleaned,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=1,
            segment_index_bytes=1 << 20,
            index_interval_bytes=100,
            producers=producers or {},
            map_bytes=1 << 20,
            map_load_factor=0.9,
            read_bytes=300,
            bytes_per_second=0.0,
        )
        indexes, number = [], 0
        for answer in compact(self.disk, job, lambda size: None):
            if isinstance(answer, CompactionDone):
                self.cleaned = answer.end_offset
                continue
            assert isinstance(answer, CleanedGroup)
            assert answer.sources == (self.sources[number].base_offset,)
            path = FOLDER / file_name(answer.base_offset, LOG)
            self.disk.rename(path.with_name(path.name + CLEANED), path)
            self.sources[number] = Source(answer.base_offset, answer.end_offset, answer.size, NOW)
            index = path.with_name(file_name(answer.base_offset, TXN_INDEX) + CLEANED)
            has_index = TXN_INDEX in answer.suffixes
            indexes.append(self.disk.read(index) if has_index else b"")
            number += 1
        return indexes

    def clean_again(self) -> list[bytes]:
        """With something new, for nothing is cleaned otherwise."""
        self.data((b"new", b"%d" % self.end))
        self.close()
        return self.clean()

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self._all()]

    def records(self) -> list[Record]:
        return [
            record
            for header, batch in self._all()
            if not header.is_control
            for record in decode_records(batch, header, 1 << 20)
        ]

    def markers(self) -> list[int]:
        """Offsets of the markers that are still there."""
        return [h.base_offset for h in self.headers() if h.is_control and h.records_count]

    def _all(self) -> list[tuple[BatchHeader, memoryview]]:
        return [
            entry
            for source in self.sources
            for entry in iter_batches(self.disk.read(FOLDER / file_name(source.base_offset, LOG)))
        ]


def keys_and_values(log: Segments) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.records()]


def test_aborted_data_goes_and_hides_nothing() -> None:
    """KIP-534: aborted data never returns."""
    log = Segments()
    log.data((b"a", b"1"))
    log.data((b"a", b"aborted"), (b"b", b"aborted"), producer=7)
    log.marker(7, ABORT)
    log.data((b"c", b"1"))
    log.close()
    (index,) = log.clean()
    assert keys_and_values(log) == [(0, b"a", b"1"), (4, b"c", b"1")]
    assert index == b"", "nothing of it is left for readers to skip"


def test_a_marker_expires_after_a_cleaning_finds_no_data_of_its_transaction() -> None:
    """KIP-534: markers outlive their data."""
    log = Segments()
    log.data((b"a", b"aborted"), producer=7)
    marker = log.marker(7, ABORT)
    log.data((b"z", b"1"))
    log.close()
    horizons = []
    for _ in range(3):
        log.now_ms += 10
        log.clean_again()
        horizons += [h.base_timestamp for h in log.headers() if h.has_delete_horizon]
    assert horizons == [NOW + 20 + RETENTION_MS] * 2
    log.now_ms = horizons[0] - 1
    log.clean_again()
    assert log.markers() == [marker]
    log.now_ms += 1
    log.clean_again()
    assert log.markers() == []


def test_a_commit_marker_stays_as_long_as_data_of_its_transaction() -> None:
    log = Segments()
    log.data((b"a", b"1"), producer=7)
    marker = log.marker(7, COMMIT)
    log.data((b"z", b"1"))
    log.close()
    for _ in range(3):
        log.now_ms += 10 * RETENTION_MS
        log.clean_again()
        assert marker in log.markers()
    log.data((b"a", b"2"))
    log.data((b"z", b"2"))
    log.close()
    log.clean()
    assert not any(header.has_delete_horizon for header in log.headers())
    log.clean_again()
    horizon = next(h for h in log.headers() if h.base_offset == marker)
    assert (0, b"a", b"1") not in keys_and_values(log)
    assert horizon.has_delete_horizon
    assert horizon.base_timestamp == log.now_ms + RETENTION_MS
    log.now_ms += RETENTION_MS - 1
    log.data((b"y", b"1"))
    log.close()
    log.clean()
    assert marker in log.markers()
    log.now_ms += 1
    log.data((b"x", b"1"))
    log.close()
    log.clean()
    assert marker not in log.markers()


def test_the_end_of_a_transaction_may_lie_beyond_the_cleaned_segments() -> None:
    log = Segments()
    log.data((b"a", b"1"))
    log.data((b"a", b"aborted"), producer=7)
    log.data((b"b", b"committed"), producer=8)
    log.close()
    log.marker(7, ABORT)
    log.marker(8, COMMIT)
    log.close()
    log.clean(segments=1)
    assert keys_and_values(log) == [(0, b"a", b"1"), (2, b"b", b"committed")]


def test_the_last_batch_of_a_producer_stays_in_the_index_of_aborted() -> None:
    """Emptied, it still is a batch of the transaction, whose marker must stay with it."""
    log = Segments()
    data = log.data((b"a", b"aborted"), producer=7)
    marker = log.marker(7, ABORT)
    log.data((b"z", b"1"))
    log.close()
    (index,) = log.clean(producers={7: LastRecord(data, 0)})
    assert index == struct.pack(">hqqqq", 0, 7, data, marker, marker + 1)
    assert [(h.base_offset, h.records_count) for h in log.headers()] == [(0, 0), (1, 1), (2, 1)]
    log.now_ms += 10 * RETENTION_MS
    log.data((b"y", b"1"))
    log.close()
    log.clean(producers={7: LastRecord(data, 0)})
    assert marker in log.markers()


def test_an_aborted_entry_is_stable_up_to_the_first_transaction_that_is_still_open() -> None:
    log = Segments()
    data = {producer: log.data((b"a", b"x"), producer=producer) for producer in (7, 8, 9)}
    markers = {producer: log.marker(producer, ABORT) for producer in (7, 9, 8)}
    log.data((b"z", b"1"))
    log.close()
    (index,) = log.clean(producers={each: LastRecord(data[each], 0) for each in data})
    assert list(struct.iter_unpack(">hqqqq", index)) == [
        (0, 7, data[7], markers[7], data[8]),
        (0, 9, data[9], markers[9], data[8]),
        (0, 8, data[8], markers[8], markers[8] + 1),
    ]


def test_a_marker_that_is_a_producers_last_stays_if_only_empty() -> None:
    log = Segments()
    log.data((b"a", b"aborted"), producer=7)
    marker = log.marker(7, ABORT)
    log.data((b"z", b"1"))
    log.close()
    last = {7: LastRecord(-1, 0)}
    for number in range(3):
        log.now_ms += 2 * RETENTION_MS
        log.clean(producers=last)
        log.data((b"%d" % number, b"1"))
        log.close()
    found = next(h for h in log.headers() if h.base_offset == marker)
    assert found.is_control and found.records_count == 0


@dataclass
class Model:
    """Written records by transaction."""

    visible: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    committed: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    ongoing: dict[int, list[tuple[int, bytes, bytes | None]]] = field(default_factory=dict)
    markers: dict[int, list[int]] = field(default_factory=dict)
    """Offset of a commit marker: offsets of its transaction's records."""


def play(log: Segments, model: Model, rng: random.Random, steps: int) -> None:
    for _ in range(steps):
        producer = rng.randrange(4)
        pairs = [
            (b"%d" % rng.randrange(8), None if rng.random() < 0.2 else b"%d" % rng.randrange(99))
            for _ in range(rng.randint(1, 3))
        ]
        if producer == 3:
            first = log.data(*pairs)
            model.committed += [(first + n, key, value) for n, (key, value) in enumerate(pairs)]
        elif producer in model.ongoing and rng.random() < 0.4:
            end(log, model, producer, rng.choice([ABORT, COMMIT]))
        else:
            first = log.data(*pairs, producer=producer)
            rows = [(first + n, key, value) for n, (key, value) in enumerate(pairs)]
            model.ongoing.setdefault(producer, []).extend(rows)


def end(log: Segments, model: Model, producer: int, kind: int) -> None:
    rows = model.ongoing.pop(producer)
    marker = log.marker(producer, kind)
    if kind == ABORT:
        model.aborted |= {offset for offset, _, _ in rows}
    else:
        model.committed += rows
        model.markers[marker] = [offset for offset, _, _ in rows]


@pytest.mark.parametrize("seed", range(40))
def test_random_transactions(seed: int) -> None:
    rng = random.Random(seed)
    log, model = Segments(), Model()
    removed: set[int] = set()
    for _ in range(6):
        play(log, model, rng, rng.randint(3, 25))
        for producer in list(model.ongoing):
            end(log, model, producer, rng.choice([ABORT, COMMIT]))
        log.close()
        log.now_ms += rng.choice([1, RETENTION_MS])
        log.clean()
        found = {record.offset: record for record in log.records()}
        assert not model.aborted & set(found), "aborted data is gone"
        assert not removed & set(found), "removed records stay removed"
        newest: dict[bytes, int] = {}
        for offset, key, _ in sorted(model.committed):
            newest[key] = offset
        for offset, key, value in model.committed:
            if newest[key] != offset:
                assert offset not in found
            elif value is not None:
                assert found[offset].value == value
        for marker, offsets in model.markers.items():
            if set(offsets) & set(found):
                assert marker in log.markers(), "a marker outlives its data"
        removed |= set(range(log.end)) - set(found)
