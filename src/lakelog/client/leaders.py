"""Asking the leaders of many partitions the same question, and again those that did not answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, ConnectionLostError, UnreachableError

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
            ask_leaders_once(cluster, missing, ask, found)
        except Exception as error:
            cluster.refresh({topic for topic, _ in missing})
            if isinstance(error, ConnectionLostError):
                raise UnreachableError.after(error) from error
            raise
        return found

    return cluster.retrying(work)


def ask_leaders_once(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    found: dict[TopicPartition, T],
) -> None:
    """Add to `found` what the leaders of `partitions` answer; a failure holds up no other answer.

    Raises the first `ClientError` when all leaders have been asked.
    """
    failure: ClientError | None = None
    for node, keys in _by_leader(cluster, partitions).items():
        try:
            ask(node, keys, found)
        except ClientError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    nodes: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic, partition in partitions:
        nodes[cluster.leader(topic, partition).node_id].append((topic, partition))
    return nodes
