"""The comparison of replicas finds differences, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.records.batch import patch_offset_and_epoch
from lakelog.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, offsets_file
from replica_oracle import check_replicas
from wire_client import batch_of

PARTITION = ("orders", 0)


def stored(offset: int, value: bytes = b"v", leader_epoch: int = 0) -> bytes:
    batch = bytearray(batch_of(value))
    patch_offset_and_epoch(batch, 0, offset, leader_epoch)
    return bytes(batch)


def broker(
    folder: Path, segments: dict[int, list[bytes]], high_watermark: int, log_start: int = 0
) -> Path:
    log = folder / "orders-0"
    log.mkdir(parents=True)
    for base, batches in segments.items():
        (log / f"{base:020}.log").write_bytes(b"".join(batches))
    (folder / HIGH_WATERMARKS).write_bytes(offsets_file().encode({PARTITION: high_watermark}))
    (folder / LOG_STARTS).write_bytes(offsets_file().encode({PARTITION: log_start}))
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return broker(tmp_path / "1", {0: [stored(0), stored(1), stored(2)]}, 3)


def test_segments_and_uncommitted_ends_may_differ(first: Path, tmp_path: Path) -> None:
    others = [
        broker(tmp_path / "2", {0: [stored(0)], 1: [stored(1), stored(2, b"not committed")]}, 2),
        broker(tmp_path / "3", {1: [stored(1), stored(2), stored(3)]}, 4, log_start=1),
    ]
    assert check_replicas([first, *others]) == {PARTITION: 1}


@pytest.mark.parametrize(
    "batches",
    [
        [stored(0), stored(1, b"w"), stored(2)],
        [stored(0), stored(1, leader_epoch=1), stored(2)],
        [stored(0), stored(2)],
        [stored(0), stored(1)],
        [],
    ],
    ids=["value", "leader epoch", "gap", "end", "nothing"],
)
def test_a_difference_below_the_high_watermark_is_found(
    first: Path, tmp_path: Path, batches: list[bytes]
) -> None:
    with pytest.raises(AssertionError, match=r"replicas differ: \[\('orders', 0\)\]"):
        check_replicas([first, broker(tmp_path / "2", {0: batches}, 3)])
