"""The batches that replicas store, observed on their disks as they arrive.

A follower stores only batches of the leader in its leader epoch, which that leader keeps as long as
it leads. An answer to a fetch of an earlier epoch may have batches that the present leader lacks.
The follower truncates them soon, but until then it could be elected with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from doubles.disk import MemoryDisk
from lakelog.records.batch import BatchHeader, iter_batches
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.storage.files import LOG
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law

Key = tuple[bytes, int]
"""Topic id and partition index."""
Batches = dict[int, tuple[int, int]]
"""Checksum and leader epoch of batches by base offset."""


class BatchRun(NamedTuple):
    """One process of a broker: its node id, and its number among the starts."""

    node_id: int
    start: int


class _Read:
    """The part of a log that has been read: up to a position in the segment at `base_offset`."""

    def __init__(self) -> None:
        self.base_offset, self.position, self.end = -1, 0, 0
        self.role: Role | None = None
        """The role of the replica at the last check."""
        self.epoch = -1
        """The leader epoch of the last batch."""
        self.batches: Batches = {}
        self.is_begun = False
        """Whether later batches are new: the part before them has been read."""


class StoredBatches:
    """The batches of each replica, and of the leader of each epoch."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._runs: dict[int, BatchRun] = {}
        """The newest process of each broker."""
        self._read: dict[tuple[BatchRun, Key], _Read] = {}
        self._led: dict[tuple[Key, int], Batches] = {}
        """The batches of each leader by its epoch."""

    def check(self, run: BatchRun, partitions: Iterable[Partition], disk: MemoryDisk) -> None:
        """Read the batches that the replicas of a broker have stored since the last check.

        The check of a leader has to follow each of its appends before any follower can have the
        answer: call it after each step that changed the disk.
        """
        self._runs[run.node_id] = run
        for partition in partitions:
            read = self._read.get((run, partition.key))
            if read is None or (
                partition.role is not read.role or partition.log.log_end_offset != read.end
            ):
                self._check(run, partition, disk)

    def _check(self, run: BatchRun, partition: Partition, disk: MemoryDisk) -> None:
        if not partition.is_online or "compact" in partition.log.config.cleanup_policy:
            return
        end, key = partition.log.log_end_offset, partition.key
        read = self._read.setdefault((run, key), _Read())
        if end < read.end or (end > read.end and not self._continue(run, partition, disk, read)):
            # Truncated: it is read again, and leaders of earlier epochs keep their batches.
            read = self._read[run, key] = _Read()
            self._continue(run, partition, disk, read)
        read.is_begun, read.role = True, partition.role
        if partition.role.is_leader:
            self._led[key, partition.leader_epoch] = read.batches

    def _continue(self, run: BatchRun, partition: Partition, disk: MemoryDisk, read: _Read) -> bool:
        """Return False if the log does not continue the part that has been read."""
        for segment in partition.log.segments:
            if segment.base_offset < read.base_offset:
                continue
            if segment.base_offset > read.base_offset:
                read.base_offset, read.position = segment.base_offset, 0
            content = disk.content(segment.path(LOG))[read.position : segment.size]
            for header, _ in iter_batches(content):
                if header.base_offset < read.end:
                    return False
                self._check_batch(run, partition, read, header)
                read.position += header.size
                read.end = header.last_offset + 1
        return True

    def _check_batch(
        self, run: BatchRun, partition: Partition, read: _Read, header: BatchHeader
    ) -> None:
        self._findings.counts["stored batches"] += 1
        epoch, found = header.partition_leader_epoch, (header.crc, header.partition_leader_epoch)
        text = f"{name_of(run, partition)} has stored a batch of epoch {epoch}"
        self._findings.expect(
            Law.EPOCHS_IN_ORDER,
            epoch >= read.epoch,
            f"{text} at {header.base_offset}, behind one of {read.epoch}",
        )
        read.epoch = epoch
        read.batches[header.base_offset] = found
        if read.is_begun and not partition.role.is_leader:
            self._findings.expect(
                Law.COPIED,
                self._of_leader(partition).get(header.base_offset) == found,
                f"{text} at {header.base_offset}, which the leader of {partition.leader_epoch} "
                "does not have",
            )

    def _of_leader(self, partition: Partition) -> Batches:
        """Return the batches of the leader that a replica follows."""
        key, role = partition.key, partition.role
        led = self._led.get((key, role.leader_epoch))
        if led is not None:
            return led
        # A leader may answer before its first check in this epoch: an election writes nothing.
        run = self._runs.get(role.leader_id)
        read = None if run is None else self._read.get((run, key))
        return {} if read is None else read.batches


def name_of(run: BatchRun, partition: Partition) -> str:
    """Return the name of a replica for a text."""
    return f"{partition.topic}-{partition.index} on broker {run.node_id}"
