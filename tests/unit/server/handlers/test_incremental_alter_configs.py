from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from lakelog.server.handlers.incremental_alter_configs import handle
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def resource(
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


def codes(
    world: MemoryBroker, *resources: IncrementalResource, validate_only: bool = False
) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [result.error_code for result in world.ask(handle, request, 1).responses]


def test_keys_that_are_not_named_keep_their_values(world: MemoryBroker) -> None:
    world.create("orders", retention_ms="5", cleanup_policy="delete", segment_bytes="2000000")
    changes = resource(
        ("retention.ms", SET, "7"),
        ("segment.bytes", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert codes(world, changes) == [E.NONE]
    assert dict(world.broker.image.configs(ResourceType.TOPIC, "orders")) == {
        "retention.ms": "7",
        "cleanup.policy": "delete,compact",
    }
    assert codes(world, resource(("cleanup.policy", SUBTRACT, "delete"))) == [E.NONE]
    policy = world.broker.image.configs(ResourceType.TOPIC, "orders")["cleanup.policy"]
    assert policy == "compact"


def test_a_broker_adopts_its_settings_at_once(world: MemoryBroker) -> None:
    change = resource(("log.retention.ms", SET, "7"), name="1", kind=ResourceType.BROKER)
    assert codes(world, change, validate_only=True) == [E.NONE]
    assert world.broker.config.get("log.retention.ms") != 7
    generation = world.broker.admission.generation
    assert codes(world, change) == [E.NONE]
    assert world.broker.config.get("log.retention.ms") == 7
    assert world.broker.admission.generation > generation, "connections are admitted again"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (resource(("no.such.key", SET, "1")), E.INVALID_CONFIG),
        (resource(("retention.ms", SET, "soon")), E.INVALID_CONFIG),
        (resource(("retention.ms", SET, None)), E.INVALID_REQUEST),
        (resource(("retention.ms", APPEND, "1")), E.INVALID_CONFIG),
        (resource(("retention.ms", 9, "1")), E.INVALID_REQUEST),
        (resource(("retention.ms", SET, "1"), ("retention.ms", SET, "2")), E.INVALID_REQUEST),
        (resource(name="gone"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(name="7", kind=ResourceType.BROKER), E.INVALID_REQUEST),
        (resource(name="1", kind=99), E.INVALID_REQUEST),
        (
            resource(("fetch.max.bytes", SET, "1"), name="1", kind=ResourceType.BROKER),
            E.INVALID_REQUEST,
        ),
    ],
)
def test_a_bad_resource_does_not_keep_others_from_their_change(
    world: MemoryBroker, wanted: IncrementalResource, code: ErrorCode
) -> None:
    world.create("orders", retention_ms="5")
    world.create("clicks")
    good = resource(("retention.ms", SET, "7"), name="clicks")
    assert codes(world, wanted, good) == [code, E.NONE]
    assert world.partition("orders").log.config.retention_ms == 5
    assert world.partition("clicks").log.config.retention_ms == 7


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_change_fails_every_resource(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert codes(world, resource(("retention.ms", SET, "7"))) == [code]
