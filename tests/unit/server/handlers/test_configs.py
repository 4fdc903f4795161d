from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.describe_configs import ConfigSource
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
    ListConfigResourcesRequest,
)
from lakelog.server.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

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
    (result,) = world.ask(describe_configs, request, version).results
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


def resource(
    configs: dict[str, str | None], name: str = "orders", kind: int = ResourceType.TOPIC
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )


def codes(
    world: MemoryBroker, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[int]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [result.error_code for result in world.ask(alter_configs, request, 2).responses]


def test_all_settings_of_a_topic_are_replaced(world: MemoryBroker) -> None:
    world.create("orders", retention_ms="5", segment_bytes="2000000")
    assert codes(world, resource({"retention.ms": "7"})) == [E.NONE]
    assert world.partition("orders").log.config.retention_ms == 7
    assert dict(world.broker.image.configs(ResourceType.TOPIC, "orders")) == {"retention.ms": "7"}


def test_validation_changes_nothing(world: MemoryBroker) -> None:
    world.create("orders", retention_ms="5")
    assert codes(world, resource({}), validate_only=True) == [E.NONE]
    assert world.partition("orders").log.config.retention_ms == 5


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (resource({"no.such.key": "1"}), E.INVALID_CONFIG),
        (resource({"retention.ms": "soon"}), E.INVALID_CONFIG),
        (resource({"retention.ms": None}), E.INVALID_REQUEST),
        (resource({}, "gone"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (resource({}, "a b"), E.INVALID_TOPIC_EXCEPTION),
        (resource({}, "1", ResourceType.BROKER_LOGGER), E.INVALID_REQUEST),
        (resource({}, "1", 99), E.INVALID_REQUEST),
    ],
)
def test_a_bad_resource_does_not_keep_others_from_their_change(
    world: MemoryBroker, wanted: AlterConfigsResource, code: ErrorCode
) -> None:
    world.create("orders", retention_ms="5")
    world.create("clicks")
    assert codes(world, wanted, resource({"retention.ms": "7"}, "clicks")) == [code, E.NONE]
    assert world.partition("orders").log.config.retention_ms == 5
    assert world.partition("clicks").log.config.retention_ms == 7


def test_a_resource_named_twice_is_rejected(world: MemoryBroker) -> None:
    world.create("orders")
    assert set(codes(world, resource({}), resource({}))) == {E.INVALID_REQUEST}


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_change_fails_every_resource(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    wanted = resource({"retention.ms": "7"}), resource({"log.retention.ms": "7"}, "1", 4)
    assert codes(world, *wanted) == [code, code]


SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def change_of(
    *changes: Change, name: str = "orders", kind: int = ResourceType.TOPIC
) -> IncrementalResource:
    return IncrementalResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def codes_of_changes(
    world: MemoryBroker, *resources: IncrementalResource, validate_only: bool = False
) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [
        result.error_code for result in world.ask(incremental_alter_configs, request, 1).responses
    ]


def test_keys_that_are_not_named_keep_their_values(world: MemoryBroker) -> None:
    world.create("orders", retention_ms="5", cleanup_policy="delete", segment_bytes="2000000")
    changes = change_of(
        ("retention.ms", SET, "7"),
        ("segment.bytes", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert codes_of_changes(world, changes) == [E.NONE]
    assert dict(world.broker.image.configs(ResourceType.TOPIC, "orders")) == {
        "retention.ms": "7",
        "cleanup.policy": "delete,compact",
    }
    assert codes_of_changes(world, change_of(("cleanup.policy", SUBTRACT, "delete"))) == [E.NONE]
    policy = world.broker.image.configs(ResourceType.TOPIC, "orders")["cleanup.policy"]
    assert policy == "compact"


def test_a_broker_adopts_its_settings_at_once(world: MemoryBroker) -> None:
    change = change_of(("log.retention.ms", SET, "7"), name="1", kind=ResourceType.BROKER)
    assert codes_of_changes(world, change, validate_only=True) == [E.NONE]
    assert world.broker.config.get("log.retention.ms") != 7
    generation = world.broker.admission.generation
    assert codes_of_changes(world, change) == [E.NONE]
    assert world.broker.config.get("log.retention.ms") == 7
    assert world.broker.admission.generation > generation, "connections are admitted again"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (change_of(("no.such.key", SET, "1")), E.INVALID_CONFIG),
        (change_of(("retention.ms", SET, "soon")), E.INVALID_CONFIG),
        (change_of(("retention.ms", SET, None)), E.INVALID_REQUEST),
        (change_of(("retention.ms", APPEND, "1")), E.INVALID_CONFIG),
        (change_of(("retention.ms", 9, "1")), E.INVALID_REQUEST),
        (change_of(("retention.ms", SET, "1"), ("retention.ms", SET, "2")), E.INVALID_REQUEST),
        (change_of(name="gone"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (change_of(name="7", kind=ResourceType.BROKER), E.INVALID_REQUEST),
        (change_of(name="1", kind=99), E.INVALID_REQUEST),
        (
            change_of(("fetch.max.bytes", SET, "1"), name="1", kind=ResourceType.BROKER),
            E.INVALID_REQUEST,
        ),
    ],
)
def test_a_bad_change_does_not_stop_the_others(
    world: MemoryBroker, wanted: IncrementalResource, code: ErrorCode
) -> None:
    world.create("orders", retention_ms="5")
    world.create("clicks")
    good = change_of(("retention.ms", SET, "7"), name="clicks")
    assert codes_of_changes(world, wanted, good) == [code, E.NONE]
    assert world.partition("orders").log.config.retention_ms == 5
    assert world.partition("clicks").log.config.retention_ms == 7


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_increment_fails_every_resource(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert codes_of_changes(world, change_of(("retention.ms", SET, "7"))) == [code]


def ask_resources(world: MemoryBroker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = world.ask(list_config_resources, request, version)
    assert not response.error_code
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def configure_group(world: MemoryBroker) -> None:
    pairs = [("consumer.session.timeout.ms", "50000")]
    wanted = [Replacement(ResourceType.GROUP, "readers", pairs)]
    world.run(
        world.broker.metadata.submit(
            lambda image: plan_replace_configs(
                image, wanted, broker=world.broker.static_config, validate_only=False
            )
        )
    )


def test_each_type_has_its_resources(world: MemoryBroker) -> None:
    world.create("orders")
    world.create("clicks")
    configure_group(world)
    assert ask_resources(world, ResourceType.TOPIC) == [(2, "clicks"), (2, "orders")]
    assert ask_resources(world, ResourceType.GROUP) == [(32, "readers")]
    assert ask_resources(world, ResourceType.BROKER, ResourceType.BROKER_LOGGER) == [
        (4, "1"),
        (8, "1"),
    ]


def test_no_types_stand_for_all(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask_resources(world) == [(2, "orders"), (4, "1"), (8, "1")]


def test_version_0_asks_for_client_metrics_which_do_not_exist(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask_resources(world, version=0) == []


def test_an_unknown_type_is_an_error(world: MemoryBroker) -> None:
    request = ListConfigResourcesRequest(resource_types=[2, 99])
    response = world.ask(list_config_resources, request, 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not response.config_resources
