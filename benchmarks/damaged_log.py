"""A log whose stored records are damaged, and a consumer that wants to read them."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from acknowledgements import CLIENT, VALUE
from confluent_kafka import Consumer, TopicPartition

_BATCH = struct.Struct(">qi")
"""Base offset, and bytes that follow: https://kafka.apache.org/documentation/#recordbatch."""
_RETRY_S, _POLL_S = 0.2, 2.0
_INSIDE_VALUE = 10
"""Bytes before the end of a batch: a value precedes its count of headers."""


def damage(folder: Path) -> int:
    """Flip a bit of a value of the batch in the middle of a log; return its base offset."""
    path = max(folder.glob("*.log"), key=lambda each: each.stat().st_size)
    batches = list(_batches(path.read_bytes()))
    offset, end = batches[len(batches) // 2]
    with path.open("r+b") as file:
        file.seek(end - _INSIDE_VALUE)
        (byte,) = file.read(1)
        file.seek(end - _INSIDE_VALUE)
        file.write(bytes([byte ^ 1]))
    return offset


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield base offset and end of each batch; preallocated bytes at the end are zeros."""
    at = 0
    while at + _BATCH.size <= len(data):
        offset, length = _BATCH.unpack_from(data, at)
        if length == 0 or at + _BATCH.size + length > len(data):
            return
        at += _BATCH.size + length
        yield offset, at


class Reader:
    """A context manager: a consumer asks for one record again and again, until its value is right.

    It compares values, because librdkafka skips batches with a wrong checksum, or ignores it.
    """

    def __init__(self, bootstrap: str, topic: str, partition: int, offset: int) -> None:
        place = {"bootstrap.servers": bootstrap, "group.id": "readers"}
        settings = {"enable.auto.commit": False, "fetch.wait.max.ms": 100}
        self._consumer = Consumer({**CLIENT, **place, **settings})
        self._place = TopicPartition(topic, partition, offset)
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._read)
        self._is_over = threading.Event()
        self.read_after_s: float | None = None
        """Seconds until the consumer had the record, from its start; None if it has not."""

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

    @property
    def waited_s(self) -> float:
        """Seconds until the record was read, or until now."""
        waited = time.monotonic() - self._begun
        return waited if self.read_after_s is None else self.read_after_s

    def _read(self) -> None:
        while self.read_after_s is None and not self._is_over.wait(_RETRY_S):
            self._consumer.assign([self._place])
            message = self._consumer.poll(_POLL_S)
            if (
                message is not None
                and message.error() is None
                and message.offset() == self._place.offset
                and message.value() == VALUE
            ):
                self.read_after_s = time.monotonic() - self._begun
        self._consumer.close()
