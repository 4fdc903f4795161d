"""Refusals of a sink's coordinator, one class for each reason. Nothing was changed by the request.

Any other failure is a `ClientError` as elsewhere: `UnsupportedError` for a broker without commit
sets, `OutcomeUnknownError` for a commit without an answer.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, check
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet, SinkState


class SinkError(ClientError):
    """The coordinator refuses a request about a sink.

    sink: the control record, as far as the coordinator returned it.
    """

    advice = ""

    def __init__(self, code: ErrorCode, message: str, sink: SinkState | None = None) -> None:
        super().__init__(code, message, hint=self.advice)
        self.sink = sink

    @property
    def retriable(self) -> bool:
        """False: the same request would be refused again."""
        return False


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
