"""Times of consumer groups: the bounds of the broker, and the settings of single groups."""

from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.config.keys.groups import (
    GROUP_CONFIGS,
    check_consumer_group_keys,
    check_group_configs,
    consumer_bounds,
    group_times,
)

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
DEFAULTS = BrokerConfig({}).get_int


def test_defaults_do_not_contradict_each_other() -> None:
    check_consumer_group_keys(DEFAULTS)
    check_group_configs({}, DEFAULTS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"session.timeout.ms": 44_999}, r"session\.timeout\.ms=44999: allowed: 45000 to 60000"),
        ({"session.timeout.ms": 60_001}, "allowed: 45000 to 60000"),
        ({"max.heartbeat.interval.ms": 4_000}, r"heartbeat\.interval\.ms=5000: allowed"),
        ({"assignment.interval.ms": 15_001}, "allowed: 0 to 15000"),
        (
            {"min.session.timeout.ms": 1, "session.timeout.ms": 5_000},
            r"heartbeat\.interval\.ms=5000: not below .*session\.timeout\.ms=5000",
        ),
    ],
)
def test_contradicting_keys_of_a_broker_are_rejected(values: dict[str, int], message: str) -> None:
    settings = {f"group.consumer.{name}": value for name, value in values.items()}
    with pytest.raises(ConfigError, match=message):
        check_consumer_group_keys(lambda name: settings.get(name, DEFAULTS(name)))


def test_a_group_may_use_the_whole_range_of_the_broker() -> None:
    for name in GROUP_CONFIGS:
        for value in consumer_bounds(name, DEFAULTS):
            check_group_configs({name: str(value)}, DEFAULTS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({SESSION: "44999"}, "must be in the range 45000 to 60000 inclusive"),
        ({SESSION: "60001"}, "must be in the range 45000 to 60000 inclusive"),
        ({SESSION: "soon"}, "not a whole number"),
        ({ASSIGNMENT: "-1"}, "0 or more"),
    ],
)
def test_a_setting_of_a_group_has_the_bounds_of_the_broker(
    values: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_group_configs(values, DEFAULTS)


def test_a_member_must_be_able_to_send_a_heartbeat_within_its_session() -> None:
    wide = BrokerConfig({"group.consumer.min.session.timeout.ms": "6000"}).get_int
    check_group_configs({SESSION: "6001", HEARTBEAT: "6000"}, wide)
    for values in ({SESSION: "6000", HEARTBEAT: "6000"}, {SESSION: "6000", HEARTBEAT: "15000"}):
        with pytest.raises(ConfigError, match=rf"{SESSION}=6000: must be greater than {HEARTBEAT}"):
            check_group_configs(values, wide)


def test_a_stored_setting_is_limited_to_the_present_bounds() -> None:
    """The bounds may have become narrower since a group's setting was stored."""
    assert group_times({SESSION: "1", HEARTBEAT: "99999"}, DEFAULTS) == {
        SESSION: 45_000,
        HEARTBEAT: 15_000,
        ASSIGNMENT: 1_000,
    }


def test_settings_that_a_newer_version_stored_are_ignored() -> None:
    assert group_times({"share.record.lock.duration.ms": "x"}, DEFAULTS) == {ASSIGNMENT: 1_000}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("group.consumer.assignors", "range", "sticky"),
        ("group.consumer.assignors", "range,uniform", ""),
        ("group.consumer.migration.policy", "UPGRADE", "sideways"),
        ("group.coordinator.rebalance.protocols", "classic", ""),
        ("group.coordinator.rebalance.protocols", "classic,consumer", "classic,paxos"),
    ],
)
def test_choices_are_checked(name: str, good: str, bad: str) -> None:
    BROKER_CONFIGS[name].parse(good)
    with pytest.raises(ConfigError, match="allowed: "):
        BROKER_CONFIGS[name].parse(bad)
