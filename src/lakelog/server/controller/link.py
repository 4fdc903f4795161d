"""The way to the controller: requests that only it can carry out are sent on to it.

The request itself is sent, and its response returned, without an Envelope (KIP-590): the broker has
authorized the client before, and the controller decides nothing by the address of the client. A
broker that gets such a request from a broker carries it out or answers NOT_CONTROLLER, but never
sends it on, so that brokers with different views do not send it in circles.

A request is repeated while the controller changes, as long as no attempt may have been carried out.
An attempt without a response may still arrive, after any number of later ones: a repetition would
hide that from the caller, which keeps its proposal, or has a client that repeats its request. So
only requests whose second and late effects are harmless are repeated after such an attempt.

A broker's own requests may travel through another broker, if it does not reach the controller
(`relays.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.log import MetadataLog
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.controller.relays import ATTEMPT_S, Relays, unregistered
from lakelog.server.inter_broker.errors import PeerError, PeerUnsupportedError
from lakelog.server.inter_broker.peer import Peer
from lakelog.server.requests.metrics import codes_in
from lakelog.wire.schema import Message

PATIENCE_S = 30.0
"""For which a request is repeated (`request.timeout.ms` of Kafka's brokers)."""
_PAUSE_S = 0.1


class ControllerLink:
    """Requests of this broker, and of its clients, to the controller.

    Args:
        node_id: of this broker.
        peer: returns the connection to a broker, or None if it has no known address.
        relays: the ways through other brokers.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        peer: Callable[[int], Peer | None],
        clock: Clock,
        tasks: Tasks,
        relays: Relays,
    ) -> None:
        self._relays = relays
        self._node_id = node_id
        self._metadata = metadata
        self._peer = peer
        self._clock = clock
        self._tasks = tasks

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._metadata.controller_id in (self._node_id, -1)

    async def carry_out(
        self,
        request: Message,
        here: Callable[[], Awaitable[Any]],
        *,
        newest: int | None = None,
        patience_s: float = PATIENCE_S,
        is_repeatable: bool = False,
        is_own: bool = False,
    ) -> Any:
        """Return the response of the controller, or of `here` if this broker is the controller.

        newest: limits the version in which the request is sent, and its response comes.
        is_repeatable: whether the request may be carried out twice, or after its repetition.
        is_own: see `ask_once`.

        Returns after this broker has followed the change. Raises `KafkaError`: that of `here`, or
        `PeerError` if the controller could not be reached for `patience_s` seconds, or may have
        carried out a request that is not repeatable (`may_be_done`).
        """
        deadline = self._clock.monotonic() + patience_s
        while True:
            try:
                response = await self.ask_once(request, here, newest=newest, is_own=is_own)
                if ErrorCode.NOT_CONTROLLER not in codes_in(response):
                    return response
                if self._clock.monotonic() >= deadline:
                    return response
            except KafkaError as error:
                may_repeat = is_repeatable or not may_be_done(error)
                if not (may_repeat and may_pass(error) and self._clock.monotonic() < deadline):
                    raise
            await self.pause()
            with suppress(KafkaError):
                await self._metadata.refresh()

    async def ask_once(
        self,
        request: Message,
        here: Callable[[], Awaitable[Any]],
        *,
        newest: int | None = None,
        is_own: bool = False,
    ) -> Any:
        """Return the response to one attempt; the caller keeps its proposal, and may ask again.

        is_own: whether the request is of this broker itself, and may travel through another one
            (`Relayed`).

        Returns after this broker has followed the change. Raises `KafkaError` as `carry_out`.
        """
        if self.is_here:
            return await here()
        controller_id = self._metadata.controller_id
        if is_own:
            response = await self._relays.ask(controller_id, request)
        else:
            response = await self._ask_directly(controller_id, request, newest)
        with suppress(KafkaError):  # the change is made, whether this broker can read it or not
            await self._metadata.refresh()
        return response

    async def _ask_directly(
        self, controller_id: int, request: Message, newest: int | None
    ) -> Message:
        peer = self._peer(controller_id)
        if peer is None:
            raise unregistered(controller_id)
        return await peer.request(request, timeout_s=ATTEMPT_S, newest=newest)

    async def pause(self) -> None:
        """Wait before another attempt."""
        await pause(self._tasks, _PAUSE_S)


def may_be_done(error: KafkaError) -> bool:
    """Return whether the controller may have carried out the request, or may do so later."""
    if isinstance(error, PeerError):
        return error.is_outcome_unknown
    return error.code is not ErrorCode.NOT_CONTROLLER


def may_pass(error: KafkaError) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, PeerError):
        return not isinstance(error, PeerUnsupportedError)
    return error.code is ErrorCode.NOT_CONTROLLER
