"""Errors and warnings of queries when records are lost before or during a read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.errors import ClientError, UnreachableError
from lakelog.client.producer import Producer
from lakelog.spark.source.batch import RangePartition
from lakelog.tables.topic.errors import DataLossError, TopicMissingError
from lost_tail import damage_batch, lose_tail
from spark.sources import BatchQuery, StreamQuery, values
from spark.topics import MakeTopic, produce
from waiting import eventually

ACCEPTED = {"failOnDataLoss": "false"}
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": "1000"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}


def append(bootstrap: str, topic: str, *numbers: int) -> None:
    """Each record in a batch of its own."""
    for number in numbers:
        with Producer(bootstrap) as producer:
            producer.send(topic, b"%d" % number)


def texts(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With a topic `t` of one partition and ten records."""
    with BrokerProcess(tmp_path / "data") as process:
        with Admin(process.bootstrap) as admin:
            admin.topics.create("t", partitions=1)
        append(process.bootstrap, "t", *range(10))
        yield process
        process.stop()


@pytest.mark.parametrize("grown_to", [7, 10, 14])
def test_a_stream_notices_a_log_that_was_cut_and_grew_again(
    broker: BrokerProcess, grown_to: int
) -> None:
    """Whether it has fewer offsets then, as many, or more."""
    query = StreamQuery(broker.bootstrap, "t")
    assert query.run() == texts(*range(10))
    before = query.offset
    lose_tail(broker, "t", 0, batches_kept=5)
    new = [100 + number for number in range(5, grown_to)]
    append(broker.bootstrap, "t", *new)

    with pytest.raises(DataLossError, match=r"t-0 was cut .* offset 10 .* ends at 5\b.* replaced"):
        query.run()
    assert query.offset == before

    query.options |= ACCEPTED
    assert query.run() == texts(*new)
    query.options |= {"failOnDataLoss": "true"}
    append(broker.bootstrap, "t", 999)
    assert query.run() == texts(999)


def test_a_stream_that_a_restart_of_the_broker_does_not_harm_has_no_batch(
    broker: BrokerProcess,
) -> None:
    """The leader's epoch has risen, but no record is missing or new."""
    query = StreamQuery(broker.bootstrap, "t")
    query.run()
    before = query.offset
    broker.kill()
    broker.restart()
    assert query.run() == []
    assert query.offset == before
    append(broker.bootstrap, "t", 10)
    assert query.run() == texts(10)


def test_a_planned_batch_notices_a_cut_before_it_is_read(broker: BrokerProcess) -> None:
    """The plan has offsets of the old log, so the task must not read the new one."""
    query = StreamQuery(broker.bootstrap, "t")
    strict, tolerant = (BatchQuery(broker.bootstrap, "t", **how) for how in ({}, ACCEPTED))
    lose_tail(broker, "t", 0, batches_kept=5)
    append(broker.bootstrap, "t", *range(105, 112))

    with pytest.raises(DataLossError, match=r"t-0 \[0, 10\): the log was cut .* offset 5 and grew"):
        strict.run()
    assert tolerant.run() == texts(*range(5))
    assert query.run() == texts(*range(5), *range(105, 112))


def test_a_batch_continues_from_the_offsets_of_a_query(broker: BrokerProcess) -> None:
    """With epochs, as a query's progress has them, a cut is noticed here, too."""
    query = StreamQuery(broker.bootstrap, "t")
    query.run()
    append(broker.bootstrap, "t", 10, 11)
    given = {"startingOffsets": json.dumps(query.offset)}
    assert BatchQuery(broker.bootstrap, "t", **given).run() == texts(10, 11)

    lose_tail(broker, "t", 0, batches_kept=5)
    append(broker.bootstrap, "t", *range(105, 112))
    with pytest.raises(DataLossError, match="ends at 5"):
        BatchQuery(broker.bootstrap, "t", **given)
    assert BatchQuery(broker.bootstrap, "t", **given, **ACCEPTED).run() == texts(*range(105, 112))


def test_a_stream_that_began_at_the_end_notices_a_cut_below_it(broker: BrokerProcess) -> None:
    query = StreamQuery(broker.bootstrap, "t", startingOffsets="latest")
    assert query.run() == []
    lose_tail(broker, "t", 0, batches_kept=5)
    append(broker.bootstrap, "t", *range(105, 112))
    with pytest.raises(DataLossError, match="ends at 5"):
        query.run()


def large_topic(bootstrap: str, make_topic: MakeTopic) -> str:
    """Many answers long: 40 records of half a megabyte in one partition."""
    topic = make_topic(partitions=1)
    with Producer(bootstrap) as producer:
        for number in range(40):
            producer.send(topic, b"x" * (512 << 10), b"%d" % number, partition=0)
    return topic


