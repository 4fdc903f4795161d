"""Plans of clusters: each kills a broker, and produces to the cluster."""

from __future__ import annotations

from lakelog.testing.simulation.cluster.plan import (
    DEATHS,
    PRODUCING,
    STORES,
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


def test_topics_have_a_replica_on_each_broker() -> None:
    plan = ClusterPlan()
    assert plan.replicas == 3
    assert plan.settings["min.insync.replicas"] == "2"
