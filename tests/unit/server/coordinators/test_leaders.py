from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.server.coordinators.leaders import PartitionLeaders
from memory_broker import MemoryBroker

OWN, OTHER = 1, 2


class OtherBroker:
    """Answers each request with its time limit."""

    async def request(self, message: object, *, timeout_s: float) -> float:
        return timeout_s


def leaders_of(world: MemoryBroker) -> PartitionLeaders:
    peers: dict[int, Any] = {OTHER: OtherBroker()}
    return PartitionLeaders(OWN, lambda: world.broker.image, peers.get, 30.0)


def test_the_image_names_the_leader(world: MemoryBroker) -> None:
    world.create("orders", 3)
    world.change_leader("orders", OTHER, (OTHER,), index=1)
    world.change_leader("orders", -1, (OTHER,), index=2)
    leaders = leaders_of(world)
    assert [leaders.of("orders", index) for index in range(4)] == [OWN, OTHER, -1, None]
    assert leaders.of("gone", 0) is None


def test_partitions_are_grouped_by_their_leaders(world: MemoryBroker) -> None:
    world.create("orders", 3)
    before = world.broker.image.partition("orders", 1)
    assert before is not None
    world.change_leader("orders", OTHER, (OTHER,), index=1, raises=2)
    world.change_leader("orders", -1, (OTHER,), index=2)
    epoch = before.leader_epoch
    expected = {OWN: {0: epoch}, OTHER: {1: epoch + 2}, -1: {2: epoch + 1}}
    assert leaders_of(world).led("orders") == expected
    assert leaders_of(world).led("gone") == {}


def test_a_request_goes_to_a_leader_with_an_address(world: MemoryBroker) -> None:
    leaders, request = leaders_of(world), ApiVersionsRequest()
    assert world.run(leaders.request(OTHER, request)) == 30.0
    for without_address in (-1, 3):
        with pytest.raises(KafkaError) as raised:
            world.run(leaders.request(without_address, request))
        assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE
