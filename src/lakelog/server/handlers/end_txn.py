"""EndTxn (26): commits or aborts a transaction.

From version 5 on the response has the producer id and epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from lakelog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from lakelog.server.broker import Broker
from lakelog.server.coordinators.fencing import fenced_code
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(broker: Broker, context: Context, request: EndTxnRequest) -> EndTxnResponse:
    answer = await broker.transactions.end_txn(request, context.version)
    return EndTxnResponse(
        error_code=fenced_code(answer.code, context.version),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


API = ServedApi(EndTxnRequest, handle, done="Both flows; version 5 raises the epoch.")
