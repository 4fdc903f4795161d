from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.describe_configs import ConfigSource
from lakelog.metadata.records import ResourceType
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from lakelog.server.handlers.describe_configs import handle
from memory_broker import MemoryBroker

E = ErrorCode
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


def ask(
    world: MemoryBroker,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    details: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource, resource],
        include_synonyms=details,
        include_documentation=details and version >= 3,
    )
    (result,) = world.ask(handle, request, version).results
    return result


def test_a_topic_has_its_own_settings_before_the_defaults(world: MemoryBroker) -> None:
    world.create("orders", retention_ms="5000")
    found = {each.name: each for each in ask(world, TOPIC, "orders").configs}
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == (
        "5000",
        ConfigSource.TOPIC,
    )
    assert found["segment.bytes"].config_source == ConfigSource.DEFAULT


def test_only_the_named_keys_are_described(world: MemoryBroker) -> None:
    world.create("orders")
    found = ask(world, TOPIC, "orders", ["segment.bytes", "no.such.key"]).configs
    assert [each.name for each in found] == ["segment.bytes"]


def test_synonyms_and_documentation_come_on_request() -> None:
    with MemoryBroker(log_retention_ms="7000") as world:
        world.create("orders")
        (plain,) = ask(world, TOPIC, "orders", ["retention.ms"]).configs
        assert not plain.synonyms and not plain.documentation
        (full,) = ask(world, TOPIC, "orders", ["retention.ms"], details=True).configs
        assert (full.synonyms[0].name, full.synonyms[0].value) == ("log.retention.ms", "7000")
        assert full.documentation
        (old,) = ask(world, TOPIC, "orders", ["retention.ms"], version=2, details=True).configs
        assert old.synonyms and not old.documentation


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "gone", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a b", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", E.INVALID_REQUEST),
        (BROKER, "one", E.INVALID_REQUEST),
        (GROUP, "", E.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", E.INVALID_REQUEST),
        (99, "x", E.INVALID_REQUEST),
    ],
)
def test_an_unknown_resource_has_an_error_and_no_settings(
    world: MemoryBroker, kind: int, name: str, code: ErrorCode
) -> None:
    result = ask(world, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert result.error_message


def test_a_broker_has_static_settings_and_all_brokers_have_none(world: MemoryBroker) -> None:
    assert [each.value for each in ask(world, BROKER, "1", ["node.id"]).configs] == ["1"]
    assert ask(world, BROKER, "").configs == []


def test_a_group_has_settings_before_it_exists(world: MemoryBroker) -> None:
    result = ask(world, GROUP, "readers")
    assert "consumer.session.timeout.ms" in {each.name for each in result.configs}
