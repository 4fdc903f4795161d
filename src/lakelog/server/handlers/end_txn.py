"""EndTxn (26): commits or aborts a transaction.

From version 5 on the response has the producer id and epoch of the next transaction (KIP-890).
With a commit set it ends a batch of a sink (ADR 8).
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.transactions import EndTxnRequest, EndTxnResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(broker: Broker, context: Context, request: EndTxnRequest) -> Reply[EndTxnResponse]:
    if request.commit_set is not None or request.removes_sink:
        return broker.transactions.sinks.end(request)
    return broker.transactions.end_txn(request, context.version)


API = ServedApi(
    EndTxnRequest,
    handle,
    done="Both flows; version 5 raises the epoch. In tagged fields, commit sets of sinks.",
)
