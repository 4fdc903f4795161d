"""`lakelog topic`: lists, creates, describes, alters and deletes topics; elections; old records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import encode_uuid
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import confirm, confirm_deletion, for_each
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.partition_health import (
    OFFLINE,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    elect_preferred,
    elect_uncleanly,
    is_as_grave,
    problem_of,
)
from lakelog.cli.positions import (
    Bounds,
    TopicPartition,
    check_reached,
    known_bounds,
    parse_position,
    read_bounds,
    resolve_position,
)
from lakelog.cli.render import Document, Listing, Size, counted, note, show, show_all
from lakelog.cli.settings import (
    change_settings,
    parse_changes,
    parse_settings,
    shown_value,
    source_name,
)

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.configs import ConfigEntry
    from lakelog.client.admin.topics import EligibleReplicas
    from lakelog.client.view import Partition, Topic

app = Noun("topic")

_MIN_ISR = "min.insync.replicas"
_LIST_COLUMNS = ("name", "partitions", "replication_factor", "bytes", "is_internal")
_PARTITION_COLUMNS = (
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "log_start_offset",
    "log_end_offset",
    "records",
    "bytes",
)
LogSizes = Mapping[tuple[int, str, int], int]
"""Bytes of each replica, by broker, topic and partition."""
NO_SIZES: LogSizes = {}


@app.command("list", internal="Also show internal topics.")
def list_topics(*, internal: bool = False, session: CommandSession, output: Output) -> None:
    """List topics, with the bytes of their leaders' logs."""
    with open_admin(session) as admin:
        topics = admin.topics.list(internal=internal)
        show(listing(topics, log_sizes(admin)), output.format)


@app.command(
    names=Argument("Topics to create.", metavar="NAME"),
    partitions=Argument("Number of partitions (default: the broker's num.partitions).", "-p"),
    replication_factor=Argument(
        "Number of replicas (default: the broker's default.replication.factor).", "-r"
    ),
    config=Argument(
        "KEY=VALUE with Kafka's topic keys; may be repeated.", "-c", metavar="KEY=VALUE"
    ),
    if_not_exists="Accept an existing topic.",
)
def create(
    names: Sequence[str],
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    config: list[str] | None = None,
    if_not_exists: bool = False,
    session: CommandSession,
) -> int:
    """Create topics."""
    configs = parse_settings(config or (), "--config")
    with open_admin(session) as admin:

        def make(topic: str) -> None:
            try:
                created = admin.topics.create(
                    topic,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    configs=configs,
                    exist_ok=if_not_exists,
                )
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                text = f"topic '{topic}' already exists"
                raise CliError("LL0101", text, "pass --if-not-exists to accept it") from error
            text = f"Created topic '{topic}'" if created else f"Topic '{topic}' already exists"
            note(text, quiet=session.quiet)

        return for_each(names, make)


@app.command(
    names=Argument("Topics to describe.", metavar="NAME"),
    under_replicated="Show only partitions with a replica that is not in sync.",
    under_min_isr="Show only partitions with fewer replicas in sync than min.insync.replicas.",
    offline="Show only partitions without a leader.",
)
def describe(
    names: Sequence[str],
    *,
    under_replicated: bool = False,
    under_min_isr: bool = False,
    offline: bool = False,
    session: CommandSession,
    output: Output,
) -> int:
    """Describe topics: partitions, leaders, offsets, problems, settings.

    A partition is offline (no leader), under-min-isr (fewer replicas in sync than
    min.insync.replicas, so that acks=all fails), or under-replicated (a replica is not in sync).
    """
    filters = {UNDER_REPLICATED: under_replicated, UNDER_MIN_ISR: under_min_isr, OFFLINE: offline}
    limit = next((problem for problem, is_wanted in filters.items() if is_wanted), None)
    documents: list[Document] = []
    with open_admin(session) as admin:
        status = for_each(names, lambda topic: documents.append(_describe(admin, topic, limit)))
    show_all(documents, output.format)
    return status


@app.command(
    name="Topic to change.",
    partitions=Argument("New number of partitions. This changes the partitions of keys.", "-p"),
    config=Argument("KEY=VALUE to set; may be repeated.", "-c", metavar="KEY=VALUE"),
    unset="KEY to reset to its default; may be repeated.",
)
def alter(
    name: str,
    *,
    partitions: int | None = None,
    config: list[str] | None = None,
    unset: list[str] | None = None,
    session: CommandSession,
) -> None:
    """Change a topic's settings or increase its number of partitions."""
    from lakelog.client.admin import ResourceType

    changes = parse_changes(config or (), "--config", unset or ())
    if partitions is None and not changes:
        raise CliError("LL0902", "nothing to change", "specify --partitions, --config or --unset")
    with open_admin(session) as admin:
        admin.topics.describe(name)
        if changes:
            change_settings(admin, ResourceType.TOPIC, name, changes)
        if partitions is not None:
            admin.topics.create_partitions(name, partitions)
    note(f"Changed topic '{name}'", quiet=session.quiet)


