"""A producer that writes to every partition all the time, and the times of its acknowledgements."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

_INTERVAL_S = 0.03
"""Between two records to a partition."""
_STEADY_S, _STEADY_PAUSE_S = 2.0, 0.5
"""A partition is served steadily if no pause of so many seconds is longer."""
_POLL_S = 0.1
VALUE = bytes(100)
CLIENT: dict[str, str | int | float | bool] = {
    "log_level": 0,
    # A client with the defaults waits up to a minute for a silent broker. Then the figures would be
    # the client's, and not the cluster's.
    "socket.timeout.ms": 2_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "api.version.request.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
}
_PRODUCER: dict[str, str | int | float | bool] = {
    **CLIENT,
    "enable.idempotence": True,
    "linger.ms": 0,
    "queue.buffering.max.messages": 1_000_000,
    "request.timeout.ms": 1_000,
}


class Acknowledgements:
    """A context manager: a thread writes inside.

    A record that fails for good is not acknowledged; the writer continues.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._settings = {**_PRODUCER, "bootstrap.servers": bootstrap}
        self._topic = topic
        self.errors: Counter[str] = Counter()
        self._times: list[list[float]] = [[] for _ in range(partitions)]
        self._thread = threading.Thread(target=self._write)
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _write(self) -> None:
        producer = Producer(self._settings)
        due = time.monotonic()
        while not self._is_over.is_set():
            for partition in range(len(self._times)):
                self._send(producer, partition)
            # Without a burst for the time that the machine was too busy.
            due = max(due + _INTERVAL_S, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                producer.poll(left)
        producer.purge()

    def _send(self, producer: Producer, partition: int) -> None:
        try:
            producer.produce(self._topic, VALUE, partition=partition, on_delivery=self._on_delivery)
        except BufferError:
            self.errors["queue full"] += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        if error is None:
            self._times[partition].append(time.monotonic())
        else:
            self.errors[error.name()] += 1

    def longest_pause(self, partition: int, since: float) -> float:
        """Return the longest time without an acknowledgement from `since` until now, in seconds."""
        return _longest(self._times[partition], since, time.monotonic())

    def await_steady(self, since: float, limit_s: float) -> bool:
        """Wait until every partition is served steadily, for a while after `since`.

        Returns whether it is; not after `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        while not self._is_steady(since):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _is_steady(self, since: float) -> bool:
        now = time.monotonic()
        begin = now - _STEADY_S
        return begin >= since and all(
            _longest(times, begin, now) < _STEADY_PAUSE_S for times in self._times
        )


def _longest(times: list[float], since: float, until: float) -> float:
    later = times[bisect_right(times, since) :]
    return max(end - begin for begin, end in pairwise((since, *later, max(until, since, *later))))
