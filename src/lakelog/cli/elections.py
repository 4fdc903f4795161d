"""Elections for `lakelog topic elect`, and the replica that an unclean election should choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.cli.asking import confirm
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession, Consent, Output
from lakelog.cli.positions import TopicPartition
from lakelog.cli.render import Listing, counted, note, show

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.brokers import Elected, ReplicaEnd
    from lakelog.client.view import Topic

_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED

_COLUMNS = ("topic", "partition", "replica", "last_epoch", "log_end_offset", "note")


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
            "note": _note(partition, replica),
        }
        for partition in partitions
        for replica in partition.replicas
        for end in (partition.ends.get(replica),)
    ]
    return Listing(rows, _COLUMNS)


def _note(candidates: Candidates, replica: int) -> str:
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
