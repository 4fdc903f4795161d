"""A member of a classic group, with the requests that wait in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.limits import ENTRY_BYTES
from lakelog.coordinator.group.records import MemberMetadata
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.sync_group import SyncGroupResponse


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
