"""The coordinator of a sink id: begins runs, ends batches, and reads the control record.

Each reason of a refusal has a class; nothing was changed by the request. Any other failure is a
`ClientError` as elsewhere: `UnsupportedError` for a broker without commit sets,
`OutcomeUnknownError` for a commit without an answer.

A request is sent only on a connection whose broker supports commit sets. Another broker would
ignore the fields of lakelog's own, and answer EndTxn with success although no record is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode
from lakelog.client.admin.transactions import SinkControl, sink_control
from lakelog.client.cluster import TRANSACTION, Cluster
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    OutcomeUnknownError,
    UnreachableError,
    UnsupportedError,
    check,
)
from lakelog.client.sink import requests
from lakelog.client.sink.requests import QueryRun, Receipt
from lakelog.protocol import transactions as messages
from lakelog.protocol.commit_sets import FEATURE, NO_BATCH, Refusal, RefusedCommitSet, SinkState
from lakelog.wire.schema import Message


class SinkError(ClientError):
    """The coordinator refuses a request about a sink, as it would again.

    sink: the control record, as far as the coordinator returned it.
    """

    advice = ""
    _is_safe_to_repeat = False

    def __init__(self, code: ErrorCode, message: str, sink: SinkState | None = None) -> None:
        super().__init__(code, message, hint=self.advice)
        self.sink = sink


class AnotherQueryError(SinkError):
    """The sink id belongs to another query, so batch numbers would not mean the same batches."""

    advice = "Use another sink id (or generation) for a query with a new checkpoint."


class RunFencedError(SinkError):
    """A newer run of the query has replaced this one, which never returns."""

    advice = "Stop this run; the newer one continues."


class BatchCommittedError(SinkError):
    """The batch is committed already; nothing of it may be written again."""


class BatchAheadError(SinkError):
    """A batch before this one is not committed: the checkpoint is not the one of the last run."""

    advice = "Restart the query from the checkpoint of the last committed batch."


class TransactionNotOpenError(SinkError):
    """A task's transaction timed out or was aborted before the batch was committed."""

    advice = "Raise the transaction timeout of the sink above the duration of a batch."


class ContentDiffersError(SinkError):
    """A task's transaction has other partitions than its receipt, or two receipts are of one task.

    Also a repeated commit with other receipts than the first one.
    """


class RecordsLostError(SinkError):
    """A log lacks records of a receipt: a broker lost them after it had acknowledged them."""

    advice = "Write the batch again, in a new run."


class SinkLimitError(SinkError):
    """The batch has too many tasks or partitions for one commit."""

    advice = "Write the batch with fewer tasks, or to fewer partitions."


class RunLimitError(SinkError):
    """Too many runs of the query have begun, one after another, without a commit."""

    advice = "Stop all runs, then remove the sink, or use another sink id."


class NotASinkError(SinkError):
    """The id is unknown, or belongs to an ordinary transactional producer."""


_CLASSES: dict[int, type[SinkError]] = {
    Refusal.ANOTHER_QUERY: AnotherQueryError,
    Refusal.RUN_FENCED: RunFencedError,
    Refusal.BATCH_COMMITTED: BatchCommittedError,
    Refusal.BATCH_AHEAD: BatchAheadError,
    Refusal.NOT_OPEN: TransactionNotOpenError,
    Refusal.CONTENT_DIFFERS: ContentDiffersError,
    Refusal.RECORDS_LOST: RecordsLostError,
    Refusal.TOO_LARGE: SinkLimitError,
    Refusal.TOO_MANY_RUNS: RunLimitError,
    Refusal.NOT_A_SINK: NotASinkError,
    Refusal.IS_A_SINK: NotASinkError,
}


def check_sink(
    code: int, refused: RefusedCommitSet | None, where: str, sink: SinkState | None = None
) -> None:
    """Raise the error of a response about a sink, if it has one.

    Raises `SinkError` for a refusal, also for a reason that this version does not know, and
    `ClientError` for any other error.
    """
    if refused is not None:
        kind = _CLASSES.get(refused.reason, SinkError)
        raise kind(ErrorCode.INVALID_TXN_STATE, refused.message, sink)
    check(code, where)


R = TypeVar("R", bound=Message)
T = TypeVar("T")


