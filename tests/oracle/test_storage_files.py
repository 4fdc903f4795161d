"""Every file of a data folder, as Apache Kafka's own tool and classes read it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compaction_kit import Cleaner, headers
from file_oracle import check_data_folder, dump
from lakelog.base.config.log_config import LogConfig
from lakelog.base.uuids import encode_uuid
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.log import Log
from storage_kit import (
    NOW,
    TOPIC_ID,
    Store,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
)

pytestmark = pytest.mark.java

SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=300)


def fill(log: Log, count: int, *, first: int = 0, leader_epoch: int = 0) -> None:
    """All codecs, several sizes, times that also go back, and two idempotent producers."""
    for number in range(first, first + count):
        records = 1 + number % 4
        producer = (-1, -1, -1)
        if number % 3:
            producer = (100 + number % 3, number // 300, (number % 300) * 4)
        batch = make_batch(
            records,
            size=10 + number % 7 * 40,
            timestamp=NOW + number * 100 - (number % 5) * 250,
            codec=number % 5,
            producer=producer if number < 3 else (-1, -1, -1),
        )
        append(log, batch, leader_epoch=leader_epoch)
    for number in range(6):
        batch = make_batch(2, timestamp=NOW + number, producer=(7, leader_epoch, number * 2))
        append(log, batch, leader_epoch=leader_epoch)


def fill_transactions(log: Log, rounds: int, *, first: int = 0) -> None:
    """Overlapping transactions of four producers, both versions, some across segments."""
    for number in range(first, first + rounds):
        epoch = number // 4
        for producer_id in range(4):
            if (number + producer_id) % 4 == 3 and producer_id:
                version = 2 if producer_id == 1 else 0
                marker_epoch = epoch + 1 if version else epoch
                append_marker(
                    log,
                    producer_id,
                    marker_epoch,
                    commit=producer_id == 3,
                    coordinator_epoch=number // 10,
                    transaction_version=version,
                    decision=number,
                )
            elif producer_id or number % 9 == 0:
                state = log.producers.entries.get(producer_id)
                epoch_now = max(epoch, state.epoch if state else 0)
                same = state is not None and state.epoch == epoch_now
                sequence = state.last_sequence + 1 if state is not None and same else 0
                append_in_transaction(log, (producer_id, epoch_now, sequence), 2, size=40)
        append(log, make_batch(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history: rolls, retention, truncation, a kill, a clean stop."""
    path = tmp_path_factory.mktemp("data")
    store = Store(PosixDisk(), config=SMALL, path=path)
    for partition in range(7):
        store.create(partition=partition)
    logs = store.directory.logs
    for log in logs.values():
        if log.partition < 5:
            fill(log, 60, leader_epoch=1)
    fill_transactions(logs["topic", 6], 40)
    store.config = LogConfig(segment_bytes=4000, index_interval_bytes=300, retention_bytes=9000)
    logs["topic", 1].use_config(store.config)
    logs["topic", 1].delete_old_segments(NOW)
    logs["topic", 2].truncate_to(logs["topic", 2].log_end_offset // 2)
    logs["topic", 3].advance_log_start(logs["topic", 3].log_end_offset - 3)
    store.config = SMALL
    log = logs["topic", 4]
    with log.segments.active.path(".log").open("ab") as file:
        file.write(b"torn")
    store.directory.close(clean=False)
    store.start()
    for log in store.directory.logs.values():
        if log.partition < 5:
            fill(log, 20, first=60, leader_epoch=2)
    fill_transactions(store.directory.logs["topic", 6], 30, first=40)
    store.restart()
    store.directory.close()
    return path


def test_kafka_reads_all_of_it(folder: Path) -> None:
    found = check_data_folder(folder)
    assert found["topic-0/partition.metadata"] == encode_uuid(TOPIC_ID)
    assert found["topic-0/leader-epoch-checkpoint"].startswith("1 0,2 ")
    assert found["meta.properties"].split()[1] == "1"
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        assert f"{name}-offset-checkpoint" in found
    snapshots = [name for name in found if name.endswith(".snapshot")]
    assert len(snapshots) > 10
    assert any("7 2 11 " in found[name] for name in snapshots)
    assert found["topic-0"].endswith(" snapshots, 0 transaction indexes")
    assert ".kafka_cleanshutdown" in found
    assert any(name.endswith(".cut") for name in map(str, folder.rglob("*.cut")))


def test_kafka_finds_the_same_transactions_in_the_log(folder: Path) -> None:
    """It recovers producers and aborted transactions from the `.log` files alone."""
    found = check_data_folder(folder)
    snapshots, indexes = map(int, found["topic-6"].split()[0:3:2])
    assert snapshots > 4
    assert indexes > 4
    aborted = [found[name] for name in found if name.endswith(".txnindex")]
    assert sum(text.count(",") for text in aborted) > 20
    entry = found[max(name for name in found if name.startswith("topic-6/0") and "snap" in name)]
    assert entry.split(",")[0].split()[-1] == "0"


def test_every_batch_is_counted(folder: Path) -> None:
    log = sorted((folder / "topic-0").glob("*.log"))
    output, errors = dump(log, "--deep-iteration")
    assert errors == []
    assert output.count("isvalid: true") == 92


def test_kafka_finds_the_indexes_sane(folder: Path) -> None:
    indexes = sorted(folder.rglob("*.index")) + sorted(folder.rglob("*.timeindex"))
    output, errors = dump(indexes, "--index-sanity-check")
    assert errors == []
    sane = output.count("passed sanity check.") + output.count("is empty")
    assert sane == len(indexes)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs that were compacted more than once, all codecs and emptied batches."""
    path = tmp_path_factory.mktemp("compacted")
    config = SMALL._replace(
        cleanup_policy=frozenset({"compact"}), delete_retention_ms=500, file_delete_delay_ms=0
    )
    store = Store(PosixDisk(), config=config, path=path)
    log, cleaner, number = store.create(), Cleaner(store), 0
    for _ in range(4):
        for _ in range(40):
            number += 1
            append(log, keyed(number), leader_epoch=number // 50)
        log.roll(store.clock.now_ms)
        log.flush()
        store.clock.now_ms += 300
        cleaner.run()
        store.directory.cleaner_offsets["topic", 0] = cleaner.cleaned or 0
    store.log.delete_old_segments(store.clock.now_ms)
    assert any(not header.records_count for header in headers(store.log))
    assert any(header.has_delete_horizon for header in headers(store.log))
    store.directory.close()
    return path


def keyed(number: int) -> bytearray:
    builder = BatchBuilder(number % 5)
    for key in range(number % 4 + 1):
        value = None if (number + key) % 5 == 0 else b"%d" % number * 20
        builder.append(NOW + number * 10 - key * 25, b"%d" % (number * 7 % 11 + key), value)
    if number % 6 == 0:
        return builder.build(40 + number % 12, number, 0)
    return builder.build()


def test_kafka_reads_compacted_logs(compacted: Path) -> None:
    found = check_data_folder(compacted, compacted=True)
    assert "topic-0" in found["cleaner-offset-checkpoint"]
    logs = sorted((compacted / "topic-0").glob("*.log"))
    output, errors = dump(logs, "--deep-iteration")
    assert not [line for line in errors if "followed by" not in line and "Non-c" not in line]
    assert "deleteHorizonMs: OptionalLong[" in output
    assert output.count("isvalid: true") == output.count("baseOffset:")
    indexes = sorted(compacted.rglob("*.index")) + sorted(compacted.rglob("*.timeindex"))
    output, errors = dump(indexes, "--index-sanity-check")
    assert errors == []
    sane = output.count("passed sanity check.") + output.count("is empty")
    assert sane == len(indexes)


PLANTED = [
    ("*.index", 3, b"\x01", "Mismatches in"),
    ("*.log", 100, b"\xff", "isvalid: false"),
    ("*.timeindex", 7, b"\x00", "timestamp"),
    ("*.snapshot", 20, b"\xff", "crc"),
    ("leader-epoch-checkpoint", 4, b"x", "leader-epoch-checkpoint"),
    ("*.txnindex", 25, b"\x01", "Kafka finds"),
    ("partition.metadata", 9, b"7", "partition.metadata"),
]


def plant(folder: Path, pattern: str, position: int, value: bytes) -> Path:
    file = max(folder.glob(pattern), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[position : position + len(value)] = value
    file.write_bytes(content)
    return file


def test_the_oracle_finds_planted_damage(folder: Path, tmp_path: Path) -> None:
    damaged = []
    for partition, (pattern, position, value, complaint) in enumerate(PLANTED):
        copy = tmp_path / f"topic-{partition}"
        shutil.copytree(folder / ("topic-6" if "txn" in pattern else "topic-0"), copy)
        damaged.append((plant(copy, pattern, position, value), complaint))
    with pytest.raises(AssertionError) as failure:
        check_data_folder(tmp_path)
    lines = str(failure.value).splitlines()
    for file, complaint in damaged:
        name = file.parent.name if file.suffix == ".txnindex" else f"{file.parent.name}/{file.name}"
        assert any(name in line and complaint in line for line in lines), (name, complaint)
