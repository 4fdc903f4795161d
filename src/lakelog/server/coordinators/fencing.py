"""The error codes of a fenced producer, as each version of the transaction APIs knows them."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode

_FENCED_SINCE = 2


def fenced_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return `code` as a client of `version` knows it: PRODUCER_FENCED came with version 2.

    Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-588).
    """
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
