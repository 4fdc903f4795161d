"""DescribeTransactions (65): returns the state of transactions by transactional id (KIP-664)."""

from __future__ import annotations

from lakelog.protocol.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return broker.transactions.admin.describe_transactions(request)


API = ServedApi(DescribeTransactionsRequest, handle, done="All.")
