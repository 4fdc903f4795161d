"""Committed offsets and instance ids of group members of both protocols."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from scripted_clients import Answer, ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.groups.member import DYNAMIC, GroupClient, Role

PLACE = ("topic", 0)


def committed(code: int = 0) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=[part])])


def fetched(offset: int, code: int = 0) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, error_code=code
    )
    topic = OffsetFetchResponseTopics(name="topic", partitions=[part])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="team", topics=[topic])])


def member(world: ScriptedWorld, role: Role = DYNAMIC) -> GroupClient:
    return GroupClient(world.context, "member", "team", [PLACE], role)


def commit(world: ScriptedWorld, client: GroupClient, answer: Answer) -> bool:
    world.answer(client, (OffsetCommitRequest, answer))
    return world.play(client.commit(PLACE, 3, "id"))


def fetch(world: ScriptedWorld, client: GroupClient, *answers: Answer, insist: bool = True) -> None:
    world.answer(client, *((OffsetFetchRequest, answer) for answer in answers))
    world.play(client.fetch_offset(PLACE, insist=insist))


@pytest.mark.parametrize(
    ("offset", "broken"),
    [(2, set()), (1, {Law.OFFSET_FORWARD}), (-1, {Law.OFFSET_KEPT}), (9, {Law.OFFSET_SENT})],
)
def test_a_fetch_finds_the_last_acknowledged_offset(offset: int, broken: set[Law]) -> None:
    with scripted_world() as world:
        client = member(world)
        assert commit(world, client, committed())
        assert commit(world, client, committed())
        fetch(world, client, fetched(offset))
        assert world.findings.broken == broken


def test_a_commit_without_a_response_may_or_may_not_be_done() -> None:
    for offset in (-1, 1):
        with scripted_world() as world:
            client = member(world)
            assert not commit(world, client, None)
            fetch(world, client, fetched(offset))
            assert not world.findings.violations


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.ILLEGAL_GENERATION, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, False),
        (ErrorCode.FENCED_INSTANCE_ID, False),  # the member is dynamic
    ],
)
def test_errors_of_a_commit(code: ErrorCode, expected: bool) -> None:
    with scripted_world() as world:
        assert not commit(world, member(world), committed(code))
        assert world.findings.broken == (set() if expected else {Law.ANSWERS})


def test_insisting_retries_lost_responses_and_unstable_offsets() -> None:
    unstable = fetched(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    with scripted_world() as world:
        client = member(world)
        fetch(world, client, None, unstable, fetched(-1))
        assert world.findings.counts["offsets fetched"] == 1
        fetch(world, client, unstable, fetched(-1), insist=False)
        assert world.findings.counts["offsets fetched"] == 1


def test_a_replaced_static_member_may_commit_nothing() -> None:
    with scripted_world() as world:
        client = member(world, Role("one"))
        client.held("id", 0.0, 0, written=True)
        assert commit(world, client, committed())
        assert not world.findings.violations
        world.members.holds("team", "one", "other", (20.0, 21.0), 0, written=True)
        assert commit(world, client, committed())
        assert world.findings.broken == {Law.FENCED_INSTANCE}


@pytest.mark.parametrize(("fault", "fenced"), [("kill", True), ("disk full", False)])
def test_a_takeover_that_may_not_be_written_fences_nothing(fault: str, fenced: bool) -> None:
    with scripted_world(fault) as world:
        client = member(world, Role("one"))
        client.was_fenced("id", 0)
        assert client.is_fenced("id") is fenced


@pytest.mark.parametrize(("role", "over"), [(Role("one"), False), (Role("one", rivals=True), True)])
def test_rivals_finish_before_the_group_settles(role: Role, over: bool) -> None:
    with scripted_world() as world:
        client = member(world, role)
        assert not client.is_over
        world.conditions.is_settling = True
        assert client.is_over is over
        world.conditions.is_ending = True
        assert client.is_over
