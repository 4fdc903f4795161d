"""Checkpoint files in the format of Apache Kafka; other contents are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.uuids import ZERO_UUID
from lakelog.storage.checkpoint import (
    HIGH_WATERMARKS,
    Checkpoints,
    KnownLog,
    MalformedCheckpoint,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    offsets_file,
)
from lakelog.storage.marks import FolderSeal
from storage_kit import TOPIC_ID, ManualClock

FOLDER = Path("/data")


def test_files_are_read_as_they_were_written() -> None:
    offsets = {("a", 0): 5, ("a-b", 12): 0}
    assert offsets_file().encode(offsets) == b"0\n2\na 0 5\na-b 12 0\n"
    assert decode_offsets(offsets_file().encode(offsets)) == offsets
    assert decode_epochs(encode_epochs([(0, 0), (3, 10)])) == [(0, 0), (3, 10)]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"0\n", b"1\n0\n", b"0\n1\na 0 5", b"0\n2\na 0 5\n", b"0\n1\na 0\n"),
        *(b"0\n1\na 0 -5\n", b"0\n1\na 0 x\n", b"\xff\n0\n", b"0\nx\na 0 5\n"),
    ],
)
def test_other_content_is_no_checkpoint(data: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        decode_offsets(data)


@pytest.mark.parametrize("lines", [b"0 0\n0 5", b"1 0\n0 5", b"0 5\n1 5", b"0 5\n1 4"])
def test_leader_epochs_have_to_rise_with_their_offsets(lines: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        decode_epochs(b"0\n2\n" + lines + b"\n")


def test_only_files_that_have_changed_are_written() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(FOLDER)
    seal = FolderSeal(FOLDER / "seal", FOLDER / "first", disk)
    checkpoints = Checkpoints(disk, FOLDER, seal)
    checkpoints.begin({HIGH_WATERMARKS: {("a", 0): 5}}, b"1").run()
    disk.remove(FOLDER / HIGH_WATERMARKS)
    checkpoints.begin({HIGH_WATERMARKS: {("a", 0): 5}}, b"2").run()
    assert disk.read(FOLDER / "first") == b"2"
    assert not disk.exists(FOLDER / HIGH_WATERMARKS)
    disk.remove(FOLDER / "first")
    checkpoints.begin({HIGH_WATERMARKS: {("a", 0): 6}}, b"2").run()
    assert decode_offsets(disk.read(FOLDER / HIGH_WATERMARKS)) == {("a", 0): 6}
    assert not disk.exists(FOLDER / "first")


OTHER_ID = bytes(range(100, 116))
KNOWN = KnownLog(TOPIC_ID, 7, 3, 9, 5, ((0, 3), (4, 6)), ((3, 77),))


def test_the_entry_of_the_same_topic_is_kept() -> None:
    assert KNOWN.as_of(TOPIC_ID) == KNOWN


def test_an_entry_without_a_topic_is_of_the_topic_that_is_found() -> None:
    """Checkpoints of Apache Kafka have no topic ids."""
    assert KNOWN._replace(topic_id=ZERO_UUID).as_of(TOPIC_ID) == KNOWN


@pytest.mark.parametrize("known", [KNOWN, KNOWN._replace(aborted=None)])
def test_nothing_is_known_of_a_new_topic_with_an_old_name(known: KnownLog) -> None:
    assert not known.is_of(OTHER_ID)
    blank = known.as_of(OTHER_ID)
    assert (blank.topic_id, blank.recovery_point, blank.start) == (OTHER_ID, 0, 0)
    assert (blank.high_watermark, blank.cleaned, blank.epochs) == (-1, -1, ())
