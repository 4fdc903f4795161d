"""Requests of brokers that reach the controller through another broker.

A broker that cannot call the controller may reach other brokers that can. Then its own requests
(AlterPartition, BrokerHeartbeat, AllocateProducerIds) travel through one of these, which sends a
request on once. `via_broker` names that broker, so that no other one sends it on again.

A request is sent to the next broker only if no earlier one may have sent it on: the caller keeps
its proposal, and a repetition below it would hide that the first attempt may still arrive
(`ControllerLink`). A request on the way to a controller that has stopped answering is given up,
with an unknown outcome, because its connection may need longer to fail than the session lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.log import MetadataLog
from lakelog.protocol.brokers import AlterPartitionRequest
from lakelog.runtime.api import Clock, Tasks, complete, pause
from lakelog.server.authentication import Principal, is_broker
from lakelog.server.inter_broker.exchange import PeerError, PeerTimedOutError, PeerUnsupportedError
from lakelog.server.inter_broker.peer import Peer
from lakelog.server.inter_broker.silence import Silence
from lakelog.server.requests.metrics import codes_in
from lakelog.wire.schema import Message

ATTEMPT_S = 10.0
_PROPOSAL_S = 2.0
"""Of AlterPartition. Its connection may be dead although the controller answers on other ones, and
its outcome shows in the metadata, so its sender repeats it over a new connection. Of the other
requests, too short a limit would keep a controller with a slow store from ever answering."""
DIRECT = -1
"""In `via_broker`: no other broker sends the request on."""
_NOT_SENT_ON = (ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Relayed(Protocol):
    """A request that may travel through another broker."""

    broker_id: int
    via_broker: int


Response = TypeVar("Response", bound=Message)


class _Wait(NamedTuple):
    """A request under way to a broker, which may have been the controller at its begin."""

    node_id: int
    is_for_controller: bool


class Relays:
    """Both ends of the way through another broker.

    Args:
        node_id: of this broker.
        peer: returns the connection to a broker, None if the broker has no known address; not for
            AlterPartition.
        proposal_peer: the same for AlterPartition alone, of this broker or sent on. A proposal
            without an answer ends its connection soon, and with it only other proposals, which
            their leaders repeat.
        silence: of other brokers, as this one sees it.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        peer: Callable[[int], Peer | None],
        proposal_peer: Callable[[int], Peer | None],
        silence: Silence,
        tasks: Tasks,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peer = peer
        self._proposal_peer = proposal_peer
        self._silence = silence
        self._tasks = tasks
        self._waits: dict[asyncio.Future[Any], _Wait] = {}
        """Requests under way; a wait ends when the broker does not answer any more, or has lost the
        controller's term."""

    @property
    def are_needed(self) -> bool:
        """Whether another broker is the controller, and does not answer this one."""
        return self._metadata.controller_id in self._silence.unanswering()

    def note_silence(self) -> None:
        """Give up requests to brokers that do not answer any more."""
        unanswering = self._silence.unanswering()
        for over, wait in self._waits.items():
            if wait.node_id in unanswering:
                complete(over)

    def note_term(self) -> None:
        """Give up requests to a former controller; a leader makes its proposal again."""
        for over, wait in self._waits.items():
            if wait.is_for_controller and wait.node_id != self._metadata.controller_id:
                complete(over)

    # The sender

    async def ask(
        self, controller_id: int, request: Message, *, through_others: bool = False
    ) -> Any:
        """Return the response to one attempt.

        through_others: whether an unanswering controller is not asked directly, as a last resort.

        Raises `KafkaError`: `PeerError` if the controller cannot be reached, or its answer is
        unknown; NOT_CONTROLLER if it is not known to have an address.
        """
        failure = unregistered(controller_id)
        for via in self._ways(controller_id, through_others=through_others):
            try:
                response = await self._ask_via(controller_id, via, request)
            except PeerError as error:
                if error.is_outcome_unknown:
                    raise
                failure = error
                continue
            if response is None:
                continue
            # A broker that is not the controller and does not reach it has sent nothing on. A
            # controller of an older version accepts no request that another broker sends on.
            if via == DIRECT or response.error_code not in _NOT_SENT_ON:
                return response
        raise failure

    def _ways(self, controller_id: int, *, through_others: bool) -> Iterator[int]:
        """Return the brokers to send a request to in turn; the first one takes it, as a rule."""
        unanswering = self._silence.unanswering()
        if controller_id not in unanswering:
            yield DIRECT
        left_out = {controller_id, self._node_id, *unanswering}
        for node_id, broker in sorted(self._metadata.image.brokers.items()):
            if node_id not in left_out and not broker.is_fenced:
                yield node_id
        if controller_id in unanswering and not through_others:
            yield DIRECT

    async def _ask_via(self, controller_id: int, via: int, request: Message) -> Any:
        """Return the response, None if the broker to send it to has no address."""
        peer = self._peer_for(request, controller_id if via == DIRECT else via)
        if peer is None:
            return None
        cast("Relayed", request).via_broker = via
        return await self._while_answering(peer, request)

    def _peer_for(self, request: Message, node_id: int) -> Peer | None:
        return (self._proposal_peer if _is_proposal(request) else self._peer)(node_id)

    async def _while_answering(self, peer: Peer, request: Message) -> Any:
        """Return the response of a broker unless it stops answering the regular calls.

        Raises `PeerError`.
        """
        limit_s = _PROPOSAL_S if _is_proposal(request) else ATTEMPT_S
        work = peer.request(request, timeout_s=limit_s)
        asking = self._tasks.spawn(work, name=f"ask broker {peer.node_id}")
        asking.add_done_callback(_retrieve)
        over = self._tasks.future()
        is_for_controller = peer.node_id == self._metadata.controller_id
        self._waits[over] = _Wait(peer.node_id, is_for_controller)
        try:
            await asyncio.wait((asking, over), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise PeerTimedOutError(f"broker {peer.node_id} does not answer any more")
        finally:
            del self._waits[over]
            asking.cancel()

    # The broker between

    def may_send(self, principal: Principal, request: Relayed) -> bool:
        """Return whether a client may send the request: its broker, or the broker between."""
        is_direct = request.via_broker in (DIRECT, self._node_id)
        return is_broker(principal, request.broker_id if is_direct else request.via_broker)

    def has_to_send_on(self, request: Relayed) -> bool:
        """Return whether this broker is asked to send the request on, and is not the controller."""
        controller_id = self._metadata.controller_id
        return request.via_broker == self._node_id and controller_id not in (self._node_id, -1)

    async def send_on(self, request: Message, response_type: type[Response]) -> Response:
        """Return the response of the controller to one attempt.

        NOT_CONTROLLER says that it was not sent on, REQUEST_TIMED_OUT that the outcome is unknown.
        """
        peer = self._peer_for(request, self._metadata.controller_id)
        code = ErrorCode.NOT_CONTROLLER
        # A sender that does not answer this broker would not get the response either, and the
        # controller would count it as reached.
        is_heard = cast("Relayed", request).broker_id not in self._silence.missed()
        # Nor is a request kept for a controller that does not answer here: the sender would try no
        # other broker meanwhile.
        if peer is not None and is_heard and not self.are_needed:
            try:
                return cast("Response", await self._while_answering(peer, request))
            except PeerError as error:
                if error.is_outcome_unknown:
                    code = ErrorCode.REQUEST_TIMED_OUT
        return response_type(error_code=code)


def _is_proposal(request: Message) -> bool:
    return isinstance(request, AlterPartitionRequest)


def _retrieve(asking: asyncio.Future[Any]) -> None:
    """Take the error of a request that its caller no longer awaits: asyncio would log it."""
    if not asking.cancelled():
        asking.exception()


def unregistered(controller_id: int) -> KafkaError:
    """Return the error for a controller without a known address."""
    return KafkaError(
        ErrorCode.NOT_CONTROLLER, f"controller {controller_id} has not registered yet"
    )


PATIENCE_S = 30.0
"""For which a request is repeated (`request.timeout.ms` of Kafka's brokers)."""
_PAUSE_S = 0.1


class ControllerLink:
    """Requests of this broker, and of its clients, to the controller.

    The request itself is sent, and its response returned, without an Envelope (KIP-590): the broker
    has authorized the client before, and the controller decides nothing by the address of the
    client. A broker that gets such a request from a broker carries it out or answers
    NOT_CONTROLLER, but never sends it on, so that brokers with different views do not send it in
    circles.

    A request is repeated while the controller changes, as long as no attempt may have been carried
    out. An attempt without a response may still arrive, after any number of later ones: a
    repetition would hide that from the caller, which keeps its proposal, or has a client that
    repeats its request. So only requests whose second and late effects are harmless are repeated
    after such an attempt.

    A broker's own requests may travel through another broker, if it does not reach the controller
    (`relays.py`).

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
