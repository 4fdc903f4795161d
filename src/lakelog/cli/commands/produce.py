"""`lakelog produce`: writes lines of a file or of standard input as records.

Three limits bound a batch of one record: the producer's (here `REQUEST_BYTES_MAX`), the topic's
`max.message.bytes`, for which the broker's `message.max.bytes` is the default, and `segment.bytes`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.delivery import LineParser, Report, read_records, send_all
from lakelog.cli.failures import CliError, explain_exception, suggestion
from lakelog.cli.options import CommandSession, Output, split_pair, starting
from lakelog.cli.render import Document, Listing, counted, note, show, sized

if TYPE_CHECKING:
    from lakelog.cli.delivery import Progress
    from lakelog.client.admin import Admin


BATCH_BYTES_MAX = 128 << 10
REQUEST_BYTES_MAX = 99 << 20
"""The limit of one request; a broker's is 100 MiB by default (socket.request.max.bytes)."""

_BATCH_OVERHEAD = 61 + 32
"""The size of a batch's header, and of the lengths and deltas of its only record."""
_KEY = "max.message.bytes"
_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the first record may create the topic
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


class Target(NamedTuple):
    """The topic of a run, as it is before the first record.

    batch_bytes: the largest batch; a topic rejects all records of a larger one. creation: the note
    if the first record creates the topic, otherwise empty.
    """

    batch_bytes: int
    creation: str = ""


def find_target(session: CommandSession, topic: str) -> Target:
    """Return the topic's limits, and whether it exists.

    Waits for a broker like the producer does: `lakelog dev &` may not be ready yet. Raises
    `KafkaError` if no broker answers in time.
    """
    from lakelog.client.admin import Admin, ResourceType

    startup = starting(session, session.timeout_s)
    with Admin(session.brokers, timeout_s=session.timeout_s, startup=startup) as admin:
        try:
            entry = admin.configs.describe(ResourceType.TOPIC, topic).get(_KEY)
        except KafkaError as error:
            if error.code not in _UNKNOWN:
                raise
            is_new = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return Target(BATCH_BYTES_MAX, _creation(admin, topic) if is_new else "")
    limit = int(entry.value) if entry is not None and entry.value else BATCH_BYTES_MAX
    return Target(max(1, min(limit, BATCH_BYTES_MAX)))


def _creation(admin: Admin, topic: str) -> str:
    """Return the note about a topic that the first record creates."""
    similar = suggestion(topic, [listing.name for listing in admin.topics.list()])
    return f"created topic '{topic}', which did not exist" + (f"; {similar}" if similar else "")


def size_hint(error: KafkaError, topic: str, record_bytes: int) -> str:
    """Return the advice for a record that was rejected for its size, or an empty text.

    record_bytes: the size of the record in bytes.
    """
    needed_bytes = record_bytes + _BATCH_OVERHEAD
    if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
        return f"use lakelog topic alter {topic} --config segment.bytes=N with a larger N"
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return ""
    if needed_bytes > REQUEST_BYTES_MAX:
        return f"lakelog produce sends at most {REQUEST_BYTES_MAX} bytes in one request"
    return f"run lakelog topic alter {topic} --config {_KEY}={needed_bytes} to allow it"


app = Noun("produce")

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_STDIN = "-"
_INTERRUPTED_S = 3.0
"""Seconds that ^C waits for records that were read; a second ^C does not wait."""


@app.command(
    topic="Topic to write to.",
    file="File to read; standard input by default or as -.",
    key=Argument("Key of every record.", "-k"),
    key_separator=Argument("Text between key and value; a line without it has no key.", "-K"),
    key_field=Argument(
        "Field of each line, a JSON object, that becomes the key; the line itself is the value."
    ),
    header=Argument(
        "NAME=VALUE to add to every record; may be repeated.", "-H", metavar="NAME=VALUE"
    ),
    input_format=Argument(
        "lines (default), or jsonl: an object with key, value, headers and timestamp_ms, "
        "as `consume -f jsonl` prints it. A value of null is a tombstone; an unknown field is "
        "an error."
    ),
    partition=Argument(
        "Partition of every record (default: chosen by the key, as in Java's client).", "-p"
    ),
    keep_partitions="Write each record of jsonl to the partition in its line.",
    compression=Argument("none (default), gzip, snappy, lz4 or zstd.", "-z"),
    acks=Argument(
        "Required acknowledgements: all (in-sync replicas; default), 1 (the leader) or 0 (none)."
    ),
    linger="How long a batch waits for further records (default 5ms).",
)
def produce(
    topic: str,
    file: str = _STDIN,
    *,
    key: str | None = None,
    key_separator: str | None = None,
    key_field: str | None = None,
    header: list[str] | None = None,
    input_format: Literal["lines", "jsonl"] = "lines",
    partition: int | None = None,
    keep_partitions: bool = False,
    compression: Compression = "none",
    acks: Literal["all", "-1", "1", "0"] = "all",
    linger: str = "5ms",
    session: CommandSession,
    output: Output,
) -> int:
    """Write a record for each line of a file or of standard input, and wait for all of them.

    Only a line feed ends a line: carriage returns, empty lines and bytes that are not UTF-8 are
    kept. With acks=all, retries do not duplicate or reorder records.
    """
    parser = LineParser(
        input_format=input_format,
        key=None if key is None else os.fsencode(key),
        key_separator=None if key_separator is None else os.fsencode(key_separator),
        key_field=key_field,
        headers=tuple(_header(text) for text in header or ()),
        partition=partition,
        keep_partitions=keep_partitions,
    )
    settings = {
        "compression": compression,
        "acks": _ACKS[acks],
        "linger_ms": _linger_ms(linger, session),
    }
    started = time.monotonic()
    report = _produce(topic, file, parser, settings, session)
    return _finish(report, topic, time.monotonic() - started, session, output)


