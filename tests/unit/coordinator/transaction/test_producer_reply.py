from __future__ import annotations

from concurrent.futures import Future

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.producer_reply import ProducerReply, fenced_code, settle_end
from lakelog.protocol.end_txn import EndTxnResponse


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 2, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.NOT_COORDINATOR, 0, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_older_clients_know_a_fenced_producer_by_its_epoch(
    code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert fenced_code(code, version) is expected


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_gets_the_code_of_its_version(version: int, code: ErrorCode) -> None:
    future = Future[EndTxnResponse]()
    settle_end(future, version, ProducerReply(ErrorCode.PRODUCER_FENCED))
    assert future.result().error_code == code


def test_the_response_has_the_producer_of_the_next_transaction() -> None:
    future = Future[EndTxnResponse]()
    settle_end(future, 5, ProducerReply(ErrorCode.NONE, 7, 3))
    response = future.result()
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 7, 3)


def test_no_reply_reaches_a_client_that_has_gone_away() -> None:
    future = Future[EndTxnResponse]()
    future.cancel()
    settle_end(future, 5, ProducerReply(ErrorCode.NONE, 7, 3))
    assert future.cancelled()
