"""DescribeTransactions (key 65): the state of transactional ids."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.protocol.commit_sets import ChildState, SinkState
from lakelog.wire.schema import Message, Struct, array, int16, int32, int64, string, struct


class DescribeTransactionsRequest(Message, versions="0", flexible="0+"):
    """Requests transactional ids from their coordinator (KIP-664)."""

    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class TransactionState(Struct):
    """The state of one transactional id."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    """The start of the transaction in ms since the Unix epoch; -1 before the first transaction."""
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)
    """Partitions in the transaction; while it ends, only the partitions without a marker."""
    sink: SinkState | None = struct(SinkState, nullable="0+", tag=OWN_TAGS, default=None)
    """The control record, if the transactional id is a sink."""
    children: list[ChildState] = array(ChildState, tag=OWN_TAGS + 1)
    """The children of the sink whose transactions have not ended."""


class DescribeTransactionsResponse(Message, versions="0", flexible="0+"):
    """One state for each requested id."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


API = Api(65, DescribeTransactionsRequest, DescribeTransactionsResponse)
