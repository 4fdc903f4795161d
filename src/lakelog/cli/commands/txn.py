"""`lakelog txn`: lists, describes and aborts transactions, and removes sinks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.interaction import confirm
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.positions import iso_utc, parse_duration_s
from lakelog.cli.render import Document, Listing, counted, note, show

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.transactions import (
        ActiveProducer,
        HangingTransaction,
        SinkControl,
        Transaction,
        TransactionListing,
    )

app = Noun("txn")

_CHILD = re.compile(r".+(?:/[0-9]+){3}", re.DOTALL)
_LIST_COLUMNS = ("transactional_id", "state", "producer_id", "coordinator")
_SINK_COLUMNS = ("next_batch", "open_children")
_RUNNING = ("Ongoing", "PrepareCommit", "PrepareAbort")
_STATES = ("Empty", *_RUNNING, "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")


@app.command(
    "list",
    state="Show only ids in this state (Empty, Ongoing, PrepareCommit, ...); may be repeated.",
    longer_than="Show only ids whose transaction has been open for longer: 30s, 5m, 1h.",
    match="Show only ids that match this regular expression entirely.",
    children="Show the transactions of sinks' tasks, too.",
)
def list_transactions(
    *,
    state: list[str] | None = None,
    longer_than: str | None = None,
    match: str | None = None,
    children: bool = False,
    session: CommandSession,
    output: Output,
) -> None:
    """List transactional ids."""
    duration_ms = -1 if longer_than is None else int(parse_duration_s(longer_than) * 1000)
    states: Sequence[str] = [known_state(text) for text in state or ()]
    if longer_than is not None:
        states = states or _RUNNING
    with open_admin(session) as admin:
        try:
            listings = admin.transactions.list(
                states=states, longer_than_ms=duration_ms, pattern=match
            )
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            text = f"--match '{match}' is not a regular expression"
            raise CliError("LL0902", text, "in RE2's syntax, for example 'billing-.*'") from error
    shown = listings if children else without_children(listings)
    if len(shown) < len(listings):
        hidden = counted(len(listings) - len(shown), "transaction")
        note(f"{hidden} of sinks' tasks not shown; use --children", quiet=session.quiet)
    show(listing(shown), output.format)


@app.command(transactional_id="Id to describe.")
def describe(transactional_id: str, *, session: CommandSession, output: Output) -> None:
    """Describe a transactional id: its producer and the partitions of its transaction."""
    with open_admin(session) as admin:
        try:
            transaction = admin.transactions.describe(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            ids = [row.transactional_id for row in admin.transactions.list()]
            hint = (
                suggestion(transactional_id, ids)
                or "use lakelog txn list to show all transactional ids"
            )
            text = f"unknown transactional id '{transactional_id}'"
            raise CliError("LL0211", text, hint) from error
    show(document(transaction, time.time_ns() // 1_000_000), output.format)


@app.command(topics="Topics to search; all topics by default.")
def hanging(topics: Sequence[str] = (), *, session: CommandSession, output: Output) -> None:
    """List hanging transactions: open in a partition, and unknown to all coordinators."""
    with open_admin(session) as admin:
        transactions = admin.transactions.hanging(topics)
    show(hanging_listing(transactions), output.format)


@app.command(
    topic="Topic of the partition.",
    partition="Number of the partition.",
    producer_id="Producer of the transaction; required if several are open in the partition.",
    force=Argument(
        "Abort the transaction even if its coordinator knows it. Its other partitions may "
        "still be committed."
    ),
)
def abort(
    topic: str,
    partition: int,
    *,
    producer_id: int | None = None,
    force: bool = False,
    session: CommandSession,
    consent: Consent,
    output: Output,
) -> None:
    """Abort a hanging transaction in a partition, which its coordinator no longer knows."""
    key = (topic, partition)
    with open_admin(session) as admin:
        producer = chosen(admin.transactions.producers(key), key, producer_id)
        if not force:
            _check_hangs(admin, producer)
        what = f"producer {producer.producer_id} from offset {producer.txn_start_offset}"
        confirm(f"abort the transaction of {what} in {topic}-{partition}", yes=consent.yes)
        admin.transactions.abort(key, producer)
    if output.format != "table":
        show(aborted(key, producer), output.format)
    note(f"aborted the transaction of {what} in {topic}-{partition}", quiet=session.quiet)


@app.command(
    sink_id="Sink to remove. Its query could write batches again that are committed already."
)
def remove(sink_id: str, *, session: CommandSession, consent: Consent, output: Output) -> None:
    """Remove a sink: abort its open children, and forget its query, run and next batch."""
    from lakelog.client.sink import Sink

    with open_admin(session) as admin:
        _check_is_sink(admin, sink_id)
        confirm(f"remove the sink '{sink_id}' with its next batch", yes=consent.yes)
    with Sink(session.brokers, sink_id, timeout_s=session.timeout_s) as sink:
        sink.remove()
    if output.format != "table":
        facts = {"sink_id": sink_id}
        show(Document(facts, facts, []), output.format)
    note(f"removed the sink '{sink_id}'", quiet=session.quiet)


def _check_is_sink(admin: Admin, sink_id: str) -> None:
    next_batches = {row.transactional_id: row.next_batch for row in admin.transactions.list()}
    if next_batches.get(sink_id) is not None:
        return
    sinks = [name for name, next_batch in next_batches.items() if next_batch is not None]
    hint = suggestion(sink_id, sinks) or "use lakelog txn list to show all sinks"
    if sink_id in next_batches:
        raise CliError("LL0215", f"'{sink_id}' is the id of an ordinary producer", hint)
    raise CliError("LL0211", f"unknown sink '{sink_id}'", hint)


def _check_hangs(admin: Admin, producer: ActiveProducer) -> None:
    """Check that no coordinator knows the transaction: it would end it at the timeout."""
    listings = admin.transactions.list(states=_RUNNING, producer_ids=[producer.producer_id])
    for row in listings:
        try:
            txn = admin.transactions.describe(row.transactional_id)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            raise
        raise CliError(
            "LL0213",
            f"'{row.transactional_id}' has this transaction as {row.state}",
            f"its coordinator ends it within {txn.timeout_ms} ms of its start; --force aborts it",
        )


def known_state(text: str) -> str:
    """Return Kafka's spelling of a state. Raises `CliError` for an unknown one."""
    for name in _STATES:
        if name.lower() == text.lower():
            return name
    hint = suggestion(text, _STATES) or f"expected one of {', '.join(_STATES)}"
    raise CliError("LL0902", f"unknown state '{text}'", hint)


