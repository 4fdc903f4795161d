"""`lakelog table sync --enabled`: one job for all topics with a table, over a broker's restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.errors import ClientError
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import open_warehouse
from spark.sources import BatchQuery
from spark.table_sync import TIMEOUT_S, Sync
from spark.topics import produce
from waiting import eventually

pytestmark = [pytest.mark.spark]


def is_archived(bootstrap: str, *topics: str) -> bool:
    """Whether the groups of the topics' tables have no lag."""
    try:
        with Admin(bootstrap) as admin:
            lags = [admin.groups.lag(f"lakelog-table-{topic}") for topic in topics]
    except ClientError:
        return False
    return all(lag and all(each.records == 0 for each in lag.values()) for lag in lags)


def newest_rows(warehouse: Path, name: str) -> int:
    address = TableAddress(open_warehouse(str(warehouse)).catalog, ("lakelog", name))
    return int(address.load().scan().count()) if address.exists() else 0


def test_one_job_archives_all_enabled_topics_over_an_outage(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        bootstrap = broker.bootstrap
        with Admin(bootstrap) as admin:
            for topic in ("a", "b", "late", "other"):
                enabled = {} if topic in ("late", "other") else {"table.enable": "true"}
                if topic == "b":
                    enabled |= {"table.latest": "true", "table.latest.interval.ms": "1000"}
                admin.topics.create(topic, partitions=3, configs=enabled)
        for topic in ("a", "b", "late", "other"):
            produce(bootstrap, topic, range(30))
        job = Sync(bootstrap, "--enabled", "--every", "1s", "--warehouse", str(tmp_path / "w"))
        eventually(
            lambda: is_archived(bootstrap, "a", "b"), TIMEOUT_S, what="archive of two topics"
        )
        with Admin(bootstrap) as admin:
            admin.configs.alter(ResourceType.TOPIC, "late", {"table.enable": "true"})
        eventually(
            lambda: is_archived(bootstrap, "late"), TIMEOUT_S, what="archive of the enabled topic"
        )
        eventually(
            lambda: newest_rows(tmp_path / "w", "b_latest") == 24, TIMEOUT_S, what="newest records"
        )
        broker.stop()
    with BrokerProcess(tmp_path / "data", port=broker.port):
        produce(bootstrap, "a", range(30, 60))
        eventually(lambda: is_archived(bootstrap, "a"), TIMEOUT_S, what="archive after the outage")
        query = BatchQuery(bootstrap, "a")
        assert all(task.value is not None and task.value.archived for task in query.tasks)
        assert sorted(query.run()) == sorted(f"v{i}" for i in range(60))
        job.terminate()
        status, _, error = job.end()
    assert status == 0, error
    assert "other" not in error
    assert "Traceback" not in error
