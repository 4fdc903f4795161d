"""Start offsets of partitions that the table's progress does not contain yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.tables.archive.progress import Extent, Progress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import TopicPartition


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
