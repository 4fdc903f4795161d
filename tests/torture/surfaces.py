"""The surfaces on which a cluster shows its health, asked again and again while faults act.

They are `lakelog cluster health`, `/readyz` of all brokers, and the metrics of all brokers that
answer. A surface without an answer shows no health.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from lakelog.base.errors import KafkaError
from lakelog.cli.commands.cluster import health_of
from lakelog.client.admin import Admin
from torture.history import FAIL, OK
from torture.journal import Journal
from torture.servers import HTTP_PORT

_EVERY_S = 0.5
_TIMEOUT_S = 1.0
_COMMAND_TIMEOUT_S = 3.0
_ALARM = re.compile(
    r"^lakelog_(leaderless|under_min_isr|offline)_partitions(\{.*\})? [1-9]", re.MULTILINE
)
"""A metric above 0 while a partition cannot be written (docs/cluster.md, "Watch")."""


class Surfaces:
    """A context manager: threads that ask each surface, and note the answers.

    Args:
        bootstrap: of all brokers.
        hosts: addresses of the brokers, which serve HTTP at `HTTP_PORT`.
        folder: for a journal of each surface.
    """

    def __init__(self, bootstrap: str, hosts: Iterable[str], folder: Path) -> None:
        self._bootstrap = bootstrap
        self._hosts = list(hosts)
        self._folder = folder
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=each, name=each[0])
            for each in (
                ("health", self._command),
                ("readyz", self._are_ready),
                ("metrics", self._are_without_alarm),
            )
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, surface: str, is_healthy: Callable[[], bool]) -> None:
        journal = Journal(self._folder / f"{surface}.jsonl", surface)
        while not self._stopping.wait(_EVERY_S):
            number = journal.invoke("shown")
            journal.end(number, OK if is_healthy() else FAIL)

    def _command(self) -> bool:
        try:
            with Admin(self._bootstrap, timeout_s=_COMMAND_TIMEOUT_S) as admin:
                return bool(health_of(admin).data["is_healthy"])
        except (KafkaError, OSError):
            return False

    def _are_ready(self) -> bool:
        return all(answer is not None and answer[0] == 200 for answer in self._get("/readyz"))

    def _are_without_alarm(self) -> bool:
        texts = [answer[1] for answer in self._get("/metrics") if answer is not None]
        return bool(texts) and not any(map(_ALARM.search, texts))

    def _get(self, path: str) -> Iterable[tuple[int, str] | None]:
        """Yield status and text of each broker's page, or None without an answer."""
        for host in self._hosts:
            connection = HTTPConnection(host, HTTP_PORT, timeout=_TIMEOUT_S)
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                yield response.status, response.read().decode()
            except (OSError, HTTPException):
                yield None
            finally:
                connection.close()
