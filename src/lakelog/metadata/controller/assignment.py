"""Replicas of new partitions: assigned by the client and checked, or placed on brokers and racks.

Fenced brokers count as down, and so do `unreached` ones: the controller has not heard of their
processes since its own start, so they may have died before it, without notice. Read-only brokers
cannot create logs, and count as down, too.

A reassignment (KIP-455) can only change the order of the replicas, which needs no copy; so no
reassignment is ever in progress. Error codes follow Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord

BrokerAndRack = tuple[int, str | None]
"""Broker id and rack."""


def place_replicas(
    brokers: Sequence[BrokerAndRack], partitions: int, replication_factor: int, start: int
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


def _rotated(ring: Sequence[BrokerAndRack], by: int) -> list[BrokerAndRack]:
    by %= len(ring)
    return [*ring[by:], *ring[:by]]


def _replicas(candidates: list[BrokerAndRack], count: int, shift: int) -> tuple[int, ...]:
    """Followers begin at another distance from the leader in each round.

    The partitions that a dead broker led are then spread over all other brokers.
    """
    leader, *others = candidates
    if others:
        others = _rotated(others, shift // len(candidates))
    chosen = [leader]
    for distinct_rack in (True, False):
        for candidate in others:
            if len(chosen) == count:
                break
            used = {rack for _, rack in chosen if rack is not None}
            if candidate not in chosen and not (distinct_rack and candidate[1] in used):
                chosen.append(candidate)
    assert len({broker_id for broker_id, _ in chosen}) == count, "replicas are on different brokers"
    return tuple(broker_id for broker_id, _ in chosen)


PARTITIONS_PER_REQUEST_MAX = 10_000


def choose_replicas(
    image: MetadataImage,
    partitions: int,
    replication_factor: int,
    start: int,
    unreached: frozenset[int] = frozenset(),
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, chosen by `place_replicas`.

    Brokers that are down get replicas only if there are too few others: a topic that is created
    while a broker restarts has a replica on it, too. They are no preferred leaders. Raises
    INVALID_REPLICATION_FACTOR when fewer brokers than replicas are registered.
    """
    down = _down(image, unreached)
    online, offline = _places(image, set(image.brokers) - down), _places(image, down)
    if replication_factor > len(online) + len(offline) or not online:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} exceeds the number of brokers, "
            f"{len(online) + len(offline)}; choose a lower factor, or start more brokers"
            if online
            else "all brokers are fenced, read-only or not reached yet; try again when one is "
            "online",
        )
    rest = replication_factor - len(online)
    if rest <= 0:
        return place_replicas(online, partitions, replication_factor, start)
    first = place_replicas(online, partitions, len(online), start)
    last = place_replicas(offline, partitions, rest, start)
    replicas = [(*before, *after) for before, after in zip(first, last, strict=True)]
    assert all(len(set(brokers)) == replication_factor for brokers in replicas)
    return replicas


def _down(image: MetadataImage, unreached: frozenset[int]) -> frozenset[int]:
    return image.fenced | image.read_only | unreached


def _places(image: MetadataImage, among: Container[int]) -> list[BrokerAndRack]:
    return [
        (broker_id, broker.rack)
        for broker_id, broker in sorted(image.brokers.items())
        if broker_id in among
    ]


def check_manual(
    image: MetadataImage,
    assignments: Mapping[int, Sequence[int]],
    first: int = 0,
    unreached: frozenset[int] = frozenset(),
) -> list[tuple[int, ...]]:
    """Return the assigned replicas in the order of partitions, of which the first must be `first`.

    Raises INVALID_REPLICA_ASSIGNMENT.
    """
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise _invalid("partitions must be numbered without gaps")
    replicas = [tuple(assignments[partition]) for partition in sorted(assignments)]
    for partition, brokers in enumerate(replicas, first):
        if not brokers:
            raise _invalid(f"partition {partition} has no replicas")
        if len(set(brokers)) != len(brokers):
            raise _invalid(f"partition {partition} names a broker twice")
        if len(brokers) != len(replicas[0]):
            raise _invalid("partitions have different numbers of replicas")
        unknown = sorted(set(brokers) - set(image.brokers))
        if unknown:
            raise _invalid(f"broker {unknown[0]} is not registered")
        if _down(image, unreached).issuperset(brokers):
            raise _invalid(
                f"all replicas of partition {partition} are fenced, read-only or not reached yet"
            )
    return replicas


def check_capacity(new_partitions: int) -> None:
    """Raise POLICY_VIOLATION if a request would not fit into one entry of the log."""
    if new_partitions > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"one request can create at most {PARTITIONS_PER_REQUEST_MAX} partitions; use several "
            "requests",
        )


def new_partitions(
    image: MetadataImage,
    topic_id: bytes,
    replicas: Sequence[tuple[int, ...]],
    first: int = 0,
    unreached: frozenset[int] = frozenset(),
) -> list[PartitionRecord]:
    """Return records of partitions whose replicas are in sync unless they are down.

    The first one in sync leads.
    """
    down, records = _down(image, unreached), []
    for partition, brokers in enumerate(replicas, first):
        isr = tuple(node_id for node_id in brokers if node_id not in down)
        assert isr, "the assignment was checked: a broker of each partition is online"
        records.append(PartitionRecord(topic_id, partition, brokers, isr, isr[0], 0, 0))
    return records


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


class Reassignment(NamedTuple):
    """The wanted replicas of a partition; None cancels a reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    """The result for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_reassignments(
    image: MetadataImage,
    moves: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> Plan[list[ReassignmentResult]]:
    """Return one result per partition, in the order of the request (KIP-455).

    Raises nothing for a rejected partition: its result has the error, and the others take effect. A
    partition that is named twice is rejected both times.
    """
    records = []
    results = []
    times = Counter((move.topic, move.partition) for move in moves)
    for move in moves:
        try:
            if times[move.topic, move.partition] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            records += _reassign(image, move, allow_replication_factor_change)
        except KafkaError as error:
            results.append(
                ReassignmentResult(move.topic, move.partition, error.code, error.message)
            )
        else:
            results.append(ReassignmentResult(move.topic, move.partition))
    return Plan(tuple(records), results)


def _reassign(
    image: MetadataImage, move: Reassignment, allow_factor_change: bool
) -> list[PartitionRecord]:
    topic = image.topic(move.topic)
    partition = None if topic is None else topic.partition(move.partition)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if move.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    (replicas,) = check_manual(image, {move.partition: move.replicas}, move.partition)
    if len(replicas) != len(partition.replicas) and not allow_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(partition.replicas)} replicas, the request {len(replicas)}",
        )
    if set(replicas) != set(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions cannot be moved to other brokers yet; the replicas are "
            f"{list(partition.replicas)}",
        )
    if replicas == partition.replicas:
        return []
    return [
        PartitionRecord(
            topic.topic_id,
            *partition.altered(replicas=replicas),
        )
    ]