@app.command(names=Argument("Topics to delete.", metavar="NAME"))
def delete(names: Sequence[str], *, session: CommandSession, consent: Consent) -> int:
    """Delete topics with all their records."""
    with open_admin(session) as admin:
        existing = {topic.name for topic in admin.topics.list(internal=True)}
        present = [topic for topic in names if topic in existing]
        confirm_deletion(present, "records", yes=consent.yes)

        def remove(topic: str) -> None:
            if topic not in existing:
                admin.topics.describe(topic)
            admin.topics.delete(topic)
            note(f"Deleted topic '{topic}'", quiet=session.quiet)

        return for_each(names, remove)


@app.command(
    names="Topics (default: all).",
    unclean="Elect replicas that may lack acknowledged records.",
    partition=Argument("Partition of the topic; may be repeated (default: all).", "-p"),
    ignore_missing=Argument(
        "With --unclean: do not wait for replicas that do not answer, although they may "
        "have more records."
    ),
)
def elect(
    names: Sequence[str] = (),
    *,
    unclean: bool = False,
    partition: list[int] | None = None,
    ignore_missing: bool = False,
    session: CommandSession,
    consent: Consent,
    output: Output,
) -> None:
    """Elect leaders: the preferred replicas, or replicas that may lack records.

    With --unclean, partitions without a leader are led by the replica with the most records: the
    latest leader epoch, then the longest log. The others adopt its log. Records that it lacks are
    lost. The command shows the logs of all replicas first, and asks.
    """
    if partition and len(names) != 1:
        raise CliError("LL0902", "--partition needs exactly one topic", "name the topic")
    with open_admin(session) as admin:
        if unclean:
            elect_uncleanly(
                admin,
                names,
                partition,
                ignore_missing=ignore_missing,
                session=session,
                consent=consent,
                output=output,
            )
        else:
            elect_preferred(admin, names, partition, session)


