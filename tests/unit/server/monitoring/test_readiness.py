from __future__ import annotations

import pytest

from lakelog.server.monitoring.readiness import Check, ClusterStanding, Stage, checks
from lakelog.server.upkeep.shortages import DESCRIPTORS, SPACE


@pytest.mark.parametrize(
    ("stage", "failing"),
    [
        (Stage.STARTING, ["metadata", "recovered", "accepting"]),
        (Stage.RECOVERING, ["recovered", "accepting"]),
        (Stage.LOADING, ["recovered", "accepting"]),
        (Stage.SERVING, []),
        (Stage.STOPPING, ["accepting"]),
    ],
)
def test_what_fails_at_each_stage(stage: Stage, failing: list[str]) -> None:
    assert [check.name for check in checks(stage, [], {}) if not check.passes] == failing


@pytest.mark.parametrize("name", [SPACE, DESCRIPTORS])
def test_a_shortage_fails_the_check_of_its_name(name: str) -> None:
    failing = [
        check for check in checks(Stage.SERVING, [], {name: "none left"}) if not check.passes
    ]
    assert failing == [Check(name, "none left")]


def test_offline_partitions_are_named_some_of_them() -> None:
    (failing,) = (
        check
        for check in checks(Stage.SERVING, [("t", n, "a bad disk") for n in range(12)], {})
        if not check.passes
    )
    assert failing.name == "partitions"
    assert failing.reason.startswith("12 offline: t-0 (a bad disk), t-1 (a bad disk), ")
    assert failing.reason.endswith("t-9 (a bad disk) and 2 more")


def test_a_broker_that_is_fenced_or_cut_off_or_catches_up_is_not_ready() -> None:
    def failing(standing: ClusterStanding) -> dict[str, str]:
        found = checks(Stage.SERVING, [], {}, standing)
        return {check.name: check.reason for check in found if not check.passes}

    assert failing(ClusterStanding()) == {}
    assert failing(ClusterStanding(is_fenced=True)) == {
        "unfenced": "the controller has not unfenced this broker yet"
    }
    assert failing(ClusterStanding(is_cut_off=True)) == {
        "unfenced": "other brokers may have fenced this broker: neither the metadata store nor all "
        "other brokers confirm that it leads its partitions"
    }
    assert failing(ClusterStanding(behind=1)) == {
        "in_sync": "1 replica is catching up with the leader"
    }
