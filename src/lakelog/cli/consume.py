"""`lakelog consume`: records of a topic to standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Literal, Protocol

from cyclopts import Parameter

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.bounds import TopicPartition, check_reached, read_bounds, resolve_position
from lakelog.cli.failures import CliError
from lakelog.cli.json_records import json_line
from lakelog.cli.options import COMMON, DEFAULT_SESSION, Session, noun
from lakelog.cli.positions import Anchor, Bounds, Position, before_start, beyond, parse_position
from lakelog.cli.record_text import ConsumedRecord, Formatter, formatter
from lakelog.cli.render import note
from lakelog.cli.stopping import Stop, stopping

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.consumer import Consumer
    from lakelog.client.consumer.fetcher import Trouble

app = noun("consume", "Read records of a topic.")

_POLL_S = 0.5
_POLL_RECORDS = 5000
_COMMIT_EVERY_S = 5.0
_MOVED_ON = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


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
    partition: Annotated[
        list[int] | None,
        Parameter(name=["--partition", "-p"], negative="", consume_multiple=False),
    ] = None,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    isolation: Annotated[
        Literal["read_uncommitted", "read_committed"],
        Parameter(name=["--isolation-level", "--isolation"]),
    ] = "read_uncommitted",
    form: Annotated[str, Parameter(name=["--format", "-f"], group=COMMON)] = r"%v\n",
    session: Session = DEFAULT_SESSION,
) -> int:
    """Read records of a topic and print them as they come, until ^C.

    Parameters
    ----------
    topic
        Topic to read.
    offset
        Where to begin: start, end, 42, +10 after the start, -10 before the end, or @TIME with
        ISO 8601, epoch milliseconds, or -1h. Default end, with --exit-at-end start.
    count
        Stop after so many records.
    exit_at_end
        Stop at what is the end now.
    partition
        Only this partition; may be repeated.
    group
        Share the topic with the members of this group, and commit what was printed. --offset
        then is start or end, and counts where nothing is committed.
    isolation
        read_committed leaves out what transactions aborted, and ends before the first that is
        still open. The default, read_uncommitted, shows every record.
    form
        jsonl (one object per line), or a format string: %t topic, %p partition, %o offset, %k key,
        %v value, %h headers, %T timestamp, %D as ISO 8601; %k{hex} and %v{base64} encode (default
        '%v\\n').
    """
    print_record = json_line if form in ("json", "jsonl") else formatter(form)
    offset = offset or ("start" if exit_at_end else "end")
    position = parse_position(offset, time.time_ns() // 1_000_000)
    if count is not None and count < 0:
        raise CliError("LL0902", f"--count {count} is below 0")
    if group is not None:
        _check_group_options(position, partition)
    with _admin(session) as admin:
        chosen = _partitions(admin, topic, partition)
        bounds = read_bounds(admin, chosen, read_committed=isolation == "read_committed")
        starts = {} if group is not None else _starts(admin, position, bounds, session)
    ends = {key: limits.end for key, limits in bounds.items()} if exit_at_end else None
    consumer = _open_consumer(session, topic, group, position, starts, isolation)
    with consumer, stopping() as stop:
        pump = Pump(
            consumer,
            sys.stdout.buffer,
            print_record,
            has_group=group is not None,
            patience_s=session.timeout_s,
        )
        pump.run(count, ends, stop)
        return stop.exit_status


def _check_group_options(position: Position, partition: Sequence[int] | None) -> None:
    if partition:
        raise CliError("LL0902", "a group shares the partitions out: --partition excludes --group")
    if position.anchor not in (Anchor.START, Anchor.END) or position.number:
        raise CliError(
            "LL0902",
            "with --group, --offset is start or end",
            "lakelog group reset moves a group elsewhere",
        )


def _admin(session: Session) -> Admin:
    from lakelog.client.admin import Admin

    return Admin(session.brokers, timeout_s=session.timeout_s)


def _partitions(admin: Admin, topic: str, chosen: Sequence[int] | None) -> list[TopicPartition]:
    known = [row.partition for row in admin.topics.describe(topic).partitions]
    for number in chosen or ():
        if number not in known:
            raise CliError(
                "LL0104", f"topic '{topic}' has partitions 0 to {len(known) - 1}, not {number}"
            )
    return [(topic, number) for number in sorted(set(chosen or known))]


def _starts(
    admin: Admin,
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    session: Session,
) -> dict[TopicPartition, int]:
    """Where to begin. Raises `OffsetOutOfRangeError` (LL0107) for an offset that no partition has
    reached; a note names partitions without it."""
    starts = resolve_position(admin, position, bounds)
    if position.anchor is not Anchor.OFFSET:
        return starts
    missing = beyond(position, bounds)
    if len(missing) == len(bounds):
        check_reached(position, bounds, "-o end waits for new records")
    for key in sorted([*missing, *before_start(position, bounds)]):
        where = "ends" if key in missing else "begins"
        text = f"{key[0]}-{key[1]} {where} at {starts[key]}: reading from there"
        note(text, quiet=session.quiet)
    return starts


def _open_consumer(
    session: Session,
    topic: str,
    group: str | None,
    position: Position,
    starts: Mapping[TopicPartition, int],
    isolation: str,
) -> Consumer:
    from lakelog.client.consumer import Consumer

    from_start = position.anchor is Anchor.START or group is None
    consumer = Consumer(
        session.brokers,
        group=group,
        auto_offset_reset="earliest" if from_start else "latest",
        isolation_level=isolation,
        timeout_s=session.timeout_s,
    )
    if group is not None:
        consumer.subscribe([topic])
        return consumer
    consumer.assign(starts)
    for key, start in starts.items():
        consumer.seek(key, start)
    return consumer


class RecordSource(Protocol):
    """The part of the consumer that is used here."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...
    @property
    def trouble(self) -> Trouble | None: ...
    def poll(self, timeout_s: float, max_records: int) -> Sequence[ConsumedRecord]: ...
    def position(self, partition: TopicPartition) -> int: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class Pump:
    """Moves records from a consumer to a stream; commits what the stream has taken."""

    def __init__(
        self,
        source: RecordSource,
        stream: IO[bytes],
        form: Formatter,
        *,
        has_group: bool,
        patience_s: float,
    ) -> None:
        """`patience_s`: how long a run that is to end waits for a broker that does not answer."""
        self._patience_s = patience_s
        self._in_trouble = False
        self._source = source
        self._stream = stream
        self._form = form
        self._has_group = has_group
        self._seen: set[TopicPartition] = set()
        """Partitions of which something was printed."""
        self._printed: dict[TopicPartition, int] = {}
        """Where reading goes on in them, markers and aborted records passed."""
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit = time.monotonic() + _COMMIT_EVERY_S

    def run(self, count: int | None, ends: Mapping[TopicPartition, int] | None, stop: Stop) -> None:
        """Until `count` records, the `ends` (log end offsets), or the signal to stop."""
        left = count
        knows_assignment = not self._has_group
        try:
            while left != 0 and not stop.is_set():
                if ends is not None and knows_assignment and self._is_at(ends):
                    return
                size = _POLL_RECORDS if left is None else min(left, _POLL_RECORDS)
                records = self._source.poll(_POLL_S, size)
                self._print(records)
                self._watch_trouble(ends_itself=ends is not None or count is not None)
                left = None if left is None else left - len(records)
                if time.monotonic() >= self._next_commit:
                    self._commit()
                knows_assignment = True
        finally:
            self._commit()

    def _watch_trouble(self, *, ends_itself: bool) -> None:
        """Says once that the broker is gone; raises when a run that is to end has waited enough."""
        trouble = self._source.trouble
        if trouble is not None and not self._in_trouble:
            note(f"{trouble.error.message}; trying again")
        self._in_trouble = trouble is not None
        if trouble is not None and ends_itself:
            waited_s = time.monotonic() - trouble.since_s
            if waited_s > self._patience_s:
                raise TimeoutError(f"no answer for {waited_s:.0f} s: {trouble.error.message}")

    def _print(self, records: Sequence[ConsumedRecord]) -> None:
        if records:
            self._stream.write(b"".join(map(self._form, records)))
            self._stream.flush()
            self._seen |= {(record.topic, record.partition) for record in records}
        owned = self._seen & self._source.assignment
        self._printed = {key: self._source.position(key) for key in owned}

    def _is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(
            self._source.position(key) >= ends[key]
            for key in self._source.assignment
            if key in ends
        )

    def _commit(self) -> None:
        self._next_commit = time.monotonic() + _COMMIT_EVERY_S
        if not self._has_group or self._printed == self._committed:
            return
        self._committed = self._printed
        try:
            self._source.commit(self._printed)
        except KafkaError as error:
            if error.code not in _MOVED_ON:
                raise
            note("the group has moved on: some of these records will be read again")
