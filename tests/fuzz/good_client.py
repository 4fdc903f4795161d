"""A client over TCP that writes and reads while others misbehave, and takes the time it takes."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path
from statistics import quantiles
from typing import Self

from wire_client import WireClient, batch_of, create_topic, fetch, produce


class GoodClient:
    """`call` produces a batch and fetches it."""

    topic = "good"

    def __init__(self, bootstrap: str) -> None:
        self._client = WireClient(bootstrap)
        self._count = 0
        self.latencies_s: list[float] = []
        create_topic(self._client, self.topic)

    def close(self) -> None:
        self._client.close()

    def call(self) -> None:
        value = b"value %d" % self._count
        begun = time.monotonic()
        answer = produce(self._client, self.topic, batch_of(value))
        assert (answer.error_code, answer.base_offset) == (0, self._count)
        found = fetch(self._client, self.topic, self._count)
        self.latencies_s.append(time.monotonic() - begun)
        assert value in bytes(found.records)
        self._count += 1

    def round(self, count: int) -> float:
        """The 99th percentile, in seconds, of so many calls."""
        self.latencies_s = []
        for _ in range(count):
            self.call()
        return quantiles(self.latencies_s, n=100)[98]


class InBackground:
    """Calls for as long as the context lasts; what went wrong is raised at its end."""

    def __init__(self, client: GoodClient, *, pause_s: float = 0.01) -> None:
        self._client = client
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._pause_s):
                self._client.call()
        except Exception as error:  # noqa: BLE001 - raised where the context ends
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def allow_files(count: int) -> None:
    """Of this process and those it starts, unless the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
