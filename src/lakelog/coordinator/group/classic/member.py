"""A member of a classic group, and the JoinGroup that waits in it until the rebalance completes.

A refusal of JoinGroup has a reason that the response has no field for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.limits import ENTRY_BYTES
from lakelog.coordinator.group.records import MemberMetadata
from lakelog.coordinator.requests import complete
from lakelog.protocol.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse


class Parked(Protocol):
    """A request whose reply comes later: when its group is complete, or it can no longer be."""

    def answer(self, reply: Any) -> None:
        """Send the response, once."""
        ...


Protocols = tuple[tuple[str, bytes], ...]
"""Assignors of a member, the preferred one first, each with the member's subscription."""

_MEMBER_BYTES = 1024
"""Memory of a member with its session timer."""
_PROTOCOL_BYTES = 256
"""Memory of an assignor without its name and the subscription."""


def protocols_size(protocols: Protocols) -> int:
    """Return the size of a member's assignors in bytes; names count in characters."""
    return sum([len(name) + len(data) + ENTRY_BYTES for name, data in protocols])


def protocols_bytes(protocols: Protocols) -> int:
    """Return the memory of a member's assignors with their subscriptions, in bytes."""
    return sum([_PROTOCOL_BYTES + len(name) + len(data) for name, data in protocols])


@dataclass(slots=True, eq=False)
class Member:
    """A live member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has not been in a generation yet."""
    join: Parked | None = None
    """Its JoinGroup, until all members have joined or the join phase ends."""
    sync: Parked | None = None
    """Its SyncGroup, until the assignment is committed."""

    @property
    def expires(self) -> bool:
        """Whether a session timeout removes the member.

        A member that waits for a reply sends no heartbeats.
        """
        return self.is_new or (self.join is None and self.sync is None)

    @property
    def subscription_bytes(self) -> int:
        """Size of the member's subscription in bytes, bounded for all members together."""
        return protocols_size(self.protocols) + len(self.instance_id or "")

    @property
    def memory(self) -> int:
        """Estimated memory in bytes, without the assignment, which the stored generation has."""
        names = (self.member_id, self.instance_id, self.client_id, self.client_host)
        return _MEMBER_BYTES + protocols_bytes(self.protocols) + sum(map(text_bytes, names))

    def metadata(self, protocol: str | None) -> bytes:
        """Return the subscription for an assignor, empty if the member does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def park_join(self, request: Parked) -> None:
        """Keep a JoinGroup; an older one has been answered."""
        assert self.join is None, "a parked request would not be answered"
        self.join = request

    def park_sync(self, request: Parked) -> None:
        """Keep a SyncGroup; an older one has been answered."""
        assert self.sync is None, "a parked request would not be answered"
        self.sync = request

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Reply to the parked JoinGroup, if any."""
        request, self.join = self.join, None
        if request is not None:
            request.answer(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Reply to the parked SyncGroup, if any; return whether there was one."""
        request, self.sync = self.sync, None
        if request is not None:
            request.answer(response)
        return request is not None


def member_record(member: Member, protocol: str | None, assignment: bytes) -> MemberMetadata:
    """Return a member in the format of the log."""
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def stored_member(stored: MemberMetadata, protocol: str | None) -> Member:
    """Return a live member from its stored form."""
    rebalance_timeout_ms = stored.rebalance_timeout
    # Records of version 0 have no rebalance timeout: it came with KIP-62.
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocols=((protocol or "", bytes(stored.subscription)),),
        assignment=bytes(stored.assignment),
    )


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
        complete(self.future, reply)

    def refusal(self, code: ErrorCode, member_id: str = "", reason: str = "") -> JoinGroupResponse:
        """Return the response with an error code, after the reason has been explained."""
        if reason:
            ids = (self.key, self.member_id, self.client_id, self.client_host)
            self.explain(JoinRefusal(*ids, code, reason))
        return JoinGroupResponse(error_code=code, member_id=member_id)

    def refuse(self, code: ErrorCode) -> None:
        """Reply with an error code and the member's id."""
        self.answer(self.refusal(code, self.member_id))
