"""Leaders and in-sync replicas after brokers are fenced and unfenced."""

from __future__ import annotations

import pytest

from lakelog.metadata.failover import (
    NO_LEADER,
    PartitionImage,
    elected_uncleanly,
    with_broker,
    without_broker,
)


def partition(isr: tuple[int, ...], leader: int) -> PartitionImage:
    return PartitionImage(0, (1, 2, 3), isr, leader, leader_epoch=5, partition_epoch=8)


@pytest.mark.parametrize(
    ("isr", "leader", "fenced", "new_isr", "new_leader", "epochs"),
    [
        ((1, 2, 3), 1, {1}, (2, 3), 2, (6, 9)),
        ((1, 3), 1, {1}, (3,), 3, (6, 9)),
        ((1, 2, 3), 2, {1}, (2, 3), 2, (5, 9)),
        ((2, 3), 2, {1}, (2, 3), 2, (5, 8)),
        ((1,), 1, {1}, (1,), NO_LEADER, (6, 9)),
        ((1,), NO_LEADER, {1}, (1,), NO_LEADER, (5, 8)),
    ],
    ids=["leader", "follower-of-two", "follower", "not-in-sync", "last", "last-again"],
)
def test_a_fenced_broker_leaves_unless_it_is_the_last(
    isr: tuple[int, ...],
    leader: int,
    fenced: set[int],
    new_isr: tuple[int, ...],
    new_leader: int,
    epochs: tuple[int, int],
) -> None:
    found = without_broker(partition(isr, leader), 1, fenced)
    assert (found.isr, found.leader) == (new_isr, new_leader)
    assert (found.leader_epoch, found.partition_epoch) == epochs


def test_only_the_last_in_sync_replica_leads_again() -> None:
    waiting = partition((1,), NO_LEADER)
    assert with_broker(waiting, 2) is waiting, "broker 2 may lack committed records"
    assert with_broker(waiting, 1) == waiting.led_by(1, (1,))
    led = partition((1, 2), 2)
    assert with_broker(led, 1) is led


def test_an_unclean_leader_is_the_first_replica_that_lives() -> None:
    waiting = partition((1,), NO_LEADER)
    assert elected_uncleanly(waiting, {1}) == waiting.led_by(2, (2,))
    assert elected_uncleanly(waiting, {1, 2, 3}) is waiting
