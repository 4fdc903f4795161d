"""Types of the topics and partitions that a consumer is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

from lakelog.client.offsets import TopicPartition


def checked_partitions(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions. Raises `TypeError` with an example for other types."""
    wanted: list[Any] = [partitions] if isinstance(partitions, str) else list(partitions)
    for each in wanted:
        if not _is_partition(each):
            raise TypeError(
                f"a partition is a pair of topic and number, such as ('orders', 0), not {each!r}; "
                "subscribe() reads all partitions of a topic as a member of a group"
            )
    return wanted


def checked_topics(topics: Iterable[str]) -> list[str]:
    """Return the topics. Raises `TypeError` with an example for other types."""
    wanted = list(topics)
    if isinstance(topics, str):
        raise TypeError(f"topics must be a list, such as [{topics!r}], not str")
    for each in wanted:
        if not isinstance(each, str):
            raise TypeError(f"a topic is a name, such as 'orders', not {each!r}")
    return wanted


def _is_partition(each: object) -> bool:
    return (
        isinstance(each, tuple)
        and len(each) == 2
        and isinstance(each[0], str)
        and isinstance(each[1], SupportsIndex)
    )
