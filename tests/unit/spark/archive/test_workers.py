"""Checks for Spark masters whose workers may run on other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.spark.archive.workers import check_reachable
from lakelog.tables.iceberg.warehouse import Warehouse, open_warehouse

REMOTE = ["spark://127.0.0.1:7077", "yarn", "k8s://https://cluster", "mesos://m:5050", "localhost"]
LOCAL = ["local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"]
BROKER = "broker.example:9092"


@pytest.mark.parametrize("master", LOCAL)
def test_workers_on_this_host_need_nothing(tmp_path: Path, master: str) -> None:
    place = open_warehouse(str(tmp_path))
    assert check_reachable(master, place, "127.0.0.1:9092", is_shared=False) == []


@pytest.mark.parametrize("master", REMOTE)
def test_other_workers_do_not_write_to_a_folder_of_this_host(tmp_path: Path, master: str) -> None:
    place = open_warehouse(str(tmp_path))

    with pytest.raises(ValueError, match="--shared-warehouse"):
        check_reachable(master, place, BROKER, is_shared=False)
    assert check_reachable(master, place, BROKER, is_shared=True) == []


def test_an_object_store_is_everywhere(tmp_path: Path) -> None:
    place = Warehouse("s3://lake/house", tmp_path)
    assert check_reachable("yarn", place, BROKER, is_shared=False) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_other_workers_do_not_reach_a_broker_on_loopback(tmp_path: Path, host: str) -> None:
    place = Warehouse("s3://lake/house", tmp_path)

    (warning,) = check_reachable("yarn", place, f"{host}:9092,{BROKER}", is_shared=False)

    assert warning.endswith(f"cannot reach a broker at {host.strip('[]')}")
