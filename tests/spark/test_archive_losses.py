"""`lakelog table sync` after table and log diverge: it reports that, and continues as options say.

Each step compares the output and the table with the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.tables.iceberg.table import SCHEMA
from lakelog.tables.iceberg.warehouse import open_warehouse
from lost_tail import lose_tail
from spark.table_sync import PLAIN, Sync
from spark.topics import produce

pytestmark = [pytest.mark.spark]

TOPIC = "orders"


class Place:
    """A broker, its topic of two partitions, and the warehouse that the topic is archived into."""

    def __init__(self, broker: BrokerProcess, warehouse: Path, catalog: SqlCatalog) -> None:
        self.broker = broker
        self._catalog = catalog
        self._warehouse = warehouse

    @property
    def table(self) -> Table:
        return self._catalog.load_table(f"lakelog.{TOPIC}")

    def create_foreign_table(self) -> None:
        """As another program does, with PyIceberg's defaults."""
        self._catalog.create_namespace_if_not_exists("lakelog")
        self._catalog.create_table(f"lakelog.{TOPIC}", SCHEMA)

    def drop_table(self) -> None:
        self._catalog.drop_table(f"lakelog.{TOPIC}")

    def produce(self, start: int, end: int) -> None:
        """Records to partition 0, a batch each."""
        for number in range(start, end):
            produce(self.broker.bootstrap, TOPIC, range(number, number + 1), partitions=1)

    def follow(self, *words: str) -> Sync:
        """Start a run in Spark that follows the topic."""
        return self._start("--follow", "--every", "1s", *words)

    def sync(self, *words: str) -> tuple[int, int]:
        """Rows added by a run without Java, and rows in the table."""
        result = self._start(*words, "-f", "json", program=PLAIN).result()
        return result["rows_added"], result["rows_total"]

    def failed(self, *words: str) -> tuple[int, str, str]:
        """Exit status, output and errors of a run without Java."""
        return self._start(*words, program=PLAIN).end()

    def _start(self, *words: str, **options: Any) -> Sync:
        where = (self.broker.bootstrap, TOPIC, "--warehouse", str(self._warehouse))
        return Sync(*where, *words, **options)

    def refused(self, *words: str) -> str:
        status, out, err = self.failed(*words)
        assert (status, out) == (1, "")
        assert err.startswith("error[LL0803] ")
        assert len(err.splitlines()) == 2
        return err

    def values(self, snapshot_id: int | None = None) -> list[tuple[int, bytes]]:
        rows = self.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return sorted((row["offset"], row["value"]) for row in rows)


@pytest.fixture
def tested(tmp_path: Path) -> Iterator[Place]:
    warehouse = tmp_path / "warehouse"
    catalog = SqlCatalog("lakelog", **open_warehouse(str(warehouse)).catalog)
    with BrokerProcess(tmp_path / "data") as broker, closing(catalog):
        with Admin(broker.bootstrap) as admin:
            admin.topics.create(TOPIC, partitions=2, configs={"retention.ms": "-1"})
        yield Place(broker, warehouse, catalog)


def numbered(start: int, end: int, first_offset: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and values of records that were produced in turn."""
    return [(first_offset + n, b"v%d" % number) for n, number in enumerate(range(start, end))]


def test_nothing_is_lost_or_repeated_without_a_word(tested: Place) -> None:
    tested.create_foreign_table()
    assert tested.sync() == (0, 0)
    assert tested.table.properties["commit.retry.num-retries"] == "0"

    # A partition that was empty at the first commit is trimmed before the next.
    tested.produce(0, 10)
    with Admin(tested.broker.bootstrap) as admin:
        admin.topics.delete_records({(TOPIC, 0): 4})
    said = tested.refused()
    assert f"{TOPIC}-0 [0, 4): retention or DeleteRecords removed these offsets" in said
    assert "--skip-lost" in said
    assert tested.sync("--skip-lost") == (6, 6)
    assert tested.values() == numbered(4, 10, 4)

    # The log loses its tail and grows beyond the end of the archive.
    lose_tail(tested.broker, TOPIC, 0, batches_kept=7)
    tested.produce(100, 108)
    said = tested.refused()
    assert f"the log of {TOPIC}-0 was cut" in said
    assert "partition 0 offsets [7, 10)" in said
    assert "--skip-lost" in said
    assert tested.values() == numbered(4, 10, 4)
    assert tested.sync("--skip-lost") == (8, 11)
    assert tested.values() == [*numbered(4, 7, 4), *numbered(100, 108, 7)]
    (tag,) = (name for name in tested.table.metadata.refs if name.startswith("lakelog-lost-"))
    kept = tested.table.metadata.refs[tag].snapshot_id
    assert tested.values(kept) == numbered(4, 10, 4)

    # Another program rolls the table back to this snapshot.
    table = tested.table
    before = table.snapshots()[-1].parent_snapshot_id
    assert before is not None
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    said = tested.refused()
    assert "--adopt snapshot" in said
    assert tested.sync("--adopt", "snapshot") == (8, 11)
    assert tested.values() == [*numbered(4, 7, 4), *numbered(100, 108, 7)]


def test_following_waits_for_the_broker_and_ends_with_its_table(tested: Place) -> None:
    tested.produce(0, 3)
    follow = tested.follow()
    assert follow.first_note() == f"{TOPIC}: 3 records in the table\n"

    tested.broker.kill()
    away = f"{TOPIC}: no broker answers at {tested.broker.bootstrap}; waiting until it returns\n"
    assert follow.first_note() == away
    tested.broker.restart()
    assert follow.first_note() == f"{TOPIC}: the broker answers again\n"
    tested.produce(3, 5)
    assert follow.first_note() == f"{TOPIC}: 5 records in the table\n"

    tested.drop_table()
    tested.create_foreign_table()
    tested.produce(5, 6)
    status, _, err = follow.end()
    assert (status, tested.values()) == (1, [])
    # The job may look at the catalog between the two steps. PySpark prints an error of its server
    # for accumulators before, if Java ends while it reads from there.
    assert f"\nerror[LL0803] the table lakelog.{TOPIC} was dropped " in f"\n{err}"
    assert tested.sync() == (6, 6)


def test_without_following_the_wait_for_the_broker_has_an_end(tested: Place) -> None:
    tested.broker.kill()
    status, out, err = tested.failed("--timeout", "1s")
    assert (status, out) == (5, "")
    assert err.startswith("error[LL0301] ")


def test_a_wait_is_interrupted_by_ctrl_c(tested: Place) -> None:
    tested.produce(0, 3)
    follow = tested.follow("-f", "json")
    assert follow.first_note() == f"{TOPIC}: 3 records in the table\n"
    tested.broker.kill()
    assert "waiting until it returns" in follow.first_note()

    follow.interrupt()

    assert follow.result()["rows_total"] == 3