def _linger_ms(text: str, session: CommandSession) -> int:
    from lakelog.cli.positions import parse_duration_s

    seconds = parse_duration_s(text)
    if seconds >= session.timeout_s:
        what = f"--linger {text} is not shorter than --timeout {session.timeout}"
        raise CliError("LL0902", what, "raise --timeout, or records expire before they are sent")
    return int(seconds * 1000)


def _header(text: str) -> tuple[str, bytes | None]:
    name, value = split_pair(text, "--header")
    return name, os.fsencode(value)


def _produce(
    topic: str, file: str, parser: LineParser, settings: dict[str, Any], session: CommandSession
) -> Report:
    from lakelog.client.producer import Producer

    timeout_ms = int(session.timeout_s * 1000)
    target = find_target(session, topic)
    with _open_input(file) as stream, _progress(file, quiet=session.quiet) as progress:
        producer = Producer(
            session.brokers,
            batch_bytes=target.batch_bytes,
            max_request_bytes=REQUEST_BYTES_MAX,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms,
            max_block_ms=timeout_ms,
            **settings,
        )
        patience_s = session.timeout_s
        try:
            report = send_all(producer, topic, read_records(stream, parser, progress))
            if target.creation and report.records:
                note(target.creation, quiet=session.quiet)
            return report
        except KeyboardInterrupt:
            patience_s = min(patience_s, _INTERRUPTED_S)
            raise
        finally:
            with suppress(KafkaError, TimeoutError):  # the report counts these
                producer.close(patience_s)


@contextmanager
def _open_input(file: str) -> Iterator[IO[bytes]]:
    if file == _STDIN:
        if sys.stdin.isatty():
            note("one record per line; press ^D to end")
        yield sys.stdin.buffer
    else:
        with Path(file).open("rb") as stream:
            yield stream


@contextmanager
def _progress(file: str, *, quiet: bool) -> Iterator[Progress]:
    """Show the numbers of bytes and records read in a progress bar, on a terminal only."""
    if quiet or not sys.stderr.isatty() or (file == _STDIN and sys.stdin.isatty()):
        yield lambda size, records: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[records]:,} records"))
    total = None if file == _STDIN else Path(file).stat().st_size
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("produce", total=total, records=0)
        yield lambda size, records: bar.update(task, completed=size, records=records)


def _finish(
    report: Report, topic: str, elapsed_s: float, session: CommandSession, output: Output
) -> int:
    if output.format != "table":
        show(summary(report, topic), output.format)
    elif report.bad_input is None and (report.records or not report.failed):
        note(_sentence(report, topic, elapsed_s), quiet=session.quiet)
    if report.bad_input is not None:
        raise _bad_input(report, report.bad_input)
    if report.failed:
        raise _failure(report, topic)
    return 0


def _bad_input(report: Report, error: CliError) -> CliError:
    """Return the error of bad input, with the number of records before it.

    A second run of the command would repeat those records.
    """
    text = error.message
    if report.records:
        text += f"; {counted(report.records, 'record')} before it written"
    if report.first_error is not None:
        reason = explain_exception(report.first_error).message
        text += f"; {counted(report.failed, 'record')} before it not written: {reason}"
    return CliError(error.code, text, error.hint)


def _failure(report: Report, topic: str) -> CliError:
    assert report.first_error is not None
    first = explain_exception(report.first_error)
    hint = size_hint(report.first_error, topic, report.largest_failed) or first.hint
    if not report.records:
        return CliError(first.code, first.message, hint)
    number = report.failed + report.records
    rest = "; the rest of the input was not read" if report.gave_up else ""
    text = f"{report.failed} of {number} not written: {first.message}{rest}"
    return CliError("LL0604", text, hint)


def _sentence(report: Report, topic: str, elapsed_s: float) -> str:
    rate = report.records / max(elapsed_s, 0.001)
    return (
        f"{counted(report.records, 'record')}, {sized(report.bytes)} to '{topic}' "
        f"in {elapsed_s:.1f} s ({rate:,.0f}/s)"
    )


def summary(report: Report, topic: str) -> Document:
    """Return the written records per partition."""
    rows = [
        {
            "partition": partition,
            "records": written.records,
            "first_offset": written.first_offset,
            "last_offset": written.last_offset,
        }
        for partition, written in sorted(report.partitions.items())
    ]
    data = {
        "topic": topic,
        "records": report.records,
        "bytes": report.bytes,
        "failed": report.failed,
        "partitions": rows,
    }
    return Document(data, {}, [Listing(rows, ("partition", "records", "first_offset"))])
