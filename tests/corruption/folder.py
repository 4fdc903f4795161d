"""A data folder with a file of every kind, left by a real broker: stopped, and killed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from broker_process import BrokerProcess
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lakelog.protocol.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from lakelog.records.batch import iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    KnownLog,
    decode_offsets,
)
from lakelog.storage.folder.known_logs import KNOWN_LOGS, decode_known_logs
from lakelog.storage.marks import FOLDER_SEAL, FolderSeal
from waiting import eventually
from wire_client import RECENTLY_MS, WireClient, batch_of, create_topic, new_producer_id, produce
from wire_transactions import WireProducer

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "lakelog.disk.reserve.bytes": "65536",
}
_SMALL = {"internal.segment.bytes": "1200", "index.interval.bytes": "200"}
_COMPACTED = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {
    "plain": _SMALL,
    "trimmed": _SMALL,
    "idempotent": _SMALL,
    "transactional": _SMALL,
    "compacted": _COMPACTED,
    "large": {},
}
GROUP = "readers"
TRANSACTIONAL_IDS = ("payments", "refunds")
ROUNDS = 3
_KINDS = {
    ".index": "index",
    ".timeindex": "time index",
    ".txnindex": "transaction index",
    ".snapshot": "snapshot",
    "-checkpoint": "checkpoint",
    "leader-epoch-checkpoint": "leader epochs",
    "partition.metadata": "partition metadata",
    "meta.properties": "meta.properties",
    ".kafka_cleanshutdown": "clean shutdown",
    ".lock": "lock",
    "metadata.db": "metadata",
    "metadata.db-wal": "metadata journal",
    "metadata.db-shm": "metadata memory",
    "metadata.db-broker-1": "broker lock",
    "metadata.db-end": "metadata end",
    "metadata.mark": "metadata mark",
    "known-logs": "known logs",
    "disk-reserve": "disk reserve",
    "boot-id": "boot id",
    "folder-seal": "folder seal",
}
_CHECKPOINTS: dict[str, Callable[[KnownLog], int | None]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_STARTS: lambda log: log.start or None,
    HIGH_WATERMARKS: lambda log: log.high_watermark if log.high_watermark >= 0 else None,
    CLEANER_OFFSETS: lambda log: log.cleaned if log.cleaned >= 0 else None,
}
_LEFT = (".cleaned", ".swap", ".deleted", ".tmp")
"""Files left by a kill during a compaction, a deletion, or the replacement of a file."""


def kind_of(path: Path) -> str:
    """Return the kind of a file. A new kind of file fails here until the sweep covers it."""
    if path.name.endswith(".log"):
        newest = max(path.parent.glob("*.log")) == path
        return "active log" if newest else "sealed log"
    if path.name.endswith(_LEFT):
        return "left behind"
    for end in sorted(_KINDS, key=len, reverse=True):
        if path.name.endswith(end):
            return _KINDS[end]
    raise AssertionError(f"{path} is of no known kind of file: cover it")


def kinds_in(folder: Path) -> dict[str, list[Path]]:
    """The files that can be damaged, by kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.setdefault(kind_of(path), [])
            if path.stat().st_size:
                found[kind_of(path)].append(path.relative_to(folder))
    return found


def may_be_lost(folder: Path, path: Path, left: bytes) -> bool:
    """Return whether a power failure may leave only `left` of a file without a trace.

    This holds for the last segment if it ends with a whole batch, at or above the recovery point:
    the broker never claimed that later batches are on the device. It also holds for the emptied
    topic id of a log without durable records, because the first flush syncs both.
    """
    known = decode_known_logs((folder / KNOWN_LOGS).read_bytes())
    log = known.get((path.parent.name.removesuffix("-0"), 0))
    if kind_of(folder / path) == "partition metadata":
        return not left.strip(b"\0") and (log is None or log.recovery_point == 0)
    whole = (folder / path).read_bytes()
    if kind_of(folder / path) != "active log" or not whole.startswith(left):
        return False
    batches = list(iter_batches(left))
    if sum(len(batch) for _, batch in batches) != len(left):
        return False
    end = batches[-1][0].last_offset + 1 if batches else int(path.stem)
    return log is None or end >= log.recovery_point


