"""Leader, in-sync and eligible replicas of one partition as brokers come and go (KIP-966).

A fenced broker leads nothing and leaves the ISR. With fewer in-sync replicas than
`min.insync.replicas` the leader commits nothing, so a replica that leaves the ISR then keeps every
committed record: it becomes an eligible leader replica (ELR). Once enough replicas are in sync,
records are committed without the others, and the ELR is empty.

A broker that cannot write (its disk is full or failed) is read-only: it is in an ISR, and leads,
only while no other replica with every committed record can lead.

A replica whose log cannot even be read is offline until its broker starts again (KIP-858). It is in
no ISR, and no election chooses it. It may stay eligible: its log may have every committed record.

Only members of the ISR and the ELR are elected. A broker that lost data leaves both before it can
be unfenced. Without an eligible replica the partition has no leader, unless
`unclean.leader.election.enable` or an operator accepts the loss of records, or the partition has
one replica alone, which has kept its folder: no other replica could have more of the records.

These functions are part of the format of the metadata log: they define the effect of its records.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

NO_LEADER = -1
AT_START = -1
"""The leader epoch of failures that a start has found."""


class Failure(NamedTuple):
    """A failure of the log of one replica.

    leader_epoch: in which the replica found it; `AT_START` when no leader knows a position of its
        process.
    is_offline: whether the log cannot even be read.
    """

    leader_epoch: int
    is_offline: bool = False


class PartitionImage(NamedTuple):
    """Replicas, ISR, leader, epochs and eligible replicas of one partition.

    `leader` is -1 if there is none.
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Replicas outside of the ISR that have every committed record."""
    last_known_elr: tuple[int, ...] = ()
    """Replicas that had every committed record until a failure, the latest last; they kept their
    folders and may have lost the end of their logs."""
    offline: tuple[int, ...] = ()
    """Replicas whose logs their brokers cannot use."""

    def led_by(self, leader: int, isr: tuple[int, ...]) -> PartitionImage:
        """Return the partition with this leader, in a new leader epoch."""
        assert leader == NO_LEADER or leader in isr, "the leader is in the ISR"
        assert leader not in self.offline, "an offline replica does not lead"
        return self.altered(isr=isr, leader=leader, leader_epoch=self.leader_epoch + 1)

    def altered(self, **changes: Any) -> PartitionImage:
        """Return the partition with other fields, in its next partition epoch."""
        return self._replace(partition_epoch=self.partition_epoch + 1, **changes)

    def with_isr(self, isr: tuple[int, ...], min_isr: int) -> PartitionImage:
        """Return the partition with another ISR and the ELR that follows; the epochs are unchanged.

        min_isr: `min.insync.replicas`, which counts as far as there are replicas.
        """
        assert set(isr) <= set(self.replicas), "only replicas are in sync"
        # From now on the leader commits with these replicas alone, so replicas outside of the ISR
        # miss records at once and lose their eligibility.
        if len(isr) >= min(min_isr, len(self.replicas)):
            return self._replace(isr=isr, elr=(), last_known_elr=())
        # With fewer replicas nothing is committed. A replica that leaves now therefore keeps having
        # every committed record, for as long as the ISR stays short.
        eligible = {*self.isr, *self.elr}
        return self._replace(
            isr=isr,
            elr=tuple(id_ for id_ in self.replicas if id_ in eligible and id_ not in isr),
            last_known_elr=tuple(id_ for id_ in self.last_known_elr if id_ not in isr),
        )


def after_fencing(
    partition: PartitionImage, broker_id: int, fenced: Container[int], min_isr: int
) -> PartitionImage:
    """Return the partition after the fencing of one broker; the same object if nothing changes.

    fenced: the fenced brokers, with this one.
    """
    if broker_id not in partition.isr:
        return partition
    others = _without(partition.isr, broker_id)
    return _with_leader(partition, partition.with_isr(others, min_isr), fenced, min_isr)


def after_loss(
    partition: PartitionImage,
    broker_id: int,
    fenced: Container[int],
    min_isr: int,
    *,
    keeps_folder: bool,
) -> PartitionImage:
    """Return the partition after one replica may have lost records.

    The same object if it did not have all of them before. keeps_folder: whether it may have lost
    the end of its log only.
    """
    if broker_id not in (*partition.isr, *partition.elr):
        return partition if keeps_folder else _without_last_known(partition, broker_id)
    others = _without(partition.isr, broker_id)
    changed = partition.with_isr(others, min_isr)
    is_short = len(others) < min(min_isr, len(partition.replicas))
    changed = changed._replace(
        # `with_isr` has just made it eligible, as it does for a broker that only left.
        elr=_without(changed.elr, broker_id),
        last_known_elr=(
            (*changed.last_known_elr, broker_id)
            # If enough others are in sync, they have every committed record, and the last known
            # replica is of no use.
            if keeps_folder and is_short
            else changed.last_known_elr
        ),
    )
    assert broker_id not in (*changed.isr, *changed.elr), "it may lack committed records"
    return _with_leader(partition, changed, fenced, min_isr)


def with_offline(partition: PartitionImage, broker_id: int, min_isr: int) -> PartitionImage:
    """Return the partition after a broker has found that it cannot use the log of its replica.

    The same object if that is known. The caller has to find another leader, see `after_failure`.
    """
    if broker_id in partition.offline:
        return partition
    offline = {broker_id, *partition.offline}
    # A log of the first versions of records has the last in-sync replica in the ISR without a
    # leader.
    if partition.leader == NO_LEADER and broker_id in partition.isr:
        others = _without(partition.isr, broker_id)
        partition = partition.with_isr(others, min_isr)
    return partition.altered(
        offline=tuple(node_id for node_id in partition.replicas if node_id in offline)
    )


def without_offline(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """Return the partition after a start of the broker; the same object if nothing changes.

    The new process reports the logs that it cannot open before it can lead.
    """
    if broker_id not in partition.offline:
        return partition
    return partition.altered(offline=_without(partition.offline, broker_id))


def after_failure(
    partition: PartitionImage,
    broker_id: int,
    failure: Failure,
    unable: frozenset[int],
    min_isr: int,
) -> PartitionImage:
    """Return the partition after the log of one replica was found damaged or has failed.

    A leader without a successor stays while its log can be read, as there is no other copy of its
    records. Otherwise the partition has no leader, and the replica stays eligible: it leads again
    after a start that has opened its log. Any other replica is not eligible any more. The leader
    epoch rises, so that no leader counts an earlier position of the replica, which copies the log
    again. The same object if that has happened.

    unable: the brokers that cannot lead instead.
    """
    failed_in, is_offline = failure
    is_eligible = broker_id in (*partition.isr, *partition.elr)
    if not is_eligible and partition.leader_epoch > failed_in:
        return partition
    if is_offline and partition.leader == NO_LEADER:
        return partition
    # A running replica deletes its records before it copies them again. An unclean election that
    # preferred it, as after the loss of the end of its log, could lose all records.
    keeps = failed_in == AT_START
    if partition.leader == broker_id:
        unable |= {broker_id}
        changed = after_loss(partition, broker_id, unable, min_isr, keeps_folder=keeps)
        if changed.leader != NO_LEADER:
            return changed
        return after_fencing(partition, broker_id, unable, min_isr) if is_offline else partition
    changed = after_loss(partition, broker_id, unable, min_isr, keeps_folder=keeps)
    if failed_in == AT_START or changed.leader == NO_LEADER:
        return changed
    return changed.led_by(changed.leader, changed.isr)


def without_read_only(
    partition: PartitionImage, read_only: frozenset[int], fenced: frozenset[int], min_isr: int
) -> PartitionImage:
    """Return the partition without replicas in the ISR whose brokers cannot write.

    The same object if there are none, or if no other replica has every committed record and can
    lead: then the read-only leader stays, and serves reads.
    """
    if read_only.isdisjoint(partition.isr):
        return partition
    unable = fenced | read_only
    leader = _eligible(partition, unable)
    if leader == NO_LEADER:
        return partition
    if leader not in partition.isr:
        return _led_by(partition, leader, min_isr)
    others = tuple(node_id for node_id in partition.isr if node_id not in read_only)
    assert leader in others, "a partition with a leader keeps one"
    return _with_leader(partition, partition.with_isr(others, min_isr), unable, min_isr)


def has_eligible(partition: PartitionImage) -> bool:
    """Return whether the start of some broker, fenced or not, gives the partition a leader."""
    return _eligible(partition._replace(offline=()), ()) != NO_LEADER


def elected(partition: PartitionImage, fenced: Container[int], min_isr: int) -> PartitionImage:
    """Return a partition without a leader led by an eligible replica.

    The same object if none can lead.
    """
    assert partition.leader == NO_LEADER
    leader = _eligible(partition, fenced)
    return partition if leader == NO_LEADER else _led_by(partition, leader, min_isr)


def elected_uncleanly(partition: PartitionImage, fenced: Container[int]) -> PartitionImage:
    """Return a partition without a leader led by any replica, which may lack committed records.

    A replica that had all of them until a failure comes before the others. The same object if no
    replica can lead.
    """
    assert partition.leader == NO_LEADER
    # The latest failure first: that replica had the most committed records.
    last_known = (
        id_
        for id_ in reversed(partition.last_known_elr)
        if id_ not in fenced and id_ not in partition.offline
    )
    leader = next(last_known, _first(partition, partition.replicas, fenced))
    return partition if leader == NO_LEADER else led_uncleanly(partition, leader)


def may_lack_records(old: PartitionImage, new: PartitionImage) -> bool:
    """Return whether committed records may be missing in the log of the new leader.

    A replica that joins the ISR of the old leader may lead in the same step.
    """
    if new.leader in (NO_LEADER, old.leader, *old.isr, *old.elr):
        return False
    return old.leader not in new.isr


def led_uncleanly(partition: PartitionImage, leader: int) -> PartitionImage:
    """Return the partition led by this replica, whose log the others copy."""
    assert leader in partition.replicas
    # The ISR is the leader alone: every other replica has to truncate to its log first, even if it
    # has more records.
    return partition.led_by(leader, (leader,))._replace(elr=(), last_known_elr=())


def under_settings(partition: PartitionImage, min_isr: int) -> PartitionImage:
    """Return the partition under a changed `min.insync.replicas`.

    If enough replicas are in sync now, the leader commits without the ELR. The same object if
    nothing changes.
    """
    if not (partition.elr or partition.last_known_elr):
        return partition
    changed = partition.with_isr(partition.isr, min_isr)
    if changed == partition:
        return partition
    return changed.altered()


def without_broker(
    partition: PartitionImage, broker_id: int, fenced: Container[int]
) -> PartitionImage:
    """Return the partition after a broker left, by the rules before there was an ELR.

    The last in-sync replica stays in the ISR. Entries of the first versions of records mean this.
    The same object if nothing changes. fenced: the fenced brokers, with this one or without it.
    """
    if broker_id not in partition.isr:
        return partition
    others = _without(partition.isr, broker_id)
    # The last member keeps its place even though it is fenced. Without it the image would not show
    # which replica has every committed record, and an election would lose some (KIP-966).
    if not others:
        is_leader = partition.leader == broker_id
        return partition.led_by(NO_LEADER, partition.isr) if is_leader else partition
    if partition.leader == broker_id:
        return partition.led_by(_first(partition, others, fenced), others)
    # No new leader epoch: the leader is the same, and its producers and fetches continue. The
    # partition epoch rises, so that an AlterPartition decided on the old ISR is rejected.
    return partition.altered(isr=others)


def _with_leader(
    old: PartitionImage, changed: PartitionImage, fenced: Container[int], min_isr: int
) -> PartitionImage:
    """Return the changed partition in its next epochs, with the old leader or another one."""
    # The leader stays, and so does its leader epoch: its producers' appends and its followers'
    # positions remain valid. The partition epoch rises, so that an AlterPartition decided on the
    # old ISR is rejected (KIP-497).
    if old.leader in (NO_LEADER, *changed.isr):
        return changed._replace(partition_epoch=old.partition_epoch + 1)
    leader = _eligible(changed, fenced)
    if leader == NO_LEADER:
        # A new leader epoch even without a leader: the old leader, if it still runs, must not
        # commit in its epoch.
        return changed.led_by(NO_LEADER, changed.isr)
    return _led_by(changed, leader, min_isr)


def _led_by(partition: PartitionImage, leader: int, min_isr: int) -> PartitionImage:
    assert leader in (*partition.isr, *partition.elr, *partition.last_known_elr)
    if leader in partition.isr:
        return partition.led_by(leader, partition.isr)
    # A leader from the ELR begins with itself as the ISR. The other members of the ELR remain
    # eligible until enough replicas are in sync.
    return partition.with_isr((leader,), min_isr).led_by(leader, (leader,))


def _eligible(partition: PartitionImage, fenced: Container[int]) -> int:
    """Return the replica that can lead without a loss of records that another one has, or -1."""
    # The ISR first: the ELR is complete only up to the committed records. A member of the ISR may
    # have later ones, whose producers still wait.
    for candidates in (partition.isr, partition.elr):
        leader = _first(partition, candidates, fenced)
        if leader != NO_LEADER:
            return leader
    is_alone = len(partition.replicas) == 1 and partition.last_known_elr == partition.replicas
    return _first(partition, partition.replicas, fenced) if is_alone else NO_LEADER


def _first(partition: PartitionImage, candidates: tuple[int, ...], fenced: Container[int]) -> int:
    """Return the first replica in the order of preference that can lead, or -1."""
    able = (
        id_
        for id_ in partition.replicas
        if id_ in candidates and id_ not in fenced and id_ not in partition.offline
    )
    return next(able, NO_LEADER)


def _without_last_known(partition: PartitionImage, broker_id: int) -> PartitionImage:
    if broker_id not in partition.last_known_elr:
        return partition
    return partition.altered(last_known_elr=_without(partition.last_known_elr, broker_id))


def _without(replicas: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(node_id for node_id in replicas if node_id != broker_id)
