from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.join_request import Join
from lakelog.coordinator.group.refusal import JoinRefusal
from lakelog.protocol.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)


class Sent:
    """The response and the reasons of one request of a version."""

    def __init__(self, version: int) -> None:
        self.responses: list[JoinGroupResponse] = []
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
        answer, explain = self.responses.append, self.reasons.append
        self.join = Join.of(request, version, "client", "/10.0.0.1", answer, explain)


def test_a_request_keeps_no_reference_into_the_receive_buffer() -> None:
    sent = Sent(9)
    sent.metadata[:] = b"......"
    assert sent.join.protocols == (("range", b"topics"),)


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    assert Sent(0).join.rebalance_timeout_ms == 30_000


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refusal_names_no_protocol(version: int, name: str | None) -> None:
    sent = Sent(version)
    sent.join.refuse(ErrorCode.UNKNOWN_MEMBER_ID, "m", "no such member")
    ((response,), (reason,)) = sent.responses, sent.reasons
    assert (response.error_code, response.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, name)
    assert (reason.group_id, reason.client_host) == ("g", "/10.0.0.1")
