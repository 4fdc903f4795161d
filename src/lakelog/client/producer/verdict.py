"""What an error code says about a batch that was sent: is it in the log, and what now?"""

from __future__ import annotations

from enum import Enum, auto

from lakelog.base.errors import ErrorCode


class Verdict(Enum):
    DONE = auto()
    RETRY = auto()
    """Again, with the same sequence."""
    RENUMBER = auto()
    """Definitely not in the log and never to be accepted as it is: again, at the next epoch."""
    FAIL = auto()
    FATAL = auto()
    """Nothing this producer sends will be accepted any more."""


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
    """Whether the batch may be in the log although this came back."""
    return code in _MAYBE_WRITTEN


def judge(code: ErrorCode, *, is_first: bool) -> Verdict:
    """`is_first`: no earlier batch of the partition is unresolved.

    A sequence that is out of order behind an unresolved batch is only that batch's failure
    showing. In front, the broker has lost (or never got) what came before, and the batch itself
    is not among the last five it remembers: not written (KIP-360).
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DONE
    if code in _SEQUENCE_LOST:
        return Verdict.RENUMBER if is_first else Verdict.RETRY
    if code in _FENCED:
        return Verdict.FATAL
    return Verdict.RETRY if code.retriable else Verdict.FAIL
