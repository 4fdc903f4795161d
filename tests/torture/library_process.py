"""Idempotent producers of kafka-python and aiokafka, which know nothing of the faults.

    python library_process.py <library>.<number> <life> <bootstrap> <journal> <seed>

They send until SIGTERM, wait for all responses, and end.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import aiokafka
import kafka

from torture.consuming import partition_name
from torture.history import INFO, OK
from torture.journal import Journal
from torture.servers import NUMBERS, PARTITIONS

_SETTLE_S = 120.0
_DELIVERY_MS = 180_000
_REQUEST_MS = 10_000
_OUTSTANDING_MAX = 1000
_SENDS_MAX = 5
_PAUSE_S = 0.04


class Sends:
    """Numbered records to random partitions, and the responses."""

    def __init__(self, name: str, life: str, journal: str, seed: str) -> None:
        self._journal = Journal(Path(journal), f"{name}:{life}")
        self._random = random.Random(f"{seed} {name} {life}")
        self.lock = threading.Lock()
        self.outstanding = 0

    def portion(self) -> range:
        """Return as many items as there are records to send next."""
        count = self._random.randrange(1, _SENDS_MAX)
        return range(min(count, _OUTSTANDING_MAX - self.outstanding))

    def next(self) -> Send:
        """Note a send that begins."""
        with self.lock:
            self.outstanding += 1
        index = self._random.randrange(PARTITIONS)
        value = f"{self._journal.process}/{self._random.randbytes(8).hex()}"
        return Send(self, self._journal, index, value)


class Send:
    """One record, and its response, which may arrive in another thread."""

    def __init__(self, sends: Sends, journal: Journal, index: int, value: str) -> None:
        self._sends = sends
        self._journal = journal
        self.index = index
        self.value = value.encode()
        records = [(partition_name(NUMBERS, index), value)]
        self._number = journal.invoke("send", records=records)

    def on_success(self, sent: Any) -> None:
        """Note the metadata of a record, which have its offset."""
        self._journal.end(self._number, OK, offsets=[sent.offset])
        self._complete()

    def on_failure(self, error: BaseException) -> None:
        self._journal.note("error", text=f"{self.value.decode()}: {error!r}")
        self._journal.end(self._number, INFO)
        self._complete()

    def _complete(self) -> None:
        with self._sends.lock:
            self._sends.outstanding -= 1


def run_kafka_python(bootstrap: str, sends: Sends, stopping: threading.Event) -> None:
    """Its callbacks come from a thread of its own."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=_REQUEST_MS,
        delivery_timeout_ms=_DELIVERY_MS,
        max_block_ms=_DELIVERY_MS,
    )
    while not stopping.wait(_PAUSE_S):
        for _ in sends.portion():
            send = sends.next()
            future = producer.send(NUMBERS, send.value, partition=send.index)
            future.add_callback(send.on_success).add_errback(send.on_failure)
    producer.flush(_SETTLE_S)
    producer.close()


async def run_aiokafka(bootstrap: str, sends: Sends, stopping: threading.Event) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=_REQUEST_MS,
    )
    await producer.start()
    waiting: set[asyncio.Task[None]] = set()
    while not stopping.is_set():
        await asyncio.sleep(_PAUSE_S)
        for _ in sends.portion():
            send = sends.next()
            future = await producer.send(NUMBERS, send.value, partition=send.index)
            task = asyncio.ensure_future(_await_response(future, send))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
    await producer.flush()
    await asyncio.gather(*waiting)
    await producer.stop()


async def _await_response(future: Awaitable[Any], send: Send) -> None:
    try:
        sent = await future
    except aiokafka.errors.KafkaError as error:
        send.on_failure(error)
    else:
        send.on_success(sent)


def main() -> None:
    name, life, bootstrap, journal, seed = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    sends = Sends(name, life, journal, seed)
    if name.startswith("aiokafka"):
        asyncio.run(run_aiokafka(bootstrap, sends, stopping))
    else:
        run_kafka_python(bootstrap, sends, stopping)


if __name__ == "__main__":
    main()
