"""A member of a consumer group that lives on a thread, as an application's would."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from clients.adapters.api import Client, Received


class GroupMember:
    """A member that polls until closed and keeps its records and its assignment."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.received: list[Received] = []
        self.partitions: set[int] = set()
        self._client, self._group, self._topic = client, group, topic
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"member of {group}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group and raises what went wrong on the thread."""
        self._closing.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            consumer = self._client.consumer(self._group, self._topic)
            try:
                while not self._closing.is_set():
                    self.received += consumer.poll(0.1)
                    self.partitions = consumer.assignment()
            finally:
                consumer.close()
        except BaseException as error:  # noqa: BLE001 - it is raised again by close
            self._error = error
