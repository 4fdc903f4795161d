"""Queries of topics with a table: archived offsets from its files, the others from the broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import LessThanOrEqual

from broker_process import BrokerProcess
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.offsets import EARLIEST
from lakelog.client.producer import Producer
from lakelog.spark.source.batch import Pruning
from lakelog.tables.hybrid.archives import PlannedRange
from lakelog.tables.topic.errors import ArchiveUnreadableError, OptionError
from spark.archiver import Archiver
from spark.queries import read, values
from spark.sources import BatchQuery, StreamQuery
from spark.topics import START_MS, MakeTopic, produce
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

QUICK_RETENTION = {
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("one-read")
    with BrokerProcess(folder / "data", settings=QUICK_RETENTION) as broker:
        yield broker.bootstrap
        broker.stop()


def enable(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"table.enable": "true"})


def trim(bootstrap: str, topic: str, first: int, *, partitions: int = 3) -> None:
    """Have retention delete everything that it may; wait until each log begins at `first`."""
    keys = [(topic, partition) for partition in range(partitions)]
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "1000"})

        def is_trimmed() -> bool:
            starts = admin.list_offsets(dict.fromkeys(keys, EARLIEST))
            return all(start.offset == first for start in starts.values())

        eventually(is_trimmed, what="retention")
        admin.configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "-1"})


def named(numbers: range) -> list[str]:
    return sorted(f"v{i}" for i in numbers)


@pytest.fixture
def archived(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> Archiver:
    """A topic of 45 records: 30 are in the table only, 15 in the log only."""
    topic = make_topic(30)
    enable(bootstrap, topic)
    archiver = Archiver(bootstrap, topic, tmp_path)
    assert archiver.run() == {0: 10, 1: 10, 2: 10}
    trim(bootstrap, topic, 10)
    produce(bootstrap, topic, range(30, 45))
    return archiver


def planned(query: BatchQuery) -> list[PlannedRange]:
    return [task.value for task in query.tasks if task.value is not None]


def test_a_batch_reads_table_and_log_exactly_at_the_boundary(
    bootstrap: str, archived: Archiver
) -> None:
    query = BatchQuery(bootstrap, archived.topic)
    cut = sorted((each.offsets.start, each.offsets.end, each.archived) for each in planned(query))
    assert cut == [(0, 10, True)] * 3 + [(10, 15, False)] * 3
    assert sorted(query.run()) == named(range(45))
    # The log has all the rest, so no offset is in both.
    assert sorted(BatchQuery(bootstrap, archived.topic, archive="none").run()) == named(
        range(30, 45)
    )


def test_a_stream_reads_from_the_first_record_ever(bootstrap: str, archived: Archiver) -> None:
    stream = StreamQuery(bootstrap, archived.topic)
    assert sorted(stream.run()) == named(range(45))
    produce(bootstrap, archived.topic, range(45, 60))
    archived.run()
    produce(bootstrap, archived.topic, range(60, 63))
    assert sorted(stream.run()) == named(range(45, 63))
    assert stream.run() == []


def test_offsets_and_times_select_files(bootstrap: str, archived: Archiver) -> None:
    produce(bootstrap, archived.topic, range(45, 60))
    archived.run()
    topic = archived.topic
    starts = ", ".join(f'"{partition}": 12' for partition in range(3))
    query = BatchQuery(bootstrap, topic, startingOffsets=f'{{"{topic}": {{{starts}}}}}')
    files = {file for each in planned(query) for file in each.files}
    assert files and all(file.offsets[0] >= 10 for file in files), "the first commit is pruned"
    assert sorted(query.run()) == named(range(36, 60))
    late = BatchQuery(bootstrap, topic, startingTimestamp=str(START_MS + 7))
    assert sorted(late.run()) == named(range(7, 60)), "records that only the table has have times"
    until = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=7)
    late.reader._pruning = Pruning((LessThanOrEqual(("timestamp",), until),))
    late.tasks = late.reader.partitions()
    files = {file for each in planned(late) for file in each.files}
    assert len(files) == 1, "files of later records are pruned"
    assert set(late.run()) >= set(named(range(7, 8)))


def test_records_that_leave_the_log_after_the_plan_come_from_the_table(
    bootstrap: str, archived: Archiver
) -> None:
    query = BatchQuery(bootstrap, archived.topic)
    archived.run()
    trim(bootstrap, archived.topic, 15)
    assert sorted(query.run()) == named(range(45))


def test_a_file_that_was_replaced_after_the_plan_is_planned_again(
    bootstrap: str, archived: Archiver
) -> None:
    query = BatchQuery(bootstrap, archived.topic)
    table = archived.job.address.load()
    old = [task.file.file_path for task in table.scan().plan_files()]
    rows = table.scan().to_arrow()
    with table.transaction() as transaction:
        transaction.overwrite(rows)
    for path in old:
        Path(path.removeprefix("file://")).unlink()
    assert sorted(query.run()) == named(range(45))


def test_uncommitted_records_are_not_in_the_table(bootstrap: str, archived: Archiver) -> None:
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    with pytest.raises(OptionError, match=r"\[0, 15\): the log begins at offset 10; .*committed"):
        BatchQuery(bootstrap, archived.topic, **uncommitted)
    found = BatchQuery(bootstrap, archived.topic, archive="none", **uncommitted).run()
    assert sorted(found) == named(range(30, 45))


def test_deleted_records_stay_until_their_rows_are_deleted(
    bootstrap: str, archived: Archiver
) -> None:
    archived.run()
    with Admin(bootstrap) as admin:
        admin.topics.delete_records({(archived.topic, 0): 13})
    assert sorted(BatchQuery(bootstrap, archived.topic).run()) == named(range(45))
    archived.job.address.load().delete("partition = 0 and offset in (3, 12)")
    erased = {"v9", "v36"}
    left = [value for value in named(range(45)) if value not in erased]
    assert sorted(BatchQuery(bootstrap, archived.topic).run()) == left


def test_superseded_records_of_a_compacted_topic_stay_in_the_table(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, COMPACTED | {"table.enable": "true"})
    archiver = Archiver(bootstrap, topic, tmp_path)

    def send(numbers: range) -> list[str]:
        with Producer(bootstrap) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number + b" " * 400, b"k%d" % (number % 40))
        return [str(number) for number in numbers]

    def found(**options: str) -> list[str]:
        query = BatchQuery(bootstrap, topic, **options)
        return [value.strip() for value in query.run()]

    expected = [each for at in range(0, 320, 40) for each in send(range(at, at + 40))]
    archiver.run()
    eventually(lambda: len(found(archive="none")) < 150, what="compaction of archived records")
    expected += send(range(320, 360))
    assert found() == expected


def test_a_dropped_table_is_an_error(bootstrap: str, archived: Archiver) -> None:
    from lakelog.tables.iceberg.catalog import open_catalog

    open_catalog(archived.job.catalog).drop_table(archived.job.identifier)
    with pytest.raises(ArchiveUnreadableError, match=r"was dropped\. Set the option archive=none"):
        BatchQuery(bootstrap, archived.topic)


def test_spark_reads_table_and_log_as_one(
    spark: SparkSession, bootstrap: str, archived: Archiver
) -> None:
    """With the examples of docs/spark.md, among them the latest value of each key."""
    with Producer(bootstrap) as producer:
        producer.send(archived.topic, b"newer", b"k1", partition=1)
        producer.send(archived.topic, None, b"k2", partition=2)
    text = PAGE.read_text(encoding="utf-8")
    examples = BLOCK.findall(text[text.index("## One read") : text.index("## Write a topic")])
    names: dict[str, Any] = {"spark": spark}
    for example in examples:
        here = example.replace("localhost:9092", bootstrap).replace("orders", archived.topic)
        exec(compile(here, str(PAGE), "exec"), names)
    latest = {bytes(row.key): bytes(row.value) for row in names["latest"].collect()}
    kept = {b"k%d" % number: b"v%d" % number for number in range(45) if number % 5}
    assert latest == {**{k: v for k, v in kept.items() if k != b"k2"}, b"k1": b"newer"}
    assert names["history"].count() == 47

    frame = read(spark, bootstrap, subscribe=archived.topic, includeHeaders="true")
    assert values(frame.where("value IS NOT NULL")) == ["newer", *named(range(45))]
    (first,) = frame.where("partition = 0 and offset = 0").collect()
    (last,) = frame.where("partition = 2 and offset = 14").collect()
    assert (first.timestampType, first.key, bytes(first.headers[0].value)) == (0, None, b"0")
    assert (last.timestampType, bytes(last.key), bytes(last.headers[0].value)) == (0, b"k44", b"44")
