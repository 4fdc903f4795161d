"""A classic group: members, generation and the state of its rebalance.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance
      ▲                 ▲      │                                          │        │
      └──no members ────┼──────┘             join, leave, session expired │        │ the leader's
                        ├─────────────────────────────────────────────────┘        │ assignment is
                        └────────── join, leave, session expired ── Stable ◀───────┘ committed

A generation begins when a rebalance is completed; the log stores its assignment. Everything else is
soft state: a coordinator that loads the group finds it Stable in its last written generation, or
Empty, and gives every member a new session.

This module contains data and queries; `rebalance` decides. Sources: KIP-62, KIP-134 (initial
delay), KIP-345 (static members), KIP-394 (member ids), and the behaviour of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account
from lakelog.coordinator.group.classic.member import (
    Join,
    Member,
    Protocols,
    member_record,
    protocols_bytes,
    stored_member,
)
from lakelog.coordinator.group.limits import GROUP_BYTES, Growth
from lakelog.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, GroupRecord
from lakelog.protocol.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse


class GroupState(StrEnum):
    """States by their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """In responses only: the group does not exist."""


_NEXT_STATES = {
    # A consumer group that is downgraded becomes a classic group in a stable generation.
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE, GroupState.STABLE},
    GroupState.PREPARING_REBALANCE: {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.STABLE, GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE},
}


