"""Our own producer against a broker."""

from __future__ import annotations

import threading

import pytest

from lakelog.client.producer import Producer
from waiting import eventually


def test_a_batch_that_becomes_ready_while_the_thread_is_busy_is_sent(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush between the thread's check for ready batches and its sleep."""
    with Producer(bootstrap, linger_ms=600_000) as producer:
        producer.send(topic, b"first")
        producer.flush(120)
        sender = producer._sender
        has_looked, may_sleep = threading.Event(), threading.Event()
        sleep = sender._wait

        def sleep_late(now: float) -> None:
            has_looked.set()
            may_sleep.wait(60)
            sleep(now)

        monkeypatch.setattr(sender, "_wait", sleep_late)
        producer.send(topic, b"second")
        assert has_looked.wait(60)
        flushing = threading.Thread(target=producer.flush, args=(120,))
        flushing.start()
        eventually(lambda: producer._accumulator.is_flushing)
        may_sleep.set()
        flushing.join(60)
        assert not flushing.is_alive(), "the thread slept although there was work"
