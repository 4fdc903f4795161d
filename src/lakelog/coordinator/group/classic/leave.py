"""LeaveGroup, versions 0 to 5: one member or, from v3, several at once."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.groups import PendingMembers
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now
from lakelog.protocol.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


class Leaves:
    """Decisions about LeaveGroup requests."""

    def __init__(self, rebalancer: Rebalancer, pending: PendingMembers) -> None:
        self._rebalancer = rebalancer
        self._pending = pending

    def leave(
        self, now: Now, group: ClassicGroup, members: list[MemberIdentity]
    ) -> tuple[Decision, list[MemberResponse]]:
        """Remove members (KIP-345); return the decision, and a response with a code for each.

        One rebalance follows for all of them. The codes are UNKNOWN_MEMBER_ID and
        FENCED_INSTANCE_ID; nothing is raised.
        """
        known = len(group.members)
        responses = [_response(identity, self._leave(group, identity)) for identity in members]
        if len(group.members) < known:
            return self._rebalancer.members_left(now, group), responses
        return self._rebalancer.pending_left(now, group), responses

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if instance_id is None and self._pending.remove(group, member_id):
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            # An administrator that removes a static member sends only its instance id.
            member_id = group.static_members.get(instance_id, "")
        try:
            member = group.validate(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self._rebalancer.forget(group, member)
        return ErrorCode.NONE


def _response(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=code,
    )


def unknown_members(members: list[MemberIdentity]) -> list[MemberResponse]:
    """Return the responses if the group does not exist."""
    return [_response(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in members]


def leave_response(responses: list[MemberResponse], version: int) -> LeaveGroupResponse:
    """Return the response; before version 3 it has the code of its only member."""
    if version < 3:
        return LeaveGroupResponse(error_code=responses[0].error_code)
    return LeaveGroupResponse(members=responses)
