"""The member's side of the classic group protocol: the next request, and the meaning of a response.

No I/O and no clock. A member joins; a new one joins twice, the second time with the id that the
coordinator assigned (KIP-394). The leader assigns the partitions, all members sync to get their
assignments, and then they send heartbeats until the group changes. The generation fences requests
of members that the group no longer has.

    UNJOINED -> join -> JOINED -> sync -> STABLE -> (rebalance, fenced, unknown) -> UNJOINED
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from lakelog.assignors import ASSIGNORS, Member
from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.committed import Membership
from lakelog.client.errors import ClientError, refused
from lakelog.client.offsets import TopicPartition
from lakelog.protocol import groups as messages
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from lakelog.protocol.consumer_protocol import TopicPartition as TopicPartitions
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Buffer

PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 1
_ASSIGNMENT_VERSION = 0

_NEW_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
GROUP_MOVED_ON = (ErrorCode.REBALANCE_IN_PROGRESS, *_NEW_ID)
"""Errors of a commit after which the member has to join again."""
OTHER_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a coordinator that has moved, or is not ready yet."""


class MembershipState(Enum):
    """The member's place in the cycle above."""

    UNJOINED = auto()
    JOINED = auto()
    STABLE = auto()


class Step(Enum):
    """The next action of the caller."""

    GO_ON = auto()
    REJOIN = auto()
    FIND_COORDINATOR = auto()


class GroupMember:
    """The state of one member.

    session_timeout_ms: the group removes a member without heartbeats for this time.
    rebalance_timeout_ms: how long the group waits for the member to rejoin. instance_id: makes the
    member static (KIP-345).
    """

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignors: Sequence[str] = ("range",),
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group = group
        self.topics = sorted(topics)
        self.state = MembershipState.UNJOINED
        self.member_id = ""
        self.generation = -1
        self.instance_id = instance_id
        self._assignors = list(assignors)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._protocol = ""
        self._members: list[Member] | None = None
        self.assigned: frozenset[TopicPartition] = frozenset()

    @property
    def membership(self) -> Membership:
        """The identity that commits contain."""
        return Membership(self.member_id, self.generation, self.instance_id)

    @property
    def is_leader(self) -> bool:
        """Whether this member assigns the partitions of the present generation."""
        return self._members is not None

    @property
    def group_topics(self) -> frozenset[str]:
        """The topics of all members; known to the leader only."""
        return frozenset[str]().union(*(member.topics for member in self._members or []))

    def join(self) -> messages.JoinGroupRequest:
        """Return the request that joins the group (KIP-345, KIP-394).

        It contains the partitions that the member has, for assignors that keep them.
        """
        subscription = ConsumerProtocolSubscription(
            topics=self.topics, owned_partitions=_to_wire(self.assigned)
        )
        metadata = encode_versioned(subscription, _SUBSCRIPTION_VERSION)
        return messages.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                messages.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name in self._assignors
            ],
        )

    def joined(self, response: messages.JoinGroupResponse) -> Step:
        """Process the response to `join`; `sync` follows.

        Return the next step. Raises as `failed`, and `ClientError` with INCONSISTENT_GROUP_PROTOCOL
        if another member's subscription cannot be decoded.
        """
        code = error_code(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Step.REJOIN
        if code:
            return self.failed(code)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._protocol = response.protocol_name or ""
        self._members = None
        # `skip_assignment`: a static leader that restarts keeps the assignment (KIP-814).
        if response.leader == response.member_id and not response.skip_assignment:
            self._members = [
                _member(row.member_id, row.group_instance_id, row.metadata)
                for row in response.members
            ]
        self.state = MembershipState.JOINED
        return Step.GO_ON

    def sync(self, partition_counts: Mapping[str, int]) -> messages.SyncGroupRequest:
        """Return the request for this member's assignment; the leader's contains all assignments.

        Only partitions of existing topics are assigned.
        """
        shares: list[messages.SyncGroupRequestAssignment] = []
        if self._members is not None:
            assignor = ASSIGNORS[self._protocol]
            shares = [
                messages.SyncGroupRequestAssignment(member_id=member, assignment=_encode(owned))
                for member, owned in assignor(self._members, partition_counts).items()
            ]
        return messages.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=shares,
        )

    def synced(self, response: messages.SyncGroupResponse) -> Step:
        """Process the response to `sync`; `assigned` is then this member's assignment.

        Return the next step. Raises as `failed`, and `ClientError` with INCONSISTENT_GROUP_PROTOCOL
        if the leader's assignment cannot be decoded.
        """
        if response.error_code:
            return self.failed(error_code(response.error_code))
        assignment = _assignment(response.assignment)
        self.assigned = frozenset(
            (row.topic, partition)
            for row in assignment.assigned_partitions
            for partition in row.partitions
        )
        self._members = None
        self.state = MembershipState.STABLE
        return Step.GO_ON

    def heartbeat(self) -> messages.HeartbeatRequest:
        """Return the request that renews the member's session."""
        return messages.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def failed(self, code: ErrorCode) -> Step:
        """Return the next step after an error of a group request.

        Raises `ClientError` for an error that is not retriable, such as FENCED_INSTANCE_ID: another
        process uses the same static id.
        """
        if code in OTHER_COORDINATOR:
            return Step.FIND_COORDINATOR
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
            return Step.REJOIN
        if code in _NEW_ID:
            self.lost()
            return Step.REJOIN
        raise refused(code, f"group {self.group!r}")

    def rejoin(self) -> None:
        """Make joining the next step, with the same member id."""
        self.state = MembershipState.UNJOINED

    def lost(self) -> None:
        """Drop the assignment: the group has removed this member."""
        self.state = MembershipState.UNJOINED
        self.member_id = ""
        self.generation = -1
        # Other members may own the partitions already.
        self.assigned = frozenset()

    def leave(self) -> messages.LeaveGroupRequest | None:
        """Return the request to leave; `None` for a static member, which keeps its place."""
        if not self.member_id or self.instance_id is not None:
            return None
        return messages.LeaveGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            members=[messages.MemberIdentity(member_id=self.member_id)],
        )


def _member(member_id: str, instance_id: str | None, metadata: Buffer) -> Member:
    try:
        subscription = decode_versioned(ConsumerProtocolSubscription, metadata)
    except WireError as error:
        text = f"the subscription of member {member_id!r}: {error}"
        raise ClientError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error
    return Member(member_id, frozenset(subscription.topics), instance_id)


def _assignment(encoded: Buffer) -> ConsumerProtocolAssignment:
    if not encoded:
        return ConsumerProtocolAssignment()
    try:
        return decode_versioned(ConsumerProtocolAssignment, encoded)
    except WireError as error:
        text = f"the assignment by the leader of the group: {error}"
        raise ClientError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def _to_wire(partitions: frozenset[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, TopicPartitions] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, TopicPartitions(topic=topic)).partitions.append(partition)
    return list(topics.values())


def _encode(owned: Mapping[str, Sequence[int]]) -> bytes:
    rows = [TopicPartitions(topic=topic, partitions=list(p)) for topic, p in owned.items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=rows)
    return encode_versioned(assignment, _ASSIGNMENT_VERSION)
