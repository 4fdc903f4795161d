"""What waiting requests and unread responses take is bounded for all connections together."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.memory_budget import Share
from lakelog.protocol.api import Api
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from lakelog.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.protocol.registry import APIS
from lakelog.replica.fetch_session import FetchSessions
from lakelog.replica.purgatory import Purgatory
from lakelog.server.connections.connection import Connection
from lakelog.server.log_limits import ClosingLog
from lakelog.server.requests.context import DEFERRED, Context
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.requests.waiting import ELEMENT_BYTES, WaitingRequests
from lakelog.wire.codec import decode, encode
from listening_dispatcher import HEARTBEAT, METADATA, PRODUCE, Client, ListeningDispatcher, run
from storage_kit import ManualClock

ELEMENTS = 400
BIG = 2**31 - 1


def alive(context: Context, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


def asking(topics: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n:09}") for n in range(topics)])


class Desk:
    """Handlers whose answers come when the test says so."""

    def __init__(self, kind: str) -> None:
        self.contexts: list[Context] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.came = asyncio.Semaphore(0)
        self.handle = {
            "future": self._by_future,
            "coroutine": self._by_coroutine,
            "deferred": self._by_itself,
        }[kind]

    def _by_future(self, context: Context, request: Any) -> asyncio.Future[Any]:
        self.contexts.append(context)
        self.futures.append(asyncio.get_running_loop().create_future())
        self.came.release()
        return self.futures[-1]

    async def _by_coroutine(self, context: Context, request: Any) -> Any:
        return await self._by_future(context, request)

    def _by_itself(self, context: Context, request: Any) -> Any:
        answer = self._by_future(context, request)
        answer.add_done_callback(lambda done: context.reply(done.result()))
        context.on_abandon = lambda: None
        return DEFERRED

    async def expect(self, count: int) -> None:
        for _ in range(count):
            await self.came.acquire()


async def until(true: Callable[[], bool]) -> None:
    """Wait for some iterations of the loop, because the condition has no event."""
    loop, met = asyncio.get_running_loop(), asyncio.Event()

    def look() -> None:
        if true():
            met.set()
        else:
            loop.call_soon(look)

    look()
    await met.wait()


@pytest.mark.parametrize("kind", ["future", "coroutine", "deferred"])
def test_the_connection_with_the_largest_waiting_requests_is_closed(kind: str) -> None:
    async def scenario() -> None:
        desk = Desk(kind)
        async with ListeningDispatcher({METADATA: desk.handle}, memory_max=2_000_000) as broker:
            waiting = broker.dispatcher.waiting
            small, medium, large, late = [await broker.connect() for _ in range(4)]
            for client, topics in ((small, 1), (large, 1500), (medium, 1000)):
                client.send(asking(topics), 12)
                await desk.expect(1)
            await until(lambda: waiting.total > 2500 * ELEMENT_BYTES)
            assert waiting.total < 2_000_000
            late.send(asking(900), 12)
            assert await large.is_closed_by_broker()
            continues = kind == "coroutine"
            assert (waiting.total > 2_000_000) is continues, (
                "a coroutine keeps its memory until it ends"
            )
            await desk.expect(1)
            for answer in desk.futures:
                if not answer.done():
                    answer.set_result(MetadataResponse(cluster_id="at last"))
            for client in (small, medium, late):
                assert (await client.receive(METADATA, 12))[1].cluster_id == "at last"
            await until(lambda: not waiting.total)

    run(scenario)


@pytest.mark.parametrize("kind", ["future", "coroutine", "deferred"])
def test_requests_of_closed_and_failed_connections_are_given_back(kind: str) -> None:
    async def scenario() -> None:
        desk = Desk(kind)
        async with ListeningDispatcher({METADATA: desk.handle}, memory_max=2_000_000) as broker:
            waiting = broker.dispatcher.waiting
            leaves, unanswerable = await broker.connect(), await broker.connect()
            for client in (leaves, unanswerable):
                client.send(asking(100), 12)
            await desk.expect(2)
            await until(lambda: waiting.total > 200 * ELEMENT_BYTES)
            await leaves.close()
            await until(lambda: len(broker.dispatcher.connections) == 1)
            for answer in desk.futures:
                if not answer.done():
                    answer.set_result(MetadataResponse(controller_id=1 << 40))
            assert await unanswerable.is_closed_by_broker()
            await until(lambda: not waiting.total)

    run(scenario)


def test_records_of_a_waiting_produce_request_are_not_counted_here() -> None:
    async def scenario() -> None:
        desk = Desk("deferred")
        async with ListeningDispatcher({PRODUCE: desk.handle}) as broker:
            client = await broker.connect()
            entry = PartitionProduceData(index=0, records=bytes(100_000))
            client.send(
                ProduceRequest(
                    acks=1, topic_data=[TopicProduceData(name="t", partition_data=[entry])]
                ),
                9,
            )
            await desk.expect(1)
            assert broker.dispatcher.waiting.total - 2 * ELEMENT_BYTES < 100
            desk.futures[0].set_result(ProduceResponse())
            await client.receive(PRODUCE, 9)
            assert not broker.dispatcher.waiting.total

    run(scenario)


class Peer:
    closed = False


def test_a_long_client_id_counts_while_its_produce_request_waits() -> None:
    connection = Peer()
    context = Context(cast(Connection, connection), APIS[PRODUCE], 9, 1, "c" * 32_767)
    context.size_bytes = 33_000
    assert context.pipelined
    clock = ManualClock()
    waiting = WaitingRequests(Share(1 << 20), ClosingLog(clock), RequestMetrics(clock))
    waiting.add(context, ProduceRequest())
    assert waiting.total >= 32_767
    waiting.remove(context)
    assert waiting.total == 0


def _paths(kind: Any) -> Iterator[list[Any]]:
    """The fields that lead to each array."""
    for field in kind.__fields__:
        if field.is_array:
            yield [field]
        if field.struct is not None and field.is_array:
            yield from ([field, *rest] for rest in _paths(field.struct))


def _filled(kind: Any, version: int, path: list[Any], count: int) -> Any:
    """With `count` elements in the array that `path` leads to; numbers are as large as can be."""
    values: dict[str, Any] = {}
    for field in kind.__fields__:
        if version not in field.versions:
            continue
        if field is path[0]:
            made = count if len(path) == 1 else 1
            values[field.name] = [_element(field, version, path[1:], count) for _ in range(made)]
        elif not field.is_array and field.type_name in ("int32", "int64", "uint32"):
            values[field.name] = BIG
    return kind(**values)


def _element(field: Any, version: int, path: list[Any], count: int) -> Any:
    if field.struct is not None:
        return _filled(field.struct, version, path or [None], count)
    numbers = {"int8": 7, "int16": 7, "int32": BIG, "int64": BIG, "uuid": bytes(16)}
    return numbers.get(field.type_name, "" if field.type_name == "string" else b"")


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_no_element_of_any_request_takes_more_than_is_estimated(api: Api) -> None:
    for version in {api.min_version, api.max_version}:
        for path in _paths(api.request):
            if any(version not in field.versions for field in path):
                continue
            frame = encode(_filled(api.request, version, path, ELEMENTS), version)
            decode(api.request, frame, version)
            tracemalloc.start()
            try:
                request = decode(api.request, frame, version)
                taken = _after_the_handler(request, version)
                size = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            assert size < (ELEMENTS + len(path)) * ELEMENT_BYTES + 4 * len(frame), path[-1].name
            del request, taken


def _after_the_handler(request: Any, version: int) -> object:
    """Bytes that a fetch keeps besides: the partitions that it reads."""
    if not isinstance(request, FetchRequest):
        return None
    request.session_id, request.session_epoch = 0, 0
    for topic in request.topics:
        for index, entry in enumerate(topic.partitions):
            entry.partition = BIG - index
    loop: Any = SimpleNamespace(add=lambda part: None)
    purgatory = Purgatory(loop, loop, loop)
    sessions = FetchSessions(SeededRandom(1), lambda topic, index: True, purgatory, share=Share())
    return sessions, sessions.begin(request, version, 0.0)


def test_peers_that_do_not_read_are_closed_as_soon_as_their_responses_take_too_much() -> None:
    """Without a sweep: nothing here runs from time to time."""
    most, peers = 8_000_000, 24
    large = MetadataResponse(topics=[MetadataResponseTopic(name="x" * 20_000)] * 100)
    highest = 0
    broker: Any = None

    def answer(context: Context, request: Any) -> MetadataResponse:
        nonlocal highest
        unread = sum(each.responses.unread_memory for each in broker.dispatcher.connections)
        assert unread == broker.dispatcher.connections.unread.total
        highest = max(highest, unread)
        return large

    async def scenario() -> None:
        nonlocal broker
        async with ListeningDispatcher(
            {METADATA: answer, HEARTBEAT: alive}, unread_max=most
        ) as broker:
            good = await broker.connect()
            deaf = [_deaf_peer() for _ in range(peers)]
            loop = asyncio.get_running_loop()
            try:
                for peer in deaf:
                    await loop.sock_connect(peer, broker.acceptor.address)
                    await loop.sock_sendall(peer, Client.frame(asking(1), 12) * 5)
                await until(lambda: len(broker.dispatcher.connections) <= peers - 10)
                assert (await good.call(HeartbeatRequest(generation_id=5), 4)).error_code == 5
            finally:
                for peer in deaf:
                    peer.close()
        assert 4_000_000 < highest < most

    run(scenario)


def _deaf_peer() -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    return peer
