"""Plans: every seed has a fault that kills brokers, and a producer."""

from __future__ import annotations

import pytest

from simulator.plan import DEATHS, DURABLE, FAULTS, PRODUCING, Plan, plan_of

SEEDS = range(1, 121)


def test_a_broker_dies_and_records_are_produced_in_every_plan() -> None:
    """Of 120 random plans without that rule, 43 killed no broker, and 37 produced nothing."""
    for plan in map(plan_of, SEEDS):
        assert plan.faults & set(DEATHS)
        assert plan.workloads & set(PRODUCING)


def test_all_faults_occur_with_durable_and_other_brokers() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    assert set(FAULTS) <= {fault for plan in plans for fault in plan.faults}
    assert {plan.is_durable for plan in plans} == {False, True}


@pytest.mark.parametrize("setting", DURABLE)
def test_either_setting_makes_a_plan_durable(setting: tuple[str, str]) -> None:
    plan = Plan()
    assert not plan.is_durable
    plan.settings.update([setting])
    assert plan.is_durable


def test_an_administrator_may_choose_the_largest_index_interval() -> None:
    assert Plan(workloads=frozenset({"administration"})).index_interval == 4096
    assert Plan(workloads=frozenset({"plain"})).index_interval == 200
