"""The meaning of an error code for a batch: whether it may be in the log, and the next step."""

from __future__ import annotations

from enum import Enum, auto

from lakelog.base.errors import ErrorCode


class Verdict(Enum):
    """The next step after the result of a batch."""

    DONE = auto()
    RETRY = auto()
    """Retry with the same sequence."""
    RENUMBER = auto()
    """The batch is not in the log, and the broker will never accept its sequence: retry at the next
    epoch."""
    FAIL = auto()
    FATAL = auto()
    """The broker accepts no further batch of this producer."""


_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_SEQUENCE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def maybe_written(code: ErrorCode) -> bool:
    """Return whether the batch may be in the log despite this error."""
    return code in _MAYBE_WRITTEN


def judge(code: ErrorCode, *, is_first: bool) -> Verdict:
    """Return the verdict. is_first: the partition has no earlier unresolved batch.

    A sequence that is out of order after an unresolved batch only shows that the earlier batch
    failed. If the batch is the first, the broker has lost or never got the batches before it, and
    the batch itself is not among the last five that the broker remembers: it is not written
    (KIP-360).
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DONE
    if code in _SEQUENCE_LOST:
        return Verdict.RENUMBER if is_first else Verdict.RETRY
    if code in _FENCED:
        return Verdict.FATAL
    return Verdict.RETRY if code.retriable else Verdict.FAIL
