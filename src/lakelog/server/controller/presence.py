"""Keeps this broker visible to a controller that it cannot call, through another broker.

The controller fences a broker that it has not seen for a session. While its answers fail to come,
this broker sends heartbeats through others. An answer also counts for the lease of coordinators:
the controller has seen this broker after the begin of the call (`Silence.contact_s`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lakelog.base.errors import KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.metadata.log import MetadataLog
from lakelog.protocol.brokers import BrokerHeartbeatRequest
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.controller.relays import Relays
from lakelog.server.inter_broker.silence import Silence

logger = logging.getLogger(__name__)

_BEATS_PER_SESSION = 6


class Presence:
    """The heartbeats through other brokers, until `stop`.

    Args:
        heartbeat: returns a request with the present state of this broker, None unless it serves.
            A stopping broker that asked to be unfenced would lead again.
        silence: learns which controller has answered.
        session_s: `broker.session.timeout.ms`.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        relays: Relays,
        heartbeat: Callable[[], BrokerHeartbeatRequest | None],
        silence: Silence,
        session_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._metadata = metadata
        self._relays = relays
        self._heartbeat = heartbeat
        self._silence = silence
        self._period_s = session_s / _BEATS_PER_SESSION
        self._clock = clock
        self._tasks = tasks
        self._running: Any = None
        self._task = FailingTask(logger, "the heartbeat through another broker")

    def note_silence(self) -> None:
        """Send heartbeats through other brokers while the controller does not answer."""
        if self._running is None and self._relays.are_needed:
            self._running = self._tasks.spawn(self._run(), name="heartbeats through others")

    def stop(self) -> None:
        """Send none any more."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        was_seen = False
        try:
            while self._relays.are_needed:
                if await self._try_beat() and not was_seen:
                    was_seen = True
                    logger.warning(
                        "Controller %d does not answer; requests reach it through another broker",
                        self._metadata.controller_id,
                        extra=event("controller_relayed", controller=self._metadata.controller_id),
                    )
                await pause(self._tasks, self._period_s)
        finally:
            self._running = None

    async def _try_beat(self) -> bool:
        """As `_beat`; a broker that ended this task would be fenced in a cut."""
        try:
            is_seen = await self._beat()
        except Exception as bug:  # noqa: BLE001 - the next heartbeat may succeed
            self._task.failed(bug)
            return False
        self._task.succeeded()
        return is_seen

    async def _beat(self) -> bool:
        """Return whether a controller has answered."""
        called_s, request = self._clock.monotonic(), self._heartbeat()
        if request is None:
            return False
        try:
            # The regular calls ask the controller directly already.
            response = await self._relays.ask(
                self._metadata.controller_id, request, through_others=True
            )
        except KafkaError:
            return False
        if response.error_code or response.answered_by < 0:
            return False
        self._silence.note_relayed_answer(response.answered_by, called_s)
        return True
