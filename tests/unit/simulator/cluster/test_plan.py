"""Plans of clusters: each kills a broker, and produces to the cluster."""

from __future__ import annotations

from simulator.cluster.plan import (
    DEATHS,
    FAULTS,
    PRODUCING,
    STORES,
    WORKLOADS,
    ClusterPlan,
    cluster_plan_of,
)


def test_a_seed_has_one_plan_that_shows_something() -> None:
    plans = [cluster_plan_of(seed) for seed in range(1, 121)]
    for plan in plans:
        assert plan.faults & set(DEATHS)
        assert plan.workloads & set(PRODUCING)
    assert {plan.store for plan in plans} == set(STORES)
    assert plans == [cluster_plan_of(seed) for seed in range(1, 121)]


def test_all_brokers_lose_power_only_if_they_sync_every_record() -> None:
    plans = [cluster_plan_of(seed) for seed in range(1, 121)]
    dark = [plan for plan in plans if "power of all" in plan.faults]
    assert dark
    assert all(plan.is_durable for plan in dark)
    assert not all(plan.is_durable for plan in plans)


def test_each_fault_and_workload_is_drawn() -> None:
    plans = [cluster_plan_of(seed) for seed in range(1, 301)]
    assert set().union(*(plan.faults for plan in plans)) == set(FAULTS)
    later = {"reconfiguration", "administration", "compaction", "retention", "many partitions"}
    assert set().union(*(plan.workloads for plan in plans)) == {*WORKLOADS, *later, "growth"}


def test_a_cluster_that_grows_has_a_client_that_uses_its_new_brokers() -> None:
    plans = [cluster_plan_of(seed) for seed in range(1, 121)]
    grows = [plan for plan in plans if "new broker" in plan.faults]
    assert grows
    assert all("growth" in plan.workloads for plan in grows)
    assert any("removed broker" in plan.faults for plan in grows)
    assert all(plan in grows for plan in plans if "removed broker" in plan.faults)


def test_topics_have_a_replica_on_each_broker() -> None:
    plan = ClusterPlan()
    assert plan.replicas == 3
    assert plan.settings["min.insync.replicas"] == "2"
