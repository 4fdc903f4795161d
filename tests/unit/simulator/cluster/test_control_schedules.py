"""Each schedule about the controller and coordinators comes about, and the cluster survives it."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.producers.state import ProducerStateTable
from simulator.brokers.host import BrokerHost
from simulator.cluster import control_schedules
from simulator.cluster.control_schedules import ControlSchedules, Owed
from simulator.cluster.plan import CLASSIC, NEW_TOPICS, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import WorldOutcome, run_world


def run(schedule: str, workload: str, seed: int, seconds: float = 3.0) -> WorldOutcome:
    plan = ClusterPlan(seconds, frozenset({workload}), frozenset({schedule}))
    outcome = run_world(ClusterWorld(seed, plan))
    assert outcome.violations == ()
    assert outcome.faults[schedule] >= 1
    return outcome


def test_a_deposed_controller_wakes_beside_another_one() -> None:
    """Whether a replica has left its ISR by then depends on the seed."""
    outcomes = (run("deposed controller", "topics", seed) for seed in range(1, 10))
    assert any(outcome.counts.get("replicas in sync again") for outcome in outcomes)


@pytest.mark.long
def test_a_coordinator_owes_a_marker_to_a_leader_that_it_cannot_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    has_begun_again = control_schedules._has_begun_again

    def noting(leader: BrokerHost, owed: set[Owed]) -> bool:
        seen.append(owed)
        return has_begun_again(leader, owed)

    monkeypatch.setattr(control_schedules, "_has_begun_again", noting)
    seeds = iter(range(1, 10))
    while not any(seen):
        run("stuck marker", CLASSIC, next(seeds))


@pytest.mark.long
def test_a_marker_arrives_after_its_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """And amid the next transaction of its producer, which it does not end."""
    refused: list[int] = []
    check = ProducerStateTable.check_marker

    def noting(self: ProducerStateTable, producer_id: int, *rest: Any) -> None:
        try:
            check(self, producer_id, *rest)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                refused.append(producer_id)
            raise

    monkeypatch.setattr(ProducerStateTable, "check_marker", noting)
    seeds = iter(range(1, 10))
    while not refused:
        run("late marker", CLASSIC, next(seeds), 6.0)


@pytest.mark.long
def test_a_broker_leads_a_partition_of_a_topic_that_it_has_not_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[object] = []
    unheard = ControlSchedules._unheard

    def noting(self: ControlSchedules, host: BrokerHost) -> object:
        partition = unheard(self, host)
        found.append(partition)
        return partition

    monkeypatch.setattr(ControlSchedules, "_unheard", noting)
    seeds = iter(range(1, 10))
    while not any(found):
        run("unheard topic", NEW_TOPICS, next(seeds), 10.0)
