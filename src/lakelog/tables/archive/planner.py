"""Plans the batches of an archive job: the next offsets, and the ranges of each task.

The first batch begins where the table ends; a partition that the table's progress does not contain
yet begins at its first offset. For each batch the planner reads the end of the log first. Then it
asks the leaders whether the log still holds the archived records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakelog.tables.archive.progress import ArchiveJob, Extent, Progress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, LogDivergedError
from lakelog.tables.topic.offsets import (
    OffsetRange,
    StreamOffset,
    TopicPartition,
    find_divergences,
    from_items,
    limit_offsets,
    offsets_in,
    ranges_between,
    split_ranges,
)


def first_extents(
    client: TopicClient,
    topic: str,
    partitions: Iterable[int],
    progress: Progress,
    *,
    skip_lost: bool,
) -> dict[int, Extent]:
    """Return an empty extent for each of `partitions` that `progress` lacks.

    A new archive begins where the log begins. If an archive exists, a partition that it lacks was
    added after the last commit and began at offset 0: offsets that retention removed since then
    were never archived. Raises `DataLossError` about them unless `skip_lost`, and `KafkaError`.
    """
    keys: list[TopicPartition] = [(topic, p) for p in partitions if p not in progress.extents]
    starts = client.earliest(keys)
    epochs = client.latest_places(keys)
    lost = [f"{topic}-{p} [0, {at})" for (_, p), at in sorted(starts.items()) if at > 0]
    if lost and progress.extents and not skip_lost:
        raise DataLossError(lost_before(lost))
    return {p: Extent(at, at, epochs[topic, p].leader_epoch) for (_, p), at in starts.items()}


def lost_before(ranges: Sequence[str]) -> str:
    """Return the message for offsets that were removed before they were archived."""
    return (
        f"{', '.join(ranges)}: retention or DeleteRecords removed these offsets before they were "
        "archived. --skip-lost continues without them"
    )


@dataclass(frozen=True, slots=True)
class BatchPlanner:
    """The batches of one job. All methods raise `KafkaError` if the cluster does not answer."""

    job: ArchiveJob
    client: TopicClient

    def table_end(self) -> StreamOffset:
        """Return where the table ended when the query started."""
        progress = Progress(self.job.extents)
        return self._point(progress.ends, progress.leader_epochs)

    def log_end(self) -> StreamOffset:
        """Return where the readable part of every partition ends.

        Raises `DataLossError` if another topic has the name now.
        """
        topic = self.job.topic
        meta = self.client.describe([topic])[topic]
        if meta.topic_id != self.job.topic_id:
            raise DataLossError(f"topic {topic!r} was deleted and created again")
        places = self.client.latest_places([(topic, p) for p in meta.partitions])
        offsets = from_items({key: at.offset for key, at in places.items()})
        epochs = {p: at.leader_epoch for (_, p), at in places.items() if at.leader_epoch >= 0}
        assert offsets.keys() == {topic}, "the request names partitions of one topic"
        return self._point(offsets[topic], epochs)

    def batch_end(self, begin: StreamOffset, target: StreamOffset | None) -> StreamOffset:
        """Return the end of the batch that begins at `begin`, or `begin` if nothing is new.

        target: where the last batch ends; by default the end of the log. Raises
        `LogDivergedError` if the log lost archived records, and `DataLossError` for offsets that
        were removed before they were archived, unless the job skips them.
        """
        latest = target or self.log_end()
        # Read the end before the check. In the other order the log could be truncated and grow in
        # between: the batch would carry the new leader epoch, and hide the loss from later checks.
        self._check_log(begin)
        added = self._added(begin)
        topic = self.job.topic
        starts = {**begin.offsets.get(topic, {}), **_starts(added)}
        ranges = ranges_between({topic: starts}, latest.offsets)
        if not ranges and not added:
            return begin
        ends = starts
        if ranges:
            most = offsets_in(self.job.batch_bytes, ranges, self.client)
            ends = limit_offsets({topic: starts}, latest.offsets, most)[topic]
        assert all(ends[p] >= at for p, at in starts.items()), "a batch never goes back"
        return self._point(ends, latest.epochs.get(topic, {}))

    def tasks(self, begin: StreamOffset, end: StreamOffset) -> list[list[OffsetRange]]:
        """Return the ranges of each task.

        A partition that was added without records gets an empty range: the commit names it. Raises
        `DataLossError` as `batch_end`.
        """
        topic, added = self.job.topic, self._added(begin)
        offsets = {topic: {**begin.offsets.get(topic, {}), **_starts(added)}}
        empty = [
            OffsetRange(topic, p, extent.start, extent.end)
            for p, extent in added.items()
            if end.offsets[topic].get(p) == extent.end
        ]
        ranges = ranges_between(offsets, end.offsets)
        tasks = self._tasks_of(ranges)
        pieces = [*split_ranges(ranges, tasks), *empty]
        assert sum(piece.size for piece in pieces) == sum(r.size for r in ranges)
        epochs = end.epochs.get(topic, {})
        # The tasks reject batches of a later epoch: the log may be cut between plan and read.
        pieces = [replace(piece, leader_epoch=epochs.get(piece.partition, -1)) for piece in pieces]
        return _deal(pieces, tasks)

    def _tasks_of(self, ranges: list[OffsetRange]) -> int:
        """Return how many files of about `file_bytes` the ranges make: one task writes one file."""
        if self.job.tasks == 1 or not ranges:
            return 1
        per_file = offsets_in(self.job.file_bytes, ranges, self.client)
        files = -(-sum(r.size for r in ranges) // per_file)
        return min(self.job.tasks, files)

    def _point(self, offsets: dict[int, int], epochs: dict[int, int]) -> StreamOffset:
        topic = self.job.topic
        return StreamOffset({topic: offsets}, {topic: self.job.topic_id}, {topic: epochs})

    def _check_log(self, point: StreamOffset) -> None:
        diverged = find_divergences(self.client, point)
        if diverged:
            raise LogDivergedError("; ".join(str(divergence) for divergence in diverged))

    def _added(self, point: StreamOffset) -> dict[int, Extent]:
        """Return the partitions that were added to the topic after `point`."""
        topic = self.job.topic
        progress = Progress({p: Extent(at, at) for p, at in point.offsets.get(topic, {}).items()})
        partitions = self.client.describe([topic])[topic].partitions
        return first_extents(self.client, topic, partitions, progress, skip_lost=self.job.skip_lost)


def _starts(extents: dict[int, Extent]) -> dict[int, int]:
    return {partition: extent.start for partition, extent in extents.items()}


def _deal(ranges: list[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Return groups of about equal size for at most `tasks` tasks, each ordered by partition."""
    groups: list[list[OffsetRange]] = [[] for _ in range(min(tasks, len(ranges)))]
    sizes = [0] * len(groups)
    # Largest first to the smallest group, which balances well without a search.
    for piece in sorted(ranges, key=lambda piece: piece.size, reverse=True):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(piece)
        sizes[smallest] += piece.size
    assert sum(map(len, groups)) == len(ranges), "each range is in one task"
    return [sorted(group, key=lambda piece: (piece.partition, piece.start)) for group in groups]
