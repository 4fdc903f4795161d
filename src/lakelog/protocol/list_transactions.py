"""ListTransactions (key 66): the transactional ids of a coordinator."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, int64, string

NOT_A_SINK = -2
"""The next batch of an ordinary transactional id."""


class ListTransactionsRequest(Message, versions="0-2", flexible="0+"):
    """Requests all transactional ids, or matching ones (all filters together) (KIP-664).

    Versions: 1 filters by duration (KIP-994), 2 by a pattern of the id (KIP-1152).
    """

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    """The minimum duration of the transaction in ms; negative matches all."""
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
    """A regular expression for the whole id; null and empty match all."""


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()
    next_batch: int = int64(tag=OWN_TAGS, default=NOT_A_SINK)
    """The next batch if the id is a sink, -1 before its first commit."""
    open_children: int = int32(tag=OWN_TAGS + 1)
    """The children of the sink whose transactions have not ended."""


class ListTransactionsResponse(Message, versions="0-2", flexible="0+"):
    """The matching transactional ids, and the unknown states among the filters."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)


API = Api(66, ListTransactionsRequest, ListTransactionsResponse)
