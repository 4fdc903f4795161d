"""The base of group members of both protocols: committed offsets, and static membership."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.context import ClientContext
from simulator.network.connection import NoResponse

EXPELLED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_NOT_NOW = frozenset({*RETRIABLE, ErrorCode.UNSTABLE_OFFSET_COMMIT})
_DOWN_S_MAX = 10.0
"""Longer than a session."""


@dataclass(frozen=True, slots=True)
class Role:
    """Static members have an instance id; a rival takes it over from another process."""

    instance: str | None = None
    rivals: bool = False


DYNAMIC = Role()


class GroupClient(Client):
    """A member of `group`, which reads `partitions`."""

    owned: frozenset[Place] = frozenset()
    """Its assigned partitions, as far as it knows."""

    def __init__(
        self,
        context: ClientContext,
        name: str,
        group: str,
        partitions: list[Place],
        role: Role = DYNAMIC,
    ) -> None:
        super().__init__(context, name)
        self.group = group
        self.topic_partitions = partitions
        self.role = role

    @property
    def instance(self) -> str | None:
        return self.role.instance

    @property
    def may_stay_away(self) -> bool:
        """Whether the client need not be replaced after a crash."""
        return self.instance is None

    @property
    def is_over(self) -> bool:
        """Whether the member has to finish; rivals finish before the group settles."""
        return self.conditions.is_ending or (self.role.rivals and self.conditions.is_settling)

    async def stay_down(self) -> None:
        """Pause a static member, as if its process were down before it joins again."""
        if self.instance is not None:
            await self.pause(0.0, _DOWN_S_MAX if self.rng.random() < 0.5 else 1.0)

    def held(self, member_id: str, asked_at: float, starts: int, *, written: bool) -> None:
        """Record that the broker accepted the member as the holder of the instance id."""
        if self.instance is not None and (written or self._unwritten_counts):
            times = asked_at, self.now
            self.members.holds(self.group, self.instance, member_id, times, starts, written=written)

    def was_fenced(self, member_id: str, starts: int) -> None:
        """Record FENCED_INSTANCE_ID; it is unexpected for a dynamic member."""
        if self.instance is None:
            self.unexpected(f"member {member_id}", ErrorCode.FENCED_INSTANCE_ID)
            return
        self.findings.counts["fenced instances"] += 1
        if self._unwritten_counts:
            self.members.fenced(self.group, self.instance, member_id, starts)

    @property
    def _unwritten_counts(self) -> bool:
        """Whether the broker knows a takeover that is not in the log until it stops.

        A broker that cannot write a generation loads the previous state of the group again.
        """
        return not self.context.plan.faults & {"disk full", "disk error"}

    def is_fenced(self, member_id: str) -> bool:
        """Return whether the broker has to reject all requests of the member now."""
        return self.members.is_fenced(member_id, self.context.brokers.starts)

    def expect_refused(self, what: str, member_id: str, fenced: bool) -> None:
        """Check an accepted request; `fenced` is `is_fenced` when it was sent."""
        self.findings.expect(
            Law.FENCED_INSTANCE,
            not (fenced and self.is_fenced(member_id)),
            f"{self.name}: {what} of {member_id} was accepted, which no longer is {self.instance}",
        )

    async def find_coordinator(self) -> None:
        """Wait for the coordinator; the first request creates the topic of committed offsets."""
        while True:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
            (found,) = (await self.ask(request, 4)).coordinators
            if found.error_code == 0:
                return
            await self.pause(0.1, 0.5)

    async def commit(self, partition: Place, epoch: int, member_id: str) -> bool:
        """Commit an offset once, in a generation or epoch; return whether it was acknowledged."""
        value = self.offsets.will_commit(self.group, partition)
        entry = OffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=value, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=partition[0], partitions=[entry])],
        )
        starts, fenced = self.context.brokers.starts, self.is_fenced(member_id)
        try:
            answer = (await self.connection.call(request, 9)).topics[0].partitions[0]
        except NoResponse:
            return False
        if answer.error_code == ErrorCode.FENCED_INSTANCE_ID:
            self.was_fenced(member_id, starts)
        elif answer.error_code == 0:
            self.expect_refused("a commit", member_id, fenced)
            self.offsets.acknowledged(self.group, partition, value, self.home.log_ends())
            return True
        elif answer.error_code not in _NOT_NOW | EXPELLED:
            self.unexpected("OffsetCommit", answer.error_code)
        return False

    async def fetch_offset(self, partition: Place, *, insist: bool = False) -> None:
        """Fetch and check a committed offset; with `insist`, retry until there is a response."""
        wanted = OffsetFetchRequestTopics(name=partition[0], partition_indexes=[partition[1]])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])],
            require_stable=True,
        )
        while True:
            at_least = self.offsets.last_done(self.group, partition)
            asked_at = self.now
            try:
                (group,) = (await self.connection.call(request, 8)).groups
            except NoResponse:
                if not insist:
                    return
                await self.pause(0.1, 0.5)
                continue
            code = group.error_code or group.topics[0].partitions[0].error_code
            if code == 0:
                found = group.topics[0].partitions[0].committed_offset
                if self.conditions.cut_at >= asked_at:
                    at_least = min(at_least, self.offsets.last_done(self.group, partition))
                self.offsets.fetched(self.group, partition, found, at_least)
                self.note("offset", partition, found)
                return
            if code not in _NOT_NOW:
                self.unexpected("OffsetFetch", code)
                return
            if not insist:
                return
            await self.pause(0.1, 0.5)
