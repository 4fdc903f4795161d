"""What `sync_topic` rejects before it starts Spark, and the result that it computes.

Checks for Spark masters whose workers may run on other hosts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.spark.archive import sync
from lakelog.spark.archive.sync import check_reachable, sync_topic
from lakelog.spark.session import JavaMissingError
from lakelog.tables.archive.commit import commit_batch, state_of
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import Warehouse, open_warehouse
from lakelog.tables.topic.errors import TopicMissingError
from scripted_broker import ScriptedBroker
from unit.tables.archive_table import TOPIC_ID, write_batch


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(sync, "local_session", fail)


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the test independent of this host's Java."""
    monkeypatch.setattr(sync, "require_java", lambda: None)


def test_a_missing_java_is_reported_before_a_folder_is_created(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissingError, match="found no Java"):
        sync_topic("b:1", "orders", str(tmp_path / "house"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("warehouse", "text"),
    [("ftp://lake/house", "'ftp://lake/house'"), ("s3://lake/house", "needs a local folder")],
)
def test_an_unusable_warehouse_is_rejected_without_a_broker(warehouse: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sync_topic("b:1", "orders", warehouse)


@pytest.mark.usefixtures("java")
def test_workers_on_other_hosts_need_a_shared_warehouse(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--shared-warehouse"):
        sync_topic("b:1", "orders", str(tmp_path), master="spark://lab:7077")


@pytest.mark.usefixtures("java")
def test_a_broker_that_workers_cannot_reach_is_a_notice_before_the_job_opens(
    tmp_path: Path,
) -> None:
    notices: list[str] = []
    with (
        ScriptedBroker({"payments": 1}) as broker,
        pytest.raises(TopicMissingError, match="topic 'orders'"),
    ):
        sync_topic(
            broker.address,
            "orders",
            str(tmp_path),
            master="spark://lab:7077",
            is_warehouse_shared=True,
            notice=notices.append,
        )
    assert [line.rpartition(" ")[2] for line in notices] == ["127.0.0.1"]


def test_a_result_counts_moved_rows_among_the_added_ones(address: TableAddress) -> None:
    job = ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id=TOPIC_ID,
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1000,
        tasks=2,
        skip_lost=False,
        raw_timestamp_id=0,
        uuid=address.uuid,
        extents={},
    )
    commit_batch(address, write_batch(address, 0, 5))
    before = state_of(job)
    commit_batch(address, write_batch(address, 5, 7, 1))

    found = sync._result(job, before, 3)

    assert (found.rows, found.rows_moved, found.rows_total) == (2 + 3, 3, 7)
    assert found.ends == {0: 7}
    assert Path(found.metadata_path.removeprefix("file://")).exists()


REMOTE = ["spark://127.0.0.1:7077", "yarn", "k8s://https://cluster", "mesos://m:5050", "localhost"]
LOCAL = ["local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"]
BROKER = "broker.example:9092"


@pytest.mark.parametrize("master", LOCAL)
def test_workers_on_this_host_need_nothing(tmp_path: Path, master: str) -> None:
    warehouse = open_warehouse(str(tmp_path))
    assert check_reachable(master, warehouse, "127.0.0.1:9092", is_shared=False) == []


@pytest.mark.parametrize("master", REMOTE)
def test_other_workers_do_not_write_to_a_folder_of_this_host(tmp_path: Path, master: str) -> None:
    warehouse = open_warehouse(str(tmp_path))

    with pytest.raises(ValueError, match="--shared-warehouse"):
        check_reachable(master, warehouse, BROKER, is_shared=False)
    assert check_reachable(master, warehouse, BROKER, is_shared=True) == []


def test_an_object_store_is_everywhere(tmp_path: Path) -> None:
    warehouse = Warehouse("s3://lake/house", tmp_path)
    assert check_reachable("yarn", warehouse, BROKER, is_shared=False) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_other_workers_do_not_reach_a_broker_on_loopback(tmp_path: Path, host: str) -> None:
    warehouse = Warehouse("s3://lake/house", tmp_path)

    (warning,) = check_reachable("yarn", warehouse, f"{host}:9092,{BROKER}", is_shared=False)

    assert warning.endswith(f"cannot reach a broker at {host.strip('[]')}")
