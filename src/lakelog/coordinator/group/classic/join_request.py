"""One JoinGroup request, which waits in its member until the rebalance completes, and refusals.

A refusal has a reason that the response has no field for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.classic.member import Protocols, protocols_bytes, protocols_size
from lakelog.coordinator.requests import settle
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


@dataclass(slots=True, kw_only=True, eq=False)
class Join(GroupRequest):
    """One JoinGroup request without references into the receive buffer."""

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
    explain: Explain
    """Called with a refusal that the error code does not explain."""

    @classmethod
    def of(
        cls,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        future: Any,
        explain: Explain = lambda _: None,
    ) -> Self:
        """Return a copy of the request; `future` gets its response."""
        protocols = tuple(
            [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        )
        rebalance_timeout_ms = request.rebalance_timeout_ms
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = request.session_timeout_ms
        return cls(
            future=future,
            key=request.group_id,
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
            explain=explain,
        )

    def answer(self, reply: JoinGroupResponse) -> None:
        """Send the response. A missing protocol name is null, or empty before version 7."""
        name_required = self.version < _PROTOCOL_NAME_NULL_SINCE
        if reply.error_code:
            reply.protocol_name = "" if name_required else None
        elif reply.protocol_name is None and name_required:
            reply.protocol_name = ""
        settle(self.future, reply)

    def refusal(self, code: ErrorCode, member_id: str = "", reason: str = "") -> JoinGroupResponse:
        """Return the response with an error code, after the reason has been explained."""
        if reason:
            ids = (self.key, self.member_id, self.client_id, self.client_host)
            self.explain(JoinRefusal(*ids, code, reason))
        return JoinGroupResponse(error_code=code, member_id=member_id)

    def refuse(self, code: ErrorCode) -> None:
        """Reply with an error code and the member's id."""
        self.answer(self.refusal(code, self.member_id))
