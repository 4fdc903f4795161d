"""From a request on a socket to a handler and back, with handlers that the test makes up."""

from __future__ import annotations

import asyncio
import gc
import struct
import warnings
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.protocol.produce import ProduceRequest, ProduceResponse
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.requests import context, dispatch
from lakelog.server.requests.context import DEFERRED, Context
from lakelog.storage.segments.handles import LogSlice
from listening_dispatcher import (
    API_VERSIONS,
    FETCH,
    FUTURE_VERSION,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    ListeningDispatcher,
    run,
)


def generation(context: Context, request: Any) -> HeartbeatResponse:
    """Answers a heartbeat with its generation as the error code."""
    return HeartbeatResponse(error_code=request.generation_id)


def metadata(context: Context, request: Any) -> MetadataResponse:
    return MetadataResponse(cluster_id="here")


def test_each_api_and_version_reaches_its_handler() -> None:
    seen: list[tuple[int, str, str]] = []

    def heartbeat(context: Context, request: Any) -> HeartbeatResponse:
        seen.append((context.version, context.client_id, context.connection.session.peer[0]))
        return generation(context, request)

    async def scenario() -> None:
        async with ListeningDispatcher({HEARTBEAT: heartbeat, METADATA: metadata}) as broker:
            client = await broker.connect()
            for version in range(5):
                response = await client.call(HeartbeatRequest(generation_id=40 + version), version)
                assert response.error_code == 40 + version
            assert (await client.call(MetadataRequest(topics=[]), 12)).cluster_id == "here"
            assert seen == [(version, "a client", "127.0.0.1") for version in range(5)]

    run(scenario)


