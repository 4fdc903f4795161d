from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from lakelog.client.admin.api import Admin, LogDir
from lakelog.client.errors import ClientError, UnreachableError
from lakelog.protocol.replicas import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from scripted_broker import ScriptedBroker


def test_the_folders_of_every_broker_are_returned(broker: ScriptedBroker) -> None:
    row = DescribeLogDirsPartition(partition_index=1, partition_size=70)
    topic = DescribeLogDirsTopic(name="orders", partitions=[row])
    folder = DescribeLogDirsResult(
        log_dir="/data", topics=[topic], total_bytes=100, usable_bytes=30
    )
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        for each in (broker, other):
            each.on(DescribeLogDirsRequest, DescribeLogDirsResponse(results=[folder]))
        with Admin(broker.address, timeout_s=10.0) as admin:
            found = admin.log_dirs()
    assert found == [LogDir(node, "/data", {("orders", 1): 70}, 100, 30) for node in (1, 2)]


def test_a_broker_that_does_not_answer_hides_only_its_own_folder(broker: ScriptedBroker) -> None:
    folder = DescribeLogDirsResult(log_dir="/data", topics=[], total_bytes=100, usable_bytes=30)
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        broker.on(DescribeLogDirsRequest, None)
        other.on(DescribeLogDirsRequest, DescribeLogDirsResponse(results=[folder]))
        with Admin(broker.address, timeout_s=10.0) as admin:
            assert admin.known_log_dirs() == [LogDir(2, "/data", {}, 100, 30)]


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        (DescribeLogDirsResult(usable_bytes=30), ""),
        (DescribeLogDirsResult(usable_bytes=0), "no space left"),
        (DescribeLogDirsResult(error_code=56), "KAFKA_STORAGE_ERROR"),
        (DescribeLogDirsResult(usable_bytes=30, problem="a quota"), "a quota"),
    ],
)
def test_a_folder_that_cannot_be_written_has_its_problem(
    broker: ScriptedBroker, folder: DescribeLogDirsResult, problem: str
) -> None:
    broker.on(DescribeLogDirsRequest, DescribeLogDirsResponse(results=[folder]))
    with Admin(broker.address, timeout_s=10.0) as admin:
        assert [each.problem for each in admin.log_dirs()] == [problem]


def test_a_refused_description_names_the_broker(broker: ScriptedBroker) -> None:
    broker.on(DescribeLogDirsRequest, DescribeLogDirsResponse(error_code=31))
    refused = pytest.raises(ClientError, match="data folders of broker 1: not allowed")
    with Admin(broker.address, timeout_s=10.0) as admin, refused:
        admin.log_dirs()


def test_a_broker_that_does_not_answer_is_awaited_up_to_the_limit() -> None:
    with ScriptedBroker() as broker:
        address = broker.address
    with Admin(address, timeout_s=0.02) as admin, pytest.raises(UnreachableError):
        admin.describe_cluster()


def test_parts_belong_to_the_class() -> None:
    """So that `dir`, completion and `create_autospec` know them."""
    assert {"topics", "groups", "transactions"} <= set(dir(Admin))
    assert create_autospec(Admin).topics is not None


def test_parts_are_created_once(broker: ScriptedBroker) -> None:
    with Admin(broker.address, timeout_s=10.0) as admin:
        assert admin.topics is admin.topics
        assert [topic.name for topic in admin.topics.list()] == ["orders"]
        assert set(admin.describe_cluster().brokers) == {1}
