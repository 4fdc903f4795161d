from __future__ import annotations

import logging

import pytest

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerRecord,
    BrokerUnfenced,
    ClusterRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from lakelog.server.event_log.election_log import log_elections, log_leaderless

TOPIC = b"t" * 16


def image(*partitions: tuple[tuple[int, ...], tuple[int, ...], int]) -> MetadataImage:
    """Return three brokers and a topic; each partition has replicas, ISR and leader."""
    brokers = [BrokerRecord(node_id, bytes([node_id]) * 16, 1, (), None) for node_id in (1, 2, 3)]
    records: list[Record] = [ClusterRecord("c"), *brokers, TopicRecord("orders", TOPIC)]
    for index, (replicas, isr, leader) in enumerate(partitions):
        records.append(PartitionRecord(TOPIC, index, replicas, isr, leader, 0, 0))
    return MetadataImage().apply_all(records, 1)


def lines(
    caplog: pytest.LogCaptureFixture, node_id: int, old: MetadataImage, *records: Record
) -> list[str]:
    caplog.clear()
    caplog.set_level(logging.INFO)
    log_elections(node_id, old, old.apply_all(records, old.end + 1), records)
    return [record.getMessage() for record in caplog.records]


BOTH = image(((2, 1), (2, 1), 2), ((2, 3), (2, 3), 2), ((2, 1), (2,), 2))


def test_a_new_leader_names_its_partitions_and_the_fenced_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    elected, leaderless = lines(caplog, 1, BOTH, BrokerFenced(2, 1))
    assert elected == "Broker 2 was fenced: this broker leads orders-0"
    assert leaderless.startswith("Broker 2 was fenced: orders-2 cannot be written or read")


def test_brokers_that_are_fenced_together_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    alone = image(((2, 3, 1), (2, 3, 1), 2))
    (line,) = lines(caplog, 1, alone, BrokerFenced(2, 1), BrokerFenced(3, 1))
    assert line == "Brokers 2, 3 were fenced: this broker leads orders-0"


def test_a_broker_that_is_not_concerned_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    full = image(((2, 1), (2, 1), 2))
    assert lines(caplog, 3, full, BrokerFenced(2, 1)) == []
    assert lines(caplog, 3, full, BrokerRecord(3, b"n" * 16, 2, (), None)) == []


def test_a_former_leader_names_the_partitions_that_it_has_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved = PartitionRecord(TOPIC, 0, (2, 1), (2, 1), 1, 1, 1)
    (line,) = lines(caplog, 2, BOTH, moved)
    assert line == "Leaders were elected: this broker leads no longer orders-0"


def test_many_partitions_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    many = image(*[((2, 1), (2, 1), 2)] * 100)
    (line,) = lines(caplog, 1, many, BrokerFenced(2, 1))
    assert "orders-0, orders-1, orders-2 and 97 more" in line


def test_a_leader_that_returns_is_said_to_be_unfenced(caplog: pytest.LogCaptureFixture) -> None:
    alone = image(((2,), (2,), 2))
    fenced = alone.apply_all([BrokerFenced(2, 1)], 2)
    (line,) = lines(caplog, 2, fenced, BrokerUnfenced(2, 1))
    assert line.startswith("Broker 2 was unfenced: this broker leads orders-0")


def test_the_loss_of_the_last_eligible_replica_needs_an_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its partition has had no leader before."""
    last = image(((2, 1), (2,), 2)).apply_all([BrokerFenced(2, 1)], 2)
    (line,) = lines(caplog, 1, last, BrokerLost(2, 1, keeps_folder=False))
    assert line.startswith("Broker 2 may have lost records: no replica of orders-0 is known")
    assert "lakelog topic elect --unclean" in line
    lost = last.apply(BrokerLost(2, 1, keeps_folder=False))
    assert lines(caplog, 1, lost, BrokerUnfenced(2, 1)) == []
    assert lines(caplog, 1, lost, PartitionRecord(TOPIC, 0, (2, 1), (1,), 1, 9, 9)) != []


def test_a_sole_replica_that_kept_its_folder_needs_no_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fenced = image(((2,), (2,), 2)).apply_all([BrokerFenced(2, 1)], 2)
    assert lines(caplog, 1, fenced, BrokerLost(2, 1, keeps_folder=True)) == []


def test_a_start_names_partitions_that_wait_for_another_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down = image(((2, 1), (2,), 2), ((1, 2), (1,), 1), ((3,), (3,), 3))
    down = down.apply_all([BrokerFenced(node_id, 1) for node_id in (1, 2)], 2)
    log_leaderless(1, down)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("At the start: orders-0 cannot be written or read")
    caplog.clear()
    log_leaderless(1, down.apply(BrokerLost(1, 1, keeps_folder=False)))
    _, line = [record.getMessage() for record in caplog.records]
    assert line.startswith("At the start: no replica of orders-1 is known")
    caplog.clear()
    log_leaderless(3, image(((2, 1), (2,), 2)))
    assert caplog.records == []