class Sink(Closeable):
    """One sink id of a cluster; for one thread at a time.

    sink_id: a name without `/`; the transactional id under which the coordinator keeps the control
    record. timeout_s: limit of each operation with its retries, in seconds. Raises `ValueError`,
    and `AddressError`.
    """

    def __init__(
        self, bootstrap: str, sink_id: str, *, client_id: str = "lakelog", timeout_s: float = 60.0
    ) -> None:
        if not sink_id or "/" in sink_id:
            raise ValueError(f"sink id {sink_id!r} must not be empty or contain '/'")
        self.sink_id = sink_id
        self._cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)

    def close(self) -> None:
        self._cluster.close()

    def begin(self, query_id: str, run_id: str, batch: int, *, expires: bool = False) -> QueryRun:
        """Begin a run of a query, or continue it.

        The first call of a run fences the run before it and aborts the transactions of its tasks.
        Each task may call it: later calls of the run return the same identity. A fenced run never
        returns.

        batch: the batch that the run is about to write. A new run begins at the next batch, or
        repeats the last one; the first run of a sink begins at any.

        expires: whether the coordinator may forget the sink after it has been unused for
        `transactional.id.expiration.ms`, as suits a batch job that never runs again.

        Raises `AnotherQueryError`, `RunFencedError`, `BatchCommittedError`, `BatchAheadError`,
        `RunLimitError`, `NotASinkError` for the id of an ordinary producer, and `UnsupportedError`
        if the broker has no commit sets.
        """
        request = requests.begin_run(self.sink_id, query_id, run_id, batch, expires=expires)

        def work() -> QueryRun:
            response = ask(self._cluster, self.sink_id, request, messages.InitProducerIdResponse)
            check_sink(response.error_code, response.refused, self._where, response.sink)
            next_batch = NO_BATCH if response.sink is None else response.sink.next_batch
            identity = response.producer_id, response.producer_epoch
            return QueryRun(self.sink_id, query_id, run_id, *identity, next_batch)

        return self._retrying(work)

    def commit(
        self, run: QueryRun, batch: int, receipts: Iterable[Receipt], content: bytes = b""
    ) -> None:
        """Commit a batch: these tasks' records become visible, and no others.

        receipts: of exactly one attempt for each partition of the batch; tasks without records have
        none. The commit also makes `batch` + 1 the next batch. A repeated call with the same
        receipts succeeds. content: an identity of the rows of the batch, at most 64 bytes, which
        `read` returns until the next commit.

        Raises `OutcomeUnknownError` if no coordinator answers in time: call `commit` again with the
        same receipts, or read the control record; never abort. Raises `BatchCommittedError`,
        `BatchAheadError`, `TransactionNotOpenError`, `ContentDiffersError`, `RecordsLostError`,
        `RunFencedError`, `SinkLimitError`; then nothing is committed.
        """
        winners = map(requests.winner, receipts)
        self._end(batch, requests.end_batch(run, batch, winners, commit=True, content=content))

    def abort(self, run: QueryRun, batch: int) -> None:
        """Abort the transactions of a batch, and of batches before it, without a commit.

        Raises `BatchCommittedError` if the batch is committed, and `RunFencedError` if a newer run
        has aborted them. Raises `OutcomeUnknownError` if no coordinator answers in time; the
        transactions then end by their timeouts.
        """
        self._end(batch, requests.end_batch(run, batch, (), commit=False))

    def read(self) -> SinkControl | None:
        """Return the control record and the unfinished tasks; `None` for an unknown sink id.

        Raises `NotASinkError` for an ordinary transactional id, and `UnsupportedError`.
        """
        request = messages.DescribeTransactionsRequest(transactional_ids=[self.sink_id])

        def work() -> SinkControl | None:
            response = ask(
                self._cluster, self.sink_id, request, messages.DescribeTransactionsResponse
            )
            (row,) = response.transaction_states
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            check(row.error_code, self._where)
            return sink_control(row)

        return self._retrying(work)

    def remove(self) -> None:
        """Abort all open transactions of the sink and forget its control record.

        A later run may begin at any batch, with any query. Raises `NotASinkError`.
        """
        request = requests.remove_sink(self.sink_id)
        self._retrying(lambda: self._send(request))

    @property
    def _where(self) -> str:
        return f"sink {self.sink_id!r}"

    def _end(self, batch: int, request: messages.EndTxnRequest) -> None:
        try:
            self._retrying(lambda: self._send(request))
        except UnsupportedError:
            raise
        except ClientError as error:
            if not error.retriable:
                raise
            # Even if the last attempt was not sent: an earlier one may have been.
            what = "committed" if request.committed else "aborted"
            text = f"batch {batch} of {self._where} may or may not be {what}: {error.message}"
            raise OutcomeUnknownError(error.code, text) from error

    def _send(self, request: messages.EndTxnRequest) -> None:
        response = ask(self._cluster, self.sink_id, request, messages.EndTxnResponse)
        check_sink(response.error_code, response.refused, self._where, response.sink)

    def _retrying(self, work: Callable[[], T]) -> T:
        return self._cluster.retrying_coordinator(self.sink_id, work, TRANSACTION)


def ask(cluster: Cluster, sink_id: str, request: Message, kind: type[R]) -> R:
    """Ask the coordinator of a sink id, if it supports commit sets.

    Raises `UnsupportedError` otherwise, before anything is sent. Only for requests that are safe to
    repeat: a lost connection raises `UnreachableError`, which is retriable.
    """
    node = cluster.coordinator(sink_id, TRANSACTION).node_id
    try:
        connection = cluster.connection(node)
        if FEATURE not in connection.features:
            raise UnsupportedError(
                f"broker {node} does not support commit sets (feature {FEATURE}): exactly-once "
                "sinks need lakelog on all brokers"
            )
        # On this connection and no other: the next one may lead to an older broker.
        response = connection.request(request, timeout_s=cluster.request_timeout_s)
    except (ConnectionLostError, UnreachableError) as error:
        cluster.forget_coordinator(sink_id, TRANSACTION)
        raise UnreachableError.after(error) from error
    assert isinstance(response, kind)
    return response
