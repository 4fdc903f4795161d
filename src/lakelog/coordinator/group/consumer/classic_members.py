"""Members of a consumer group that use the classic protocol (online migration of KIP-848).

This module serves their JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests with the steps of
consumer groups. A member's generation is its member epoch. JoinGroup reports the partitions that it
owns. Heartbeat makes the member join again when it has a step to take. No member leads; the
coordinator assigns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import random_uuid_text
from lakelog.coordinator.group.change_queue import TimerKind
from lakelog.coordinator.group.classic.member import Join
from lakelog.coordinator.group.classic.member_requests import Sync
from lakelog.coordinator.group.config import MigrationPolicy, Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.consumer.heartbeat import fenced_static_member, unknown_member
from lakelog.coordinator.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from lakelog.coordinator.group.consumer.migration import CONSUMER, encode_assignment
from lakelog.coordinator.group.consumer.rebalance import Owned
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result, Then
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_versioned
from lakelog.protocol.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)
from lakelog.runtime.api import Random
from lakelog.wire.primitives import WireError

_MEMBER_ID_REQUIRED_SINCE = 4
_NO_MIGRATION = (
    "its members use the consumer protocol, and group.consumer.migration.policy does "
    "not allow classic members; use another group or change that policy"
)
_NOTHING_IN_COMMON = (
    "it is not of protocol type 'consumer' or shares no assignor with the other classic members; "
    "give all of them one assignor in common (partition.assignment.strategy)"
)


class ClassicMembers:
    """Decisions about requests of classic members.

    Methods raise `KafkaError`, except where a response has its own form for errors.
    """

    def __init__(self, groups: ConsumerGroups, topics: Topics, random: Random) -> None:
        self._groups = groups
        self._topics = topics
        self._random = random

    # JoinGroup

    def join(self, now: Now, group: ConsumerGroup, join: Join) -> Decision:
        """Decide JoinGroup; the errors of all steps are refusals of `join`, not raised."""
        try:
            return self._join(now, group, join)
        except KafkaError as error:
            member_id = "" if error.code is ErrorCode.GROUP_MAX_SIZE_REACHED else join.member_id
            return Result(reply=join.refusal(error.code, member_id, error.message))

    def _join(self, now: Now, group: ConsumerGroup, join: Join) -> Decision:
        self._check_join(group, join)
        member_id = join.member_id or self._new_member_id()
        is_nameless = not join.member_id and join.instance_id is None
        if is_nameless and join.version >= _MEMBER_ID_REQUIRED_SINCE:
            return Result(reply=join.refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        subscription = _subscription(join)
        draft = Draft(group)
        replaced = group.static_member(join.instance_id)
        old = self._joining(draft, join, member_id)
        new = _joined(old, join, subscription)
        self._groups.check_subscription(draft.group, old, new)
        owned = self._owned(subscription)
        rebalancer = self._groups.rebalancer
        changed = rebalancer.subscribe(draft, now, old, new)
        downgrades = replaced is not None and replaced.classic is None
        if downgrades and self._groups.may_downgrade(list(draft.group.members.values())):
            return self._join_and_downgrade(now, draft, join, new, owned, changed=changed)
        rebalancer.assign(draft, now)
        member = rebalancer.reconcile(draft, new, owned, changed=changed)
        self._groups.check_memory(draft)

        joined = Then(partial(self._set_timers, join, member.member_id))
        return self._groups.finish(draft, _join_response(member), joined)

    def _set_timers(self, join: Join, member_id: str, now: Now) -> None:
        ids = (join.key, member_id)
        self._groups.cancel_timer(TimerKind.REJOIN, *ids)
        self._groups.set_timer(now, TimerKind.SESSION, *ids, join.session_timeout_ms)
        self._groups.set_timer(now, TimerKind.RESYNC, *ids, join.rebalance_timeout_ms)

    def _check_join(self, group: ConsumerGroup, join: Join) -> None:
        if self._groups.config.migration is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, _NO_MIGRATION)
        self._groups.check_capacity(group, join.member_id, join.instance_id)
        others = [
            member.classic for member in group.classic_members() if member.classic is not None
        ]
        names = {name for name, _ in join.protocols}
        for classic in others:
            names &= {name for name, _ in classic.protocols}
        if join.protocol_type != CONSUMER or not names:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, _NOTHING_IN_COMMON)

    def _joining(self, draft: Draft, join: Join, member_id: str) -> ConsumerMember:
        group = draft.group
        if join.instance_id is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        current = group.static_member(join.instance_id)
        if join.member_id:
            return fenced_static_member(group, member_id, join.instance_id)
        if current is None:
            return ConsumerMember(member_id)
        return self._groups.rebalancer.replace(draft, current, member_id)

    def _join_and_downgrade(
        self,
        now: Now,
        draft: Draft,
        join: Join,
        new: ConsumerMember,
        owned: Owned,
        *,
        changed: bool,
    ) -> Decision:
        """Downgrade the group: its last member of the consumer protocol has become a classic one.

        The static member's new process uses the classic protocol.
        """
        rebalances = draft.group.assignment_epoch < draft.group.epoch
        if not rebalances:
            new = self._groups.rebalancer.reconcile(draft, new, owned, changed=changed)
        reply = _join_response(new)
        return self._groups.downgrade(now, draft, (), reply, rebalances=rebalances)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Owned:
        owned: dict[bytes, set[int]] = {}
        for topic in subscription.owned_partitions:
            topic_id = self._topics.topic_id(topic.topic)
            if topic_id is not None:
                owned.setdefault(topic_id, set()).update(topic.partitions)
        return owned

    def _new_member_id(self) -> str:
        return random_uuid_text(self._random)

    # SyncGroup and Heartbeat

    def sync(self, now: Now, group: ConsumerGroup, request: Sync) -> Decision:
        """Decide SyncGroup.

        Raises `KafkaError` with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL or REBALANCE_IN_PROGRESS.
        """
        member, classic = _classic_member(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        for sent, ours in (
            (request.protocol_type, CONSUMER),
            (request.protocol_name, classic.protocol),
        ):
            if sent is not None and sent != ours:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        ids = (group.group_id, member.member_id)
        behind = group.assignment_epoch > member.member_epoch
        if behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._must_rejoin(now, group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._groups.cancel_timer(TimerKind.RESYNC, *ids)
        self._groups.set_timer(now, TimerKind.SESSION, *ids, classic.session_timeout_ms)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(classic.protocols[0][1], member.assigned, self._topics),
        )
        return Result(reply=response)

    def heartbeat(self, now: Now, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        """Renew the session; return REBALANCE_IN_PROGRESS if the member has a step to take."""
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._groups.set_timer(
            now, TimerKind.SESSION, group.group_id, member.member_id, classic.session_timeout_ms
        )
        if not (
            _has_a_step_to_take(group, member) or self._groups.rebalancer.may_assign(group, now)
        ):
            return ErrorCode.NONE
        self._must_rejoin(now, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _must_rejoin(self, now: Now, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_ms = member.rebalance_timeout_ms
        self._groups.set_timer_once(
            now, TimerKind.REJOIN, group.group_id, member.member_id, timeout_ms
        )

    # LeaveGroup

    def leave(self, now: Now, group: ConsumerGroup, members: list[MemberIdentity]) -> Decision:
        """Decide LeaveGroup; the reply is a response for each member.

        An administrator uses it to remove members of either protocol.
        """
        leaving: list[str] = []
        responses = [_leave_one(group, identity, leaving) for identity in members]
        if leaving:
            return self._groups.fence(now, group, leaving, responses)
        return Result(reply=responses)


def _leave_one(
    group: ConsumerGroup, identity: MemberIdentity, leaving: list[str]
) -> MemberResponse:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    response = MemberResponse(member_id=member_id, group_instance_id=instance_id)
    try:
        if instance_id is None:
            if member_id not in group.members:
                raise unknown_member(group, member_id)
        elif member_id:
            fenced_static_member(group, member_id, instance_id)
        else:
            member = group.static_member(instance_id)
            if member is None:
                raise unknown_member(group, member_id)
            member_id = member.member_id
    except KafkaError as error:
        response.error_code = error.code
    else:
        if member_id not in leaving:
            leaving.append(member_id)
    return response


def _subscription(join: Join) -> ConsumerProtocolSubscription:
    """Return the member's subscription, which is the same in all protocols."""
    try:
        return decode_versioned(ConsumerProtocolSubscription, join.protocols[0][1])
    except WireError as error:
        text = f"its subscription cannot be decoded ({error}); its client has a fault"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def _joined(
    old: ConsumerMember, join: Join, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    return replace(
        old,
        instance_id=old.instance_id if join.instance_id is None else join.instance_id,
        rack_id=old.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=join.client_id,
        client_host=join.client_host,
        classic=ClassicSide(join.session_timeout_ms, join.protocols),
    )


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER,
        protocol_name=member.classic.protocol,
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    if instance_id is not None:
        member = fenced_static_member(group, member_id, instance_id)
    elif member_id in group.members:
        member = group.members[member_id]
    else:
        raise unknown_member(group, member_id)
    if member.classic is None:
        text = f"Member {member_id} does not use the classic protocol."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.member_epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _has_a_step_to_take(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.member_epoch < group.assignment_epoch:
        return True
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return not _waits_for_others(group, member)
    return member.state is MemberState.UNREVOKED_PARTITIONS


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        not group.is_free(topic_id, partition)
        for topic_id, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions
        if partition not in member.assigned.get(topic_id, {})
    )
