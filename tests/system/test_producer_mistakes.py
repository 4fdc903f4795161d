"""A record that cannot be sent fails its caller only."""

from __future__ import annotations

import time
from typing import Any

import pytest

from clients.adapters.transactions import UNCOMMITTED, read_all
from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError
from lakelog.client.producer import Producer


@pytest.mark.parametrize(
    "record",
    [{"value": "text"}, {"value": b"v", "key": 3}, {"value": b"v", "headers": [("a", "text")]}],
)
def test_a_value_of_another_type_does_not_end_the_producer(
    topic: str, bootstrap: str, record: dict[str, Any]
) -> None:
    with Producer(bootstrap, linger_ms=1) as producer:
        with pytest.raises(TypeError):
            producer.send(topic, partition=0, **record)
        time.sleep(0.05)  # the thread checks for ready batches
        assert producer.send(topic, b"good", partition=0).result(60).offset == 0


def test_values_before_one_of_another_type_are_sent(topic: str, bootstrap: str) -> None:
    values: list[Any] = [b"a", b"b", "text"]
    with Producer(bootstrap) as producer:
        with pytest.raises(TypeError):
            producer.send_values(topic, values, partition=0)
        producer.send_values(topic, [b"c"], partition=0)
    assert read_all(bootstrap, topic, UNCOMMITTED) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("timestamp_ms", [-2, 1 << 63, 1 << 70])
def test_a_timestamp_that_no_batch_can_hold_is_refused(
    topic: str, bootstrap: str, timestamp_ms: int
) -> None:
    with Producer(bootstrap) as producer:
        with pytest.raises(NotWrittenError) as refused:
            producer.send(topic, b"v", timestamp_ms=timestamp_ms)
        with pytest.raises(NotWrittenError):
            producer.send_values(topic, [b"v"], timestamp_ms=timestamp_ms)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        assert producer.send(topic, b"v", partition=0, timestamp_ms=-1).result(60).offset == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_producer_whose_thread_has_failed_closes(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(bootstrap)

    def fail(now: float) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(producer._sender, "_wait", fail)
    with pytest.raises(NotWrittenError, match="a fault of ours"):
        producer.send(topic, b"v").result(60)
        producer.send(topic, b"v")
    producer.close()