def keys_read(query: BatchQuery, meanwhile: Callable[[], object]) -> list[int]:
    """The records' numbers; after the first Arrow batch `meanwhile` is called."""
    [task] = query.tasks
    found: list[int] = []
    for batch in query.reader.read(task):
        if not found:
            meanwhile()
        found += [int(key) for key in batch.column("key").to_pylist()]
    return found


def test_records_that_are_deleted_during_a_read(
    bootstrap: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = large_topic(bootstrap, make_topic)
    strict, tolerant = (BatchQuery(bootstrap, topic, **how) for how in ({}, ACCEPTED))
    with Admin(bootstrap) as admin:
        found = keys_read(tolerant, lambda: admin.topics.delete_records({(topic, 0): 35}))
        with pytest.raises(DataLossError, match=r"holds only \[35, 40\).*failOnDataLoss=false"):
            strict.run()
    assert found == sorted(set(found)), "in order, none twice"
    assert found[:5] == list(range(5))
    assert found[-5:] == list(range(35, 40)), "the remaining records are read"
    assert len(found) < 40
    assert "records are lost" in caplog.text


def test_a_tail_that_is_cut_during_a_read(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that lost its tail and got no new records: the read must not wait for them."""
    with Admin(broker.bootstrap) as admin:
        admin.topics.create("large", partitions=1)
    with Producer(broker.bootstrap) as producer:
        for number in range(40):
            producer.send("large", b"x" * (512 << 10), b"%d" % number)
    strict, tolerant = (BatchQuery(broker.bootstrap, "large", **how) for how in ({}, ACCEPTED))

    with caplog.at_level(logging.INFO):
        found = keys_read(tolerant, lambda: lose_tail(broker, "large", 0, batches_kept=36))
        with pytest.raises(DataLossError, match=r"cut and ends at 36.*failOnDataLoss=false"):
            strict.run()
    assert found == list(range(36))
    assert "records are lost: large-0 [36, 40): the log was cut and ends at 36" in caplog.text
    assert "does not know its high watermark yet" not in caplog.text, "this is tried for a minute"


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and created again"])
def test_a_topic_that_is_deleted_during_a_read(
    bootstrap: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    topic = large_topic(bootstrap, make_topic)
    tolerant = BatchQuery(bootstrap, topic, **ACCEPTED)

    def delete() -> None:
        with Admin(bootstrap) as admin:
            admin.topics.delete(topic)
        if again:
            make_topic(90, name=topic, partitions=1)

    found = keys_read(tolerant, delete)
    assert found == list(range(len(found)))
    assert 0 < len(found) < 40
    assert "records are lost" in caplog.text


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and created again"])
def test_a_range_of_a_topic_that_was_deleted(
    bootstrap: str, make_topic: MakeTopic, again: bool
) -> None:
    topic = make_topic(30)
    strict, tolerant = (BatchQuery(bootstrap, topic, **how) for how in ({}, ACCEPTED))
    with Admin(bootstrap) as admin:
        admin.topics.delete(topic)
    if again:
        make_topic(9, name=topic)
    assert tolerant.run() == []
    with pytest.raises(DataLossError, match=r"does not exist|created again"):
        strict.run()


def test_a_stream_continues_without_a_deleted_topic(
    bootstrap: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    gone, kept = make_topic(6), make_topic(6)
    query = StreamQuery(bootstrap, f"{gone},{kept}")
    assert len(query.run()) == 12
    with Admin(bootstrap) as admin:
        admin.topics.delete(gone)
    produce(bootstrap, kept, range(6, 9))

    with pytest.raises(DataLossError, match=rf"{gone}-0 was deleted.*failOnDataLoss=false"):
        query.run()
    query.options |= ACCEPTED
    with caplog.at_level(logging.WARNING):
        assert sorted(query.run()) == ["v6", "v7", "v8"]
    assert f"{gone}-0 was deleted" in caplog.text
    assert query.run() == []

    make_topic(9, name=gone)
    assert sorted(query.run()) == [f"v{number}" for number in range(9)]


def test_a_planned_batch_of_a_topic_that_is_gone_is_repeated(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """As after a crash of the query: the batch that was planned is planned again."""
    gone, kept = make_topic(6), make_topic(6)
    query = StreamQuery(bootstrap, f"{gone},{kept}", **ACCEPTED)
    reader = query.open()
    start = query.offset = reader.initialOffset()
    end = query.plan(reader)
    with Admin(bootstrap) as admin:
        admin.topics.delete(gone)
    for again in (False, True):
        if again:
            make_topic(9, name=gone)
        tasks: list[RangePartition] = reader.partitions(start, end)
        assert len([v for task in tasks for v in values(reader.read(task))]) == 6
    query.offset = end
    assert len(query.run()) == 9
    reader.stop()


def test_a_topic_that_never_was_there_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    query = StreamQuery(bootstrap, f"{topic},nowhere", **ACCEPTED)
    with pytest.raises(TopicMissingError, match="'nowhere' does not exist"):
        query.run()
    query = StreamQuery(bootstrap, topic)
    query.run()
    query.options["subscribe"] = f"{topic},nowhere"
    with pytest.raises(TopicMissingError, match="'nowhere' does not exist"):
        query.run()


def test_a_partition_that_is_gone_from_a_topic_created_again(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(9)
    assigned = {"assign": json.dumps({topic: [0, 2]})}
    query = StreamQuery(bootstrap, topic, **ACCEPTED)
    del query.options["subscribe"]
    query.options |= assigned
    assert len(query.run()) == 6
    with Admin(bootstrap) as admin:
        admin.topics.delete(topic)
    make_topic(4, name=topic, partitions=1)
    assert query.run() == ["v0", "v1", "v2", "v3"]
    assert query.run() == []


def answered_error(query: BatchQuery) -> ClientError | None:
    """Run a query that fails; return no error if it ran out of its time without any answer."""
    with pytest.raises(ClientError) as failed:
        query.run()
    return None if isinstance(failed.value, UnreachableError) else failed.value


@pytest.mark.parametrize("found_by", ["reader", "broker"])
def test_a_damaged_batch_is_no_loss_that_a_query_may_accept(
    broker: BrokerProcess, found_by: str
) -> None:
    """A broker checks batches that it has not written since its start, and refuses them."""
    damage_batch(broker, "t", 0, 5)
    if found_by == "broker":
        broker.stop()
        broker.restart()
    for accepted in ({}, ACCEPTED):
        query = BatchQuery(broker.bootstrap, "t", **accepted, **IMPATIENT)
        error = eventually(partial(answered_error, query), what="an answer of the broker")
        assert re.match(r"CORRUPT_MESSAGE: t-0 .*offset 5", str(error)), error
    before = BatchQuery(broker.bootstrap, "t", endingOffsets='{"t": {"0": 5}}')
    assert before.run() == texts(*range(5))
    after = BatchQuery(broker.bootstrap, "t", startingOffsets='{"t": {"0": 6}}')
    if found_by == "reader":
        assert after.run() == texts(*range(6, 10))


def test_a_value_of_60_mb_is_read_and_one_of_100_mb_refused(tmp_path: Path) -> None:
    """Larger than `fetch.max.bytes`: the first batch of a response comes whole."""
    limits = {"message.max.bytes": "110000000", "socket.request.max.bytes": "120000000"}
    with BrokerProcess(tmp_path / "data", settings=limits) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.topics.create("t", partitions=1)
        settings = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 110_000_000}
        producer = confluent_kafka.Producer(settings)
        codes: list[int | None] = []
        for size in (60_000_000, 100_000_000):
            producer.produce(
                "t",
                b"x" * size,
                on_delivery=lambda error, _: codes.append(error.code() if error else None),
            )
            assert producer.flush(60) == 0
        assert codes == [None, confluent_kafka.KafkaError.INVALID_RECORD]
        (value,) = BatchQuery(broker.bootstrap, "t").run()
        assert value == "x" * 60_000_000


def test_gaps_of_a_compacted_log_are_no_loss(tmp_path: Path) -> None:
    """Offsets are missing within ranges, between them, and at the end of a batch."""
    with BrokerProcess(tmp_path / "data", settings={"log.cleaner.backoff.ms": "100"}) as process:
        with Admin(process.bootstrap) as admin:
            admin.topics.create("c", partitions=1, configs=COMPACTED)
        query = StreamQuery(process.bootstrap, "c", maxOffsetsPerTrigger="50", minPartitions="7")
        read = query.run()
        for round_ in range(10):
            with Producer(process.bootstrap) as producer:
                for key in range(40):
                    producer.send("c", b"%d.%d" % (round_, key) + bytes(400), b"%d" % key)
        newest = {f"9.{key}" for key in range(40)}

        def is_compacted() -> bool:
            found = BatchQuery(process.bootstrap, "c", maxRecordsPerPartition="9").run()
            assert newest <= {value.strip("\0") for value in found}
            return len(found) < 200

        eventually(is_compacted, what="compaction")
        read += query.run()
        assert newest <= {value.strip("\0") for value in read}
        assert query.run() == []
        process.stop()
