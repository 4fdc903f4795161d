"""Asking the leaders of many partitions the same question, and again those that did not answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, UnreachableError

TopicPartition = tuple[str, int]
T = TypeVar("T")

AskLeader = Callable[[int, Sequence[TopicPartition], dict[TopicPartition, T]], None]
"""Asks one broker, by node id, about partitions that it leads, and adds what it answers. Raises
`ClientError` when it refused some of them; the others' answers have been added then."""


def ask_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T]:
    """Return the answer for each of `partitions`, following leaders as they change.

    The question must be one that may be asked twice. Raises `TopicNotFoundError`,
    `PartitionNotFoundError`, and the last `ClientError` after the cluster's time limit.
    """
    wanted = list(partitions)
    found: dict[TopicPartition, T] = {}

    def work() -> dict[TopicPartition, T]:
        missing = [key for key in wanted if key not in found]
        try:
            for node, keys in _by_leader(cluster, missing).items():
                ask(node, keys, found)
        except Exception as error:
            cluster.refresh({topic for topic, _ in missing})
            if isinstance(error, ConnectionLostError):
                raise UnreachableError.after(error) from error
            raise
        return found

    return cluster.retrying(work)


def _by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    nodes: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic, partition in partitions:
        nodes[cluster.leader(topic, partition).node_id].append((topic, partition))
    return nodes
