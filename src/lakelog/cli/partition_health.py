"""Which partitions lack a leader or replicas in sync, for `lakelog cluster health` and
`lakelog topic describe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.cli.render import Document, Listing

if TYPE_CHECKING:
    from lakelog.client.view import Partition, Topic

OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED = "offline", "under-min-isr", "under-replicated"
_PROBLEMS = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
"""The gravest first."""
_COLUMNS = (
    "topic",
    "partition",
    "problem",
    "leader",
    "replicas",
    "isr",
    "min_isr",
    "offline_replicas",
)


@dataclass(frozen=True, slots=True)
class Ailing:
    """A partition that needs attention. `problem` is its gravest one."""

    topic: str
    partition: Partition
    problem: str
    min_isr: int


def examine(topics: Iterable[Topic], minima: Mapping[str, int]) -> list[Ailing]:
    """Return the partitions that need attention, the gravest problems first.

    minima: min.insync.replicas by topic; 1 for other topics.
    """
    ailing = []
    for topic in topics:
        min_isr = minima.get(topic.name, 1)
        for partition in topic.partitions:
            problem = problem_of(partition, min_isr)
            if problem is not None:
                ailing.append(Ailing(topic.name, partition, problem, min_isr))
    return sorted(
        ailing,
        key=lambda row: (_PROBLEMS.index(row.problem), row.topic, row.partition.partition),
    )


def is_as_grave(problem: str | None, limit: str) -> bool:
    """Return whether the problem is as grave as `limit`, or graver."""
    return problem is not None and _PROBLEMS.index(problem) <= _PROBLEMS.index(limit)


def problem_of(partition: Partition, min_isr: int) -> str | None:
    """Return the gravest problem of a partition, None for a partition in order."""
    if partition.leader < 0:
        return OFFLINE
    # As in Kafka, a partition never needs more replicas in sync than it has.
    if len(partition.isr) < min(min_isr, len(partition.replicas)):
        return UNDER_MIN_ISR
    return UNDER_REPLICATED if len(partition.isr) < len(partition.replicas) else None


def health_document(
    ailing: Sequence[Ailing], states: Mapping[int, str], problems: Mapping[int, str]
) -> Document:
    """Return the health of the cluster.

    states: the state of each broker, by id.
    problems: why brokers cannot write to their data folders, or to logs in them, by id.
    """
    is_served = all(state == "online" for state in states.values())
    facts = {
        "is_healthy": not ailing and not problems and is_served,
        **{
            f"{problem.replace('-', '_')}_partitions": sum(row.problem == problem for row in ailing)
            for problem in _PROBLEMS
        },
        "fenced_brokers": _in_state(states, "fenced"),
        "unregistered_brokers": _in_state(states, "unregistered"),
        "unwritable_brokers": list(problems),
    }
    folders = [{"broker": broker, "problem": problem} for broker, problem in problems.items()]
    rows = [
        {
            "topic": row.topic,
            "partition": row.partition.partition,
            "problem": row.problem,
            "leader": row.partition.leader if row.partition.leader >= 0 else None,
            "replicas": list(row.partition.replicas),
            "isr": list(row.partition.isr),
            "min_isr": row.min_isr,
            "offline_replicas": list(row.partition.offline_replicas),
        }
        for row in ailing
    ]
    parts = [Listing(rows, _COLUMNS)] if rows else []
    parts += [Listing(folders, ("broker", "problem"))] if folders else []
    # As a number alone, the id of one broker would pass for a count.
    shown = {
        name: [f"id {node_id}" for node_id in value] if isinstance(value, list) else value
        for name, value in facts.items()
    }
    return Document({**facts, "partitions": rows, "data_folders": folders}, shown, parts)


def _in_state(states: Mapping[int, str], name: str) -> list[int]:
    return [node_id for node_id, state in states.items() if state == name]
