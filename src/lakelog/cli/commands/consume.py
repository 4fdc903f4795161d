"""`lakelog consume`: records of a topic to standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from lakelog.cli.bounds import TopicPartition, check_reached, read_bounds, resolve_position
from lakelog.cli.connecting import open_admin
from lakelog.cli.failures import CliError
from lakelog.cli.options import COMMON, DEFAULT_SESSION, Partitions, Session, noun
from lakelog.cli.positions import Anchor, Bounds, Position, before_start, beyond, parse_position
from lakelog.cli.records.group_progress import GroupProgress
from lakelog.cli.records.json_records import json_line
from lakelog.cli.records.pump import Pump
from lakelog.cli.records.record_text import formatter
from lakelog.cli.render import counted, note
from lakelog.cli.stopping import Stop, stopping
from lakelog.cli.streams import check_stdout

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.consumer import Consumer

app = noun("consume", "Read records of a topic.")


@app.default
def consume(
    topic: str,
    /,
    *,
    offset: Annotated[
        str | None, Parameter(name=["--offset", "-o"], allow_leading_hyphen=True)
    ] = None,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    exit_at_end: Annotated[bool, Parameter(name=["--exit-at-end", "-e"], negative="")] = False,
    partition: Partitions = None,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    isolation: Annotated[
        Literal["read_uncommitted", "read_committed"],
        Parameter(name=["--isolation-level", "--isolation"]),
    ] = "read_uncommitted",
    form: Annotated[str, Parameter(name=["--format", "-f"], group=COMMON)] = r"%v\n",
    session: Session = DEFAULT_SESSION,
) -> int:
    """Read records of a topic and print them as they arrive, until ^C.

    Parameters
    ----------
    topic
        Topic to read.
    offset
        First offset: start, end, 42, +10 (after the start), -10 (before the end), or @TIME as
        ISO 8601, epoch milliseconds, or -1h. Default end; with --exit-at-end start.
    count
        Stop after this number of records.
    exit_at_end
        Stop at the current end of the partitions.
    partition
        Read only this partition; may be repeated.
    group
        Join this group, share the topic with its members, and commit printed records. --offset
        must then be start or end, and applies to partitions without a committed offset.
    isolation
        read_committed skips records of aborted transactions and stops before the first open one;
        read_uncommitted (default) reads all records.
    form
        jsonl (one object per line), or a format string: %t topic, %p partition, %o offset, %k key,
        %v value, %h headers, %T timestamp, %D as ISO 8601; %k{hex} and %v{base64} encode (default
        '%v\\n').
    """
    print_record = json_line if form in ("json", "jsonl") else formatter(form)
    offset = offset or ("start" if exit_at_end else "end")
    position = parse_position(offset, time.time_ns() // 1_000_000)
    _check_options(count, position, partition, is_member=group is not None)
    with open_admin(session) as admin:
        chosen = _partitions(admin, topic, partition)
        bounds = read_bounds(admin, chosen, read_committed=isolation == "read_committed")
        starts = {} if group is not None else _starts(admin, position, bounds, session)
    ends = {key: limits.end for key, limits in bounds.items()}
    consumer = _open_consumer(session, group, position, isolation)
    with consumer, stopping() as stop:
        progress = _begin(consumer, topic, starts if group is None else None, session, stop)
        pump = Pump(
            consumer,
            sys.stdout.buffer,
            print_record,
            progress,
            patience_s=session.timeout_s,
            check_output=check_stdout,
            waiting=waiting_note(topic, chosen, position, group) if _watched(session) else "",
        )
        pump.run(count, ends, stop, exit_at_end=exit_at_end)
        return stop.exit_status


def _check_options(
    count: int | None, position: Position, partition: Sequence[int] | None, *, is_member: bool
) -> None:
    if count is not None and count < 0:
        raise CliError("LL0902", f"--count {count} is negative")
    if not is_member:
        return
    if partition:
        raise CliError("LL0902", "--partition and --group are mutually exclusive")
    if position.anchor not in (Anchor.START, Anchor.END) or position.number:
        raise CliError(
            "LL0902",
            "with --group, --offset must be start or end",
            "use lakelog group reset to set other offsets",
        )


def _partitions(admin: Admin, topic: str, chosen: Sequence[int] | None) -> list[TopicPartition]:
    from lakelog.client.errors import PartitionNotFoundError

    known = [row.partition for row in admin.topics.describe(topic).partitions]
    for number in chosen or ():
        if number not in known:
            raise PartitionNotFoundError(topic, number, len(known))
    return [(topic, number) for number in sorted(set(chosen or known))]


def _starts(
    admin: Admin,
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    session: Session,
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition; print a note about partitions that lack it.

    Raises `OffsetOutOfRangeError` (LL0107) for an offset beyond the end of all partitions.
    """
    starts = resolve_position(admin, position, bounds)
    if position.anchor is not Anchor.OFFSET:
        return starts
    missing = beyond(position, bounds)
    if len(missing) == len(bounds):
        check_reached(position, bounds, "use -o end to wait for new records")
    for key in sorted([*missing, *before_start(position, bounds)]):
        where = "ends" if key in missing else "begins"
        text = f"{key[0]}-{key[1]} {where} at {starts[key]}; reading from there"
        note(text, quiet=session.quiet)
    return starts


def _open_consumer(
    session: Session, group: str | None, position: Position, isolation: str
) -> Consumer:
    from lakelog.client.consumer import Consumer

    from_start = position.anchor is Anchor.START or group is None
    return Consumer(
        session.brokers,
        group=group,
        auto_offset_reset="earliest" if from_start else "latest",
        out_of_range_reset="earliest",
        isolation_level=isolation,
        timeout_s=session.timeout_s,
    )


def _begin(
    consumer: Consumer,
    topic: str,
    starts: Mapping[TopicPartition, int] | None,
    session: Session,
    stop: Stop,
) -> GroupProgress | None:
    """Seek to `starts`, or without them join the group and return its progress."""
    if starts is None:
        progress = GroupProgress(consumer, quiet=session.quiet)
        interruptible = stop.interrupting
        consumer.subscribe([topic], on_revoked=progress.revoke, interruptible=interruptible)
        return progress
    consumer.assign(starts)
    for key, start in starts.items():
        consumer.seek(key, start)
    return None


def _watched(session: Session) -> bool:
    return sys.stderr.isatty() and not session.quiet


def waiting_note(
    topic: str, partitions: Sequence[TopicPartition], position: Position, group: str | None
) -> str:
    """Return the note on a terminal while there is nothing to print."""
    at_end = position == Position(Anchor.END)
    how_many = counted(len(partitions), "partition")
    if group is not None:
        hint = (
            "; use -o start to read from the beginning if no offset is committed" if at_end else ""
        )
        return f"waiting for new records in '{topic}' as a member of group '{group}'{hint}"
    if at_end:
        hint = "use -o start to read from the beginning"
        return f"waiting for new records in '{topic}' ({how_many}, from the end); {hint}"
    return f"no more records in '{topic}' ({how_many}); waiting for new ones, ^C ends"
