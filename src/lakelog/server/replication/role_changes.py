"""How often this broker was elected, and the ISRs that it leads shrank or grew, since its start."""

from __future__ import annotations

from lakelog.replica.partition import Partition
from lakelog.replica.role import NO_ROLE, Role


class RoleChanges:
    """Counts of changes, for operators. A change of ISR counts at the leader, as in Kafka."""

    def __init__(self) -> None:
        self.elections = 0
        """Times that this broker became the leader of a partition with other replicas."""
        self.isr_shrinks = 0
        self.isr_expansions = 0
        self._last: dict[Partition, Role] = {}

    def note_role(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        if partition.is_retired:
            self._last.pop(partition, None)
            return
        before, now = self._last.get(partition, NO_ROLE), partition.role
        self._last[partition] = now
        if not (now.is_leader and now.followers):
            return
        if not before.is_leader or before.leader_epoch != now.leader_epoch:
            self.elections += 1
        if before is not NO_ROLE:
            was_in, is_in = frozenset(before.isr), frozenset(now.isr)
            self.isr_shrinks += bool(was_in - is_in)
            self.isr_expansions += bool(is_in - was_in)
