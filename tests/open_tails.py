"""Losing the end of a log, as a power failure does with records that are not on the device."""

from __future__ import annotations

from pathlib import Path

from lakelog.records.batch import iter_batches


def cut_open_records(folder: Path) -> int:
    """Cut the batches after the last marker of a partition's log; return their number.

    All of them belong to open transactions if each ended transaction has its marker. The broker
    must not run.
    """
    segment = max(folder.glob("*.log"))
    end = kept = cut = 0
    for header, _ in iter_batches(segment.read_bytes()):
        end += header.size
        cut += 1
        if header.is_control:
            kept, cut = end, 0
    with segment.open("r+b") as file:
        file.truncate(kept)
    return cut
