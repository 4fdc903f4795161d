"""Our own consumer against a broker."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.client.consumer import Consumer, FetchLimits, fetcher
from lakelog.client.producer import Producer
from waiting import eventually


def test_a_broker_that_fell_silent_is_asked_again_on_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its host has vanished: the connection stays open and no answer ever comes."""
    monkeypatch.setattr(fetcher, "_ANSWER_SLACK_S", 0.3)
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Consumer(broker.bootstrap, limits=FetchLimits(max_wait_ms=100), timeout_s=30.0) as consumer,
    ):
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"first")
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 0)
        assert [r.value for r in eventually(lambda: consumer.poll(0.2))] == [b"first"]
        (silent,) = consumer._fetcher._leaders.values()

        broker.pause()
        waking = threading.Timer(1.5, broker.resume)
        waking.start()
        eventually(lambda: consumer.poll(0.1) or silent not in consumer._fetcher._leaders.values())
        waking.join()

        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"second")
        assert [r.value for r in eventually(lambda: consumer.poll(0.2))] == [b"second"]
