"""Flipped bits in records: injected while a broker is down, with the offsets that they may hide.

A flip above the recovery point, after an unclean stop, looks like a torn write: recovery has to
truncate the log there. Below the recovery point the partition goes offline, or the broker answers
CORRUPT_MESSAGE around the batch. No record is lost then: flipping the bit back restores all. Flips
of two fields are left out, which no checksum of Kafka's format covers (docs/durability.md).
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from doubles.disk import MemoryDisk
from lakelog.records.batch import HEADER_SIZE, BatchHeader, CorruptRecord, check_crc, read_header
from lakelog.storage.files import LOG, offset_of, parse_dir_name
from lakelog.storage.folder.known_logs import FoundCheckpoints
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from simulator.checkers.observations import HiddenRange, Place
from simulator.checkers.record_history import RecordHistory

_BASE_OFFSET = range(8)
_LEADER_EPOCH = range(12, 16)
_STRUCTURE = frozenset({*range(12), 16, *range(23, 27)})
"""Bytes of a batch needed to find the next one: offset, length, magic, last offset delta."""


class _Found(NamedTuple):
    position: int
    header: BatchHeader


@dataclass(eq=False, slots=True)
class BitFlip:
    """One flipped bit; `cuts` is whether recovery has to truncate the log at `hidden.base`."""

    topic_partition: Place
    path: Path
    position: int
    """The position of the batch in its file."""
    content: bytes
    """The bytes of the batch with the flipped bit."""
    bit: int
    """The number of the bit in the file."""
    hidden: HiddenRange
    cuts: bool

    def is_in(self, data: bytes | bytearray) -> bool:
        return data[self.position : self.position + len(self.content)] == self.content


class BitFlips:
    """The flipped bits of one data folder."""

    def __init__(
        self, disk: MemoryDisk, folder: Path, history: RecordHistory, interval: int
    ) -> None:
        """`interval` is index.interval.bytes: readers skip damage at the next index entries."""
        self._disk = disk
        self._folder = folder
        self._history = history
        self._interval = interval
        self._all: list[BitFlip] = []

    def flip_record(self, rng: random.Random, may_cut: frozenset[str]) -> bool:
        """Flip a bit of a random batch while the broker is down; return whether it found one.

        `may_cut` has the topics that may lose the ends of their logs.
        """
        paths = list(self._segments())
        rng.shuffle(paths)
        for partition, path in paths:
            found = list(_batches(self.undamaged(path)))
            flip = self._choose(rng, partition, path, found, may_cut) if found else None
            if flip is not None:
                self._disk.flip(path, flip.bit)
                self._all.append(flip)
                self._history.partition(partition).hidden.append(flip.hidden)
                return True
        return False

    def cut_of(self, partition: Place) -> int | None:
        """Return the offset at which recovery has to truncate a log; forget the flips behind it."""
        cuts = [entry for entry in self._all if entry.cuts and entry.topic_partition == partition]
        for entry in cuts:
            self._drop(entry)
        return min((entry.hidden.base for entry in cuts), default=None)

    def undamaged(self, path: Path) -> bytes:
        """Return the content of a file without the flips."""
        data = bytearray(self._disk.read(path))
        for entry in reversed(self._all):
            if entry.path == path and entry.is_in(data):
                data[entry.bit // 8] ^= 1 << entry.bit % 8
        return bytes(data)

    def repair(self, rng: random.Random) -> None:
        """Flip half of the bits back, and all bits in the logs of coordinators."""
        for entry in reversed(self._all[:]):
            if entry.topic_partition[0].startswith("__") or rng.random() < 0.5:
                self._restore(entry)

    def repair_others(self, usable: Container[Place]) -> bool:
        """Flip back all bits outside of these partitions; return whether there were any."""
        rest = [entry for entry in self._all if entry.topic_partition not in usable]
        return sum(self._restore(entry) for entry in reversed(rest)) > 0

    def _restore(self, entry: BitFlip) -> bool:
        is_there = not entry.cuts and self._is_there(entry)
        if is_there:
            self._disk.flip(entry.path, entry.bit)
            self._drop(entry)
        return is_there

    def on_started(self) -> None:
        """Compute the hidden ranges again: the previous process may have appended index entries."""
        for entry in self._all:
            if self._is_there(entry):
                found = list(_batches(self.undamaged(entry.path)))
                number = [batch.position for batch in found].index(entry.position)
                hidden = self._history.partition(entry.topic_partition).hidden
                hidden.remove(entry.hidden)
                byte = entry.bit // 8 - entry.position
                entry.hidden = self._hidden_range(entry.path, found, number, byte)
                hidden.append(entry.hidden)

    def _is_there(self, entry: BitFlip) -> bool:
        path = entry.path
        return self._disk.exists(path) and entry.is_in(self._disk.read(path))

    def _drop(self, entry: BitFlip) -> None:
        self._all.remove(entry)
        self._history.partition(entry.topic_partition).hidden.remove(entry.hidden)

    def _segments(self) -> Iterator[tuple[Place, Path]]:
        known = self._history.partitions
        for name in self._disk.list(self._folder):
            partition = parse_dir_name(name)
            if partition is not None and (partition in known or partition[0].startswith("__")):
                for entry in self._disk.list(self._folder / name):
                    if entry.endswith(LOG):
                        yield partition, self._folder / name / entry

    def _choose(
        self,
        rng: random.Random,
        partition: Place,
        path: Path,
        found: list[_Found],
        may_cut: frozenset[str],
    ) -> BitFlip | None:
        number = rng.randrange(len(found))
        position, header = found[number]
        byte = rng.randrange(header.size)
        is_clean = self._disk.exists(self._folder / CLEAN_SHUTDOWN)
        point = FoundCheckpoints(self._disk, self._folder).known_of(partition).recovery_point
        is_above = not is_clean and header.base_offset >= point
        if is_above and (partition[0] not in may_cut or byte in _LEADER_EPOCH):
            return None
        if self._history.partition(partition).compacted and byte in _BASE_OFFSET:
            return None
        bit = 8 * (position + byte) + rng.randrange(8)
        content = bytearray(self._disk.read(path)[position : position + header.size])
        content[byte] ^= 1 << bit % 8
        hidden = self._hidden_range(path, found, number, byte)
        return BitFlip(partition, path, position, bytes(content), bit, hidden, is_above)

    def _hidden_range(self, path: Path, found: list[_Found], number: int, byte: int) -> HiddenRange:
        """Return the offsets that a flip in byte `byte` of the batch may hide.

        They begin at the previous batch, because a reader cannot know whether that is the last one
        before the damage, and end at the second index entry behind. If the next batch cannot be
        found, no index can be built, and the whole segment is hidden. A segment begins at the
        offset in its name: compaction may have removed its first batches.
        """
        begin = offset_of(path.name)
        assert begin is not None
        first = found[number - 1].header.base_offset if number else begin
        end, since = found[-1].header.last_offset + 1, found[number].position
        if byte in _STRUCTURE:
            base = found[number].header.base_offset
            return HiddenRange(begin, base, self._next_base(path) or end)
        entries = 0
        for batch in found[number + 1 :]:
            if batch.position - since > self._interval:
                since, entries = batch.position, entries + 1
                if entries == 2:
                    end = batch.header.base_offset
                    break
        else:
            end = self._next_base(path) or end
        return HiddenRange(first, found[number].header.base_offset, end)

    def _next_base(self, path: Path) -> int | None:
        bases = [offset_of(name) for name in self._disk.list(path.parent) if name.endswith(LOG)]
        base = offset_of(path.name)
        assert base is not None
        return min((other for other in bases if other is not None and other > base), default=None)


def _batches(data: bytes) -> Iterator[_Found]:
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            header = read_header(data, position)
        except CorruptRecord:
            return
        if position + header.size > len(data) or not check_crc(data, position, header):
            return
        yield _Found(position, header)
        position += header.size
