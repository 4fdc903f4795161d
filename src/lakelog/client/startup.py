"""The wait for brokers that may still be starting."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakelog.client.connection import Connection
from lakelog.client.errors import NotStartedError, UnreachableError
from lakelog.client.retry import log_retry, pauses

NOTICE_S = 0.5
"""Seconds after which `on_wait` is called."""


class Startup:
    """Retries the first connection to any broker, so that no request is sent only to probe.

    limit_s: how long refused connections are retried. on_wait: is called once, after `NOTICE_S`.
    """

    def __init__(self, limit_s: float, on_wait: Callable[[], object]) -> None:
        self._limit_s = limit_s
        self._on_wait: Callable[[], object] | None = on_wait

    def connect(self, connect: Callable[[], Connection]) -> Connection:
        """Return `connect()`; repeat it with growing pauses while connections are refused.

        A connection that times out is not retried: something listens there and does not respond.
        Raises `NotStartedError` after `limit_s`.
        """
        since = time.monotonic()
        for pause in pauses():
            try:
                return connect()
            except UnreachableError as error:
                elapsed_s = time.monotonic() - since
                if error.is_timeout or elapsed_s + pause >= self._limit_s:
                    raise NotStartedError(error.message, timed_out=error.is_timeout) from error
                log_retry(error, pause)
            if elapsed_s >= NOTICE_S and self._on_wait is not None:
                self._on_wait()
                self._on_wait = None
            time.sleep(pause)
        raise AssertionError("pauses never end")
