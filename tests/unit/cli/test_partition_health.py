from __future__ import annotations

import pytest

from lakelog.cli.partition_health import Candidates, candidate_listing, examine, health_document
from lakelog.client.admin.brokers import ReplicaEnd
from lakelog.client.view import Partition, Topic


def topic(name: str, *partitions: Partition) -> Topic:
    return Topic(name, bytes(16), partitions)


def test_the_gravest_problem_of_each_partition_is_named_first() -> None:
    orders = topic(
        "orders",
        Partition(0, 1, 4, (1, 2, 3), (1, 2, 3)),
        Partition(1, 1, 4, (1, 2, 3), (1, 2)),
        Partition(2, 1, 4, (1, 2, 3), (1,)),
        Partition(3, -1, 4, (1, 2, 3), (2,)),
    )
    events = topic("events", Partition(0, -1, 4, (3,), (3,)))
    found = examine([orders, events], {"orders": 2})
    assert [(each.topic, each.partition.partition, each.problem) for each in found] == [
        ("events", 0, "offline"),
        ("orders", 3, "offline"),
        ("orders", 2, "under-min-isr"),
        ("orders", 1, "under-replicated"),
    ]


def test_a_topic_with_fewer_replicas_than_the_minimum_is_healthy() -> None:
    single = topic("single", Partition(0, 1, 4, (1,), (1,)))
    assert examine([single], {"single": 2}) == []


def test_a_broker_that_does_not_serve_makes_the_cluster_unhealthy() -> None:
    assert health_document([], {1: "online"}, {}).data["is_healthy"] is True
    data = health_document([], {1: "online", 2: "fenced", 3: "unregistered"}, {}).data
    assert data["is_healthy"] is False
    assert (data["fenced_brokers"], data["unregistered_brokers"]) == ([2], [3])


def test_a_broker_that_is_named_does_not_pass_for_a_count() -> None:
    shown = health_document([], {1: "online", 2: "fenced"}, {}).facts
    assert (shown["fenced_brokers"], shown["unregistered_brokers"]) == (["id 2"], [])


def test_each_problem_is_counted_and_listed() -> None:
    ailing = examine([topic("t", Partition(0, -1, 4, (1, 2), (2,), offline_replicas=(1,)))], {})
    data = health_document(ailing, {1: "online", 2: "online"}, {}).data
    assert data["is_healthy"] is False
    assert (data["offline_partitions"], data["under_replicated_partitions"]) == (1, 0)
    (row,) = data["partitions"]
    assert (row["leader"], row["replicas"], row["isr"], row["min_isr"]) == (None, [1, 2], [2], 1)
    assert row["offline_replicas"] == [1]


def test_a_broker_that_cannot_write_makes_the_cluster_unhealthy() -> None:
    document = health_document([], {1: "online", 2: "online"}, {2: "no space left"})
    assert document.data["is_healthy"] is False
    assert document.data["unwritable_brokers"] == [2]
    assert document.data["data_folders"] == [{"broker": 2, "problem": "no space left"}]


def candidates(*ends: tuple[int, int] | None, preferred: tuple[int, ...] = ()) -> Candidates:
    numbered = enumerate(ends, 1)
    found = {number: ReplicaEnd(*end) for number, end in numbered if end is not None}
    return Candidates("t", 0, tuple(range(1, len(ends) + 1)), found, preferred)


@pytest.mark.parametrize(
    ("ends", "preferred", "best"),
    [
        ([(3, 5), (3, 9), (3, 7)], (), 2),
        ([(3, 90), (4, 9), (3, 95)], (), 2),
        ([None, None, (0, 1)], (), 3),
        ([(3, 5), (3, 5), (3, 5)], (), 1),
        ([(3, 5), (3, 5), (3, 5)], (2, 3), 3),
        ([(3, 6), (3, 5), None], (2, 3), 1),
        ([(-1, 0), None, None], (), 1),
        ([None, None], (), None),
    ],
    ids=["longest", "epoch", "only", "first", "latest", "longer", "empty", "none"],
)
def test_the_log_with_the_most_records_is_best(
    ends: list[tuple[int, int] | None], preferred: tuple[int, ...], best: int | None
) -> None:
    assert candidates(*ends, preferred=preferred).best == best


def test_the_listing_names_the_next_leader_and_missing_replicas() -> None:
    rows = candidate_listing([candidates((3, 5), None, (4, 6))]).rows
    assert [(row["replica"], row["last_epoch"], row["note"]) for row in rows] == [
        (1, 3, ""),
        (2, None, "no answer"),
        (3, 4, "would lead"),
    ]
