"""Requests of transactional clients, as the broker decodes them."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.transactions import EndTxnRequest
from lakelog.wire.codec import decode_prefix
from lakelog.wire.framing import decode_request_header, encode_request
from lakelog.wire.schema import Message
from simulator.clients.producers.transaction_requests import (
    TIMEOUT_MS,
    end_request,
    init_request,
    offset_request,
)


def received(request: Message, version: int) -> Any:
    api = api_for(type(request))
    frame = b"".join(encode_request(api, version, 1, "client", request))
    _, _, body = decode_request_header(
        memoryview(frame), 4, len(frame), flexible=version >= api.flexible_from
    )
    return decode_prefix(type(request), memoryview(frame), version, body, len(frame))[0]


def test_every_transaction_has_the_timeout_that_checkers_use() -> None:
    request = received(init_request("txn0"), 4)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("txn0", TIMEOUT_MS)
    assert request.producer_id == -1


@pytest.mark.parametrize("version", [3, 5])
def test_an_offset_of_a_group_without_members(version: int) -> None:
    request = received(offset_request("txn0", (7, 3), "group", ("topic", 2), 41), version)
    assert (request.transactional_id, request.group_id) == ("txn0", "group")
    assert (request.producer_id, request.producer_epoch) == (7, 3)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.committed_offset) == ("topic", 2, 41)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("commit", [False, True])
def test_an_end_commits_or_aborts(version: int, commit: bool) -> None:
    request: EndTxnRequest = received(end_request("txn0", (7, 3), commit=commit), version)
    assert request.committed is commit
    assert (request.producer_id, request.producer_epoch) == (7, 3)
