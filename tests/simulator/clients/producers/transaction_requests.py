"""Requests of transactional clients to their coordinators."""

from __future__ import annotations

from lakelog.protocol.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lakelog.protocol.transactions import EndTxnRequest, InitProducerIdRequest
from simulator.checkers.observations import Place

TIMEOUT_MS = 8_000
"""The timeout of every transaction."""

Identity = tuple[int, int]
"""Producer id and epoch."""


def init_request(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
    )


def offset_request(
    transactional_id: str, identity: Identity, group: str, partition: Place, value: int
) -> TxnOffsetCommitRequest:
    """Return a TxnOffsetCommit request that names no member of the group."""
    entry = TxnOffsetCommitRequestPartition(
        partition_index=partition[1], committed_offset=value, committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[TxnOffsetCommitRequestTopic(name=partition[0], partitions=[entry])],
    )


def end_request(transactional_id: str, identity: Identity, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        committed=commit,
    )
