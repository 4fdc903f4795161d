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
from lakelog.coordinator.group.classic.member import Join, Member
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Effect, Now, Result
from lakelog.protocol.groups import JoinGroupResponse
from lakelog.runtime.api import Random

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_FENCED = "another process has joined with its group.instance.id; give each process its own"
_NAME_IN_ID_MAX = 255
"""Characters of a client or instance id in a member id, so that it fits into a Kafka string."""


class Joins:
    """Decisions about JoinGroup requests for which their group has capacity.

    Args:
        changes: decides a request again, after the group changed during a write.
    """

    def __init__(
        self,
        groups: ClassicGroups,
        rebalancer: Rebalancer,
        pending: PendingMembers,
        random: Random,
        changes: ChangeQueue,
    ) -> None:
        self._groups = groups
        self._rebalancer = rebalancer
        self._pending = pending
        self._random = random
        self.changes = changes

    def join_new(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        """Decide a request without a member id.

        A dynamic member gets an id with MEMBER_ID_REQUIRED first (KIP-394).
        """
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
        # of them. The oldest frees capacity.
        loser = self._pending.add(group, member_id, now.tick_ms + join.session_timeout_ms)
        reply = join.refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if loser is None:
            return Result(reply=reply)
        decision = self._rebalancer.pending_left(now, loser)
        self._groups.forget_if_unused(loser)
        return replace(decision, reply=reply)

    def join_known(self, now: Now, group: ClassicGroup, join: Join) -> Decision:
        """Decide a request of a member, or with a pending member id.

        The reply is UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID for any other member id.
        """
        if join.instance_id is None and join.member_id in group.pending_joins:
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
        self._pending.joined(group, join.member_id)
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
        assert group.state is GroupState.STABLE, "the record is of the current generation"
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
