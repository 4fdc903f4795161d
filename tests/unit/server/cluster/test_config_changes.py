from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.configs import ConfigResult, Replacement, plan_replace_configs
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.api import Outcome
from lakelog.server.cluster.config_changes import submit
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

WANTED = [
    Replacement(ResourceType.TOPIC, "orders", [("retention.ms", "7")]),
    Replacement(ResourceType.TOPIC, "gone", []),
]


def change(world: MemoryBroker) -> list[ConfigResult]:
    return world.run(
        submit(
            world.broker.metadata,
            WANTED,
            lambda image: plan_replace_configs(
                image, WANTED, broker=world.broker.static_config, validate_only=False
            ),
        )
    )


def test_each_resource_has_its_result(world: MemoryBroker) -> None:
    world.create("orders")
    assert [(each.resource_name, each.error) for each in change(world)] == [
        ("orders", ErrorCode.NONE),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_change_that_fails_is_the_result_of_each(
    world: MemoryBroker, fault: MetadataError | Outcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert [(each.resource_name, each.error) for each in change(world)] == [
        ("orders", code),
        ("gone", code),
    ]
