"""A member of a classic group: it joins, assigns partitions if it leads, commits and leaves.

A static member (KIP-345) stops without LeaveGroup and joins again under its instance id, before or
after its session expires. Sometimes an administrator removes it meanwhile.
"""

from __future__ import annotations

import json
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE
from simulator.clients.context import ClientContext
from simulator.clients.groups.member import DYNAMIC, EXPELLED, GroupClient, Role
from simulator.clients.groups.member_transactions import MemberTransactions
from simulator.network.connection import NoResponse

_SESSION_MS = 5_000
_REBALANCE_MS = 4_000
_PROTOCOL = "plain"
_IN_A_TRANSACTION = 0.1
"""Chance that a dynamic member commits an offset in a transaction."""


class ClassicMember(GroupClient):
    """Its assignments are JSON, which the broker does not decode."""

    _member_id = ""
    _generation = -1

    def __init__(
        self,
        context: ClientContext,
        name: str,
        group: str,
        partitions: list[Place],
        role: Role = DYNAMIC,
    ) -> None:
        super().__init__(context, name, group, partitions, role)
        self._transactions = MemberTransactions(self)

    @property
    def may_stay_away(self) -> bool:
        return super().may_stay_away and not self._transactions.is_open

    def replaced(self) -> ClassicMember:
        successor = ClassicMember(
            self.context, self.next_name, self.group, self.topic_partitions, self.role
        )
        successor._transactions.is_open = self._transactions.is_open
        return successor

    async def run(self) -> None:
        await self.find_coordinator()
        await self.stay_down()
        while not self.is_over:
            mine = await self._join()
            if mine is not None:
                self.owned = frozenset(mine)
                await self._stay(mine)
                self.owned = frozenset()
            await self.pause(0.0, 0.5)
        if self.instance is None:
            await self._leave()
        await self._transactions.close()

    async def _join(self) -> list[Place] | None:
        """Join the next generation; return the assigned partitions, or None if that failed."""
        starts, asked_at = self.context.brokers.starts, self.now
        at_least = self.members.generation(self.group)
        answer = await self._call("JoinGroup", self._join_request(), 7, 15.0)
        if answer is None:
            return None
        self.held(self._member_id, asked_at, starts, written=False)
        self._note_generation(answer.generation_id, at_least)
        old, self._generation = self._generation, answer.generation_id
        if 0 <= old < self._generation and self.rng.random() < 0.25:
            await self._act_as_zombie(old, starts)
        shares = self._divide(answer) if answer.leader == self._member_id else []
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=shares,
        )
        answer = await self._call("SyncGroup", sync, 5, 15.0)
        if answer is None:
            return None
        mine = [(topic, index) for topic, index in json.loads(bytes(answer.assignment) or b"[]")]
        owner = self.instance or self._member_id
        self.members.assigned(self.group, self._generation, owner, mine)
        self.held(self._member_id, asked_at, starts, written=True)
        self.note("assigned", self._generation, mine)
        return mine

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )

    def _note_generation(self, generation: int, at_least: int) -> None:
        """Check a generation; `at_least` is the newest assigned before the request."""
        at_least = min(at_least, self.members.generation(self.group))
        self.findings.expect(
            Law.GENERATION_FORWARD,
            generation >= at_least,
            f"{self.group} is in generation {generation} after {at_least}",
        )
        if self.instance is not None and self._generation < 0 < at_least == generation:
            self.findings.counts["returns without a rebalance"] += 1

    async def _act_as_zombie(self, generation: int, starts: int) -> None:
        """Commit as a member that slept through a rebalance: the broker has to reject it.

        Only while no broker started or failed to write: an incomplete generation is not in the log,
        and a coordinator that loads the group continues with the previous generation.
        """
        if self.context.plan.faults & {"disk full", "disk error"}:
            return
        partition = self.some_place(self.topic_partitions)
        if self.rng.random() < 0.5:
            done = await self._transactions.commit(
                partition, generation, self._member_id, keep=False
            )
            how = "in a transaction"
        else:
            done, how = await self.commit(partition, generation, self._member_id), "by itself"
        self.findings.expect(
            Law.OLD_GENERATION,
            not done or self.context.brokers.starts != starts,
            f"{self.name}: generation {generation} has committed {how} in {self._generation}",
        )

    def _divide(self, answer: Any) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in answer.members)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=json.dumps(self.topic_partitions[number :: len(members)]).encode(),
            )
            for number, member_id in enumerate(members)
        ]

    async def _call(self, what: str, request: Any, version: int, timeout_s: float) -> Any:
        """Return the response; None after an error, or without a response."""
        asking, starts = self._member_id, self.context.brokers.starts
        fenced, asked_at = self.is_fenced(asking), self.now
        try:
            answer = await self.connection.call(request, version, timeout_s)
        except NoResponse:
            return None
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return None
        if code == 0:
            if what == "Heartbeat":
                fenced = fenced and not self.members.was_loading(self.group, asked_at)
            self.expect_refused(what, asking, fenced)
            self._member_id = getattr(answer, "member_id", self._member_id)
            return answer
        if code == ErrorCode.FENCED_INSTANCE_ID:
            await self._on_fenced(asking or getattr(answer, "member_id", ""), starts)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        elif code not in EXPELLED | RETRIABLE:
            self.unexpected(what, code)
        return None

    async def _on_fenced(self, member_id: str, starts: int) -> None:
        """Sometimes commit as the fenced member, which must fail; then join again."""
        self.was_fenced(member_id, starts)
        if self._generation >= 0 and self.rng.random() < 0.5:
            await self.commit(self.some_place(self.topic_partitions), self._generation, member_id)
        self._forget()
        await self.pause(0.5, 4.0)

    def _forget(self) -> None:
        self._member_id = ""
        if self.instance is not None:
            self._generation = -1

    async def _stay(self, mine: list[Place]) -> None:
        """Send heartbeats and commits until a rebalance, or for some time while groups change."""
        for partition in mine:
            await self.fetch_offset(partition)
        beats = self.rng.randint(3, 25)
        while beats > 0 or self.conditions.is_settling:
            if self.is_over:
                return
            beats -= 1
            await self.pause(0.2, 1.0)
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self.instance,
            )
            if await self._call("Heartbeat", request, 4, 5.0) is None:
                return
            if mine:
                await self._commit(self.some_place(mine))
                await self.fetch_offset(self.some_place(mine))
        if self.rng.random() < 0.5:
            await self._go()

    async def _commit(self, partition: Place) -> None:
        if self.instance is None and self.rng.random() < _IN_A_TRANSACTION:
            keep = self.rng.random() < 0.7
            await self._transactions.commit(partition, self._generation, self._member_id, keep=keep)
        else:
            await self.commit(partition, self._generation, self._member_id)

    async def _go(self) -> None:
        """Leave the group; a static member may just stop, or be removed by an administrator."""
        if self.instance is None or self.rng.random() < 0.3:
            await self._leave()
        self._forget()
        self.owned = frozenset()
        await self.stay_down()

    async def _leave(self) -> None:
        member_id = self._member_id if self.instance is None else ""
        leaving = MemberIdentity(member_id=member_id, group_instance_id=self.instance)
        try:
            await self.connection.call(LeaveGroupRequest(group_id=self.group, members=[leaving]), 5)
        except NoResponse:
            return
