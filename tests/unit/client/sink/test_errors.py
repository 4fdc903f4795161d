from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError
from lakelog.client.sink.errors import AnotherQueryError, SinkError, check_sink
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet, SinkState


def test_each_reason_has_its_own_error_with_the_brokers_text() -> None:
    found = set()
    for reason in Refusal:
        with pytest.raises(SinkError, match="because of that") as raised:
            check_sink(48, RefusedCommitSet(reason=reason, message="because of that"), "sink 's'")
        assert not raised.value.retriable
        found.add(type(raised.value))
    assert SinkError not in found


def test_the_error_has_the_control_record_of_the_response() -> None:
    sink = SinkState(query_id="q", run_id="r", next_batch=4)
    refused = RefusedCommitSet(reason=Refusal.ANOTHER_QUERY, message="text")
    with pytest.raises(AnotherQueryError) as raised:
        check_sink(48, refused, "sink 's'", sink)
    assert raised.value.sink == sink


def test_a_reason_of_a_newer_broker_is_a_refusal_too() -> None:
    with pytest.raises(SinkError, match="new reason"):
        check_sink(48, RefusedCommitSet(reason=99, message="new reason"), "sink 's'")


def test_other_codes_are_ordinary_errors() -> None:
    check_sink(0, None, "sink 's'")
    with pytest.raises(ClientError, match="sink 's'") as raised:
        check_sink(51, None, "sink 's'")
    assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert raised.value.retriable
