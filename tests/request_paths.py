"""How many source files a request passes through, from its bytes to the bytes of its answer.

Each request runs in a broker in this process that has no network (`tests/socketless_broker.py`).
`call_trace.py` defines the figures; they are the same in every run.

The broker has served a request of the same kind before, because it compiles the codec of a message
on first use. "Decoded" requests reach a broker that does not learn repeated requests; "repeated"
requests are served from the previous one. The connection has produced enough that the broker does
not verify the records of its next batch, except in the case "first of a connection".
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from call_trace import CallTrace, Figures
from lakelog.protocol.api import api_for
from lakelog.protocol.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.protocol.transactions import EndTxnRequest, InitProducerIdRequest
from lakelog.runtime.api import Timer
from lakelog.wire.framing import FRAME_SIZE_BYTES, decode_response, encode_request
from socketless_broker import FakeSocket, SocketlessBroker
from storage_kit import make_batch
from wire_client import fetch_request, produce_request

_GROUP, _TRANSACTION = 0, 1
_SETTLED = 8
"""Requests after which the broker handles the next one of a connection like the previous one."""
_IDLE_ITERATIONS = 50
"""Iterations of the event loop in which the broker finishes writing a transaction's markers."""
_TIMER_S_MAX, _NEVER_S = 0.1, 3600.0
_SENDING = (FakeSocket.send.__code__, FakeSocket.send_file.__code__)
_RECORD = bytes(make_batch(1))


class Client:
    """A client with one connection at a time to one broker."""

    def __init__(self, broker: SocketlessBroker) -> None:
        self.broker = broker
        self.trace = CallTrace()

    async def ask(self, message: Any, version: int) -> Any:
        """Return the response, and set `trace` to the trace of this request."""
        broker, api, self.trace = self.broker, api_for(type(message)), CallTrace(_SENDING)
        frame = b"".join(encode_request(api, version, 1, "paths", message))
        broker.socket.was_sent.clear()
        sys.setprofile(self.trace)
        try:
            broker.socket.deliver(frame)
            broker.clock.now_ms += 2  # past the delay of the first rebalance
            await broker.socket.was_sent.wait()
            for _ in range(_IDLE_ITERATIONS):
                await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        return decode_response(api, version, broker.take_answer()[FRAME_SIZE_BYTES:])[1]

    async def find_coordinator(self, key_type: int) -> None:
        """Wait until a coordinator serves requests; the first request creates its topic."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
        while (await self.ask(request, 4)).coordinators[0].error_code:
            pass

    async def produce(self, times: int = 1) -> None:
        for _ in range(times):
            await self.ask(produce_request("t", _RECORD), 12)

    async def fetch(self, times: int, *, in_session: bool = False) -> None:
        session = (0, 0) if in_session else (0, -1)
        for epoch in range(1, times + 1):
            request = fetch_request("t", 0, partition_max_bytes=1, session=session)
            response = await self.ask(request, 12)
            assert response.responses[0].partitions[0].records, response
            if in_session:
                session = (response.session_id, epoch)

    async def transaction(self, name: str) -> tuple[CallTrace, CallTrace]:
        """Return the traces of its first Produce and of its EndTxn (version 2 of KIP-890)."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        owner = await self.ask(request, 4)
        producer = (owner.producer_id, owner.producer_epoch, 0)
        batch = bytes(make_batch(1, producer=producer, transactional=True))
        produced = await self.ask(produce_request("t", batch, transaction=name), 12)
        assert produced.responses[0].partition_responses[0].error_code == 0, produced
        first = self.trace
        end = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=0, committed=True
        )
        ended = await self.ask(end, 5)
        assert ended.error_code == 0, ended
        return first, self.trace

    async def join(self, group: str, version: int) -> None:
        """Join as the first member. From version 4 on the broker first assigns an id (KIP-394)."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
        )
        if version >= 4:
            request.member_id = (await self.ask(request, version)).member_id
        response = await self.ask(request, version)
        assert response.error_code == 0, response


class RequestPath(NamedTuple):
    """The traced path of one request."""

    request: str
    case: str
    trace: CallTrace
    to_answer: bool = True
    """Whether the path ends with the answer."""

    @property
    def figures(self) -> Figures:
        return self.trace.figures(to_answer=self.to_answer)

    def __str__(self) -> str:
        lines = self.trace.sequence(to_answer=self.to_answer)
        return "\n".join([f"{self.request}, {self.case}", *lines, ""])


def request_paths(folder: Path) -> list[RequestPath]:
    """Return the path of each kind of request, through brokers with data in `folder`."""
    traced = [asyncio.run(_trace(folder / str(learns), learns=learns)) for learns in (False, True)]
    return [path for paths in traced for path in paths]


async def _decoded(client: Client) -> list[RequestPath]:
    await client.produce(_SETTLED)
    paths = [RequestPath("Produce", "decoded", client.trace)]
    await client.fetch(_SETTLED)
    paths.append(RequestPath("Fetch", "decoded", client.trace))
    await client.fetch(_SETTLED, in_session=True)
    paths.append(RequestPath("Fetch", "decoded, in a session", client.trace))
    await client.transaction("before")
    produced, ended = await client.transaction("traced")
    paths.append(RequestPath("Produce", "first of a transaction", produced))
    paths.append(RequestPath("EndTxn", "to the answer", ended))
    paths.append(RequestPath("EndTxn", "with its markers", ended, to_answer=False))
    for version in (3, 9):
        for group in ("before", "traced"):
            await client.join(f"{group} {version}", version)
        paths.append(RequestPath("JoinGroup", f"first member, version {version}", client.trace))
    return paths


async def _learned(client: Client) -> list[RequestPath]:
    await client.produce()
    client.broker.connect()
    await client.produce()
    paths = [RequestPath("Produce", "first of a connection", client.trace)]
    await client.produce(_SETTLED)
    paths.append(RequestPath("Produce", "repeated", client.trace))
    await client.fetch(_SETTLED)
    paths.append(RequestPath("Fetch", "repeated", client.trace))
    await client.fetch(_SETTLED, in_session=True)
    paths.append(RequestPath("Fetch", "repeated, in a session", client.trace))
    return paths


async def _trace(folder: Path, *, learns: bool) -> list[RequestPath]:
    broker = SocketlessBroker(
        folder, repeats=learns, settings={"group_initial_rebalance_delay_ms": "1"}
    )
    _suspend_upkeep(broker)
    await broker.start()
    try:
        client = Client(broker)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        for key_type in (_GROUP, _TRANSACTION):
            await client.find_coordinator(key_type)
        return await (_learned(client) if learns else _decoded(client))
    finally:
        await broker.stop()


def _suspend_upkeep(broker: SocketlessBroker) -> None:
    """Postpone the broker's periodic work, which is no part of a request."""
    call_later = broker.tasks.call_later

    def call_later_if_soon(delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return call_later(delay_s if delay_s < _TIMER_S_MAX else _NEVER_S, callback, *args)

    broker.tasks.call_later = call_later_if_soon  # type: ignore[method-assign]
