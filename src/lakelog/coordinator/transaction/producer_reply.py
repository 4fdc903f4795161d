"""The coordinator's replies to a producer that starts or ends a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.requests import settle
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.end_txn import EndTxnResponse

_FENCED_SINCE = 2


class ProducerReply(NamedTuple):
    """An error code, and without an error the producer id and epoch to continue with."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


def settle_end(future: Any, version: int, reply: ProducerReply) -> None:
    """Answer EndTxn of a version, unless its caller has gone away."""
    settle(
        future,
        EndTxnResponse(
            error_code=fenced_code(reply.code, version),
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
        ),
    )


def settle_partitions(future: Any, partitions: Iterable[TopicPartition], code: ErrorCode) -> None:
    """Answer a verification with one code for all partitions, unless its caller has gone away."""
    settle(future, dict.fromkeys(partitions, code))


def fenced_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return `code` for AddPartitionsToTxn, AddOffsetsToTxn or EndTxn of a version.

    PRODUCER_FENCED exists since version 2 (KIP-588); older clients get INVALID_PRODUCER_EPOCH.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
