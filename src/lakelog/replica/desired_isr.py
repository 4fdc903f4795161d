"""Which replicas are in sync: the decisions of a leader, without I/O.

A replica leaves the ISR when it has been behind for more than `replica.lag.time.max.ms` (KIP-16),
or for a shorter time if its broker does not call the leader, or if it does not fetch although
others do. It joins when it has all committed records and has reached the start of the leader's
epoch: before that, the leader may not know yet which records are committed.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from lakelog.replica.partition import Partition


class StallGuard:
    """Notices that this process did not run: then it does not know how far followers are.

    A leader that has just woken up finds the times of all fetches old, although the followers
    fetched, or tried to. It keeps all of them until they have had the whole time again, counted
    while it runs. A follower that was silent for the whole of such an extension has no part in
    another one: its silence has nothing to do with the later stalls.
    """

    def __init__(self, period_ms: int, lag_max_ms: int) -> None:
        """period_ms: the time between checks of a process that runs."""
        # Twice, because a busy loop delays turns a little. A paused process misses many of them.
        self._stall_ms = 2 * period_ms
        self._lag_max_ms = lag_max_ms
        self._last_ms: int | None = None
        self._left_ms = 0
        """The rest of the present extension."""
        self._since_ms = -1
        """When the latest extension began."""
        self._silent_ms = -1
        """When the latest extension that is over began."""

    def lag_ms(self, now_ms: int) -> int:
        """Note a check; return for how long a follower may be behind without leaving the ISR."""
        elapsed_ms = 0 if self._last_ms is None else now_ms - self._last_ms
        self._last_ms = now_ms
        if self._left_ms:
            # A stall counts as the longest period: followers had so little time to be heard.
            # Without that an extension would never end in a process whose checks are all late.
            self._left_ms = max(self._left_ms - min(elapsed_ms, self._stall_ms), 0)
            if not self._left_ms:
                self._silent_ms = self._since_ms
        if elapsed_ms > self._stall_ms and not self._left_ms:
            # The whole time again: followers whose connections broke during the pause need it to
            # connect and to fetch.
            self._left_ms, self._since_ms = self._lag_max_ms, now_ms
        if not self._left_ms:
            return self._lag_max_ms
        return max(now_ms - self._silent_ms, self._lag_max_ms)


def wanted_isr(
    partition: Partition,
    node_id: int,
    broker_epochs: Mapping[int, int],
    now_ms: int,
    lag_ms: int,
    silent: Container[int] = (),
    silent_lag_ms: int = 0,
    mute_ms: int | None = None,
) -> tuple[int, ...]:
    """Return the ISR that the leader `node_id` wants, in the order of the present one.

    broker_epochs: of the brokers that are not fenced, by node id.
    now_ms: of the monotonic clock.
    lag_ms: for how long a member may have been behind, see `StallGuard`.
    silent: brokers that have not called the leader for a session; `silent_lag_ms` counts for them.
    mute_ms: for how long a member may send no fetch while enough others do; None for any time.
    """
    role, end = partition.role, partition.log.log_end_offset
    assert role.is_leader
    members = [member for member in role.isr if member != node_id]
    lagging = partition.followers.lagging(members, end, now_ms, lag_ms)
    unreached = [member for member in members if member in silent]
    lagging += partition.followers.lagging(unreached, end, now_ms, min(lag_ms, silent_lag_ms))
    if mute_ms is not None and (mute := partition.followers.mute(members, end, now_ms, mute_ms)):
        remaining = 1 + len(set(members).difference(mute, lagging))
        # A broker that is cut off or stopped would delay all acknowledgements until its session
        # ends. A leader without any follower that fetches may itself be that broker.
        if remaining >= max(2, partition.log.config.min_insync_replicas):
            lagging += mute
    # The leader stays in its own ISR, even alone: it has every record by definition.
    isr = tuple(member for member in role.isr if member not in lagging)
    assert node_id in isr
    # In the order of the assignment, so that equal decisions give equal requests.
    others = (follower for follower in role.followers if follower not in role.isr)
    return isr + tuple(other for other in others if _has_caught_up(partition, other, broker_epochs))


def is_quiet(partition: Partition, broker_epochs: Container[int]) -> bool:
    """Return whether the ISR stays right until a follower stirs, or a broker or role changes.

    Each follower is in sync and waits at the end of the log, or cannot join because it is fenced.

    broker_epochs: as for `wanted_isr`.
    """
    role = partition.role
    for node_id in role.followers:
        if node_id not in role.isr:
            if node_id in broker_epochs:
                return False
            continue
        follower = partition.followers.get(node_id)
        if follower is None or follower.idle_in is None:
            return False
    return True


def _has_caught_up(partition: Partition, node_id: int, broker_epochs: Mapping[int, int]) -> bool:
    follower = partition.followers.get(node_id)
    if follower is None or follower.broker_epoch != broker_epochs.get(node_id):
        return False  # it has not fetched, or restarted since (KIP-903)
    # Right after an election the high watermark may be older than the committed end. All committed
    # records lie before the start of the leader's epoch.
    return follower.end_offset >= max(partition.watermark.offset, partition.epoch_start)
