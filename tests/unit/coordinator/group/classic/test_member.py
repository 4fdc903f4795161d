"""Members in the format of the log, and JoinGroup requests with the reasons of their refusals."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from coordinator_members import GROUP, join
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.member import (
    JoinRefusal,
    Member,
    member_record,
    session_timeout_reason,
    stored_member,
)
from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.coordinator.group.requests import JoinGroup
from lakelog.protocol.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

MEMBER = Member(
    member_id="m",
    instance_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=20_000,
    session_timeout_ms=10_000,
    protocols=(("range", b"subscription"),),
    assignment=b"assignment",
)


@pytest.mark.parametrize("timeout_ms", [20_000, -1])
def test_without_a_rebalance_timeout_the_session_timeout_counts(timeout_ms: int) -> None:
    """Records of version 0 have no rebalance timeout."""
    record = member_record(MEMBER, "range", b"assignment")
    record.rebalance_timeout = timeout_ms
    member = stored_member(record, "range")
    assert member.rebalance_timeout_ms == (20_000 if timeout_ms > 0 else 10_000)
    assert (member.member_id, member.session_timeout_ms) == ("m", 10_000)
    assert member.protocols == MEMBER.protocols


@pytest.mark.parametrize(("asked", "taken"), [(-1, 10_000), (0, 0), (1, 1)])
def test_the_session_timeout_stands_in_for_a_rebalance_timeout_not_sent(
    asked: int, taken: int
) -> None:
    request = JoinGroupRequest(session_timeout_ms=10_000, rebalance_timeout_ms=asked)
    made = JoinGroup.of(request, 1, "client", "/127.0.0.1", Future())
    assert made.rebalance_timeout_ms == taken


class Sent:
    """The response and the reasons of one request of a version."""

    def __init__(self, version: int) -> None:
        self.reasons: list[JoinRefusal] = []
        self.metadata = bytearray(b"topics")
        protocols = [JoinGroupRequestProtocol(name="range", metadata=memoryview(self.metadata))]
        request = JoinGroupRequest(
            group_id="g",
            member_id="m",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=-1,
            protocol_type="consumer",
            protocols=protocols,
        )
        self.future = Future[JoinGroupResponse]()
        explain = self.reasons.append
        self.join = JoinGroup.of(request, version, "client", "/10.0.0.1", self.future, explain)


def test_a_request_keeps_no_reference_into_the_receive_buffer() -> None:
    sent = Sent(9)
    sent.metadata[:] = b"......"
    assert sent.join.protocols == (("range", b"topics"),)


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout() -> None:
    assert Sent(0).join.rebalance_timeout_ms == 30_000


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refusal_names_no_protocol(version: int, name: str | None) -> None:
    sent = Sent(version)
    sent.join.answer(sent.join.refusal(ErrorCode.UNKNOWN_MEMBER_ID, "m", "no such member"))
    response, (reason,) = sent.future.result(), sent.reasons
    assert (response.error_code, response.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, name)
    assert (reason.group_id, reason.client_host) == ("g", "/10.0.0.1")


def _noted(setup: Setup) -> list[JoinRefusal]:
    """Replace the coordinator and append its refusals to the returned list."""
    refusals: list[JoinRefusal] = []
    setup.coordinator = GroupCoordinator(
        setup.config,
        setup.clock,
        setup.tasks,
        setup.random,
        setup.log,
        setup.topics,
        memory=setup.memory,
        join_refused=refusals.append,
    )
    return refusals


def test_the_reason_names_the_client_setting_its_limits_and_their_keys() -> None:
    reason = session_timeout_reason(5, 6000, 30_000)
    assert "session.timeout.ms=5 is not between 6000 and 30000" in reason
    assert "group.min.session.timeout.ms" in reason
    assert "group.max.session.timeout.ms" in reason


@in_virtual_time(session_timeout_min_ms=6000, session_timeout_max_ms=30_000)
async def test_session_timeouts_outside_the_limits_are_rejected_with_a_reason(
    setup: Setup,
) -> None:
    setup.coordinator.close()
    refusals = _noted(setup)
    await setup.start()
    for timeout_ms in (5999, 30_001):
        answer = await join(setup, session_timeout_ms=timeout_ms, client_id="app")
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    for timeout_ms in (6000, 30_000):
        answer = await join(setup, session_timeout_ms=timeout_ms)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert [each.code for each in refusals] == [ErrorCode.INVALID_SESSION_TIMEOUT] * 2
    first = refusals[0]
    assert (first.group_id, first.client_id, first.client_host) == (GROUP, "app", "/127.0.0.1")
    assert first.member_id == ""
    assert first.reason == session_timeout_reason(5999, 6000, 30_000)


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_a_subscription_beyond_the_limit_is_rejected_with_its_key(setup: Setup) -> None:
    setup.coordinator.close()
    refusals = _noted(setup)
    await setup.start()
    answer = await join(setup, protocols=(("range", bytes(1001)),))
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    (refusal,) = refusals
    assert "lakelog.group.subscriptions.max.bytes" in refusal.reason
