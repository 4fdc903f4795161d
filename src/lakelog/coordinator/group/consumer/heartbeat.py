"""ConsumerGroupHeartbeat, versions 0 and 1: the only request of the consumer protocol.

With a heartbeat a member joins the group, changes its subscription, reports the partitions that it
owns, and gets its assignment. The epochs -1 and -2 leave the group. Errors are `KafkaError`s with
the messages of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import random_uuid_text
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    Epochs,
)
from lakelog.coordinator.group.consumer.rebalance import Owned
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result, Then
from lakelog.protocol.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    MemberPartitions,
)
from lakelog.runtime.api import Random

_OWN_MEMBER_ID_SINCE = 1
_BLANK = "".join(map(chr, range(ord(" ") + 1)))
"""Characters that Java's `String.trim` removes."""


@dataclass(slots=True, kw_only=True, eq=False)
class ConsumerHeartbeat(GroupRequest):
    """One request, with what its connection knows of the client."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str

    is_exclusive: ClassVar[bool] = True

    def decide_in(self, shard: Any, now: Now) -> Decision:
        """Return the decision; errors are replies with a message for the user."""
        heartbeats: ConsumerHeartbeats = shard.heartbeats
        try:
            return heartbeats.heartbeat(now, self)
        except KafkaError as error:
            return Result(reply=refusal(error))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(ConsumerGroupHeartbeatResponse(error_code=code))


def refusal(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a rejected request."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]
) -> None:
    """Check the fields that do not depend on the group (KIP-848).

    Raises `KafkaError` with INVALID_REQUEST or UNSUPPORTED_ASSIGNOR, and Kafka's messages.
    """
    epoch = request.member_epoch
    if version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _check_text(request.member_id, "MemberId can't be empty.")
    _check_text(request.group_id, "GroupId can't be empty.")
    _check_text(request.instance_id, "InstanceId can't be empty.")
    _check_text(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_first(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _check(epoch > LEAVE_STATIC_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_first(request: ConsumerGroupHeartbeatRequest) -> None:
    _check(
        request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request."
    )
    _check(
        request.topic_partitions is not None and not request.topic_partitions,
        "TopicPartitions must be empty when (re-)joining.",
    )
    _check(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _check_text(value: str | None, text: str) -> None:
    _check(value is None or value.strip(_BLANK), text)


def _check(condition: object, text: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


class ConsumerHeartbeats:
    """Decisions about heartbeats that have passed `check_request`."""

    def __init__(self, groups: ConsumerGroups, random: Random) -> None:
        self._groups = groups
        self._random = random

    def heartbeat(self, now: Now, beat: ConsumerHeartbeat) -> Decision:
        """Decide one heartbeat.

        Raises `KafkaError` with GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID or
        INVALID_REGULAR_EXPRESSION.
        """
        request = beat.request
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(now, beat)
        draft = self._groups.open(request.group_id, creates=request.member_epoch == JOIN_EPOCH)
        self._groups.check_capacity(draft.group, request.member_id, request.instance_id)
        owned = _owned(request)
        old = self._member(draft, request, owned)
        new = _updated(old, beat)
        grows = not new.has_subscription_of(old)
        if grows:
            self._groups.check_subscription(draft.group, old, new)
        rebalancer = self._groups.rebalancer
        changed = rebalancer.subscribe(draft, now, old, new)
        rebalancer.assign(draft, now)
        member = rebalancer.reconcile(draft, new, owned, changed=changed)
        if grows:
            self._groups.check_memory(draft)
        response = self._response(request, old, member)

        # The reply comes after the commit: a member that got an assignment before it is durable
        # could read partitions that a restarted coordinator assigns to another member.
        progressed = (member.state, member.pending) != (old.state, old.pending)
        group_id, arm = draft.group_id, partial(self._groups.arm, progressed=progressed)
        return self._groups.finish(draft, response, Then(lambda now: arm(now, group_id, member)))

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, old: ConsumerMember, new: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the response; it has the assignment if that changed or the request was full."""
        response = ConsumerGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.member_epoch,
            heartbeat_interval_ms=self._groups.heartbeat_interval_ms(request.group_id),
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and request.topic_partitions is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )
        if request.member_epoch == JOIN_EPOCH or is_full or old.assigned != new.assigned:
            response.assignment = _assignment(new.assigned)
        return response

    # The member that sent the request

    def _member(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, owned: Owned | None
    ) -> ConsumerMember:
        if request.instance_id is not None:
            return self._static_member(draft, request, request.instance_id, owned)
        member_id = request.member_id or self._new_member_id()
        member = draft.group.members.get(member_id)
        if member is None:
            if request.member_epoch != JOIN_EPOCH:
                raise unknown_member(draft.group, member_id)
            return ConsumerMember(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member

    def _static_member(
        self,
        draft: Draft,
        request: ConsumerGroupHeartbeatRequest,
        instance_id: str,
        owned: Owned | None,
    ) -> ConsumerMember:
        current = draft.group.static_member(instance_id)
        member_id = request.member_id or self._new_member_id()
        if request.member_epoch != JOIN_EPOCH:
            member = fenced_static_member(draft.group, member_id, instance_id)
            _check_epoch(member, request.member_epoch, owned)
            return member
        if current is None:
            return draft.group.members.get(member_id, ConsumerMember(member_id))
        # A static member leaves with epoch -2 before its next process joins. The classic protocol
        # has no such request, so there the next process takes over (KIP-345).
        if current.member_epoch != LEAVE_STATIC_EPOCH and current.classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {current.member_id} member.",
            )
        return self._groups.rebalancer.replace(draft, current, member_id)

    def _new_member_id(self) -> str:
        return random_uuid_text(self._random)

    # Leaving

    def _leave(self, now: Now, beat: ConsumerHeartbeat) -> Decision:
        request = beat.request
        group = self._groups.get(request.group_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            if request.member_id not in group.members:
                raise unknown_member(group, request.member_id)
        else:
            member = fenced_static_member(group, request.member_id, request.instance_id)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                draft = Draft(group)
                draft.put_assignment(member.away())
                return self._groups.finish(draft, response)
        return self._groups.fence(now, group, [request.member_id], response)


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    """Return the error for a member id that the group does not have."""
    text = f"Member {member_id} is not a member of group {group.group_id}."
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)


def fenced_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the member with this instance id and member id.

    Raises `KafkaError(UNKNOWN_MEMBER_ID)`, or `KafkaError(FENCED_INSTANCE_ID)` if another process
    has the instance id.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is valid, too, while the member owns only partitions that are assigned to it:
    the response with the new epoch may have been lost.
    """
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    if epoch == member.previous_epoch < member.member_epoch and _is_within(owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _is_within(owned: Owned | None, assigned: Epochs) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _updated(old: ConsumerMember, beat: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with the fields of the request; omitted fields keep their values."""
    request = beat.request
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=old.assignor if request.server_assignor is None else request.server_assignor,
        topics=old.topics if names is None else frozenset(names),
        regex=old.regex if regex is None else regex,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )


def _assignment(assigned: Epochs) -> MemberAssignment:
    return MemberAssignment(
        topic_partitions=[
            MemberPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )
