"""DeleteRecords and OffsetForLeaderEpoch, version by version, and what stays true afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition

from broker_process import LAKELOG, BrokerProcess
from command_shell import Shell
from lakelog.base.errors import ErrorCode
from lakelog.client.admin import Admin
from lakelog.client.admin.topics import HIGH_WATERMARK
from lakelog.client.errors import OffsetOutOfRangeError
from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.protocol.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from lakelog.records.builder import BatchBuilder
from poison import sealed
from waiting import eventually
from wire_client import (
    WireClient,
    batch_of,
    create_topic,
    fetch,
    new_producer_id,
    produce,
    produce_request,
)

EARLIEST = -2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def delete_records(wire: WireClient, topic: str, offset: int, version: int = 2) -> Any:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    return wire.call(request, version).topics[0].partitions[0]


def start_of(wire: WireClient, topic: str) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    found = wire.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions[0]
    return found.offset, found.leader_epoch


def epoch_end(
    wire: WireClient, topic: str, epoch: int, *, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    found = wire.call(request, version).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_go(wire: WireClient, version: int) -> None:
    topic = f"shorter-{version}"
    create_topic(wire, topic)
    for _ in range(5):
        produce(wire, topic, batch_of(b"a", b"b"))
    assert delete_records(wire, topic, 3, version).low_watermark == 3
    assert start_of(wire, topic)[0] == 3
    assert fetch(wire, topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, 3).error_code == 0
    assert delete_records(wire, topic, 1, version).low_watermark == 3, "it never goes back"
    beyond = delete_records(wire, topic, 11, version)
    assert (beyond.error_code, beyond.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(wire, topic, -2, version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(wire, topic, -1, version).low_watermark == 10


def test_what_does_not_let_records_be_deleted(wire: WireClient) -> None:
    unknown = delete_records(wire, "never-made", 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(wire, "by-key", config={"cleanup.policy": "compact"})
    assert delete_records(wire, "by-key", 0).error_code == ErrorCode.POLICY_VIOLATION
    create_topic(wire, "by-key-and-age", config={"cleanup.policy": "compact,delete"})
    assert delete_records(wire, "by-key-and-age", 0).error_code == 0
    internal = delete_records(wire, "__consumer_offsets", 0)
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_start_and_a_sequence_survive_a_kill(broker: BrokerProcess) -> None:
    """KIP-360, KAFKA-7190, Redpanda #22670: an empty log still knows its producers."""
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "emptied")
        producer_id = new_producer_id(wire)
        produce(wire, "emptied", batch_of(b"a", b"b", producer=(producer_id, 0, 0)))
        assert delete_records(wire, "emptied", -1).low_watermark == 2
    checkpoint = broker.data / "log-start-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "emptied 0 2" in checkpoint.read_text())
    broker.kill()
    broker.restart()
    with WireClient(broker.bootstrap) as wire:
        assert start_of(wire, "emptied")[0] == 2
        again = produce(wire, "emptied", batch_of(b"a", b"b", producer=(producer_id, 0, 0)))
        assert (again.error_code, again.base_offset) == (0, 0)
        following = produce(wire, "emptied", batch_of(b"c", producer=(producer_id, 0, 2)))
        assert (following.error_code, following.base_offset) == (0, 2)


@pytest.mark.parametrize("version", range(2, 5))
def test_where_epochs_ended(broker: BrokerProcess, version: int) -> None:
    """KIP-279: the largest epoch at or below the one asked about, and its end."""
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "epochs")
        produce(wire, "epochs", batch_of(b"a", b"b"))
        first = start_of(wire, "epochs")[1]
    broker.stop()
    broker.restart()
    with WireClient(broker.bootstrap) as wire:
        produce(wire, "epochs", batch_of(b"c"))
        now = first + 1
        ask = [epoch_end(wire, "epochs", epoch, version=version) for epoch in range(first, now + 2)]
        assert ask == [(0, first, 2), (0, now, 3), (0, -1, -1)]
        assert epoch_end(wire, "epochs", -1, version=version) == (0, -1, -1)
        fenced = epoch_end(wire, "epochs", first, current=now - 1, version=version)
        assert fenced == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        unknown = epoch_end(wire, "epochs", first, current=now + 1, version=version)
        assert unknown == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert epoch_end(wire, "none", 0, version=version)[0] == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert delete_records(wire, "epochs", 2).low_watermark == 2
        assert epoch_end(wire, "epochs", first, version=version) == (0, first, 2)
        assert start_of(wire, "epochs") == (2, now)


def test_other_clients_delete_records(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "shared")
        produce(wire, "shared", batch_of(*[b"x"] * 10))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    (answer,) = admin.delete_records([confluent_kafka.TopicPartition("shared", 0, 4)]).values()
    assert answer.result(60).low_watermark == 4
    other = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        other.delete_records({KafkaPythonPartition("shared", 0): 6})
    finally:
        other.close()
    command = [LAKELOG, "topic", "delete-records", "shared", "--before", "-2", "--yes"]
    done = subprocess.run(
        [*command, "-b", broker.bootstrap, "-f", "json"], capture_output=True, check=True
    )
    (row,) = json.loads(done.stdout)
    assert (row["log_start_offset"], row["log_end_offset"], row["deleted"]) == (8, 10, 2)


