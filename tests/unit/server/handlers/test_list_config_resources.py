from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.records import ResourceType
from lakelog.protocol.configs import ListConfigResourcesRequest
from lakelog.server.handlers.list_config_resources import handle
from memory_broker import MemoryBroker


def ask(world: MemoryBroker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = world.ask(handle, request, version)
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
    assert ask(world, ResourceType.TOPIC) == [(2, "clicks"), (2, "orders")]
    assert ask(world, ResourceType.GROUP) == [(32, "readers")]
    assert ask(world, ResourceType.BROKER, ResourceType.BROKER_LOGGER) == [(4, "1"), (8, "1")]


def test_no_types_stand_for_all(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask(world) == [(2, "orders"), (4, "1"), (8, "1")]


def test_version_0_asks_for_client_metrics_which_do_not_exist(world: MemoryBroker) -> None:
    world.create("orders")
    assert ask(world, version=0) == []


def test_an_unknown_type_is_an_error(world: MemoryBroker) -> None:
    request = ListConfigResourcesRequest(resource_types=[2, 99])
    response = world.ask(handle, request, 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not response.config_resources
