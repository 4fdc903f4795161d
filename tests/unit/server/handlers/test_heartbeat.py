from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import HeartbeatRequest
from lakelog.server.handlers import join_group
from lakelog.server.handlers.heartbeat import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, join_and_sync, join_request

E = ErrorCode


def beat(world: MemoryBroker, member_id: str, generation: int, version: int = 4) -> int:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return world.ask(handle, request, version).error_code


@pytest.mark.parametrize("version", [0, 4])
def test_a_member_lives_while_it_sends_heartbeats(coordinators: MemoryBroker, version: int) -> None:
    joined = join_and_sync(coordinators)
    member = joined.member_id, joined.generation_id
    for _ in range(3):
        coordinators.pass_time(9)
        assert beat(coordinators, *member, version) == E.NONE
    coordinators.pass_time(11)
    assert beat(coordinators, *member, version) == E.UNKNOWN_MEMBER_ID


def test_a_heartbeat_reports_a_rebalance(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    given = coordinators.ask(join_group.handle, join_request(), 9)
    coordinators.start(join_group.handle, join_request(given.member_id), 9)
    member = joined.member_id, joined.generation_id
    assert beat(coordinators, *member) == E.REBALANCE_IN_PROGRESS


def test_strangers_and_other_generations_are_rejected(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    assert beat(coordinators, "unknown", joined.generation_id) == E.UNKNOWN_MEMBER_ID
    assert beat(coordinators, joined.member_id, 99) == E.ILLEGAL_GENERATION


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert beat(world, "m", 1) == E.NOT_COORDINATOR
