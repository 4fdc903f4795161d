"""The logs of a broker, observed inside it: offsets, epochs and bytes.

While the broker runs, no offset and no epoch decreases. Across a restart a log may lose records
above its recovery point, and no batch below the high watermark changes unless the log is compacted.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import NamedTuple, Protocol

from lakelog.records.batch import iter_batches
from lakelog.replica.partition import Partition
from lakelog.storage.files import LOG
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.checkers.record_history import RecordHistory

Key = tuple[str, bytes, int]
"""Topic name, topic id and partition index."""


class Marks(NamedTuple):
    """The offsets and the epoch of a partition at one time."""

    start: int
    recovery_point: int
    last_stable: int
    high_watermark: int
    end: int
    leader_epoch: int


def marks_of(partition: Partition) -> Marks:
    """Return the current marks of a partition."""
    log = partition.log
    return Marks(
        log.log_start_offset,
        log.recovery_point,
        partition.last_stable_offset,
        partition.watermark.offset,
        log.log_end_offset,
        partition.leader_epoch,
    )


def _end_found(partition: Partition) -> int:
    """Return the log end offset when the log was opened: the start of the leader's epoch.

    The current end may be larger: coordinators may have appended before the broker serves.
    """
    begun = dict(partition.log.leader_epochs.entries)
    return begun.get(partition.leader_epoch, partition.log.log_end_offset)


class Cut(NamedTuple):
    """A log that is shorter after a restart."""

    end: int
    damaged_at: int | None
    """The offset of a damaged batch above the recovery point, which recovery has to remove."""
    allowed: bool
    """Whether the broker's own recovery point allows it."""


class Damage(Protocol):
    """Bits that flipped in the broker's files."""

    def cut_of(self, partition: Place) -> int | None:
        """Return the offset at which recovery has to cut a log; forget the cut."""

    def undamaged(self, path: Path) -> bytes:
        """Return the content of a file without the flipped bits."""


class PartitionWatcher:
    """The partitions of one data folder, across all processes of its broker."""

    def __init__(self, history: RecordHistory, damage: Damage) -> None:
        self._history, self._findings = history, history.findings
        self._damage = damage
        self._marks: dict[Key, Marks] = {}
        self._batches: dict[Key, dict[int, tuple[int, int]]] = {}
        self._unpowered: set[Key] = set()
        """Partitions that have not been online since the last power failure."""

    # While it runs

    def check(self, partitions: list[Partition]) -> None:
        """Compare the marks of a running broker with the marks of the previous call."""
        for partition in partitions:
            key = partition.topic, partition.topic_id, partition.index
            now, before = marks_of(partition), self._marks.get(key)
            if now == before:
                continue
            self._marks[key] = now
            self._check_order(key, now)
            if before is not None:
                self._check_progress(key, before, now)

    def _check_order(self, key: Key, now: Marks) -> None:
        if not (
            now.start <= now.last_stable <= now.high_watermark <= now.end
            and now.recovery_point <= now.end
        ):
            self._findings.violation(Law.ORDER, f"{key[0]}-{key[2]}: offsets out of order: {now}")

    def _check_progress(self, key: Key, before: Marks, now: Marks) -> None:
        for name, old, new in zip(Marks._fields, before, now, strict=True):
            if new < old:
                self._findings.violation(
                    Law.FORWARD, f"{key[0]}-{key[2]}: {name} went from {old} to {new}"
                )

    # Across a restart

    def remember(self, partitions: list[Partition]) -> None:
        """Read all batches before the broker stops or dies, for `compare`."""
        for partition in partitions:
            if partition.offline_reason is None and not partition.log.broken:
                key = partition.topic, partition.topic_id, partition.index
                with contextlib.suppress(OSError):  # a fault may be injected here, too
                    self._batches[key] = self._read(partition)

    def compare(self, partitions: list[Partition], *, power: bool) -> dict[Place, Cut]:
        """Compare the logs after a start with the logs before it.

        Returns the logs that are shorter now. `power` is whether the power failed in between.
        """
        cuts = {}
        if power:
            self._unpowered.update(self._marks)
        for partition in partitions:
            key = partition.topic, partition.topic_id, partition.index
            topic_partition = partition.topic, partition.index
            before, now = self._marks.get(key), marks_of(partition)
            found = now._replace(end=_end_found(partition))
            cut = self._damage.cut_of(topic_partition)
            trimmed = self._history.partition(topic_partition).trimmed
            self._findings.expect(
                Law.STAYS_TRIMMED,
                now.start >= trimmed,
                f"{topic_partition} begins at {now.start}; {trimmed} was acknowledged",
            )
            if before is not None:
                promised = self._promised(before, cut, power=key in self._unpowered)
                self._compare_marks(key, before, found, cut, promised)
                if found.end < before.end:
                    cuts[topic_partition] = Cut(found.end, cut, promised <= found.end)
            self._marks[key] = now
            self._unpowered.discard(key)
            if "compact" not in partition.log.config.cleanup_policy:
                self._compare_bytes(key, partition, found.end)
        return cuts

    def _promised(self, before: Marks, cut: int | None, *, power: bool) -> int:
        """Return the lowest log end offset allowed; `cut` is that of damage, which comes first."""
        promised = before.recovery_point if power else before.end
        return promised if cut is None else min(promised, cut)

    def _compare_marks(
        self, key: Key, before: Marks, now: Marks, cut: int | None, promised: int
    ) -> None:
        name = f"{key[0]}-{key[2]}"
        if cut is not None and now.end > max(cut, now.start):  # an empty log continues at its start
            self._findings.violation(
                Law.DAMAGE_ENDS, f"{name} ends at {now.end}: the batch at {cut} is damaged"
            )
        if now.end < promised:
            self._findings.violation(
                Law.PROMISED_END, f"{name} ends at {now.end}, below its promised end {promised}"
            )
        if now.end >= before.end and now.start >= before.start:
            self._findings.expect(
                Law.STABLE_FORWARD,
                now.last_stable >= before.last_stable,
                f"{name}: the last stable offset went from {before.last_stable} "
                f"to {now.last_stable}",
            )
        if now.leader_epoch <= before.leader_epoch:
            self._findings.violation(Law.EPOCH_RISES, f"{name}: the leader epoch did not rise")

    def _compare_bytes(self, key: Key, partition: Partition, end: int) -> None:
        try:
            found = self._read(partition)
        except OSError:
            return
        old, self._batches[key] = self._batches.get(key, {}), found
        start = partition.log.log_start_offset
        for base, batch in old.items():
            if start <= base < end and found.get(base) != batch:
                self._findings.violation(
                    Law.SAME_BYTES, f"{key[0]}-{key[2]}: the batch at {base} has changed"
                )

    def _read(self, partition: Partition) -> dict[int, tuple[int, int]]:
        """Return size and checksum of each batch by its base offset, read from the files."""
        log, found = partition.log, {}
        for segment in log.segments:
            data = self._damage.undamaged(segment.path(LOG))[: segment.size]
            for header, batch in iter_batches(data):
                found[header.base_offset] = len(batch), zlib.crc32(batch)
        return found