class ClassicGroup:
    """The live state of one group."""

    __slots__ = (
        "account",
        "assignment_generation",
        "generation",
        "group_id",
        "initial_delay_left_ms",
        "is_unjoined",
        "leader_id",
        "member_added",
        "members",
        "memory",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_counts",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscription_bytes",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.protocol_counts: Counter[str] = Counter()
        self.subscription_bytes = 0
        """Size of all members' subscriptions, in bytes."""
        self.memory = GROUP_BYTES
        """Estimated memory in bytes, without the stored generation."""
        self.account: Account[str] | None = None
        """The shard's account while the group is one of its live groups."""
        self.pending_joins: set[str] = set()
        """Member ids that have not joined yet (KIP-394); `PendingMembers` maintains them."""
        self.is_unjoined = False
        """Whether it only has pending members; `PendingMembers` maintains it."""
        self.pending_syncs: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self.member_added = False
        """Whether a member has joined since the initial delay last began."""
        self.initial_delay_left_ms = 0
        self.assignment_generation = -1
        """The generation whose assignment is being written."""

    @classmethod
    def from_stored(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """Return the group of a stored generation, as a coordinator begins with it."""
        group = cls(group_id)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.state_timestamp_ms = value.current_state_timestamp
        for stored in value.members:
            group.add(stored_member(stored, value.protocol))
        group.leader_id = value.leader
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.previous_state = group.state
        return group

    def transition(self, state: GroupState, wall_ms: int) -> None:
        """Change the state, at a time in milliseconds since the epoch.

        The time is stored with the generation: offsets of an empty group expire by it (KIP-211).
        """
        assert state in _NEXT_STATES[self.state], f"{self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = wall_ms

    def elect_leader(self) -> bool:
        """Return whether any member has joined; replace a leader that has not joined.

        A static member stays in the group without joining (KIP-345), and cannot assign then.
        """
        joined = [member for member in self.members.values() if member.join is not None]
        if not joined:
            return False
        if all(member.member_id != self.leader_id for member in joined):
            self.leader_id = joined[0].member_id
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """Begin a generation with the present members, at a time in milliseconds since the epoch.

        It waits for their SyncGroup; without members it is Empty.
        """
        assert not self.members or self.leader_id in self.members, "no member would assign"
        self.generation += 1
        self.pending_syncs = set(self.members)
        self.protocol = self.selected_protocol()
        waits = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition(waits, wall_ms)

    # Members

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        assert member.member_id not in self.members, "a member is counted once"
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.protocol_counts.update(name for name, _ in member.protocols)
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member; if it was the leader, the oldest other member leads."""
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.protocol_counts.subtract(name for name, _ in member.protocols)
        self._count(member, -1)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace a member's assignors."""
        self.protocol_counts.subtract(name for name, _ in member.protocols)
        self.protocol_counts.update(name for name, _ in protocols)
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, sign: int) -> None:
        self.subscription_bytes += sign * member.subscription_bytes
        more = sign * member.memory
        self.memory += more
        assert self.subscription_bytes >= 0, "a member left with more than it came with"
        assert self.memory >= GROUP_BYTES, "a member left with more than it came with"
        if self.account is not None:
            self.account.add(self.group_id, more)

    def replace_static(
        self, old: Member, new_member_id: str, client_id: str, client_host: str
    ) -> Member:
        """Give a static member a new id and fence the process with the old one (KIP-345)."""
        old.answer_join(
            JoinGroupResponse(
                error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id, protocol_name=None
            )
        )
        old.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        assert old.instance_id is not None, "a dynamic member has no next process"
        assert self.members.get(old.member_id) is old, "its place was taken over already"
        was_leader = self.leader_id == old.member_id
        self.remove(old.member_id)  # this elects another leader, which is undone below
        member = Member(
            member_id=new_member_id,
            instance_id=old.instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.add(member)
        if was_leader:
            self.leader_id = new_member_id
        return member

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that sent a request.

        Raises `KafkaError(UNKNOWN_MEMBER_ID)`, or `KafkaError(FENCED_INSTANCE_ID)` if another
        process has the instance id.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # Queries

    @property
    def waiting_to_join(self) -> int:
        """Number of members that wait for the response to JoinGroup."""
        return sum(member.join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Whether all members wait for JoinGroup, and no member id is pending."""
        return not self.pending_joins and all(
            member.join is not None for member in self.members.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def lacks_capacity(self, member_id: str, members_max: int) -> str:
        """Return why `group.max.size` does not allow a member; empty if it does.

        During a rebalance the members that have joined again count, because others may be gone.
        """
        has_capacity = self.state is GroupState.EMPTY or len(self.members) < members_max
        if not has_capacity:
            member = self.members.get(member_id)
            if self.state is not GroupState.PREPARING_REBALANCE:
                has_capacity = member is not None
            else:
                has_joined = member is not None and member.join is not None
                has_capacity = has_joined or self.waiting_to_join < members_max
        if has_capacity:
            return ""
        return (
            f"it has {len(self.members)} members, which is group.max.size; use another group "
            "or raise that limit"
        )

    def growth(self, join: Join, *, is_new: bool) -> Growth:
        """Return the growth of the group by a member that joins.

        Args:
            is_new: whether the group has not had a member yet.
        """
        # A static member that returns has a new id, but takes the place, and the memory, of its
        # former one (KIP-345).
        member_id = self.static_members.get(join.instance_id or "", join.member_id)
        member = self.members.get(member_id)
        more, before = join.protocols_bytes, 0
        if member is not None:
            more -= protocols_bytes(member.protocols)
            before = member.subscription_bytes
        elif self.account is None:
            more += self.memory
        return Growth(
            self.group_id, is_new, self.subscription_bytes, before, join.subscription_bytes, more
        )

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether all members and a new member share at least one of these assignors."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts[name] == everyone for name, _ in protocols
        )

    def selected_protocol(self, instead: Mapping[str, Protocols] | None = None) -> str | None:
        """Return the result of the vote, with other assignors for the member ids in `instead`."""
        instead = instead or {}
        return select_protocol(
            [
                [name for name, _ in instead.get(member_id, member.protocols)]
                for member_id, member in self.members.items()
            ]
        )

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return the members with their subscriptions, for the leader."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def join_response(self, member_id: str) -> JoinGroupResponse:
        """Return the response to JoinGroup of a member of this generation."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            member_id=member_id,
            members=self.joined_members() if member_id == self.leader_id else [],
        )

    def sync_response(self, member: Member) -> SyncGroupResponse:
        """Return the response to SyncGroup of a member of this generation."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def record(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        """Return the record of this generation with assignments by member id."""
        return self.record_of(self.members.values(), self.leader_id, assignments)

    def record_of(
        self, members: Iterable[Member], leader_id: str | None, assignments: Mapping[str, bytes]
    ) -> GroupRecord:
        """Return the record of this generation with other members and another leader."""
        return GroupRecord(
            GroupMetadataKey(group=self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=leader_id,
                current_state_timestamp=self.state_timestamp_ms,
                members=[
                    member_record(member, self.protocol, assignments.get(member.member_id, b""))
                    for member in members
                ],
            ),
        )


def select_protocol(choices: Sequence[Sequence[str]]) -> str | None:
    """Return the assignor that most members prefer among the assignors that all members support.

    On a tie, return the first one named; None if there is no common assignor. `choices` holds each
    member's assignors in its order of preference.
    """
    common = set(choices[0]).intersection(*choices[1:]) if choices else set()
    votes = Counter(next(name for name in names if name in common) for names in choices if common)
    return max(votes, key=lambda name: votes[name], default=None)