def test_deleted_records_stay_deleted_after_a_kill(broker: BrokerProcess) -> None:
    """Five times: the kill comes right after the answer."""
    with WireClient(broker.bootstrap) as wire:
        for topic in ("first", "second"):
            create_topic(wire, topic, partitions=2)
            produce(wire, topic, keyed(*[b"%d" % number for number in range(20)]))
    for before in range(3, 18, 3):
        with WireClient(broker.bootstrap) as wire:
            partition = DeleteRecordsPartition(partition_index=0, offset=before)
            topics = [
                DeleteRecordsTopic(name=name, partitions=[partition])
                for name in ("first", "second")
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
            for topic in wire.call(request, 2).topics:
                result = topic.partitions[0]
                assert (result.error_code, result.low_watermark) == (0, before)
            broker.kill()
        broker.start()
        with WireClient(broker.bootstrap) as wire:
            assert start_of(wire, "first")[0] == start_of(wire, "second")[0] == before


def test_nothing_is_deleted_before_an_offset_that_does_not_exist(
    broker: BrokerProcess,
) -> None:
    """Of several partitions none, although the first ones have the offset."""
    with WireClient(broker.bootstrap) as wire, Admin(broker.bootstrap) as admin:
        create_topic(wire, "uneven", partitions=2)
        produce(wire, "uneven", batch_of(*[b"x"] * 10))
        keys = ("uneven", 0), ("uneven", 1)

        def starts() -> list[int]:
            found = admin.list_offsets(dict.fromkeys(keys, EARLIEST))
            return [found[key].offset for key in keys]

        with pytest.raises(OffsetOutOfRangeError, match=r"uneven-1 has offsets 0 to 0 .*, not 5"):
            admin.topics.delete_records(dict.fromkeys(keys, 5))
        with pytest.raises(OffsetOutOfRangeError):
            admin.topics.delete_records({keys[0]: -2})
        shell = Shell(broker.bootstrap)
        for before in ("999999999", "11", "5", "+11"):
            refused = shell.refusal("topic", "delete-records", "uneven", "--before", before, "-y")
            assert refused[:2] == (1, "LL0107"), before
        assert starts() == [0, 0]
        create_topic(wire, "by-key", config={"cleanup.policy": "compact"})
        refused = shell.refusal("topic", "delete-records", "by-key", "--before", "end", "-y")
        assert refused[:2] == (6, "LL0108")
        assert "by-key-0 is only compacted" in refused[2]
        words = ("topic", "delete-records", "uneven", "--yes", "--before")
        assert shell.one(*words, "10", "-p", "0")["deleted"] == 10
        assert admin.topics.delete_records(dict.fromkeys(keys, HIGH_WATERMARK)) == {
            keys[0]: 10,
            keys[1]: 0,
        }


@pytest.mark.parametrize("version", [3, 7, 8, 12])
def test_records_without_a_key_are_named(wire: WireClient, version: int) -> None:
    """KIP-467: every record at fault, and nothing appended."""
    topic = f"keyed-{version}"
    create_topic(wire, topic, config={"cleanup.policy": "compact"})
    refused = send(wire, topic, keyed(b"a", None, b"b", None), version)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= 8:
        assert [error.batch_index for error in refused.record_errors] == [1, 3]
        assert all("key" in error.batch_index_error_message for error in refused.record_errors)
        assert refused.error_message.startswith("2 records")
    taken = send(wire, topic, keyed(b"a", b"b"), version)
    assert (taken.error_code, taken.base_offset) == (0, 0)


def send(wire: WireClient, topic: str, records: bytes, version: int) -> Any:
    request = produce_request(topic, records)
    return wire.call(request, version).responses[0].partition_responses[0]


def keyed(*keys: bytes | None) -> bytes:
    builder = BatchBuilder()
    for key in keys:
        builder.append(1_700_000_000_000, key, b"value")
    return bytes(builder.build())


def test_a_poisoned_partition_can_be_read_on(tmp_path: Path) -> None:
    """From behind the batch that stops its readers, or after it was deleted."""
    settings = {"log.records.verify": "none"}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        WireClient(broker.bootstrap) as wire,
    ):
        create_topic(wire, "poisoned")
        assert produce(wire, "poisoned", batch_of(b"before")).error_code == 0
        assert produce(wire, "poisoned", bytes(sealed(b"no frame" * 9, 4, 2))).error_code == 0
        assert produce(wire, "poisoned", batch_of(b"behind")).error_code == 0

        def lakelog(*words: str) -> subprocess.CompletedProcess[str]:
            command = [LAKELOG, *words, "-b", broker.bootstrap]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        stopped = lakelog("consume", "poisoned", "-o", "start", "-e")
        assert (stopped.returncode, stopped.stdout) == (1, "before\n")
        assert "LL0602" in stopped.stderr
        assert "the next batch begins at 3" in stopped.stderr
        assert lakelog("consume", "poisoned", "-o", "3", "-e").stdout == "behind\n"
        deleted = lakelog("topic", "delete-records", "poisoned", "--before", "3", "--yes")
        assert deleted.returncode == 0
        assert lakelog("consume", "poisoned", "-o", "start", "-e").stdout == "behind\n"
