from __future__ import annotations

import logging

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.metadata.controller.brokers import plan_register_broker
from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.records import ResourceType
from lakelog.protocol.cluster import DescribeClusterRequest
from lakelog.server.broker import Node
from lakelog.server.handlers.cluster import describe_cluster
from memory_broker import LOCAL, MemoryBroker


def register(world: MemoryBroker, broker_id: int, *endpoints: Endpoint) -> None:
    world.run(
        world.broker.metadata.submit(
            lambda image: plan_register_broker(
                image, broker_id, bytes([broker_id]) * 16, endpoints=endpoints, rack="r2"
            )
        )
    )


def nodes(world: MemoryBroker) -> list[Node]:
    """Return the brokers as a client of the listener PLAINTEXT sees them."""
    context = world.start(describe_cluster, DescribeClusterRequest(), 0).context
    return world.broker.nodes_for(context.connection)


def test_other_brokers_are_known_by_the_listener_of_the_client(world: MemoryBroker) -> None:
    register(world, 2, Endpoint("INSIDE", "10.0.0.2", 1), Endpoint("PLAINTEXT", "b2", 2))
    register(world, 3, Endpoint("INSIDE", "10.0.0.3", 3))
    register(world, 4)
    assert nodes(world) == [
        Node(1, *LOCAL),
        Node(2, "b2", 2, "r2"),
        Node(3, "10.0.0.3", 3, "r2"),
    ]


def test_a_new_configuration_has_connections_admitted_again(world: MemoryBroker) -> None:
    """A cached request holds limits of the configuration."""
    broker = world.broker
    generation = broker.admission.generation
    broker.use_config(BrokerConfig({"fetch.max.bytes": "4096"}))
    assert broker.fetch_bytes_max == 4096
    assert broker.admission.generation > generation


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
