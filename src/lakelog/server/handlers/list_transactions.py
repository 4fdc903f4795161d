"""ListTransactions (66): lists transactions by state, producer id, duration and pattern."""

from __future__ import annotations

from lakelog.protocol.transactions import ListTransactionsRequest, ListTransactionsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    return broker.transactions.admin.list_transactions(request)


API = ServedApi(
    ListTransactionsRequest,
    handle,
    done="Filters of states, producer ids, duration and pattern.",
)
