"""A member of a classic group: joins, divides the partitions if it leads, commits, leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lakelog.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from lakelog.testing.simulation.clients.client import RETRIABLE
from lakelog.testing.simulation.clients.groups import EXPELLED, GroupClient
from lakelog.testing.simulation.wire import Lost

if TYPE_CHECKING:
    from lakelog.testing.simulation.ledger import Place

_SESSION_MS = 5_000
_REBALANCE_MS = 4_000
_PROTOCOL = "plain"


class ClassicMember(GroupClient):
    """Its assignments are JSON: the broker does not look into them."""

    _member_id = ""
    _generation = -1

    def replaced(self) -> ClassicMember:
        return ClassicMember(self.world, self.next_name, self.group, self.places)

    async def run(self) -> None:
        await self.find_coordinator()
        while not self.world.is_ending:
            mine = await self._join()
            if mine is not None:
                await self._stay(mine)
            await self.pause(0.0, 0.5)
        await self._leave()

    async def _join(self) -> list[Place] | None:
        """What is this member's in the next generation; none if there is none yet."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )
        starts = self.world.starts
        answer = await self._call("JoinGroup", request, 7, 15.0)
        if answer is None:
            return None
        old, self._generation = self._generation, answer.generation_id
        if 0 <= old < self._generation and self.rng.random() < 0.2:
            await self._haunt(old, starts)
        shares = self._divide(answer) if answer.leader == self._member_id else []
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=shares,
        )
        answer = await self._call("SyncGroup", sync, 5, 15.0)
        if answer is None:
            return None
        mine = [(topic, index) for topic, index in json.loads(bytes(answer.assignment) or b"[]")]
        self.world.offsets.assigned(self.group, self._generation, self._member_id, mine)
        self.note("assigned", self._generation, mine)
        return mine

    async def _haunt(self, generation: int, starts: int) -> None:
        """As a member that has slept through a rebalance: its commit must be refused.

        Unless a broker has started since, or has refused to write it: a generation that is not
        complete is not in the log, and whoever loads the group again has the one before.
        """
        if self.world.plan.faults & {"disk full", "disk error"}:
            return
        done = await self.commit(self.some_place(self.places), generation, self._member_id)
        self.ledger.expect(
            not done or self.world.starts != starts,
            f"{self.name}: generation {generation} has committed in {self._generation}",
        )

    def _divide(self, answer: Any) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in answer.members)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=json.dumps(self.places[number :: len(members)]).encode(),
            )
            for number, member_id in enumerate(members)
        ]

    async def _call(self, what: str, request: Any, version: int, timeout_s: float) -> Any:
        """The answer, or none if the member has to join again."""
        try:
            answer = await self.connection.call(request, version, timeout_s)
        except Lost:
            return None
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return None
        if code == 0:
            self._member_id = getattr(answer, "member_id", self._member_id)
            return answer
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif code not in EXPELLED | RETRIABLE:
            self.unexpected(what, code)
        return None

    async def _stay(self, mine: list[Place]) -> None:
        """Until the next rebalance, or until it is fed up."""
        for place in mine:
            await self.fetch_offset(place)
        for _ in range(self.rng.randint(3, 25)):
            if self.world.is_ending:
                return
            await self.pause(0.2, 1.0)
            request = HeartbeatRequest(
                group_id=self.group, generation_id=self._generation, member_id=self._member_id
            )
            if await self._call("Heartbeat", request, 4, 5.0) is None:
                return
            if mine:
                await self.commit(self.some_place(mine), self._generation, self._member_id)
                await self.fetch_offset(self.some_place(mine))
        if self.rng.random() < 0.5:
            await self._leave()

    async def _leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self._member_id)]
        )
        try:
            await self.connection.call(request, 5)
        except Lost:
            return
        self._member_id = ""
