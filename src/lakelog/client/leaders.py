"""Sends one kind of request to the leaders of many partitions, and retries missing answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, ConnectionLostError, UnreachableError

TopicPartition = tuple[str, int]
T = TypeVar("T")

AskLeader = Callable[[int, Sequence[TopicPartition], dict[TopicPartition, T]], None]
"""A function that asks one broker (by node id) about partitions and adds the answers.

It raises `ClientError` if the broker rejects some partitions, after it added the answers of the
others."""


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    found: dict[TopicPartition, T] | None = None,
) -> dict[TopicPartition, T]:
    """Return the answer for each of `partitions`; follow changes of leaders.

    found: gets the answers, and keeps them when the call fails.

    The request must be safe to repeat. Raises `TopicNotFoundError`, `PartitionNotFoundError`, and
    the last `ClientError` after the cluster's time limit.
    """
    wanted = list(partitions)
    found = {} if found is None else found

    def work() -> dict[TopicPartition, T]:
        missing = [key for key in wanted if key not in found]
        try:
            ask_leaders_once(cluster, missing, ask, found)
        except Exception as error:
            # The error may come from a former leader.
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
    """Add the answers of all leaders of `partitions` to `found`.

    A partition without a leader, or a failure at one leader, does not prevent the answers of
    others. Raises the first `ClientError` after all leaders were asked.
    """
    failure: ClientError | None = None
    nodes: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic, partition in partitions:
        try:
            nodes[cluster.leader(topic, partition).node_id].append((topic, partition))
        except ClientError as error:
            failure = failure or error
    for node, keys in nodes.items():
        try:
            ask(node, keys, found)
        except ClientError as error:
            failure = failure or error
    if failure is not None:
        raise failure
