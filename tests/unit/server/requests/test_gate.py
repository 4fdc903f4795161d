"""Every way to answer a Produce or a Fetch passes the gate, and a change is known at once."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import lakelog.server
from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lakelog.protocol.delete_topics import DeleteTopicsRequest
from lakelog.protocol.fetch import FetchResponse
from lakelog.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lakelog.records.compression import Codec
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.requests.gate import Gate
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import SocketlessBroker
from storage_kit import make_batch
from wire_client import fetch_request, produce_request

PRODUCER = 7
PRODUCE_VERSION, FETCH_VERSION = 9, 12
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "durable": {"durability": "fsync"},
}


def frame(message: Any, version: int) -> bytes:
    return b"".join(encode_request(api_for(type(message)), version, 1, "test", message))


class World:
    """A broker without sockets, and the steps of a way to answer."""

    def __init__(self, data: Path) -> None:
        self.broker = SocketlessBroker(data)
        self.sequence = 0

    async def start(self) -> None:
        await self.broker.start()
        for name, configs in TOPICS.items():
            topic = CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
            )
            await self.answered(frame(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7))
        self.broker.connect()

    async def answered(self, frames: bytes) -> bytes:
        """Return the response, which comes at once or later."""
        self.broker.socket.was_sent.clear()
        answer = self.broker.ask(frames)
        if not answer:
            await asyncio.wait_for(self.broker.socket.was_sent.wait(), 20)
            answer = self.broker.take_answer()
        return answer

    @property
    def sampling(self) -> Any:
        return self.broker.connection.sampling

    def partition(self, topic: str) -> Any:
        return self.broker.server.broker.partitions.find(topic, 0)

    def produce(self, topic: str = "plain", *, acks: int = 1, **options: Any) -> bytes:
        batch = bytes(make_batch(**options))
        return frame(produce_request(topic, batch, acks=acks), PRODUCE_VERSION)

    def fetch(self, offset: int = 0, **options: Any) -> bytes:
        return frame(fetch_request("plain", offset, **options), FETCH_VERSION)

    def learn(self, frames: bytes) -> None:
        """Two alike are known; the third would be repeated."""
        for _ in range(2):
            self.broker.ask(frames)
            self.broker.take_answer()
        assert self.broker.connection.repeat is not None

    def elsewhere(self, frames: bytes) -> None:
        """Asks on another connection."""
        connection, socket = self.broker.connection, self.broker.socket
        self.broker.connect()
        self.broker.ask(frames)
        self.broker.connection, self.broker.socket = connection, socket


class FakeCoordinator:
    async def verify(
        self, _: str, __: int, ___: int, partitions: Sequence[Any], *, add: bool
    ) -> dict[Any, ErrorCode]:
        await asyncio.sleep(0)
        return dict.fromkeys(partitions, ErrorCode.NONE)


Request = bytes
Then = Callable[[World], object]


class Way(NamedTuple):
    """One path to the answer of a request.

    `prepare` makes the state and returns the request; `then` triggers an answer that waits.
    `answers` names the function that must answer.
    """

    prepare: Callable[[World], Request]
    answers: str
    then: Then = lambda world: None


def _known(world: World, frames: bytes, *, sampled: bool = False) -> Request:
    world.learn(frames)
    world.sampling.left = 0 if sampled else 1 << 30
    return frames


def _corrupt(world: World) -> Request:
    good = _known(world, world.produce())
    changed = bytearray(good)
    changed[-8] ^= 1
    return bytes(changed)


def _by_flush(world: World) -> Request:
    return world.produce("durable", acks=-1)


def _slow(world: World) -> Request:
    return world.produce(
        "compacted", count=4000, size=5, codec=Codec.ZSTD, producer=(PRODUCER, 0, 0)
    )


def _transactional(world: World) -> Request:
    world.broker.server.broker.transactions = FakeCoordinator()  # type: ignore[assignment]
    batch = bytes(make_batch(producer=(PRODUCER, 0, 0), transactional=True))
    return frame(produce_request("plain", batch, transaction="id"), 12)


def _in_session(world: World) -> Request:
    """A request that names no partition, for its session has it."""
    _filled(world)
    answer = world.broker.ask(world.fetch(0, session=(0, 0), partition_max_bytes=1))
    _, response = decode_response(
        api_for(type(fetch_request("plain", 0))), FETCH_VERSION, answer[4:]
    )
    assert isinstance(response, FetchResponse)
    session = response.session_id

    def unchanged(epoch: int) -> bytes:
        request = fetch_request("plain", 0, session=(session, epoch))
        request.topics = []
        return frame(request, FETCH_VERSION)

    for epoch in (1, 2):
        world.broker.ask(unchanged(epoch))
    return unchanged(3)


def _filled(world: World, **options: Any) -> None:
    world.broker.ask(world.produce(**options))
    world.broker.connect()


def _fetch_known(world: World, **options: Any) -> Request:
    _filled(world, **options)
    return _known(world, world.fetch())


def _fetch_waiting(world: World) -> Request:
    return world.fetch(0, max_wait_ms=60_000)


def _fetch_known_waiting(world: World) -> Request:
    """Known by requests that found something at once."""
    _filled(world)
    world.learn(world.fetch(0, max_wait_ms=60_000))
    return world.fetch(1, max_wait_ms=60_000)


def _append(world: World) -> None:
    world.elsewhere(world.produce())


def _late(world: World) -> None:
    world.broker.clock.now_ms += 61_000
    world.broker.server.broker.purgatory._tick()


WAYS = {
    "produce, decoded": Way(lambda world: world.produce(), "handlers.produce._produce"),
    "produce, known": Way(
        lambda world: _known(world, world.produce()), "repeats.produce.ProduceRepeat._append"
    ),
    "produce, known, a run": Way(
        lambda world: _known(world, world.produce()) * 5, "repeats.produce.ProduceRepeat._append"
    ),
    "produce, known, verified": Way(
        lambda world: _known(world, world.produce(), sampled=True),
        "repeats.produce.ProduceRepeat._append_one",
    ),
    "produce, known, rejected": Way(_corrupt, "repeats.produce.ProduceRepeat._reject"),
    "produce, by a flush": Way(_by_flush, "handlers.produce._acknowledge_later.<locals>.settle"),
    "produce, slow": Way(_slow, "handlers.produce._append_slowly"),
    "produce, verified by its coordinator": Way(_transactional, "handlers.produce._verify_first"),
    "fetch, decoded": Way(lambda world: world.fetch(), "handlers.fetch.handle"),
    "fetch, known": Way(_fetch_known, "repeats.fetch.FetchRepeat._read"),
    "fetch, known, large": Way(
        lambda world: _fetch_known(world, size=50_000), "repeats.fetch.FetchRepeat._read"
    ),
    "fetch, known by its session": Way(_in_session, "repeats.fetch.FetchRepeat._read"),
    "fetch, waiting": Way(_fetch_waiting, "fetches.pending.PendingFetch.try_complete", _append),
    "fetch, known, waiting": Way(
        _fetch_known_waiting, "repeats.waiting_fetch.WaitingFetch._answer", _append
    ),
    "fetch, waiting, late": Way(_fetch_waiting, "fetches.pending.PendingFetch._go_on", _late),
    "fetch, known, waiting, late": Way(
        _fetch_known_waiting, "repeats.waiting_fetch.WaitingFetch._answer", _late
    ),
}
_PRODUCT = Path(lakelog.server.__file__).parent
_ANSWERING = {"send", "send_slice", "queue_slice", "complete", "reply"}
"""Calls that answer, by name."""
_ROOMS = ("handlers/produce.py", "handlers/fetch.py", "fetches", "repeats")
_DECODING = "requests.dispatch._decode"
_FAILING = {
    "handlers.produce._acknowledge_later.<locals>.fail",
    "fetches.pending.PendingFetch.fail",
}
"""They close the connection."""


def _answering_functions() -> set[str]:
    """The functions of Produce and Fetch that answer, from the source."""
    found: set[str] = set()
    for room in _ROOMS:
        path = _PRODUCT / room
        for module in [path] if path.suffix else sorted(path.glob("*.py")):
            name = ".".join(module.relative_to(_PRODUCT).with_suffix("").parts)
            for node in ast.parse(module.read_text()).body:
                found.update(f"{name}.{each}" for each in _answering_in(node, ""))
    return found - _FAILING


def _answering_in(node: ast.AST, prefix: str) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        prefix += f"{node.name}."
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        name = prefix + node.name
        if any(_answers(each) for each in _own_nodes(node)):
            yield name
        prefix = f"{name}.<locals>."
    for child in ast.iter_child_nodes(node):
        yield from _answering_in(child, prefix)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own_nodes(child)


def _answers(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _ANSWERING
    )


@contextmanager
def called() -> Iterator[set[str]]:
    """The functions of the server that run meanwhile."""
    names: set[str] = set()

    def note(running: FrameType, event: str, _: object) -> None:
        code = running.f_code
        if event == "call" and code.co_filename.startswith(str(_PRODUCT)):
            room = Path(code.co_filename).relative_to(_PRODUCT).with_suffix("")
            names.add(f"{'.'.join(room.parts)}.{code.co_qualname}")

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


def run(data: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(data)
        await world.start()
        await scenario(world)
        await world.broker.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


async def answer(world: World, way: Way) -> tuple[set[str], bool]:
    """Go this way; return the functions that ran, and whether the request was decoded."""
    request = way.prepare(world)
    socket = world.broker.socket
    with called() as names:
        world.broker.socket.sent.clear()
        socket.was_sent.clear()
        socket.incoming += request
        while socket.incoming:
            assert socket.readable is not None
            socket.readable()
        is_decoded = _DECODING in names
        way.then(world)
        if not socket.sent:
            await asyncio.wait_for(socket.was_sent.wait(), 20)
    return names, is_decoded


@pytest.mark.parametrize("name", WAYS)
def test_a_request_is_answered_in_each_way(tmp_path: Path, name: str) -> None:
    async def scenario(world: World) -> None:
        names, is_decoded = await answer(world, WAYS[name])
        assert WAYS[name].answers in names
        assert is_decoded is ("known" not in name)

    run(tmp_path / "data", scenario)


def test_the_ways_are_all_there_are() -> None:
    assert {way.answers for way in WAYS.values()} >= _answering_functions()


@pytest.mark.parametrize("name", WAYS)
def test_nothing_is_answered_that_the_gate_does_not_admit(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gate: Gate, connection: Connection) -> None:
        raise ProtocolViolation("not admitted")

    async def scenario(world: World) -> None:
        request = WAYS[name].prepare(world)
        ends = [world.partition(topic).log.log_end_offset for topic in TOPICS]
        world.broker.take_answer()
        monkeypatch.setattr(Gate, "admit", refuse)
        world.broker.server.broker.gate.revoke()
        world.broker.ask(request)
        assert world.broker.connection.closed
        assert not world.broker.take_answer()
        assert ends == [world.partition(topic).log.log_end_offset for topic in TOPICS]

    run(tmp_path / "data", scenario)


async def _on_another_connection(world: World, frames: bytes) -> None:
    connection, socket = world.broker.connection, world.broker.socket
    world.broker.connect()
    assert await world.answered(frames)
    world.broker.connection, world.broker.socket = connection, socket


async def _change_broker(world: World) -> None:
    broker = world.broker.server.broker
    broker.use_config(broker.config)


async def _change_topic(world: World) -> None:
    change = AlterableConfig(name="max.message.bytes", config_operation=0, value="5000")
    resource = AlterConfigsResource(resource_type=2, resource_name="plain", configs=[change])
    await _on_another_connection(
        world, frame(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    )


async def _delete_topic(world: World) -> None:
    request = DeleteTopicsRequest(topic_names=["plain"], timeout_ms=10_000)
    await _on_another_connection(world, frame(request, 5))


async def _take_offline(world: World) -> None:
    world.partition("plain").take_offline("planted")


@pytest.mark.parametrize("name", ["produce, known", "fetch, known"])
@pytest.mark.parametrize("change", [_change_broker, _change_topic, _delete_topic, _take_offline])
def test_a_learned_request_does_not_outlive_a_change(
    tmp_path: Path, change: Callable[[World], Awaitable[None]], name: str
) -> None:
    async def scenario(world: World) -> None:
        frames = WAYS[name].prepare(world)
        assert not _is_decoded(world, frames)
        await change(world)
        assert _is_decoded(world, frames)

    run(tmp_path / "data", scenario)


def test_an_idle_connection_does_not_keep_a_deleted_partition(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        WAYS["produce, known"].prepare(world)
        connection = world.broker.connection
        world.broker.dispatcher.connections.add(connection)
        world.broker.server._maintenance._sweep()
        assert connection.repeat is not None, "it is admitted"
        await _delete_topic(world)
        world.broker.server._maintenance._sweep()
        assert connection.repeat is None

    run(tmp_path / "data", scenario)


def _is_decoded(world: World, frames: bytes) -> bool:
    with called() as names:
        world.broker.ask(frames)
    return _DECODING in names
