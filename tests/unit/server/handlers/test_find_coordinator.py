from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.keys import partition_for
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.server.handlers.find_coordinator import handle
from memory_broker import LOCAL, MemoryBroker
from memory_metadata import FAILED_CHANGES

GROUP, TRANSACTION, SHARE = range(3)
OTHER = 2


@pytest.mark.parametrize(
    ("kind", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_the_coordinator_s_topic_is_created_on_first_use(
    world: MemoryBroker, kind: int, topic: str
) -> None:
    for _ in range(2):
        request = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=kind)
        found = world.ask(handle, request, 6).coordinators
        assert [(each.key, each.node_id) for each in found] == [("a", 1), ("b", 1)]
        assert {(each.host, each.port) for each in found} == {LOCAL}
    assert world.partition(topic).is_online


@pytest.mark.parametrize(
    ("kind", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_the_leader_of_a_key_s_partition_coordinates_it(kind: int, topic: str) -> None:
    settings = {"offsets_topic_num_partitions": "8", "transaction_state_log_num_partitions": "8"}
    with MemoryBroker(**settings) as world:
        keys = [f"key {number}" for number in range(40)]
        request = FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
        world.ask(handle, request, 6)
        world.register(OTHER, "other.example", 9093)
        for index in (1, 4):
            world.change_leader(topic, OTHER, (OTHER,), index=index)
        world.change_leader(topic, -1, (OTHER,), index=5)
        world.change_leader(topic, 3, (3,), index=6)
        found = world.ask(handle, request, 6).coordinators
        for key, each in zip(keys, found, strict=True):
            assert (each.node_id, each.host, each.port, each.error_code) == {
                1: (OTHER, "other.example", 9093, ErrorCode.NONE),
                4: (OTHER, "other.example", 9093, ErrorCode.NONE),
                5: (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                6: (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            }.get(partition_for(key, 8), (1, *LOCAL, ErrorCode.NONE))
        assert {partition_for(key, 8) for key in keys} == set(range(8))


@pytest.mark.parametrize("version", [0, 3])
def test_before_version_4_a_request_has_one_key(world: MemoryBroker, version: int) -> None:
    response = world.ask(handle, FindCoordinatorRequest(key="readers"), version)
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 1)
    assert (response.host, response.port) == LOCAL


@pytest.mark.parametrize("kind", [SHARE, 7, -1])
def test_an_unknown_type_is_an_error(world: MemoryBroker, kind: int) -> None:
    request = FindCoordinatorRequest(key="k", key_type=kind)
    response = world.ask(handle, request, 3)
    assert (response.error_code, response.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    request = FindCoordinatorRequest(coordinator_keys=["k"], key_type=kind)
    (found,) = world.ask(handle, request, 4).coordinators
    assert (found.key, found.error_code) == ("k", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_without_its_topic_there_is_no_coordinator(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    request = FindCoordinatorRequest(coordinator_keys=["k"])
    (found,) = world.ask(handle, request, 6).coordinators
    assert (found.node_id, found.error_code) == (-1, code)