@app.command(
    name="Topic whose records to delete.",
    before="First record to keep: an offset, end, +10, -10, @TIME or @-1h.",
    partition=Argument("Partition whose records to delete; may be repeated (default: all).", "-p"),
    force="Delete records that the topic's table does not have yet, too.",
)
def delete_records(
    name: str,
    *,
    before: str,
    partition: list[int] | None = None,
    session: CommandSession,
    force: bool = False,
    consent: Consent,
    output: Output,
) -> None:
    """Delete a topic's records before an offset permanently."""
    position = parse_position(before, time.time_ns() // 1_000_000)
    with open_admin(session) as admin:
        keys = [(name, index) for index in _chosen(admin.topics.describe(name), partition)]
        bounds = read_bounds(admin, keys)
        check_reached(position, bounds, "use --before end to delete all records")
        offsets = resolve_position(admin, position, bounds)
        count = sum(offset - bounds[key].start for key, offset in offsets.items())
        confirm(f"delete {counted(count, 'record')} of '{name}'", yes=consent.yes)
        starts = admin.topics.delete_records(offsets, force=force)
    show(shortened(bounds, starts), output.format)


def _chosen(topic: Topic, partitions: list[int] | None) -> list[int]:
    return partitions or [row.partition for row in topic.partitions]


def shortened(
    bounds: Mapping[TopicPartition, Bounds], starts: Mapping[TopicPartition, int]
) -> Listing:
    """Return one row per partition: its old and its new log start offset."""
    rows = [
        {
            "partition": key[1],
            "log_start_offset": starts[key],
            "log_end_offset": limits.end,
            "deleted": starts[key] - limits.start,
        }
        for key, limits in sorted(bounds.items())
    ]
    return Listing(rows)


def _describe(admin: Admin, name: str, limit: str | None) -> Document:
    from lakelog.client.admin import ResourceType

    topic = admin.topics.describe(name)
    configs = admin.configs.describe(ResourceType.TOPIC, name)
    is_full = all(len(row.isr) == len(row.replicas) for row in topic.partitions)
    eligible = {} if is_full else admin.topics.eligible(name)
    return document(
        topic, _bounds(admin, topic), configs.values(), eligible, limit, log_sizes(admin)
    )


def log_sizes(admin: Admin) -> LogSizes:
    """Return the bytes of each replica, except at brokers that do not answer."""
    return {
        (log_dir.node_id, *key): size
        for log_dir in admin.known_log_dirs()
        for key, size in log_dir.partitions.items()
    }


def _leader_bytes(topic: str, row: Partition, sizes: LogSizes) -> Size | None:
    size = sizes.get((row.leader, topic, row.partition))
    return None if size is None else Size(size)


def _total_bytes(topic: Topic, sizes: LogSizes) -> Size | None:
    """Return the bytes of all leaders' logs; unknown if that of one is unknown."""
    leader_sizes = [_leader_bytes(topic.name, row, sizes) for row in topic.partitions]
    known_sizes = [size for size in leader_sizes if size is not None]
    return Size(sum(known_sizes)) if len(known_sizes) == len(leader_sizes) else None


def _bounds(admin: Admin, topic: Topic) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the partitions that have a leader which knows them."""
    led = [(topic.name, row.partition) for row in topic.partitions if row.leader >= 0]
    return known_bounds(admin, led)


def listing(topics: Iterable[Topic], sizes: LogSizes = NO_SIZES) -> Listing:
    """Return one row per topic."""
    rows = [
        {
            "name": topic.name,
            "topic_id": _topic_id(topic),
            "partitions": len(topic.partitions),
            "replication_factor": _replication_factor(topic),
            "bytes": _total_bytes(topic, sizes),
            "is_internal": topic.is_internal,
        }
        for topic in topics
    ]
    return Listing(
        rows, _LIST_COLUMNS, empty="no topics; use lakelog topic create NAME to create one"
    )


def document(
    topic: Topic,
    bounds: Mapping[TopicPartition, Bounds],
    configs: Iterable[ConfigEntry],
    eligible: Mapping[int, EligibleReplicas] | None = None,
    limit: str | None = None,
    sizes: LogSizes = NO_SIZES,
) -> Document:
    """Return the description of one topic, without settings at their defaults.

    Partitions have columns of problems and of eligible leader replicas if any of them has some.

    limit: the lightest problem of the partitions that are shown; None shows all partitions.
    """
    configs = list(configs)
    minimum = next((config.value for config in configs if config.name == _MIN_ISR), None)
    min_isr = int(minimum or 1)
    partitions = [
        _partition(row, bounds.get((topic.name, row.partition)), min_isr)
        | {"bytes": _leader_bytes(topic.name, row, sizes)}
        for row in topic.partitions
    ]
    settings = [
        {
            "name": entry.name,
            "value": shown_value(entry.name, entry.value),
            "source": source_name(entry.source.name),
        }
        for entry in configs
        if not entry.is_default
    ]
    records = [row["records"] for row in partitions]
    facts = {
        "name": topic.name,
        "topic_id": _topic_id(topic),
        "is_internal": topic.is_internal,
        "replication_factor": _replication_factor(topic),
        "records": None if None in records else sum(records),
        "bytes": _total_bytes(topic, sizes),
    }
    if limit is not None:
        partitions = [row for row in partitions if is_as_grave(row["problem"], limit)]
    columns: tuple[str, ...] = _PARTITION_COLUMNS
    if any(row["problem"] for row in partitions):
        columns = (*columns, "problem")
    if eligible:
        for row in partitions:
            replicas = eligible.get(row["partition"])
            row["elr"] = list(replicas.elr) if replicas else []
            row["last_known_elr"] = list(replicas.last_known_elr) if replicas else []
        columns = (*columns, "elr", "last_known_elr")
    parts = [Listing(partitions, columns)]
    if settings:
        parts.append(Listing(settings))
    return Document({**facts, "partitions": partitions, "configs": settings}, facts, parts)


def _partition(row: Partition, bounds: Bounds | None, min_isr: int) -> dict[str, Any]:
    """Return the row of a partition.

    `records` counts offsets; compaction and transactions leave gaps in them.
    """
    return {
        "partition": row.partition,
        "leader": row.leader if row.leader >= 0 else None,
        "leader_epoch": row.leader_epoch,
        "replicas": list(row.replicas),
        "isr": list(row.isr),
        "offline_replicas": list(row.offline_replicas),
        "log_start_offset": bounds.start if bounds else None,
        "log_end_offset": bounds.end if bounds else None,
        "records": bounds.end - bounds.start if bounds else None,
        "problem": problem_of(row, min_isr),
    }


def _topic_id(topic: Topic) -> str | None:
    return encode_uuid(topic.topic_id) if topic.has_id else None


def _replication_factor(topic: Topic) -> int:
    return max((len(row.replicas) for row in topic.partitions), default=0)
