"""Partitions that lack a leader or replicas in sync, and elections of leaders.

`lakelog cluster health` and `lakelog topic describe` show the problems of partitions. An unclean
election of `lakelog topic elect` chooses the replica that should lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import confirm
from lakelog.cli.options import CommandSession, Consent, Output
from lakelog.cli.positions import TopicPartition
from lakelog.cli.render import Document, Listing, counted, note, show

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.brokers import Elected, ReplicaEnd
    from lakelog.client.view import Partition, Topic


OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED = "offline", "under-min-isr", "under-replicated"
_PROBLEMS = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
"""The gravest first."""


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
    parts = [Listing(rows)] if rows else []
    parts += [Listing(folders)] if folders else []
    # As a number alone, the id of one broker would pass for a count.
    shown = {
        name: [f"id {node_id}" for node_id in value] if isinstance(value, list) else value
        for name, value in facts.items()
    }
    return Document({**facts, "partitions": rows, "data_folders": folders}, shown, parts)


def _in_state(states: Mapping[int, str], name: str) -> list[int]:
    return [node_id for node_id, state in states.items() if state == name]


_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


@dataclass(frozen=True, slots=True)
class Candidates:
    """The replicas of a partition without a leader.

    `ends` has the replicas with an answer, by node id. The `preferred` ones had every acknowledged
    record until a failure, the latest last.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    ends: Mapping[int, ReplicaEnd]
    preferred: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that did not answer."""
        return tuple(replica for replica in self.replicas if replica not in self.ends)

    @property
    def best(self) -> int | None:
        """The replica with the latest leader epoch, and of these the longest log.

        Among equal logs, a replica that had every acknowledged record comes first. None if no
        replica answered.
        """
        order = [*reversed(self.preferred), *self.replicas]
        able = [replica for replica in self.replicas if replica in self.ends]
        return max(
            able, key=lambda replica: (self.ends[replica], -order.index(replica)), default=None
        )


def candidate_listing(partitions: Iterable[Candidates]) -> Listing:
    """Return one row per replica, with a note for the replica that would lead."""
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replica": replica,
            "last_epoch": end.last_epoch if end else None,
            "log_end_offset": end.log_end_offset if end else None,
            "note": _candidate_note(partition, replica),
        }
        for partition in partitions
        for replica in partition.replicas
        for end in (partition.ends.get(replica),)
    ]
    return Listing(rows)


def _candidate_note(candidates: Candidates, replica: int) -> str:
    if replica in candidates.missing:
        return "no answer"
    return "would lead" if replica == candidates.best else ""


def elect_preferred(
    admin: Admin, names: Sequence[str], partition: list[int] | None, session: CommandSession
) -> None:
    """Have the preferred replicas lead the partitions. Raises `CliError`."""
    topics = [admin.topics.describe(name) for name in names]
    partitions = [(topic.name, index) for topic in topics for index in _chosen(topic, partition)]
    results = admin.elections.preferred(partitions if names else None)
    _report_elections(results, session)


def elect_uncleanly(
    admin: Admin,
    names: Sequence[str],
    partition: list[int] | None,
    *,
    ignore_missing: bool,
    session: CommandSession,
    consent: Consent,
    output: Output,
) -> None:
    """Show the replicas of partitions without a leader, ask, and elect the longest logs.

    Raises `CliError`: LL0309 if a replica does not answer, LL0901 without consent.
    """
    topics = [admin.topics.describe(name) for name in names] or admin.topics.list(internal=True)
    candidates = [
        candidate for topic in topics for candidate in _candidates(admin, topic, partition)
    ]
    if not candidates:
        note("Every partition has a leader", quiet=session.quiet)
        return
    show(candidate_listing(candidates), output.format)
    missing = sorted({node for candidate in candidates for node in candidate.missing})
    if missing and not ignore_missing:
        brokers = ", ".join(map(str, missing))
        raise CliError(
            "LL0309",
            f"no answer from broker {brokers}, which may have more records",
            "start it, or pass --ignore-missing to do without its records",
        )
    leaders = {
        (candidate.topic, candidate.partition): candidate.best
        for candidate in candidates
        if candidate.best is not None
    }
    if not leaders:
        raise CliError("LL0309", "no replica answers", "start a broker that has one")
    count = counted(len(leaders), "partition")
    confirm(f"elect leaders of {count} that may lack acknowledged records", yes=consent.yes)
    _report_elections(admin.elections.unclean(leaders), session)


def _candidates(admin: Admin, topic: Topic, partition: list[int] | None) -> list[Candidates]:
    """Return the partitions without a leader."""
    chosen = _chosen(topic, partition)
    rows = [row for row in topic.partitions if row.leader < 0 and row.partition in chosen]
    if not rows:
        return []
    eligible = admin.topics.eligible(topic.name)
    ends = admin.elections.log_ends({(topic.name, row.partition): row.replicas for row in rows})
    return [
        Candidates(
            topic.name,
            row.partition,
            row.replicas,
            ends[topic.name, row.partition],
            eligible[row.partition].last_known_elr if row.partition in eligible else (),
        )
        for row in rows
    ]


def _report_elections(results: Mapping[TopicPartition, Elected], session: CommandSession) -> None:
    """Report the results. Raises `CliError` if an election failed."""
    needless = [key for key, result in results.items() if result.error is _NOT_NEEDED]
    failed = [
        f"{topic}-{index}: {result.message}"
        for (topic, index), result in results.items()
        if result.error not in (ErrorCode.NONE, _NOT_NEEDED)
    ]
    done = len(results) - len(needless) - len(failed)
    note(f"Elected leaders of {counted(done, 'partition')}", quiet=session.quiet)
    if failed:
        raise CliError("LL0309", "; ".join(failed), "see `lakelog topic describe`")


def _chosen(topic: Topic, partitions: list[int] | None) -> list[int]:
    return partitions or [row.partition for row in topic.partitions]
