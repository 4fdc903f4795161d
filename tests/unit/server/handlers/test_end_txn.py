from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from fake_broker import FakeBroker, FakeContext, FakeTransactions
from lakelog.base.errors import ErrorCode
from lakelog.protocol.end_txn import EndTxnRequest
from lakelog.server.handlers.end_txn import handle


class Answer(NamedTuple):
    code: ErrorCode
    producer_id: int = 7
    producer_epoch: int = 3


class Transactions(FakeTransactions):
    async def end_txn(self, request: EndTxnRequest, version: int) -> Answer:
        return Answer(self.code)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_gets_the_code_of_its_version(version: int, code: ErrorCode) -> None:
    broker = FakeBroker(transactions=Transactions(ErrorCode.PRODUCER_FENCED))
    response = asyncio.run(handle(broker.broker, FakeContext(version).context, EndTxnRequest()))
    assert response.error_code == code


def test_the_response_has_the_producer_of_the_next_transaction() -> None:
    broker = FakeBroker(transactions=Transactions())
    response = asyncio.run(handle(broker.broker, FakeContext(5).context, EndTxnRequest()))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 7, 3)
