from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from lakelog.server.handlers.alter_configs import handle
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode


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
    return [result.error_code for result in world.ask(handle, request, 2).responses]


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
