"""JoinGroup, versions 0 to 9, for classic groups (KIP-62, KIP-345, KIP-394, KIP-559, KIP-814).

A dynamic member without an id first gets one (version 4 and later, KIP-394). A static member
(KIP-345) that returns takes over its former place; in a stable group this does not affect other
members. All other members begin a rebalance or join the one in progress; the reply comes when the
rebalance completes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import random_uuid_text
from lakelog.coordinator.group.change_queue import ChangeQueue
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import ClassicGroups, PendingMembers
from lakelog.coordinator.group.classic.join_request import Join
from lakelog.coordinator.group.classic.member import Member, protocols_bytes
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.limits import TOO_MANY_GROUPS, ShardLimits, check_subscriptions
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Effect, Now, Result
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.runtime.api import Random

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_NO_MEMORY = (
    "the memory of the coordinators is exhausted; delete unused groups or raise "
    "lakelog.coordinator.state.max.bytes"
)
_FENCED = "another process has joined with its group.instance.id; give each process its own"
_NAME_IN_ID_MAX = 255
"""Characters of a client or instance id in a member id, so that it fits into a Kafka string."""


class Joins:
    """Decisions about JoinGroup requests.

    Args:
        changes: decides a request again, after the group changed during a write.
    """

    def __init__(
        self,
        config: GroupConfig,
        groups: ClassicGroups,
        rebalancer: Rebalancer,
        pending: PendingMembers,
        limits: ShardLimits,
        random: Random,
        changes: ChangeQueue,
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalancer = rebalancer
        self._pending = pending
        self._limits = limits
        self._random = random
        self.changes = changes

    def join(self, now: Now, join: Join) -> Decision:
        """Decide one request; its group may not exist yet.

        Raises nothing: the request gets UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED,
        INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID or MEMBER_ID_REQUIRED (KIP-394).
        """
        group = self._groups.get(join.key)
        # A group without members is forgotten with all its member ids, so a client that has one has
        # to join as a new member.
        if group is None and join.member_id:
            return Result(reply=join.refusal(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
        is_new = group is None or self._pending.is_unjoined(group)
        # `_decide` adds a new group to the shard only if it gets a member or a pending id.
        group = ClassicGroup(join.key) if group is None else group
        decision = self._decide(now, group, join, is_new=is_new)
        if not group.members:
            self._groups.forget_if_unused(group)
        return decision

    def _decide(self, now: Now, group: ClassicGroup, join: Join, *, is_new: bool) -> Decision:
        reason = self._lacks_room(group, join, is_new=is_new)
        if reason:
            # The rebalance waits for pending members, and this one will not join any more.
            waited_for = self._pending.remove(group, join.member_id)
            further = self._rebalancer.pending_left(now, group) if waited_for else Result()
            refusal = join.refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, reason=reason)
            return replace(further, reply=refusal)
        if not group.supports(join.protocol_type, join.protocols):
            names = ", ".join(name for name, _ in join.protocols)
            refusal = join.refusal(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                join.member_id,
                f"not all members support one of its assignors ({names}) of type "
                f"{join.protocol_type!r}; give all members of the group one assignor in common "
                "(partition.assignment.strategy)",
            )
            return Result(reply=refusal)
        if join.member_id:
            return self._join_known(now, group, join)
        return self._join_new(now, group, join)

    def _lacks_room(self, group: ClassicGroup, join: Join, *, is_new: bool) -> str:
        """Return why the group has no room for the member; empty if it has.

        The limits of all groups come last: they begin evictions.
        """
        if not self._has_room(group, join.member_id):
            return (
                f"it has {len(group.members)} members, which is group.max.size; use another group "
                "or raise that limit"
            )
        # A static member that returns has a new id, but takes the place, and the memory, of its
        # former one (KIP-345).
        member_id = group.static_members.get(join.instance_id or "", join.member_id)
        member = group.members.get(member_id)
        try:
            check_subscriptions(
                group.subscription_bytes,
                0 if member is None else member.subscription_bytes,
                join.subscription_bytes,
                self._config.subscriptions_bytes_max,
            )
        except KafkaError as error:
            return error.message
        more = join.protocols_bytes
        if member is not None:
            more -= protocols_bytes(member.protocols)
        elif group.account is None:
            more += group.memory
        if is_new and not self._limits.has_room_for_group(join.key):
            return TOO_MANY_GROUPS
        if not self._limits.has_memory(join.key, more):
            return _NO_MEMORY
        return ""

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether `group.max.size` allows the member.

        During a rebalance the members that have joined again count, because others may be gone.
        """
        room = self._config.members_max
        if group.state is GroupState.EMPTY or len(group.members) < room:
            return True
        member = group.members.get(member_id)
        if group.state is not GroupState.PREPARING_REBALANCE:
            return member is not None
        return (member is not None and member.join is not None) or (group.waiting_to_join < room)

    def _join_new(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        current = None
        if join.instance_id is not None:
            current = group.static_members.get(join.instance_id)
        elif join.version >= _MEMBER_ID_REQUIRED_SINCE:
            return self._require_id(now, group, join)
        if current is None:
            return self._add(now, group, join)
        return self._take_over(now, group, join, group.members[current], self._new_id(join))

    def _new_id(self, join: Join) -> str:
        name = (join.instance_id or join.client_id)[:_NAME_IN_ID_MAX]
        return f"{name}-{random_uuid_text(self._random)}"

    def _require_id(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        """Give a dynamic member the id with which it has to join again (KIP-394)."""
        member_id = self._new_id(join)
        if group.account is None:
            self._groups[group.group_id] = group
        # Pending ids are bounded over all groups: a client that never joins costs nothing but one
        # of them. The oldest makes room.
        loser = self._pending.add(group, member_id, now.tick_ms + join.session_timeout_ms)
        reply = join.refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if loser is None:
            return Result(reply=reply)
        decision = self._rebalancer.pending_left(now, loser)
        self._groups.forget_if_unused(loser)
        return replace(decision, reply=reply)

    def _join_known(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        if join.instance_id is None and self._pending.remove(group, join.member_id):
            return self._add(now, group, join)
        try:
            member = group.validate(join.member_id, join.instance_id)
        except KafkaError as error:
            reason = _FENCED if error.code is ErrorCode.FENCED_INSTANCE_ID else ""
            return Result(reply=join.refusal(error.code, join.member_id, reason))
        changed = member.protocols != join.protocols
        # A member whose response was lost joins again: it gets the same generation. But a leader
        # that joins again in a stable group wants a rebalance, for example after new topics.
        settled = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and group.leader_id != member.member_id
        )
        if settled and not changed:
            return Result(reply=group.join_response(member.member_id))
        self._update(group, member, join)
        return self._rebalancer.prepare_or_complete(now, group)

    def _add(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        member_id = join.member_id or self._new_id(join)
        assert member_id not in group.members
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
            join=join,
        )
        if not group.members:
            group.protocol_type = join.protocol_type
        group.member_added = True
        group.add(member)
        if group.account is None:
            self._groups[group.group_id] = group
        elif len(group.members) == 1 and group.pending_joins:
            self._pending.joined(group)
        return self._rebalancer.add_new(now, group, member)

    def _update(self, group: ClassicGroup, member: Member, join: Join) -> None:
        """Park the request in its member, and update the subscription.

        An older parked request of the member gets REBALANCE_IN_PROGRESS.
        """
        member.answer_join(
            JoinGroupResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
            )
        )
        self._update_settings(group, member, join)
        member.park_join(join)

    def _update_settings(self, group: ClassicGroup, member: Member, join: Join) -> None:
        """Replace the member's assignors and timeouts by the request's."""
        group.update_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.session_timeout_ms

    # Static members that restarted

    def _take_over(
        self, now: Now, group: ClassicGroup, join: Join, old: Member, member_id: str
    ) -> Decision:
        if group.state is GroupState.STABLE:
            selected = group.selected_protocol({old.member_id: join.protocols})
            if selected == group.protocol:
                return self._take_over_quietly(group, join, old, member_id)
        member = self.replace_member(now, group, join, old, member_id)
        member.park_join(join)
        return self._rebalancer.prepare_or_complete(now, group)

    def _take_over_quietly(
        self, group: ClassicGroup, join: Join, old: Member, member_id: str
    ) -> Decision:
        """Replace the member id within the generation, without a rebalance.

        The new id must be durable before a client sees it. Otherwise a coordinator that loads the
        group later would fence the member.
        """
        heir = replace(old, member_id=member_id, protocols=join.protocols)
        # The leader keeps its role under the new id. Otherwise the group would have a leader that
        # does not exist, and no member would compute the next assignment.
        leads = group.leader_id == old.member_id
        members = [heir if member is old else member for member in group.members.values()]
        assignments = {member.member_id: member.assignment for member in members}
        record = group.record_of(members, member_id if leads else group.leader_id, assignments)

        take_over = _TakeOver(self, group, join, old, member_id, group.generation)
        return Result([record], effects=(take_over,))

    def replace_member(
        self, now: Now, group: ClassicGroup, join: Join, old: Member, member_id: str
    ) -> Member:
        """Give a static member the id and the settings of its next process."""
        member = group.replace_static(old, member_id, join.client_id, join.client_host)
        self._rebalancer.move_session(now, group, old, member)
        self._update_settings(group, member, join)
        return member


@dataclass(slots=True, eq=False)
class _TakeOver(Effect):
    """Replaces a static member once its new id is durable, within the same generation."""

    joins: Joins
    group: ClassicGroup
    join: Join
    old: Member
    member_id: str
    generation: int

    def committed(self, now: Now, result: Decision) -> tuple[Decision, ...]:
        group, old = self.group, self.old
        # The group may have changed while the record was written; the request then starts over.
        in_place = group.members.get(old.member_id) is old
        state = (group.state, group.generation)
        if not in_place or state != (GroupState.STABLE, self.generation):
            return (self.joins.changes.decide_again(now, self.join),)
        leader_before = group.leader_id or ""
        self.joins.replace_member(now, group, self.join, old, self.member_id)
        reply = _unchanged_response(group, self.join, self.member_id, leader_before)
        return (Result(reply=reply, request=self.join),)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> tuple[Decision, ...]:
        return (Result(reply=self.join.refusal(code), request=self.join),)


def _unchanged_response(
    group: ClassicGroup, join: Join, member_id: str, leader_before: str
) -> JoinGroupResponse:
    """Return a response with which a leader that returned does not assign again.

    Version 9 has a field for that; in older versions the response names the previous leader id.
    """
    response = group.join_response(member_id)
    if join.version >= _SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = group.leader_id == member_id
    else:
        response.leader = leader_before
        response.members = []
    return response
