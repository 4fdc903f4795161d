"""The monitoring of a broker: the delays of its loop, its stage, and the HTTP endpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakelog.base.events import event
from lakelog.server.monitoring.readiness import Check, ClusterStanding, Stage, checks
from lakelog.server.monitoring.sources import Sources
from lakelog.server.options import ListenError, parse_address
from lakelog.server.upkeep.cleaner import Cleaner

if TYPE_CHECKING:
    from lakelog.server.monitoring.http import HttpServer

logger = logging.getLogger(__name__)


class Monitoring:
    """From `start` to `stop`; `Server` sets `stage`.

    Args:
        is_current: returns whether no other broker can have taken the place of this one.
    """

    def __init__(self, sources: Sources, is_current: Callable[[], bool]) -> None:
        self.stage = Stage.STARTING
        self._was_in_sync = False
        """Whether all replicas of this broker have been in their ISRs at once since the start."""
        self._broker = sources.broker
        self._is_current = is_current
        self._loop = sources.loop
        self._sources = sources
        self._http: HttpServer | None = None

    async def start(self, address: str) -> None:
        """Start; `address` is HOST:PORT of the endpoint, empty for none.

        Raises `ListenError`, a `StartError`, if the address is malformed or cannot be bound.
        """
        self._loop.start()
        if not address:
            return
        # Imported on demand: they would cost a start without an endpoint some milliseconds.
        from lakelog.server.monitoring.http import HttpServer
        from lakelog.server.monitoring.pages import Pages

        host, port = parse_address(address)
        pages = Pages(self._sources, self.checks)
        self._http = HttpServer(pages.by_path())
        try:
            host, port = await self._http.start(host, port)
        except OSError as error:
            raise ListenError(address, error, for_http=True) from error
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        logger.info(
            "metrics and health on http://%s", shown, extra=event("http_ready", address=shown)
        )

    def serving(self, cleaner: Cleaner) -> None:
        """Note that the broker accepts connections now, and that `cleaner` runs."""
        self._sources.cleaner = cleaner
        self.stage = Stage.SERVING

    def note_callback(self, duration_s: float) -> None:
        """Note that a task has blocked the loop for so many seconds."""
        self._loop.note_callback(duration_s)

    def checks(self) -> list[Check]:
        """Return the current checks of readiness."""
        broker = self._broker
        standing = self._standing()
        return checks(self.stage, broker.partitions.offline(), broker.shortages.reasons, standing)

    def cluster_numbers(self) -> dict[str, int]:
        """Return the counts of replicas, ISRs, leaders and brokers, by the names of metrics."""
        from lakelog.server.monitoring.collect import cluster_numbers  # on demand, as in `start`

        return cluster_numbers(self._sources)

    def _standing(self) -> ClusterStanding:
        """Return the place of this broker in its cluster.

        A replica that leaves an ISR later does not make the broker unready: it still serves.
        """
        broker = self._broker
        own = broker.image.brokers.get(broker.node_id)
        is_fenced = own is not None and own.is_fenced
        behind = 0
        if not self._was_in_sync:
            behind = sum(
                broker.node_id not in partition.role.isr for partition in broker.partitions
            )
            self._was_in_sync = self.stage is Stage.SERVING and not is_fenced and not behind
        return ClusterStanding(is_fenced, not self._is_current(), behind)

    async def stop(self) -> None:
        """Stop the watch of the loop, and close the endpoint with its connections."""
        self._loop.stop()
        if self._http is not None:
            await self._http.stop()
