"""The commit of a batch, in the process that Spark keeps for it: all tasks at once, or none.

A commit without an answer is repeated with the same transactions until its outcome is known, and
never aborted. Spark calls `abort` after a failed or unknown commit too, even in another process;
the coordinator then refuses to abort a committed batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql.datasource import WriterCommitMessage

from lakelog.base.events import event
from lakelog.client.errors import ClientError, OutcomeUnknownError
from lakelog.client.sink import QueryRun, Receipt, Sink
from lakelog.spark.sink.attempts import Attempt
from lakelog.spark.sink.content import Content
from lakelog.spark.sink.control import check_repeated
from lakelog.spark.sink.errors import FencedError, SinkError, UnknownOutcomeError
from lakelog.spark.sink.options import SinkOptions
from lakelog.spark.sink.refusals import named_refusals

_TRY_S = 20.0

_log = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


def commit_set(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Commit the transactions of all tasks, unless the batch is committed already.

    Raises `SinkError`: `BatchOrderError` if the committed batch has other rows. After
    `UnknownOutcomeError` the batch may be committed; its next run finds out.
    """
    attempts = [message for message in messages if isinstance(message, Attempt)]
    run = _only_run(attempts, batch)
    receipts = [attempt.receipt for attempt in attempts if attempt.receipt is not None]
    content = sum((attempt.content for attempt in attempts), Content())
    with named_refusals(options), _connected(options, run.sink_id) as sink:
        if len(receipts) < len(attempts):
            _check_repeated(options, sink, batch, content)
            return
        written = [receipt for receipt in receipts if receipt.written]
        _commit(options, sink, run, batch, written, content)


def abort_set(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Abort the transactions of a failed batch, if it is not committed. Raises nothing.

    Without a finished task nothing is known; the next run aborts the transactions then. The
    transactions of a committed batch have ended.
    """
    attempts = [message for message in messages if isinstance(message, Attempt)]
    if not attempts or any(attempt.receipt is None for attempt in attempts):
        return
    run = attempts[0].run
    try:
        with Sink(options.bootstrap, run.sink_id, timeout_s=_TRY_S) as sink:
            sink.abort(run, batch)
    except (ClientError, OSError) as error:
        _log.warning(
            "Batch %d of %s is not aborted: %s",
            batch,
            run.sink_id,
            error,
            extra=event("sink_abort_failed", sink=run.sink_id, batch=batch),
        )


def _check_repeated(options: SinkOptions, sink: Sink, batch: int, content: Content) -> None:
    """Raise `BatchOrderError` if the committed batch has other rows than its repetition.

    A sink that was removed meanwhile, or is past this batch, has nothing to compare.
    """
    status = sink.read()
    if status is None or status.next_batch != batch + 1:
        return
    stored = Content.from_bytes(status.content)
    check_repeated(sink.sink_id, batch, stored, content, options.repeated, options.generation)


def _commit(
    options: SinkOptions,
    sink: Sink,
    run: QueryRun,
    batch: int,
    receipts: list[Receipt],
    content: Content,
) -> None:
    deadline = time.monotonic() + options.transaction_timeout_ms / 1000
    while True:
        try:
            sink.commit(run, batch, receipts, content.to_bytes())
            return
        except OutcomeUnknownError as error:
            if time.monotonic() >= deadline:
                raise UnknownOutcomeError(
                    f"{error.message}: start the query again when the broker is reachable; it "
                    "skips the batch if it is committed"
                ) from error


_kept: dict[tuple[SinkOptions, str], Sink] = {}
"""The client of the last commit: Spark commits all batches of a query in one process."""


@contextmanager
def _connected(options: SinkOptions, sink_id: str) -> Iterator[Sink]:
    """Return a client, which is kept for the next commit unless this one fails."""
    key = options, sink_id
    sink = _kept.pop(key, None)
    if sink is None:
        while _kept:
            _kept.popitem()[1].close()
        sink = Sink(options.bootstrap, sink_id, client_id=options.client_id, timeout_s=_TRY_S)
    try:
        yield sink
    except BaseException:
        sink.close()
        raise
    _kept[key] = sink


def _only_run(attempts: list[Attempt], batch: int) -> QueryRun:
    """Return the run of all tasks. Raises `FencedError`, and `SinkError` without a task.

    Spark runs a task for a batch without rows, too. Without one nothing is known about the query,
    and a batch that is not counted would stop the next one.
    """
    if not attempts:
        raise SinkError(f"Spark commits batch {batch}, of which no task ran: start the query again")
    runs = {
        (attempt.run.run_id, attempt.run.producer_id, attempt.run.producer_epoch)
        for attempt in attempts
    }
    if len(runs) > 1:
        raise FencedError("another run of the query took over the sink while the batch was written")
    return attempts[0].run
