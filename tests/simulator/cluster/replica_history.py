"""The replicas of all partitions, observed inside the brokers: leaders, watermarks and bytes."""

from __future__ import annotations

from collections.abc import Iterable

from doubles.disk import MemoryDisk
from lakelog.metadata.image import MetadataImage
from lakelog.records.batch import iter_batches
from lakelog.replica.partition import Partition
from lakelog.storage.files import LOG
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.record_history import RecordHistory
from simulator.cluster.stored_batches import BatchRun, Key, StoredBatches, name_of


class ReplicaHistory:
    """Replicas by partition, across all brokers and their processes."""

    def __init__(self, findings: Findings, records: RecordHistory) -> None:
        self._findings = findings
        self._records = records
        self._leaders: dict[tuple[Key, int], BatchRun] = {}
        self._newest: dict[Key, int] = {}
        """The newest leader epoch with a leader."""
        self._watermarks: dict[tuple[BatchRun, Key], int] = {}
        self.committed: dict[Key, int] = {}
        """The largest high watermark of any replica so far."""
        self._batches: dict[Key, dict[int, tuple[int, ...]]] = {}
        """Checksum, leader epoch and last offset of committed batches by base offset."""
        self._compared: dict[tuple[BatchRun, Key], int] = {}
        """The end of the compared part of a replica."""
        self.stored = StoredBatches(findings)

    def check(self, run: BatchRun, partitions: Iterable[Partition], image: MetadataImage) -> None:
        """Check the replicas of a running broker; `image` is the newest one of any broker."""
        for partition in partitions:
            if not partition.is_online:
                continue
            self._check_watermark(run, partition, image)
            if partition.role.is_leader:
                self._check_leader(run, partition)
            self._check_in_sync(run, partition, image)

    def _check_watermark(self, run: BatchRun, partition: Partition, image: MetadataImage) -> None:
        key, now = partition.key, partition.watermark.offset
        before = self._watermarks.get((run, key), 0)
        if now == before:
            return
        if now < before and _is_copied_again(run, partition, image):
            self._compared.pop((run, key), None)
            before = now
        self._findings.expect(
            Law.WATERMARK_KEPT,
            now >= before,
            f"{name_of(run, partition)}: the high watermark went from {before} to {now}",
        )
        self._watermarks[run, key] = now
        self.committed[key] = max(now, self.committed.get(key, 0))

    def _check_leader(self, run: BatchRun, partition: Partition) -> None:
        key, epoch = partition.key, partition.leader_epoch
        leader = self._leaders.setdefault((key, epoch), run)
        self._findings.expect(
            Law.ONE_LEADER,
            leader == run,
            f"{name_of(run, partition)} leads in epoch {epoch}, in which broker {leader} led",
        )
        if epoch < self._newest.get(key, -1):
            return  # a leader that has not heard yet of the next one
        self._newest[key] = epoch
        known = self._records.partition((partition.topic, partition.index)).end
        self._findings.expect(
            Law.LEADER_COMPLETE,
            partition.log.log_end_offset >= known,
            f"{name_of(run, partition)} leads in epoch {epoch} up to "
            f"{partition.log.log_end_offset}, and clients know of records up to {known}",
        )

    def _check_in_sync(self, run: BatchRun, partition: Partition, image: MetadataImage) -> None:
        topic = image.topic_by_id(partition.topic_id)
        state = topic.partition(partition.index) if topic is not None else None
        if state is None or run.node_id not in (*state.isr, *state.elr):
            return
        committed = self.committed.get(partition.key, 0)
        self._findings.expect(
            Law.IN_SYNC,
            partition.log.log_end_offset >= committed,
            f"{name_of(run, partition)} ends at {partition.log.log_end_offset}, and is in the "
            f"ISR {state.isr} or the ELR {state.elr}; records up to {committed} are committed",
        )

    # Bytes

    def compare(self, run: BatchRun, partitions: Iterable[Partition], disk: MemoryDisk) -> None:
        """Compare the committed batches of a broker with the batches of all others."""
        for partition in partitions:
            if not partition.is_online or "compact" in partition.log.config.cleanup_policy:
                continue
            if self._compared.get((run, partition.key), 0) < partition.watermark.offset:
                self._compare(run, partition, disk)

    def _compare(self, run: BatchRun, partition: Partition, disk: MemoryDisk) -> None:
        key, log, end = partition.key, partition.log, partition.watermark.offset
        known, at = self._batches.setdefault(key, {}), log.log_start_offset
        start = max(self._compared.get((run, key), 0), at)
        for segment in log.segments:
            for header, _ in iter_batches(disk.content(segment.path(LOG))[: segment.size]):
                if header.last_offset >= end:
                    break
                at = header.last_offset + 1
                if header.last_offset < start:
                    continue
                self._findings.counts["replicated batches"] += 1
                # The checksum of a batch omits its leader epoch and its base offset.
                found = (header.crc, header.partition_leader_epoch, header.last_offset)
                self._findings.expect(
                    Law.SAME_PREFIX,
                    known.setdefault(header.base_offset, found) == found,
                    f"{name_of(run, partition)} has another committed batch at "
                    f"{header.base_offset}",
                )
        self._findings.expect(
            Law.SAME_PREFIX,
            at == end,
            f"{name_of(run, partition)} has batches up to {at}, and has committed {end}",
        )
        self._compared[run, key] = end


def _is_copied_again(run: BatchRun, partition: Partition, image: MetadataImage) -> bool:
    """Return whether the replica may have replaced a damaged log: no election counts it."""
    state = image.partition(partition.topic_id, partition.index)
    is_counted = state is None or run.node_id in (*state.isr, *state.elr)
    return not is_counted and not partition.role.is_leader
