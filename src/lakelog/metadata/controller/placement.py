"""The placement of new partitions on brokers and racks."""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[int, str | None]
"""Broker id and rack."""


def place_replicas(
    brokers: Sequence[Place], partitions: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, its preferred leader first.

    Leaders are assigned to the brokers in turn, beginning with the broker at `start`. Replicas are
    placed on different racks as long as there are enough. `replication_factor` must not exceed the
    number of brokers. Source: KIP-36.
    """
    assert 1 <= replication_factor <= len(brokers)
    ring = sorted(brokers)
    return [
        _replicas(_rotated(ring, start + partition), replication_factor, partition)
        for partition in range(partitions)
    ]


def _rotated(ring: Sequence[Place], by: int) -> list[Place]:
    by %= len(ring)
    return [*ring[by:], *ring[:by]]


def _replicas(candidates: list[Place], count: int, shift: int) -> tuple[int, ...]:
    """Followers begin at another distance from the leader in each round.

    The partitions that a dead broker led are then spread over all other brokers.
    """
    leader, *others = candidates
    if others:
        others = _rotated(others, shift // len(candidates))
    chosen = [leader]
    for distinct_rack in (True, False):
        for place in others:
            if len(chosen) == count:
                break
            used = {rack for _, rack in chosen if rack is not None}
            if place not in chosen and not (distinct_rack and place[1] in used):
                chosen.append(place)
    assert len({broker_id for broker_id, _ in chosen}) == count, "replicas are on different brokers"
    return tuple(broker_id for broker_id, _ in chosen)
