"""`known-logs` and the files it vouches for: whichever is damaged, the logs are as they were."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakelog.base.uuids import encode_uuid
from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.storage.checkpoint import MalformedCheckpoint
from lakelog.storage.folder.known_logs import KNOWN_LOGS, KnownLogsFile, decode_known_logs
from lakelog.storage.folder.topic_ids import topic_id_in
from lakelog.storage.recovery.known_log import KnownLog, LogFiles
from storage_kit import DATA, TOPIC_ID, Store, append, make_batch, memory_store

KNOWN = {
    ("a", 0): KnownLog(
        TOPIC_ID, 7, 3, 9, 5, ((0, 3), (4, 6)), ((3, 77),), LogFiles("12 34", 3, 56)
    ),
    ("b-1", 2): KnownLog(TOPIC_ID, 0),
}


def test_it_is_read_as_it_was_written() -> None:
    assert decode_known_logs(KnownLogsFile().encode(KNOWN)) == KNOWN
    assert decode_known_logs(KnownLogsFile().encode({})) == {}


def test_version_1_has_no_files() -> None:
    rows = b'["a",0,"%s",7,3,9,5,[[0,3],[4,6]],[[3,77]]]\n' % encode_uuid(TOPIC_ID).encode()
    data = b"lakelog known-logs 1 %08x\n" % crc.crc32c(rows) + rows
    assert decode_known_logs(data) == {("a", 0): KNOWN["a", 0]._replace(files=None)}


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = KnownLogsFile().encode(KNOWN)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedCheckpoint):
            decode_known_logs(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(MalformedCheckpoint):
            decode_known_logs(data[:size])


def _stopped() -> Store:
    store = memory_store()
    log = store.create()
    for epoch in (1, 2):
        for _ in range(5):
            append(log, make_batch(1), leader_epoch=epoch)
    log.advance_log_start(3)
    store.directory.close()
    return store


def _write(disk: Disk, path: Path, data: bytes) -> None:
    disk.write_atomic(path, data)


@pytest.mark.parametrize(
    "name",
    [
        KNOWN_LOGS,
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "topic-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize("how", ["other digits", "emptied"])
def test_whichever_file_is_damaged(name: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    store = _stopped()
    path = DATA / name
    before = store.disk.read(path)
    after = before[:-2] + b"9\n" if how == "other digits" else b""
    _write(store.disk, path, after)
    with caplog.at_level(logging.WARNING):
        log = store.start().logs["topic", 0]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 10, 10)
    assert log.leader_epochs.entries == [(1, 3), (2, 5)]
    assert path.name in caplog.text or before == after
    store.directory.close()
    assert store.disk.read(path) == before


class TestTopicIds:
    folder = DATA / "topic-0"
    path = folder / "partition.metadata"

    def test_an_id_that_is_nearly_the_topic_s_is_the_topic_s(self) -> None:
        store = _stopped()
        before = store.disk.read(self.path)
        _write(store.disk, self.path, before[:-3] + b"x" + before[-2:])
        assert topic_id_in(store.disk, self.folder, None, TOPIC_ID) == TOPIC_ID
        assert store.disk.read(self.path) == before

    def test_a_readable_topic_id_is_returned_even_if_it_differs(self) -> None:
        store = _stopped()
        other = bytes(range(100, 116))
        assert topic_id_in(store.disk, self.folder, TOPIC_ID, other) == TOPIC_ID

    def test_an_unreadable_file_is_rewritten_if_two_other_sources_agree(self) -> None:
        store = _stopped()
        before = store.disk.read(self.path)
        _write(store.disk, self.path, bytes(len(before)))
        assert topic_id_in(store.disk, self.folder, TOPIC_ID, TOPIC_ID) == TOPIC_ID
        assert store.disk.read(self.path) == before
