"""The law of availability: a sound majority acknowledges, regardless of the other brokers.

It is judged from acknowledgements that a client received and from the plan of faults. A majority is
obliged as soon as it has been sound for `COMPLETE_S` with a member that has every acknowledged
record, and as long as it stays sound. A death, a pause or a cut restarts the clock, because the
cluster has to notice it. The end of a fault does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.cluster.plan import SESSION_S
from simulator.cluster.soundness import Pair, Soundness

Key = TypeVar("Key")

SILENCE_S_MAX = SESSION_S + 2.0
"""The longest time without an acknowledgement while a majority is obliged."""
COMPLETE_S = SESSION_S + 2.0
"""The time in which a broker that returns gets the records that it lacks."""


@dataclass(slots=True)
class _Partition:
    replicas: frozenset[int]
    acked_at: float
    complete: set[int]
    """Brokers that have every acknowledged record."""
    obliged_at: dict[Pair, float] = field(default_factory=dict)


class Availability:
    """The watched partitions of a world. All times are seconds of the loop.

    Args:
        state: the brokers at the time `now`, all of which are sound.
    """

    def __init__(self, findings: Findings, state: Soundness, now: float) -> None:
        self._findings = findings
        self._state = state
        self._now = now
        self._worse_at = now
        self._pair_since = dict.fromkeys(state.pairs, now - 2 * COMPLETE_S)
        self._untouched_since = dict.fromkeys(state.untouched, now - 2 * COMPLETE_S)
        self._partitions: dict[Place, _Partition] = {}

    def watch(self, partition: Place, replicas: Iterable[int]) -> None:
        """Watch a new partition, which is empty."""
        self._partitions[partition] = _Partition(frozenset(replicas), self._now, set(replicas))

    def acknowledged(self, topic_partition: Place) -> None:
        """Note an acknowledgement at the time of the last `observe`.

        A broker that a fault touches may lack the record.
        """
        partition = self._partitions[topic_partition]
        partition.acked_at = self._now
        partition.complete &= self._state.untouched

    def observe(self, state: Soundness, now: float) -> None:
        """Note the state of the brokers, and check every partition."""
        before, self._state, self._now = self._state, state, now
        if state.is_worse_than(before):
            self._worse_at = now
        restarted = state.restarted_since(before)
        kept = {pair for pair in state.pairs if restarted.isdisjoint(pair)}
        self._pair_since = _since(self._pair_since, kept, state.pairs, now)
        self._untouched_since = _since(
            self._untouched_since, state.untouched - restarted, state.untouched, now
        )
        for topic_partition, partition in self._partitions.items():
            self._complete(partition)
            self._oblige(partition)
            self._check(topic_partition, partition)

    def silent_s(self, partition: Place) -> float:
        """Return the time without an acknowledgement since brokers or ways were lost."""
        return self._now - max(self._partitions[partition].acked_at, self._worse_at)

    def able_s(self, node_id: int) -> float:
        """Return for how long no fault has touched a broker."""
        since = self._untouched_since.get(node_id)
        return 0.0 if since is None else self._now - since

    def _complete(self, partition: _Partition) -> None:
        """Find brokers that are complete again: each had the time to copy from another one."""
        if len(self._untouched_since) == len(self._state.runs) and all(
            self.able_s(node_id) > COMPLETE_S for node_id in self._untouched_since
        ):
            partition.complete |= partition.replicas & self._untouched_since.keys()
        for pair, since in self._pairs_of(partition):
            if self._now - since > COMPLETE_S and not partition.complete.isdisjoint(pair):
                partition.complete.update(
                    node_id for node_id in pair if self.able_s(node_id) > COMPLETE_S
                )

    def _oblige(self, partition: _Partition) -> None:
        partition.obliged_at = {
            pair: partition.obliged_at.get(pair, self._now)
            for pair, since in self._pairs_of(partition)
            if partition.obliged_at.get(pair, -1.0) >= since
            or (self._now - since > COMPLETE_S and not partition.complete.isdisjoint(pair))
        }

    def _pairs_of(self, partition: _Partition) -> Iterator[tuple[Pair, float]]:
        """Yield pairs of replicas, and since when each is one."""
        for pair, since in self._pair_since.items():
            if partition.replicas.issuperset(pair):
                yield pair, since

    def _check(self, topic_partition: Place, partition: _Partition) -> None:
        for pair, obliged_at in partition.obliged_at.items():
            self._findings.counts["moments of an obliged majority"] += 1
            silent_s = self._now - max(partition.acked_at, self._worse_at, obliged_at)
            if silent_s > SILENCE_S_MAX:
                partition.acked_at = self._now
                self._findings.violation(
                    Law.AVAILABLE,
                    f"{topic_partition} acknowledged nothing for {silent_s:.1f} s "
                    f"until {self._now:.1f}, and brokers {pair} could: {self._state}",
                )
                return


def _since(
    known: dict[Key, float], kept: Iterable[Key], present: Iterable[Key], now: float
) -> dict[Key, float]:
    """Return since when each present thing is so; times of other things start again."""
    still = {key: known[key] for key in kept if key in known}
    return {key: still.get(key, now) for key in present}
