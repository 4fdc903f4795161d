from __future__ import annotations

import logging

import pytest

from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.records import ResourceType
from memory_broker import MemoryBroker

KEY = "log.retention.ms"


def store(world: MemoryBroker, value: str, name: str = "1", key: str = KEY) -> None:
    wanted = [Replacement(ResourceType.BROKER, name, [(key, value)])]
    results = world.run(
        world.broker.metadata.submit(
            lambda image: plan_replace_configs(
                image, wanted, broker=world.broker.static_config, validate_only=False
            )
        )
    )
    assert not results[0].error, results


def test_a_stored_setting_is_in_force_at_once(world: MemoryBroker) -> None:
    store(world, "7")
    assert world.broker.config.get(KEY) == 7


def test_the_setting_of_one_broker_comes_before_that_of_all(world: MemoryBroker) -> None:
    store(world, "7")
    store(world, "9", name="")
    assert world.broker.config.get(KEY) == 7


def test_the_command_line_holds_until_the_stored_value_changes(world: MemoryBroker) -> None:
    store(world, "7")
    world.restart(log_retention_ms="5")
    assert world.broker.config.get(KEY) == 5
    store(world, "3000000", name="", key="log.segment.bytes")
    assert world.broker.config.get(KEY) == 5
    store(world, "9")
    assert world.broker.config.get(KEY) == 9


def test_an_overruled_value_is_reported_at_the_start(
    world: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    store(world, "7")
    caplog.set_level(logging.WARNING, "lakelog")
    world.restart(log_retention_ms="5")
    (event,) = [vars(record) for record in caplog.records if record.levelno == logging.WARNING]
    assert (event["event"], event["fields"]) == ("stored_setting_overruled", {"key": KEY})
    assert "lakelog config set --broker 1 --unset" in caplog.text


def test_an_equal_stored_value_is_not_reported(
    world: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    store(world, "7")
    caplog.set_level(logging.WARNING, "lakelog")
    caplog.clear()  # the level of another test may have been in force until now
    world.restart(log_retention_ms="7")
    assert not caplog.records
