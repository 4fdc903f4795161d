"""What a transactional producer is told of its identity."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import Transaction


class Answer(NamedTuple):
    """What a producer is told: a code, and with success the identity to go on with."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1

    @staticmethod
    def of(transaction: Transaction) -> Answer:
        return Answer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
