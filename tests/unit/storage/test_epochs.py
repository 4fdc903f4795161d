"""Leader epochs (KIP-101, KIP-279) and the text files of a log."""

from __future__ import annotations

import pytest

from lakelog.storage.checkpoint import (
    LEADER_EPOCHS,
    MalformedCheckpoint,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    offsets_file,
)
from lakelog.storage.epochs import EpochCache
from lakelog.storage.folder.identity import decode_partition_metadata, encode_partition_metadata
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from storage_kit import DATA, NOW, TOPIC_ID, append, make_batch, memory_store

ENTRIES = [(1, 0), (4, 10), (6, 30)]


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),
        (1, (1, 10)),
        (3, (1, 10)),
        (4, (4, 30)),
        (5, (4, 30)),
        (6, (6, 99)),
        (7, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(epoch: int, found: tuple[int, int]) -> None:
    assert EpochCache(ENTRIES).end_offset(epoch, 99) == found


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 1), (9, 1), (10, 4), (29, 4), (30, 6), (500, 6), (-1, -1)]
)
def test_which_epoch_wrote_an_offset(offset: int, epoch: int) -> None:
    assert EpochCache(ENTRIES).epoch_of(offset) == epoch


def test_an_epoch_without_records_leaves_no_trace() -> None:
    epochs = EpochCache(ENTRIES)
    epochs.assign(7, 40)
    epochs.assign(8, 40)
    epochs.assign(8, 50)
    epochs.assign(5, 60)
    assert epochs.entries == [*ENTRIES, (8, 40)]
    assert epochs.latest == 8


@pytest.mark.parametrize(
    ("offset", "left"), [(31, ENTRIES), (30, ENTRIES[:2]), (11, ENTRIES[:2]), (0, [])]
)
def test_truncation_from_the_end(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = EpochCache(ENTRIES)
    epochs.truncate_from_end(offset)
    assert epochs.entries == left
    assert epochs.latest == (left[-1][0] if left else -1)


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, ENTRIES), (5, [(1, 5), (4, 10), (6, 30)]), (10, ENTRIES[1:]), (99, [(6, 99)])],
)
def test_truncation_from_the_start(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = EpochCache(ENTRIES)
    epochs.truncate_from_start(offset)
    assert epochs.entries == left


def test_epochs_are_kept_over_restarts_and_kills() -> None:
    store = memory_store()
    log = store.create()
    for epoch in (2, 2, 5):
        log.assign_epoch(epoch)
        log.append(make_batch(2), leader_epoch=epoch, now_ms=NOW)
    expected = [(2, 0), (5, 4)]
    for log in (store.restart(), store.killed()):
        assert log.leader_epochs.entries == expected
    log.assign_epoch(9)
    assert log.leader_epochs.entries == [*expected, (9, 6)]
    log.truncate_to(4)
    assert log.leader_epochs.entries == [(2, 0)]
    assert store.killed().leader_epochs.entries == [(2, 0)]


def test_text_checkpoints_are_lines() -> None:
    assert encode_epochs(ENTRIES) == b"0\n3\n1 0\n4 10\n6 30\n"
    assert decode_epochs(encode_epochs(ENTRIES)) == ENTRIES
    assert encode_epochs([]) == b"0\n0\n"
    offsets = {("a", 0): 5, ("b.c-d_e", 12): 1 << 40}
    assert offsets_file().encode(offsets) == b"0\n2\na 0 5\nb.c-d_e 12 1099511627776\n"
    assert decode_offsets(offsets_file().encode(offsets)) == offsets


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"0",
            b"0\n",
            b"0\n0",
            b"1\n0\n",
            b"0\n1\n",
            b"0\n2\na 0 1\n",
            b"0\n1\na 0 1",
            b"\xff",
        ),
        *(
            b"0\n1\na 0\n",
            b"0\n1\na x 1\n",
            b"0\n1\na 0 -1\n",
            b"0\n1\na  0 1\n",
            b"0\n1\na 0 1 2\n",
        ),
    ],
)
def test_malformed_offsets_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        decode_offsets(data)


@pytest.mark.parametrize(
    "data", [b"0\n1\n1\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n1 0 0\n"]
)
def test_malformed_epochs_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        decode_epochs(data)


def test_partition_metadata_is_two_lines() -> None:
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_partition_metadata(data) == decode_partition_metadata(data + b"\n") == TOPIC_ID


def test_the_file_is_behind_only_in_what_records_say() -> None:
    cache = EpochCache([(1, 0), (5, 10)])
    assert not cache.is_behind(10)
    cache.assign(6, 10)
    assert not cache.is_behind(10), "nothing has been written in it"
    assert cache.is_behind(11)
    cache.note_saved()
    assert not cache.is_behind(11)
    cache.truncate_from_start(4)
    assert cache.is_behind(11)
    assert EpochCache(None).is_behind(0)


def test_a_file_that_is_ahead_of_the_logs_start_is_built_again() -> None:
    """It was written after records were deleted of which no other checkpoint knows yet."""
    store = memory_store()
    log = store.create()
    for epoch in (3, 5):
        append(log, make_batch(2), leader_epoch=epoch)
    log.flush()
    store.directory.write_checkpoints()
    log.advance_log_start(3)
    log.write_epochs()
    log = store.killed()
    assert (log.log_start_offset, log.leader_epochs.entries) == (0, [(3, 0), (5, 2)])


@pytest.mark.parametrize("damage", [None, b"not a checkpoint"])
def test_epochs_are_read_from_the_records_if_no_file_has_them(damage: bytes | None) -> None:
    """A folder of an older version that was stopped cleanly, and has lost its checkpoint."""
    store = memory_store()
    log = store.create()
    for epoch in (3, 5):
        append(log, make_batch(2), leader_epoch=epoch)
    store.directory.close()
    store.disk.remove(DATA / KNOWN_LOGS)
    store.disk.remove(log.folder / LEADER_EPOCHS)
    if damage is not None:
        store.disk.write_atomic(log.folder / LEADER_EPOCHS, damage)
    store.start()
    assert store.log.leader_epochs.entries == [(3, 0), (5, 2)]
