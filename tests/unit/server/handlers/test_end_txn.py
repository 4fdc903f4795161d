from __future__ import annotations

from concurrent.futures import Future

from fake_broker import FakeBroker, FakeContext, FakeTransactions
from lakelog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from lakelog.server.handlers.end_txn import handle


class Transactions(FakeTransactions):
    def end_txn(self, request: EndTxnRequest, version: int) -> Future[EndTxnResponse]:
        answer = Future[EndTxnResponse]()
        answer.set_result(EndTxnResponse(producer_id=request.producer_id, producer_epoch=version))
        return answer


def test_the_coordinator_answers_in_the_version_of_the_request() -> None:
    """Without a task: the answer leaves before the markers are written."""
    broker = FakeBroker(transactions=Transactions())
    request = EndTxnRequest(producer_id=7)
    response = handle(broker.broker, FakeContext(3).context, request).result()
    assert (response.producer_id, response.producer_epoch) == (7, 3)
