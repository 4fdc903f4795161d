"""`lakelog consume`: records of topics to standard output."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import Stop, stopping
from lakelog.cli.options import CommandSession, open_admin
from lakelog.cli.positions import (
    Anchor,
    Bounds,
    Position,
    TopicPartition,
    before_start,
    beyond,
    check_reached,
    parse_position,
    read_bounds,
    resolve_position,
)
from lakelog.cli.pump import GroupProgress, Pump
from lakelog.cli.record_text import formatter, json_line
from lakelog.cli.render import counted, note
from lakelog.cli.streams import check_stdout

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.consumer import Consumer

app = Noun("consume")

_NAMED_MAX = 3
"""Topics that a note names."""


@app.command(
    topics=Argument(
        "Topics to read. A text between slashes, such as '/orders-.*/', is a regular "
        "expression for whole names of existing topics.",
        metavar="TOPIC",
    ),
    offset=Argument(
        "First offset: start, end, 42, +10 (after the start), -10 (before the end), or "
        "@TIME as ISO 8601, epoch milliseconds, or -1h. Default end; with --exit-at-end start.",
        "-o",
    ),
    from_beginning="Same as --offset start.",
    count=Argument("Stop after this number of records.", "-n", "--count", "--max-messages"),
    follow="Wait for new records; this is the default.",
    exit_at_end=Argument("Stop at the current end of the partitions.", "-e"),
    partition=Argument("Read only this partition of one topic; may be repeated.", "-p"),
    group=Argument(
        "Join this group, share the topics with its members, and commit printed records. "
        "--offset must then be start or end, and applies to partitions without a committed "
        "offset.",
        "-g",
    ),
    isolation=Argument(
        "read_committed skips records of aborted transactions and stops before the first "
        "open one; read_uncommitted (default) reads all records.",
        "--isolation-level",
        "--isolation",
    ),
    form=Argument(
        "jsonl (one object per line), or a format string: %%t topic, %%p partition, %%o "
        "offset, %%k key, %%v value, %%h headers, %%T timestamp, %%D as ISO 8601; %%k{hex} and "
        "%%v{base64} encode (default '%%v\\n').",
        "-f",
        "--format",
    ),
)
def consume(
    topics: Sequence[str],
    *,
    offset: str | None = None,
    from_beginning: bool = False,
    count: int | None = None,
    follow: bool = False,
    exit_at_end: bool = False,
    partition: list[int] | None = None,
    group: str | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    form: str = r"%v\n",
    session: CommandSession,
) -> int:
    """Read records of topics and print them as they arrive, until ^C."""
    print_record = json_line if form in ("json", "jsonl") else formatter(form)
    _check_contradictions(offset, from_beginning=from_beginning, follow=follow, ends=exit_at_end)
    offset = offset or ("start" if exit_at_end or from_beginning else "end")
    position = parse_position(offset, time.time_ns() // 1_000_000)
    _check_options(count, position, partition, is_member=group is not None)
    patterns = [parse_topic(topic) for topic in topics]
    with open_admin(session) as admin:
        names = _names(admin, patterns)
        if partition and len(names) > 1:
            raise CliError(
                "LL0902",
                "--partition needs exactly one topic",
                "read each topic by its own command",
            )
        chosen = [key for name in names for key in _partitions(admin, name, partition)]
        bounds = read_bounds(admin, chosen, read_committed=isolation == "read_committed")
        starts = {} if group is not None else _starts(admin, position, bounds, session)
    ends = {key: limits.end for key, limits in bounds.items()}
    consumer = _open_consumer(session, group, position, isolation)
    with consumer, stopping() as stop:
        progress = _begin(consumer, names, starts if group is None else None, session, stop)
        pump = Pump(
            consumer,
            sys.stdout.buffer,
            print_record,
            progress,
            patience_s=session.timeout_s,
            check_output=check_stdout,
            waiting=waiting_note(names, chosen, position, group) if _watched(session) else "",
        )
        pump.run(count, ends, stop, exit_at_end=exit_at_end)
        return stop.exit_status


def parse_topic(text: str) -> str | re.Pattern[str]:
    """Return the name of a topic, or the pattern of /PATTERN/. Raises `CliError`."""
    if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
        return text
    try:
        return re.compile(text[1:-1])
    except re.error as error:
        raise CliError(
            "LL0902", f"{text} is not a regular expression: {error}", "for example '/orders-.*/'"
        ) from error


def select(patterns: Iterable[str | re.Pattern[str]], existing: Iterable[str]) -> list[str]:
    """Return the wanted names, and the existing topics that match a pattern, each once.

    Raises `CliError` LL0102 for a pattern that matches none.
    """
    topics, names = sorted(existing), list[str]()
    for pattern in patterns:
        matches = [pattern] if isinstance(pattern, str) else list(filter(pattern.fullmatch, topics))
        if not matches:
            assert not isinstance(pattern, str)
            hint = "the whole name has to match; lakelog topic list shows the topics"
            raise CliError("LL0102", f"no topic matches /{pattern.pattern}/", hint)
        names += matches
    return list(dict.fromkeys(names))


def _names(admin: Admin, patterns: Sequence[str | re.Pattern[str]]) -> list[str]:
    has_patterns = any(not isinstance(pattern, str) for pattern in patterns)
    return select(patterns, [topic.name for topic in admin.topics.list()] if has_patterns else [])


def _check_contradictions(
    offset: str | None, *, from_beginning: bool, follow: bool, ends: bool
) -> None:
    if offset is not None and from_beginning:
        raise CliError("LL0902", "--offset and --from-beginning are mutually exclusive")
    if follow and ends:
        raise CliError("LL0902", "--follow and --exit-at-end are mutually exclusive")


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

    existing = [row.partition for row in admin.topics.describe(topic).partitions]
    for number in chosen or ():
        if number not in existing:
            raise PartitionNotFoundError(topic, number, len(existing))
    return [(topic, number) for number in sorted(set(chosen or existing))]


def _starts(
    admin: Admin,
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    session: CommandSession,
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
    session: CommandSession, group: str | None, position: Position, isolation: str
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
    topics: Sequence[str],
    starts: Mapping[TopicPartition, int] | None,
    session: CommandSession,
    stop: Stop,
) -> GroupProgress | None:
    """Seek to `starts`, or without them join the group and return its progress."""
    if starts is None:
        progress = GroupProgress(consumer, quiet=session.quiet)
        interruptible = stop.interrupting
        consumer.subscribe(topics, on_revoked=progress.revoke, interruptible=interruptible)
        return progress
    consumer.assign(starts)
    for key, start in starts.items():
        consumer.seek(key, start)
    return None


def _watched(session: CommandSession) -> bool:
    return sys.stderr.isatty() and not session.quiet


def waiting_note(
    topics: Sequence[str],
    partitions: Sequence[TopicPartition],
    position: Position,
    group: str | None,
) -> str:
    """Return the note on a terminal while there is nothing to print."""
    at_end = position == Position(Anchor.END)
    named = [f"'{topic}'" for topic in topics]
    where = ", ".join(named if len(named) <= _NAMED_MAX else [*named[:_NAMED_MAX], "..."])
    how_many = counted(len(partitions), "partition")
    if group is not None:
        hint = (
            "; use -o start to read from the beginning if no offset is committed" if at_end else ""
        )
        return f"waiting for new records in {where} as a member of group '{group}'{hint}"
    if at_end:
        hint = "use -o start to read from the beginning"
        return f"waiting for new records in {where} ({how_many}, from the end); {hint}"
    return f"no more records in {where} ({how_many}); waiting for new ones, ^C ends"
