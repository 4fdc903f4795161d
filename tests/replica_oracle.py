"""The committed records of all replicas of a stopped cluster, byte by byte.

Replicas may end at different offsets, begin at different ones after retention, and divide their
logs into other segments. The offsets that all of them have committed are the same bytes in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lakelog.records.batch import iter_batches
from lakelog.storage.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, decode_offsets

Partition = tuple[str, int]


def check_replicas(folders: Sequence[Path]) -> dict[Partition, int]:
    """Return the number of compared batches of each partition.

    Raises `AssertionError` that names every partition whose replicas differ.
    """
    ends = [_checkpoint(folder, HIGH_WATERMARKS) for folder in folders]
    # Each replica is compacted and trimmed by itself.
    starts = [
        [_checkpoint(folder, name) for folder in folders] for name in (CLEANER_OFFSETS, LOG_STARTS)
    ]
    compared, differing = {}, []
    for partition in sorted(set().union(*ends)):
        holders = [at for at, known in enumerate(ends) if partition in known]
        end = min(ends[at][partition] for at in holders)
        start = max(known[at].get(partition, 0) for known in starts for at in holders)
        found = [_batches(folders[at], partition, end) for at in holders]
        first, *others = (_from(each, max(start, *map(_first, found))) for each in found)
        compared[partition] = len(first)
        differing += [partition for other in others if other != first]
    assert not differing, f"replicas differ: {sorted(set(differing))}"
    return compared


def _checkpoint(folder: Path, name: str) -> dict[Partition, int]:
    path = folder / name
    return decode_offsets(path.read_bytes()) if path.exists() else {}


def _batches(folder: Path, partition: Partition, end: int) -> dict[int, bytes]:
    """Return the batches below the offset `end` by their base offsets."""
    topic, index = partition
    logs = sorted((folder / f"{topic}-{index}").glob("*.log"))
    return {offset: batch for log in logs for offset, batch in _in_segment(log) if offset < end}


def _in_segment(log: Path) -> Iterator[tuple[int, bytes]]:
    for header, batch in iter_batches(log.read_bytes()):
        yield header.base_offset, bytes(batch)


def _first(batches: Mapping[int, bytes]) -> int:
    return min(batches, default=0)


def _from(batches: Mapping[int, bytes], start: int) -> dict[int, bytes]:
    return {offset: batch for offset, batch in batches.items() if offset >= start}
