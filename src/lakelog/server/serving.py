"""A broker in this process: made of the real environment, run until a signal, and stopped.

The process's file descriptors are divided: logs first, connections get the rest. Any client can use
up descriptors by opening connections, and a broker that cannot open its logs cannot serve at all.
So connections are bounded below the limit of the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from lakelog.base.events import event
from lakelog.metrics import Durations
from lakelog.runtime.aio import AsyncioNet, AsyncioTasks
from lakelog.runtime.posix import (
    PosixDisk,
    PythonProcesses,
    SystemClock,
    SystemRandom,
    raise_descriptor_limit,
)
from lakelog.server.app import Server
from lakelog.server.metadata_store import metadata_store
from lakelog.server.options import Environment, ServeOptions, StartError, StoppedError

logger = logging.getLogger(__name__)

LOG_FILES_MAX = 8192
"""More would cost kernel memory and gain nothing: a log is opened again in microseconds."""
RESERVE = 128
"""Descriptors of the loop, the listeners, the metadata log, HTTP connections (up to 32), helpers,
and files that threads open briefly."""
LIMIT_MIN = 64
"""With fewer descriptors a broker cannot do its work."""


class Descriptors(NamedTuple):
    """Numbers of descriptors by use; together they stay below the limit."""

    log_files: int
    connections: int

    @staticmethod
    def divided(limit: int) -> Descriptors:
        """Divide the soft limit of open files, which is at least `LIMIT_MIN`.

        Return the largest numbers of open log files and of connections, inclusive.
        """
        assert limit >= LIMIT_MIN
        reserve = min(RESERVE, limit // 2)
        log_files = min((limit - reserve) // 2, LOG_FILES_MAX)
        return Descriptors(log_files, limit - reserve - log_files)


_NEEDED_LATER = ("lakelog.wire.decoder", "lakelog.wire.encoder", "re2", "shutil")
"""Modules that a start does not need. They are imported while there are descriptors, so that the
first request or task that needs one opens no file for it."""
_SETTLED_S = 1.0
"""Seconds after the broker is ready."""


def serve(options: ServeOptions) -> int:
    """Run a broker until SIGTERM or SIGINT, stop it cleanly, and return the exit status.

    Raises `StartError`, and `StoppedError` after a clean stop of a broker that cannot go on.
    """
    asyncio.run(_serve(options))
    return 0


async def _serve(options: ServeOptions) -> None:
    loop = asyncio.get_running_loop()
    tasks, clock, random = AsyncioTasks(loop), SystemClock(), SystemRandom()
    limit = raise_descriptor_limit()
    if limit < LIMIT_MIN:
        raise StartError(f"{limit} open files are allowed; at least {LIMIT_MIN} are needed")
    descriptors = Descriptors.divided(limit)
    most = options.config.get_int("max.connections")
    if descriptors.connections < most:
        logger.warning(
            "%d open files are allowed (ulimit -n), %d of them connections; max.connections is %d",
            limit,
            descriptors.connections,
            most,
            extra=event("connections_limited", limit=limit),
        )
    fsyncs = Durations()
    environment = Environment(
        clock,
        PosixDisk(fsyncs.note),
        AsyncioNet(loop),
        tasks,
        random,
        PythonProcesses(),
        metadata_store(options, clock, random),
        descriptors.log_files,
        fsyncs,
        descriptors.connections,
    )
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = Server(options, environment)
    server.watch_failure(stopping.set)
    try:
        if await _start(server, stopping):
            logger.info("%s", server.ready_info, extra=event("ready", **server.ready_info.fields))
            # Objects of the start stay; a collection that visits them takes tens of milliseconds.
            gc.freeze()
            options.ready(server.ready_info)
            loop.call_soon(_import_next, iter(_NEEDED_LATER))
            loop.call_later(_SETTLED_S, _freeze_objects)
            await stopping.wait()
            await _stop(server, clock)
            if server.failure is not None:
                raise StoppedError(str(server.failure)) from server.failure
    finally:
        tasks.close()


def _import_next(names: Iterator[str]) -> None:
    """Import one module in each iteration of the loop."""
    name = next(names, None)
    if name is not None:
        import_module(name)
        asyncio.get_running_loop().call_soon(_import_next, names)


def _freeze_objects() -> None:
    """Collect garbage, and exclude the remaining objects from all later collections.

    A collection that visits the modules and all logs blocks the loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


async def _stop(server: Server, clock: SystemClock) -> None:
    begun = clock.monotonic()
    logger.info("Stopping", extra=event("stopping"))
    await server.stop()
    duration_s = round(clock.monotonic() - begun, 3)
    logger.info("Stopped in %.1f s", duration_s, extra=event("stopped", duration_s=duration_s))


async def _start(server: Server, stopping: asyncio.Event) -> bool:
    """Return False if the broker was stopped before it was ready."""
    starting = asyncio.ensure_future(server.start())
    stop_requested = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not starting.done():
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        logger.info("stopped before it was ready", extra=event("start_abandoned"))
        return False
    return True