def test_bytes_after_a_message_are_passed_over() -> None:
    async def scenario() -> None:
        async with ListeningDispatcher({HEARTBEAT: generation}) as broker:
            client = await broker.connect()
            sent = client.send(HeartbeatRequest(generation_id=1), 4, extra=b"\0\0\0")
            assert (await client.receive(HEARTBEAT, 4))[0] == sent
            assert (await client.call(HeartbeatRequest(generation_id=2), 4)).error_code == 2

    run(scenario)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", HEARTBEAT, FUTURE_VERSION, 1, -1),
        struct.pack(">hhih", HEARTBEAT, -1, 1, -1),
        struct.pack(">hhihh", HEARTBEAT, 0, 1, -1, 500),
        struct.pack(">hhih", HEARTBEAT, 0, 1, 500),
    ],
    ids=["unknown key", "newer version", "negative version", "cut body", "cut header"],
)
def test_a_request_without_a_possible_response_closes_the_connection(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ListeningDispatcher({HEARTBEAT: generation}) as broker:
            bad, good = await broker.connect(), await broker.connect()
            bad.send_frame(frame)
            assert await bad.is_closed_by_broker()
            assert (await good.call(HeartbeatRequest(generation_id=3), 0)).error_code == 3
            assert len(broker.dispatcher.connections) == 1

    run(scenario)
    assert "closing 127.0.0.1:" in caplog.text


def test_api_versions_of_the_future_is_answered_in_version_0() -> None:
    async def scenario() -> None:
        async with ListeningDispatcher({API_VERSIONS: metadata}) as broker:
            client = await broker.connect()
            head = struct.pack(">hhih", API_VERSIONS, FUTURE_VERSION, 5, -1)
            client.send_frame(head + b"\0" + b"whatever comes then")
            correlation_id, response = await client.receive(API_VERSIONS, 0)
            assert (correlation_id, response.error_code) == (5, 35)
            assert broker.unsupported == [0]

    run(scenario)


def _later(kind: str, answer: asyncio.Future[Any]) -> Callable[[Context, Any], Any]:
    """A handler that returns the response of `answer` in one of the possible ways."""

    def by_future(context: Context, request: Any) -> asyncio.Future[Any]:
        return answer

    async def by_coroutine(context: Context, request: Any) -> Any:
        return await answer

    def by_itself(context: Context, request: Any) -> Any:
        answer.add_done_callback(lambda done: context.reply(done.result()))
        return DEFERRED

    return {"future": by_future, "coroutine": by_coroutine, "deferred": by_itself}[kind]


@pytest.mark.parametrize("kind", ["future", "coroutine", "deferred"])
def test_an_answer_may_come_later_and_the_next_one_waits_for_it(kind: str) -> None:
    async def scenario() -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handled = asyncio.Event()

        def heartbeat(context: Context, request: Any) -> HeartbeatResponse:
            handled.set()
            return generation(context, request)

        async with ListeningDispatcher(
            {METADATA: _later(kind, answer), HEARTBEAT: heartbeat}
        ) as broker:
            client, other = await broker.connect(), await broker.connect()
            first = client.send(MetadataRequest(topics=[]), 12)
            second = client.send(HeartbeatRequest(generation_id=1), 4)
            assert (await other.call(HeartbeatRequest(generation_id=2), 4)).error_code == 2
            handled.clear()
            answer.set_result(MetadataResponse(cluster_id="at last"))
            correlation_id, response = await client.receive(METADATA, 12)
            assert (correlation_id, response.cluster_id) == (first, "at last")
            assert (await client.receive(HEARTBEAT, 4))[0] == second
            assert handled.is_set(), "not before the first was answered"
            broker.requests.fold()
            counted = {api: sum(d.count for d in parts) for api, parts in broker.requests.seen()}
            assert counted == {"Metadata": 1, "Heartbeat": 2}

    run(scenario)


def test_a_future_is_cancelled_when_the_client_goes() -> None:
    async def scenario() -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with ListeningDispatcher({METADATA: _later("future", answer)}) as broker:
            client = await broker.connect()
            client.send(MetadataRequest(topics=[]), 12)
            await client.close()
            await asyncio.wait([answer])
            assert answer.cancelled()

    run(scenario)


def test_a_coroutine_that_is_cancelled_before_its_first_step_is_no_loose_end() -> None:
    """As when the broker stops while a request comes in."""

    def heartbeat(context: Context, request: Any) -> Awaitable[HeartbeatResponse]:
        asyncio.get_running_loop().call_soon(cancel)
        return respond()

    async def respond() -> HeartbeatResponse:
        raise AssertionError("never reached")

    def cancel() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "Heartbeat":
                cancelled.append(task)
                task.cancel()

    cancelled: list[asyncio.Task[Any]] = []

    async def scenario() -> None:
        async with ListeningDispatcher({HEARTBEAT: heartbeat, METADATA: metadata}) as broker:
            client = await broker.connect()
            client.send(HeartbeatRequest(), 4)
            other = await broker.connect()
            while not cancelled:
                await other.call(MetadataRequest(topics=[]), 12)
            await asyncio.wait(cancelled)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(scenario)
        gc.collect()
    assert [entry.message for entry in caught] == []


def test_a_client_that_is_gone_may_be_answered_in_vain() -> None:
    async def scenario() -> None:
        abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        contexts: list[Context] = []

        def handler(context: Context, request: Any) -> Any:
            contexts.append(context)
            context.on_abandon = lambda: abandoned.set_result(None)
            return DEFERRED

        async with ListeningDispatcher({METADATA: handler, HEARTBEAT: generation}) as broker:
            client = await broker.connect()
            client.send(MetadataRequest(topics=[]), 12)
            await client.close()
            await abandoned
            contexts[0].reply(MetadataResponse())
            other = await broker.connect()
            assert (await other.call(HeartbeatRequest(generation_id=1), 4)).error_code == 1

    run(scenario)


def test_a_request_may_go_without_an_answer() -> None:
    """As a Produce with acks=0 does."""

    def produce(context: Context, request: Any) -> ProduceResponse | None:
        return ProduceResponse() if request.acks else None

    async def scenario() -> None:
        async with ListeningDispatcher({PRODUCE: produce}) as broker:
            client = await broker.connect()
            client.send(ProduceRequest(acks=0), 12)
            answered = client.send(ProduceRequest(acks=1), 12)
            assert (await client.receive(PRODUCE, 12))[0] == answered

    run(scenario)


def _at_once(error: Exception) -> Callable[[Context, Any], Any]:
    def handler(context: Context, request: Any) -> Any:
        raise error

    return handler


def _in_coroutine(error: Exception) -> Callable[[Context, Any], Any]:
    async def handler(context: Context, request: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return handler


def _in_future(error: Exception) -> Callable[[Context, Any], Awaitable[Any]]:
    def handler(context: Context, request: Any) -> Awaitable[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        loop.call_soon(future.set_exception, error)
        return future

    return handler


def _in_done_future(error: Exception) -> Callable[[Context, Any], Awaitable[Any]]:
    def handler(context: Context, request: Any) -> Awaitable[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    return handler


def _deferred(error: Exception) -> Callable[[Context, Any], Any]:
    """Answered later, with a response that cannot be encoded."""

    def handler(context: Context, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        loop.call_soon(context.reply, MetadataResponse(controller_id=1 << 40))
        return DEFERRED

    return handler


def _endless(error: Exception) -> Callable[[Context, Any], Any]:
    def handler(context: Context, request: Any) -> Any:
        return handler(context, request)

    return handler


def _unencodable(error: Exception) -> Callable[[Context, Any], Any]:
    return lambda context, request: MetadataResponse(controller_id=1 << 40)


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, RecursionError])
@pytest.mark.parametrize(
    "failing",
    [_at_once, _in_coroutine, _in_future, _in_done_future, _deferred, _endless, _unencodable],
)
def test_a_bug_in_a_handler_costs_its_connection_and_no_other(
    failing: Callable[[Exception], Any],
    error: type[Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        handlers = {METADATA: failing(error("a bug")), HEARTBEAT: generation}
        async with ListeningDispatcher(handlers) as broker:
            bad, good = await broker.connect(), await broker.connect()
            assert (await bad.call(HeartbeatRequest(generation_id=1), 4)).error_code == 1
            topics = [MetadataRequestTopic(name=f"topic-{n:04}") for n in range(100)]
            bad.send(MetadataRequest(topics=topics), 12)
            assert await bad.is_closed_by_broker()
            assert (await good.call(HeartbeatRequest(generation_id=2), 4)).error_code == 2
            assert len(broker.dispatcher.connections) == 1
            assert broker.dispatcher.waiting.total == 0

    run(scenario)
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert "Metadata" in told[0].message
    assert told[0].exc_info is not None


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
@pytest.mark.parametrize(
    ("module", "step"),
    [
        (dispatch, "decode_prefix"),
        (dispatch, "decode_request_header"),
        (context, "encode_response"),
    ],
)
def test_no_memory_to_decode_or_encode_costs_one_connection(
    module: ModuleType,
    step: str,
    error: type[Exception],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("planted")

    async def scenario() -> None:
        async with ListeningDispatcher({HEARTBEAT: generation}) as broker:
            bad, good = await broker.connect(), await broker.connect()
            assert (await good.call(HeartbeatRequest(generation_id=1), 4)).error_code == 1
            with monkeypatch.context() as patch:
                patch.setattr(module, step, fail)
                bad.send(HeartbeatRequest(), 4)
                assert await bad.is_closed_by_broker()
            assert (await good.call(HeartbeatRequest(generation_id=2), 4)).error_code == 2
            assert len(broker.dispatcher.connections) == 1

    run(scenario)
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "Heartbeat" in told.message
    assert told.exc_info is not None


@pytest.mark.parametrize("violating", [_at_once, _in_coroutine, _in_future, _in_done_future])
def test_a_handler_may_call_a_request_a_violation(
    violating: Callable[[Exception], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """That is the peer's fault, and no error of the broker's."""

    async def scenario() -> None:
        violation = ProtocolViolation("acks=0 cannot be refused")
        async with ListeningDispatcher({METADATA: violating(violation)}) as broker:
            client = await broker.connect()
            client.send(MetadataRequest(topics=[]), 12)
            assert await client.is_closed_by_broker()

    run(scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "closing 127.0.0.1:" in caplog.text
    assert "acks=0 cannot be refused" in caplog.text


class ReleasedSlice(LogSlice):
    """Records from a file, of which only the size and the end are of interest."""

    def __init__(self) -> None:
        self.size = 100
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_records_of_a_response_that_cannot_be_encoded_are_given_back() -> None:
    found = [ReleasedSlice(), ReleasedSlice()]

    def fetch(context: Context, request: Any) -> FetchResponse:
        partitions = [
            PartitionData(partition_index=index, records=records)
            for index, records in enumerate(found)
        ]
        partitions.append(PartitionData(partition_index=1 << 40, records=b""))
        topics = [FetchableTopicResponse(topic="t", partitions=partitions)]
        return FetchResponse(responses=topics)

    async def scenario() -> None:
        async with ListeningDispatcher({FETCH: fetch}) as broker:
            client = await broker.connect()
            client.send(FetchRequest(topics=[]), 12)
            assert await client.is_closed_by_broker()

    run(scenario)
    assert [records.released for records in found] == [1, 1]