def make_folders(path: Path) -> dict[str, Path]:
    """By how the broker ended: "stopped" and "killed"."""
    with BrokerProcess(path / "data", settings=SETTINGS) as broker:
        with WireClient(broker.bootstrap) as wire:
            for topic, config in TOPICS.items():
                create_topic(wire, topic, 1, config)
        for number in range(ROUNDS):
            with WireClient(broker.bootstrap) as wire:
                _write(wire, number)
            eventually(lambda: _is_compacted(broker.data), what="compaction")
            broker.stop()
            if number + 1 < ROUNDS:
                broker.restart()
        stopped = shutil.copytree(broker.data, path / "stopped")
        broker.restart()
        with WireClient(broker.bootstrap) as wire:
            _write(wire, ROUNDS)
            create_topic(wire, "late", 1, _SMALL)
            produce(wire, "late", batch_of(b"late"))
        eventually(lambda: _is_compacted(broker.data), what="compaction")
        eventually(lambda: _is_killed_between_checkpoints(broker), what="a moment between them")
        return {"stopped": stopped, "killed": broker.data}


def seal_of(folder: Path) -> FolderSeal:
    """The seal as a start on the folder finds it."""
    seal = FolderSeal(folder / FOLDER_SEAL, folder / KNOWN_LOGS, PosixDisk())
    seal.open(is_expected=True)
    return seal


def copied(folder: Path, path: Path, end: str) -> Path:
    """Copy a folder that was "stopped" or "killed", under a seal that fits the copy.

    The seal names the inode of `known-logs`: without this, each copy of a folder that was killed
    would count as changed by another program, with damage or without.
    """
    shutil.copytree(folder, path)
    seal = seal_of(path)
    seal.stop() if end == "stopped" else seal.begin()
    assert seal_of(path).is_intact
    return path


def _is_killed_between_checkpoints(broker: BrokerProcess) -> bool:
    """Stop the broker between checkpoints: only during their writing, a newer one has more data."""
    os.kill(broker.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, broker.pid, os.WSTOPPED)
    known = decode_known_logs((broker.data / KNOWN_LOGS).read_bytes())
    for name, offset_of in _CHECKPOINTS.items():
        path = broker.data / name
        written = decode_offsets(path.read_bytes()) if path.exists() else {}
        if written != {key: at for key, log in known.items() if (at := offset_of(log)) is not None}:
            os.kill(broker.pid, signal.SIGCONT)
            return False
    broker.kill()
    return True


def _write(wire: WireClient, number: int) -> None:
    first_ms = RECENTLY_MS + number * 100_000
    producer = new_producer_id(wire)
    for at in range(12):
        time_ms = first_ms + 100 * at
        value = b"%d %d " % (number, at) + b"x" * 40
        for topic in ("plain", "trimmed", "large"):
            produce(wire, topic, batch_of(value, value, first_ms=time_ms))
        batch = batch_of(value, producer=(producer, 0, at), first_ms=time_ms)
        produce(wire, "idempotent", batch)
        builder = BatchBuilder()
        builder.append(time_ms, b"key %d" % (at % 5), value)
        produce(wire, "compacted", bytes(builder.build()))
    for name in TRANSACTIONAL_IDS:
        transactions = WireProducer(wire, name)
        for at in range(4):
            transactions.begin("transactional", b"%d %d" % (number, at) + b"x" * 60)
            transactions.send("transactional", b"more", b"and more")
            transactions.end(commit=at % 2 == 0)
    wire.call(_deletion(4 + number), 2)
    eventually(lambda: _commits(wire, 3 + number))


def _deletion(offset: int) -> DeleteRecordsRequest:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="trimmed", partitions=[row])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


def _commits(wire: WireClient, offset: int) -> bool:
    wire.call(FindCoordinatorRequest(key=GROUP), 3)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="plain", partitions=[row])
    answer = wire.call(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 4)
    return bool(answer.topics[0].partitions[0].error_code == 0)


def _is_compacted(data: Path) -> bool:
    """The cleaner has been through the compacted topic, and nothing is half done."""
    checkpoint = data / "cleaner-offset-checkpoint"
    text = checkpoint.read_text() if checkpoint.exists() else ""
    return "compacted 0" in text and not any(path.name.endswith(_LEFT) for path in data.glob("*/*"))
