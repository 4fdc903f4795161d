"""Accepts connections on one address and hands them to the dispatcher."""

from __future__ import annotations

import errno
import logging

from lakelog.runtime.api import Clock, Disk, Listener, Net, Tasks
from lakelog.server.connection import Connection
from lakelog.server.dispatch import Dispatcher

logger = logging.getLogger(__name__)

_ACCEPTS_AT_ONCE = 64
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_S = 0.1


class Acceptor:
    """One bound listener.

    Args:
        name: the listener's name, which chooses the advertised address.
        connections_max: beyond it a new connection is closed at once.
    """

    def __init__(
        self,
        name: str,
        listener: Listener,
        dispatcher: Dispatcher,
        net: Net,
        disk: Disk,
        tasks: Tasks,
        clock: Clock,
        *,
        frame_size_max: int,
        connections_max: int,
    ) -> None:
        self.name = name
        self.address = listener.address
        self._listener = listener
        self._dispatcher = dispatcher
        self._net = net
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._frame_size_max = frame_size_max
        self._connections_max = connections_max
        self._closed = False

    def start(self) -> None:
        if not self._closed:
            self._net.on_acceptable(self._listener, self._on_acceptable)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._net.on_acceptable(self._listener, None)
            self._listener.close()

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                sock = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if len(self._dispatcher.connections) >= self._connections_max:
                logger.warning("max.connections=%d reached", self._connections_max)
                sock.close()
                continue
            try:
                connection = Connection(
                    sock,
                    self._dispatcher,
                    self._net,
                    self._disk,
                    self._tasks,
                    listener_name=self.name,
                    frame_size_max=self._frame_size_max,
                )
            except OSError:
                sock.close()
                continue
            connection.last_active = self._clock.monotonic()
            self._dispatcher.connections.add(connection)
            connection.open()

    def _pause(self, error: OSError) -> None:
        """Out of descriptors or memory: an accept that cannot succeed must not spin."""
        logger.error("cannot accept a connection: %s", error)
        if error.errno in _EXHAUSTED:
            self._net.on_acceptable(self._listener, None)
            self._tasks.call_later(_EXHAUSTED_PAUSE_S, self.start)