def aborted(key: tuple[str, int], producer: ActiveProducer) -> Document:
    """Return the result of `abort` as data."""
    facts = {
        "topic": key[0],
        "partition": key[1],
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "start_offset": producer.txn_start_offset,
    }
    return Document(facts, facts, [])


def chosen(
    producers: Sequence[ActiveProducer], key: tuple[str, int], producer_id: int | None
) -> ActiveProducer:
    """Return the producer of the transaction. Raises `CliError` if none or several match."""
    open_ = [row for row in producers if row.txn_start_offset >= 0]
    matching = [row for row in open_ if producer_id in (None, row.producer_id)]
    where = f"{key[0]}-{key[1]}"
    if not matching:
        whose = "" if producer_id is None else f" of producer {producer_id}"
        raise CliError("LL0212", f"no transaction{whose} is open in {where}")
    if len(matching) > 1:
        ids = ", ".join(str(row.producer_id) for row in matching)
        raise CliError(
            "LL0902",
            f"several transactions are open in {where}",
            f"specify --producer-id, one of {ids}",
        )
    return matching[0]


def without_children(listings: Sequence[TransactionListing]) -> list[TransactionListing]:
    """Return the rows without the transactions of sinks' tasks, `SINK/1/2/3`.

    Their coordinator is that of the sink, whose row counts the open ones.
    """
    return [row for row in listings if not _CHILD.fullmatch(row.transactional_id)]


def listing(listings: Iterable[TransactionListing]) -> Listing:
    """Return one row per transactional id."""
    rows = [
        {
            "transactional_id": row.transactional_id,
            "state": row.state,
            "producer_id": row.producer_id,
            "coordinator": row.node_id,
            **_sink_columns(row),
        }
        for row in listings
    ]
    has_sinks = any("next_batch" in row for row in rows)
    columns = _LIST_COLUMNS + (_SINK_COLUMNS if has_sinks else ())
    return Listing(rows, columns, empty="no transactional ids")


def _sink_columns(row: TransactionListing) -> dict[str, int]:
    if row.next_batch is None:
        return {}
    return {"next_batch": row.next_batch, "open_children": row.open_children}


def hanging_listing(transactions: Iterable[HangingTransaction]) -> Listing:
    """Return one row per hanging transaction."""
    rows = [
        {
            "topic": txn.topic,
            "partition": txn.partition,
            "producer_id": txn.producer.producer_id,
            "producer_epoch": txn.producer.producer_epoch,
            "start_offset": txn.producer.txn_start_offset,
            "last_write": iso_utc(txn.producer.last_timestamp_ms),
        }
        for txn in transactions
    ]
    return Listing(rows, empty="no hanging transactions")


def document(transaction: Transaction, now_ms: int) -> Document:
    """Return the description of one transactional id. now_ms: milliseconds since the epoch."""
    runs = transaction.state in _RUNNING and transaction.start_ms >= 0
    facts = {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "start": iso_utc(transaction.start_ms),
        "start_ms": transaction.start_ms if transaction.start_ms >= 0 else None,
        "running_ms": max(now_ms - transaction.start_ms, 0) if runs else None,
    }
    rows = [{"topic": topic, "partition": index} for topic, index in sorted(transaction.partitions)]
    parts = [Listing(rows, empty="the transaction has no partitions")]
    if transaction.sink is not None:
        return _sink_document(facts, transaction.sink)
    return Document({**facts, "partitions": rows}, facts, parts)


def _sink_document(facts: dict[str, Any], sink: SinkControl) -> Document:
    control = {
        **facts,
        "query_id": sink.query_id,
        "run_id": sink.run_id,
        "next_batch": sink.next_batch if sink.next_batch >= 0 else None,
    }
    rows = [
        {
            "transactional_id": child.transactional_id,
            "state": child.state,
            "start": iso_utc(child.start_ms),
            "partitions": child.partitions,
        }
        for child in sink.children
    ]
    parts = [Listing(rows, empty="the sink has no open children")]
    return Document({**control, "children": rows}, control, parts)
