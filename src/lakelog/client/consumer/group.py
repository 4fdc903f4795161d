"""A member's session: joins in the caller's thread, and sends heartbeats in a thread of its own.

Each thread has its own connection to the coordinator. A lock guards the member's state, which both
share; no request is sent while it is held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, Membership, commit_offsets
from lakelog.client.consumer.membership import (
    GROUP_MOVED_ON,
    OTHER_COORDINATOR,
    GroupMember,
    MembershipState,
    Step,
)
from lakelog.client.errors import ClientError, log_retry, pauses
from lakelog.client.offsets import TopicPartition
from lakelog.protocol import groups as messages

_ANSWER_SLACK_S = 5.0
_LEAVE_TIMEOUT_S = 3.0
_LOOK_INTERVAL_S = 30.0


class GroupSession:
    """Keeps `member` in its group. The caller's thread uses `cluster`, the other one `beats`."""

    def __init__(
        self,
        member: GroupMember,
        cluster: Cluster,
        beats: Cluster,
        *,
        heartbeat_interval_s: float = 3.0,
        join_timeout_s: float = 300.0,
        interruptible: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._beats = beats
        self._interval_s = heartbeat_interval_s
        self._join_timeout_s = join_timeout_s
        self._interruptible = interruptible
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._failure: ClientError | None = None
        self._handed_out: tuple[frozenset[str], dict[str, int]] | None = None
        self._look_due_s = 0.0
        self._thread = threading.Thread(target=self._beat, name="lakelog-heartbeat", daemon=True)
        self._thread.start()

    @property
    def needs_join(self) -> bool:
        """Whether `join` must be called first. Raises the error of a heartbeat.

        The leader of the group also checks every 30 seconds for new partitions.
        """
        if self._handed_out is not None and time.monotonic() >= self._look_due_s:
            self._look_for_partitions()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return self._member.state is not MembershipState.STABLE

    @property
    def membership(self) -> Membership:
        """The member's current id, generation and leader."""
        return self._member.membership

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions assigned to this member."""
        return self._member.assigned

    def join(self, patience_s: float) -> frozenset[TopicPartition]:
        """Join until the member is stable; return its partitions.

        Raises the last `ClientError` after `patience_s` without a coordinator. Waiting for other
        members does not count. patience_s: seconds. Errors that are not retriable are raised at
        once.
        """
        deadline = time.monotonic() + patience_s
        for pause in pauses():
            step, failure = Step.FIND_COORDINATOR, None
            try:
                step = self._join_once()
            except ClientError as error:
                if not error.retriable:
                    raise
                failure = error
            if step is Step.GO_ON:
                return self._member.assigned
            if step is Step.REJOIN:
                deadline = time.monotonic() + patience_s
            if step is Step.FIND_COORDINATOR:
                self._cluster.forget_coordinator(self._member.group)
                if time.monotonic() + pause > deadline:
                    text = f"group {self._member.group!r}: the coordinator is not available"
                    raise failure or ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
                if failure is not None:
                    log_retry(failure, pause)
                time.sleep(pause)
        raise AssertionError("pauses never end")

    def commit(self, offsets: dict[TopicPartition, Committed]) -> None:
        """Commit as a member of this generation.

        Raises REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the group has
        rebalanced; other members then read the records again. A member that the group has removed
        has no id and must not commit: an empty group accepts commits without an id, and this one
        could overwrite later offsets.
        """
        membership = self._member.membership
        if not membership.member_id:
            text = f"this member is no longer in group {self._member.group!r}"
            raise ClientError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        try:
            commit_offsets(self._cluster, self._member.group, offsets, membership)
        except ClientError as error:
            if error.code in GROUP_MOVED_ON:
                with self._lock:
                    # The member rejoins at the next `poll`.
                    self._member.failed(error.code)
            raise

    def close(self) -> None:
        """Leave the group and stop the heartbeats.

        Waits at most 3 seconds for each of the two. Raises nothing if the coordinator is gone.
        """
        self._stopped.set()
        self._thread.join(_LEAVE_TIMEOUT_S)  # it may be waiting for a response that never comes
        goodbye = self._member.leave()
        if goodbye is not None and self._failure is None:
            self._leave(goodbye)

    def _leave(self, goodbye: messages.LeaveGroupRequest) -> None:
        """Find the coordinator again if it has moved: the others wait for a member that stays.

        Without an answer the coordinator removes the member after its session timeout.
        """
        group, deadline = self._member.group, time.monotonic() + _LEAVE_TIMEOUT_S
        for pause in pauses():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            with suppress(ClientError), self._cluster.hurrying(left_s):
                response = self._cluster.ask_coordinator(
                    group, goodbye, messages.LeaveGroupResponse
                )
                if response.error_code not in OTHER_COORDINATOR:
                    return
            self._cluster.forget_coordinator(group)
            time.sleep(max(min(pause, deadline - time.monotonic()), 0))

    def _join_once(self) -> Step:
        group, member = self._member.group, self._member
        limit = self._join_timeout_s + _ANSWER_SLACK_S
        with self._interruptible():  # the coordinator answers when the other members have joined
            response = self._cluster.ask_coordinator(
                group, member.join(), messages.JoinGroupResponse, timeout_s=limit
            )
        with self._lock:
            step = member.joined(response)
        if step is not Step.GO_ON:
            return step
        counts: dict[str, int] = {}
        self._handed_out = None
        if member.is_leader:
            counts = self._partition_counts(member.group_topics)
            self._handed_out = member.group_topics, counts
            self._look_due_s = time.monotonic() + _LOOK_INTERVAL_S
        synced = self._cluster.ask_coordinator(
            group, member.sync(counts), messages.SyncGroupResponse, timeout_s=limit
        )
        with self._lock:
            return member.synced(synced)

    def _look_for_partitions(self) -> None:
        assert self._handed_out is not None
        topics, counts = self._handed_out
        self._look_due_s = time.monotonic() + _LOOK_INTERVAL_S
        try:
            has_changed = self._partition_counts(topics) != counts
        except ClientError as error:
            if not error.retriable:
                raise
            return
        if has_changed:
            with self._lock:
                # Only the leader assigns partitions, so a rejoin of it starts a rebalance.
                self._member.rejoin()

    def _partition_counts(self, names: frozenset[str]) -> dict[str, int]:
        """Return the partition counts of existing topics; missing ones may be created later."""
        topics = self._cluster.refresh(names).topics
        return {name: len(topics[name].partitions) for name in names if name in topics}

    def _beat(self) -> None:
        limit = self._interval_s * 3
        with self._beats:
            while not self._stopped.wait(self._interval_s):
                with self._lock:
                    request = None
                    if self._member.state is MembershipState.STABLE:
                        # Built under the lock: id and generation must belong together.
                        request = self._member.heartbeat()
                if request is None:
                    continue
                try:
                    response = self._beats.ask_coordinator(
                        self._member.group,
                        request,
                        messages.HeartbeatResponse,
                        timeout_s=limit,
                    )
                except ClientError:
                    continue  # the next heartbeat asks for the coordinator again
                self._heard(request.generation_id, response)

    def _heard(self, generation: int, response: messages.HeartbeatResponse) -> None:
        if not response.error_code:
            return
        with self._lock:
            if (
                self._member.generation != generation
                or self._member.state is not MembershipState.STABLE
            ):
                return  # a response to a heartbeat of an earlier generation
            try:
                step = self._member.failed(error_code(response.error_code))
            except ClientError as error:
                # The caller's thread raises it at its next `poll`: this thread has no caller.
                self._failure = error
                return
        if step is Step.FIND_COORDINATOR:
            self._beats.forget_coordinator(self._member.group)
