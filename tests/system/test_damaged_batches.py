"""A batch that changes in a broker's segment goes by `table.errors`, as other bad records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from broker_process import BrokerProcess
from lakelog.client.errors import UnreadableLogError
from lakelog.records.batch import read_header
from lakelog.tables.archive.files import WrittenFiles, write_ranges
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.refusals import OnBadRecord, RefusedCount, Span
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from wire_client import WireClient, batch_of, create_topic, produce

TOPIC = "damaged"
VALUE = b"the value that is going to be damaged"
COUNT = 9
PER_BATCH = 3
LENGTH_AT = 11
"""The lowest byte of the length in a batch."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with three batches of three records; the fifth record has `VALUE`."""
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, TOPIC, 1)
            for base in range(0, COUNT, PER_BATCH):
                values = [VALUE if at == 4 else b"%d" % at for at in range(base, base + PER_BATCH)]
                assert produce(client, TOPIC, batch_of(*values)).error_code == 0
        yield broker


def change(broker: BrokerProcess, back: int = 0) -> None:
    """Flip one bit of the value in the segment, or `back` bytes before it."""
    path = broker.data / f"{TOPIC}-0" / f"{0:020}.log"
    with path.open("r+b") as file:
        at = file.read().index(VALUE) - back
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def archive(broker: BrokerProcess, folder: Path, errors: OnBadRecord) -> WrittenFiles:
    job = ArchiveJob(
        bootstrap=broker.bootstrap,
        topic=TOPIC,
        topic_id="id",
        catalog={},
        identifier=("lakelog", TOPIC),
        location=str(folder),
        batch_bytes=1000,
        tasks=1,
        skip_lost=False,
        raw_timestamp_id=0,
        uuid="",
        extents={},
        errors=errors.value,
        dead_letters_location=str(folder / "letters"),
    )
    return write_ranges(job, [OffsetRange(TOPIC, 0, 0, COUNT)], ARROW_SCHEMA, "rows.parquet")


def test_a_batch_that_changed_under_a_running_broker_is_a_dead_letter(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    change(broker)
    with pytest.raises(BadRecordError, match=r"damaged-0@3: .*3 to 5 .*checksum.*dead-letter"):
        archive(broker, tmp_path, OnBadRecord.STOP)
    assert not list(tmp_path.rglob("*.parquet"))

    written = archive(broker, tmp_path, OnBadRecord.DEAD_LETTER)
    assert written.rows == 6
    assert written.refusals.counts == {0: RefusedCount(3, 0)}
    rows = pq.read_table(tmp_path / "data" / "rows.parquet").to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [
        (at, b"%d" % at) for at in (0, 1, 2, 6, 7, 8)
    ]
    (dead_letter,) = pq.read_table(tmp_path / "letters" / "data" / "rows.parquet").to_pylist()
    assert (dead_letter["offset"], dead_letter["offsetLast"]) == (3, 5)
    assert read_header(dead_letter["raw"]).base_offset == 3
    assert bytes([VALUE[0] ^ 1]) + VALUE[1:] in dead_letter["raw"]
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()

    written = archive(broker, tmp_path, OnBadRecord.SKIP)
    assert written.refusals.named == [Span(0, 3, 6)]
    assert (written.rows, written.dead_letters) == (6, None)


def test_a_batch_that_a_restarted_broker_refuses_is_a_dead_letter_without_bytes(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """It is the first read of these bytes in the process, so the broker checks them."""
    broker.stop()
    change(broker)
    broker.restart()
    with pytest.raises(BadRecordError, match=r"damaged-0@3: .*the broker refuses it"):
        archive(broker, tmp_path, OnBadRecord.STOP)

    written = archive(broker, tmp_path, OnBadRecord.DEAD_LETTER)
    (dead_letter,) = pq.read_table(tmp_path / "letters" / "data" / "rows.parquet").to_pylist()
    rows = pq.read_table(tmp_path / "data" / "rows.parquet").to_pylist()
    # Without an index entry after it, the broker does not find the batches after it either.
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert (dead_letter["offset"], dead_letter["offsetLast"], dead_letter["raw"]) == (3, 8, b"")
    assert written.refusals.named == [Span(0, 3, COUNT)]


def test_a_batch_whose_length_changed_ends_the_archive(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    content = (broker.data / f"{TOPIC}-0" / f"{0:020}.log").read_bytes()
    second = read_header(content).size
    change(broker, content.index(VALUE) - second - LENGTH_AT)
    with pytest.raises(
        UnreadableLogError, match=r"offset 3 is damaged.*where the next batch begins"
    ):
        archive(broker, tmp_path, OnBadRecord.SKIP)
    assert not list(tmp_path.rglob("*.parquet"))
