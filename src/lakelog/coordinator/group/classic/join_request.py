"""One JoinGroup request, as the coordinator keeps it until the rebalance completes, and refusals.

A refusal has a reason that the response has no field for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.member import (
    JoinReply,
    Protocols,
    protocols_bytes,
    protocols_size,
)
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Result
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupResponse

SUBSCRIPTION_TOO_LARGE = (
    "its subscription alone exceeds lakelog.group.subscriptions.max.bytes; subscribe to fewer "
    "topics or by a regular expression, or raise that limit"
)


class JoinRefusal(NamedTuple):
    """One refused JoinGroup; `member_id` is empty for a new member."""

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    code: ErrorCode
    reason: str
    """The cause, and what to do about it."""


def session_timeout_reason(session_timeout_ms: int, shortest: int, longest: int) -> str:
    """Return the reason of INVALID_SESSION_TIMEOUT; the limits are milliseconds."""
    return (
        f"its session.timeout.ms={session_timeout_ms} is not between {shortest} and {longest}; "
        "change it, or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker"
    )


_PROTOCOL_NAME_NULL_SINCE = 7

Explain = Callable[[JoinRefusal], object]


@dataclass(frozen=True, slots=True)
class Join:
    """One JoinGroup request without references into the receive buffer."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    subscription_bytes: int
    """Size of the subscription, as `Member.subscription_bytes`."""
    protocols_bytes: int
    """Estimated memory of the protocols, as `member.protocols_bytes`."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    version: int
    client_id: str
    client_host: str
    answer: JoinReply
    explain: Explain
    """Called with a refusal that the error code does not explain."""

    @staticmethod
    def of(
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        answer: JoinReply,
        explain: Explain = lambda _: None,
    ) -> Join:
        """Return a copy of the request; `answer` sends its response."""
        protocols = tuple(
            [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        )
        rebalance_timeout_ms = request.rebalance_timeout_ms
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = request.session_timeout_ms
        return Join(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=protocols,
            subscription_bytes=protocols_size(protocols) + len(request.group_instance_id or ""),
            protocols_bytes=protocols_bytes(protocols),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            version=version,
            client_id=client_id,
            client_host=client_host,
            answer=answer,
            explain=explain,
        )

    def reply(self, response: JoinGroupResponse) -> None:
        """Send the response. A missing protocol name is null, or empty before version 7."""
        name_required = self.version < _PROTOCOL_NAME_NULL_SINCE
        if response.error_code:
            response.protocol_name = "" if name_required else None
        elif response.protocol_name is None and name_required:
            response.protocol_name = ""
        self.answer(response)

    def refuse(self, code: ErrorCode, member_id: str = "", reason: str = "") -> Decision:
        """Reply with an error code, and return the empty decision."""
        if reason:
            ids = (self.group_id, self.member_id, self.client_id, self.client_host)
            self.explain(JoinRefusal(*ids, code, reason))
        self.reply(JoinGroupResponse(error_code=code, member_id=member_id))
        return Result()

    def refuse_member(self, code: ErrorCode) -> None:
        """Reply with an error code and the member's id, as a `Refuse` callback."""
        self.refuse(code, self.member_id)
