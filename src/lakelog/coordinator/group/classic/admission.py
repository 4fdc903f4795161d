"""Room for the member of a JoinGroup, in its group and beside all other groups."""

from __future__ import annotations

from dataclasses import replace

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.groups import ClassicGroups, PendingMembers
from lakelog.coordinator.group.classic.join import Joins
from lakelog.coordinator.group.classic.member import Join
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.limits import ShardLimits
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.groups import JoinGroupResponse


class Admission:
    """Refuses JoinGroup requests for which there is no capacity; `joins` decides about the
    others."""

    def __init__(
        self,
        config: GroupConfig,
        groups: ClassicGroups,
        rebalancer: Rebalancer,
        pending: PendingMembers,
        limits: ShardLimits,
        joins: Joins,
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalancer = rebalancer
        self._pending = pending
        self._limits = limits
        self._joins = joins

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
        is_new = group is None or group.is_unjoined
        # It joins the live groups only if it gets a member or a pending id.
        group = ClassicGroup(join.key) if group is None else group
        # The limits of all groups come last: they begin evictions.
        reason = group.lacks_capacity(join.member_id, self._config.members_max)
        if not reason and not group.supports(join.protocol_type, join.protocols):
            return Result(reply=_incompatible(join))
        reason = reason or self._limits.lacks_capacity(
            group.growth(join, is_new=is_new), self._config.subscriptions_bytes_max
        )
        if reason:
            decision = self._refuse(now, group, join, reason)
        elif join.member_id:
            decision = self._joins.join_known(now, group, join)
        else:
            decision = self._joins.join_new(now, group, join)
        if not group.members:
            self._groups.forget_if_unused(group)
        return decision

    def _refuse(self, now: Now, group: ClassicGroup, join: Join, reason: str) -> Decision:
        # The rebalance waits for pending members, and this one will not join any more.
        waited_for = self._pending.remove(group, join.member_id)
        further: Decision = self._rebalancer.pending_left(now, group) if waited_for else Result()
        return replace(further, reply=join.refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, reason=reason))


def _incompatible(join: Join) -> JoinGroupResponse:
    names = ", ".join(name for name, _ in join.protocols)
    return join.refusal(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        join.member_id,
        f"not all members support one of its assignors ({names}) of type {join.protocol_type!r}; "
        "give all members of the group one assignor in common (partition.assignment.strategy)",
    )
