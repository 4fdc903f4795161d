"""The coordinator's reply to a producer that starts or ends a transaction."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode


class ProducerReply(NamedTuple):
    """An error code, and without an error the producer id and epoch to continue with."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
