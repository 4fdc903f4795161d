"""Every way to answer a Produce or a Fetch passes admission control, with each of its verdicts."""

from __future__ import annotations

import ast
import asyncio
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import lakelog.server
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.fetch import FetchRequest, FetchResponse, ReplicaState
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.produce import ProduceResponse
from lakelog.protocol.registry import APIS
from lakelog.protocol.topics import DeleteTopicsRequest
from lakelog.records.compression import Codec
from lakelog.replica.role import Role
from lakelog.server.authentication import ANONYMOUS, BROKER, Authentication, Principal
from lakelog.wire.framing import decode_response
from socketless_broker import SocketlessBroker, request_frame
from storage_kit import make_batch
from wire_client import fetch_request, produce_request

PRODUCER = 7
PRODUCE_VERSION, FETCH_VERSION = 9, 12
_FOLLOWER_VERSION = 18
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "durable": {"durability": "fsync"},
}


class AdmissionSetup:
    """A broker without sockets, and the steps of a way to answer."""

    def __init__(self, data: Path) -> None:
        self.broker = SocketlessBroker(data)
        self.sequence = 0

    async def start(self) -> None:
        await self.broker.start()
        for name, configs in TOPICS.items():
            await self.broker.create_topic(name, configs)
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
        return self.broker.server.broker.partitions.leader(topic, 0)

    def produce(self, topic: str = "plain", *, acks: int = 1, **options: Any) -> bytes:
        batch = bytes(make_batch(**options))
        return request_frame(produce_request(topic, batch, acks=acks), PRODUCE_VERSION)

    def fetch(self, offset: int = 0, **options: Any) -> bytes:
        return request_frame(fetch_request("plain", offset, **options), FETCH_VERSION)

    def cache_request(self, frames: bytes) -> None:
        """Two alike are known; the third would be repeated."""
        for _ in range(2):
            self.broker.ask(frames)
            self.broker.take_answer()
        assert self.broker.connection.cached_request is not None

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
Then = Callable[[AdmissionSetup], object]


class Way(NamedTuple):
    """One path to the answer of a request.

    `prepare` makes the state and returns the request; `then` triggers an answer that waits.
    `answers` names the function that must answer.
    """

    prepare: Callable[[AdmissionSetup], Request]
    answers: str
    then: Then = lambda setup: None


def _known(setup: AdmissionSetup, frames: bytes, *, sampled: bool = False) -> Request:
    setup.cache_request(frames)
    setup.sampling.left = 0 if sampled else 1 << 30
    return frames


def _corrupt(setup: AdmissionSetup) -> Request:
    good = _known(setup, setup.produce())
    changed = bytearray(good)
    changed[-8] ^= 1
    return bytes(changed)


def _by_flush(setup: AdmissionSetup) -> Request:
    return setup.produce("durable", acks=-1)


def _replicated(setup: AdmissionSetup) -> Request:
    partition = setup.partition("plain")
    partition.assume(Role(partition.leader_epoch, 1, True, (1, 2), (2,)), 0)
    request = setup.produce(acks=-1)
    setup.cache_request(request)
    _copied(setup)
    setup.broker.take_answer()
    setup.sampling.left = 1 << 30
    return request


def _copied(setup: AdmissionSetup) -> None:
    partition = setup.partition("plain")
    partition.note_fetch(2, 0, partition.log.log_end_offset, 0)


def _slow(setup: AdmissionSetup) -> Request:
    return setup.produce(
        "compacted", count=4000, size=5, codec=Codec.ZSTD, producer=(PRODUCER, 0, 0)
    )


def _transactional(setup: AdmissionSetup) -> Request:
    setup.broker.server.broker.transactions = FakeCoordinator()  # type: ignore[assignment]
    batch = bytes(make_batch(producer=(PRODUCER, 0, 0), transactional=True))
    return request_frame(produce_request("plain", batch, transaction="id"), 12)


def _in_session(setup: AdmissionSetup) -> Request:
    """A request that names no partition, for its session has it."""
    _filled(setup)
    answer = setup.broker.ask(setup.fetch(0, session=(0, 0), partition_max_bytes=1))
    _, response = decode_response(
        api_for(type(fetch_request("plain", 0))), FETCH_VERSION, answer[4:]
    )
    assert isinstance(response, FetchResponse)
    session = response.session_id

    def unchanged(epoch: int) -> bytes:
        request = fetch_request("plain", 0, session=(session, epoch))
        request.topics = []
        return request_frame(request, FETCH_VERSION)

    for epoch in (1, 2):
        setup.broker.ask(unchanged(epoch))
    return unchanged(3)


def _filled(setup: AdmissionSetup, **options: Any) -> None:
    setup.broker.ask(setup.produce(**options))
    setup.broker.connect()


def _fetch_known(setup: AdmissionSetup, **options: Any) -> Request:
    _filled(setup, **options)
    return _known(setup, setup.fetch())


def _fetch_of_follower(setup: AdmissionSetup) -> Request:
    _filled(setup)
    partition = setup.partition("plain")
    partition.assume(Role(partition.leader_epoch, 1, True, (1, 2), (2,)), 0)

    def fetch(epoch: int, session: int) -> bytes:
        request = fetch_request("plain", 0, session=(session, epoch))
        request.topics[0].topic_id = partition.topic_id
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=0)
        return request_frame(request, _FOLLOWER_VERSION)

    setup.broker.principal = Principal(BROKER, "2")
    setup.broker.connect()
    _, response = decode_response(
        api_for(FetchRequest), _FOLLOWER_VERSION, setup.broker.ask(fetch(0, 0))[4:]
    )
    assert isinstance(response, FetchResponse)
    for epoch in (1, 2):
        setup.broker.ask(fetch(epoch, response.session_id))
    return fetch(3, response.session_id)


def _fetch_waiting(setup: AdmissionSetup) -> Request:
    return setup.fetch(0, max_wait_ms=60_000)


def _fetch_known_waiting(setup: AdmissionSetup) -> Request:
    """Known by requests that found something at once."""
    _filled(setup)
    setup.cache_request(setup.fetch(0, max_wait_ms=60_000))
    return setup.fetch(1, max_wait_ms=60_000)


def _append(setup: AdmissionSetup) -> None:
    setup.elsewhere(setup.produce())


def _late(setup: AdmissionSetup) -> None:
    setup.broker.clock.now_ms += 61_000
    setup.broker.server.broker.purgatory._tick()


WAYS = {
    "produce, decoded": Way(lambda setup: setup.produce(), "handlers.produce._produce"),
    "produce, known": Way(
        lambda setup: _known(setup, setup.produce()),
        "fast_path.produce.CachedProduce._append",
    ),
    "produce, known, a run": Way(
        lambda setup: _known(setup, setup.produce()) * 5,
        "fast_path.produce.CachedProduce._append",
    ),
    "produce, known, verified": Way(
        lambda setup: _known(setup, setup.produce(), sampled=True),
        "fast_path.produce.CachedProduce._append_one",
    ),
    "produce, known, rejected": Way(_corrupt, "fast_path.produce.CachedProduce._reject"),
    "produce, by a flush": Way(
        _by_flush, "handlers.produce._Appends._acknowledge_later.<locals>.complete"
    ),
    "produce, known, replicated": Way(
        _replicated, "fast_path.produce.WaitingProduce._complete", _copied
    ),
    "produce, slow": Way(_slow, "handlers.produce._Appends._append_slowly"),
    "produce, verified by its coordinator": Way(_transactional, "handlers.produce._verify_first"),
    "fetch, decoded": Way(lambda setup: setup.fetch(), "fetches.pending.PendingFetch._answer"),
    "fetch, known": Way(_fetch_known, "fast_path.fetch.CachedFetch._answer"),
    "fetch, known, large": Way(
        lambda setup: _fetch_known(setup, size=50_000), "fast_path.fetch.CachedFetch._answer"
    ),
    "fetch, known by its session": Way(_in_session, "fast_path.fetch.CachedFetch._answer"),
    "fetch, known, of a follower": Way(_fetch_of_follower, "fast_path.fetch.CachedFetch._answer"),
    "fetch, waiting": Way(_fetch_waiting, "fetches.pending.FetchReply.send", _append),
    "fetch, known, waiting": Way(
        _fetch_known_waiting, "fast_path.fetch.TemplateReply.send", _append
    ),
    "fetch, waiting, late": Way(_fetch_waiting, "fetches.pending.FetchReply.send", _late),
    "fetch, known, waiting, late": Way(
        _fetch_known_waiting, "fast_path.fetch.TemplateReply.send", _late
    ),
}
_PRODUCT = Path(lakelog.server.__file__).parent
_ANSWERING = {"send", "send_slice", "complete", "reply"}
"""Calls that answer, by name."""
_ROOMS = ("handlers/produce.py", "handlers/fetch.py", "fetches", "fast_path")
_DECODING = "requests.dispatch.Dispatcher._on_other_request"


def _answering_functions() -> set[str]:
    """The functions of Produce and Fetch that answer, from the source."""
    found: set[str] = set()
    for capacity in _ROOMS:
        path = _PRODUCT / capacity
        for module in [path] if path.suffix else sorted(path.glob("*.py")):
            name = ".".join(module.relative_to(_PRODUCT).with_suffix("").parts)
            for node in ast.parse(module.read_text()).body:
                found.update(f"{name}.{each}" for each in _answering_in(node, ""))
    return found


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
            capacity = Path(code.co_filename).relative_to(_PRODUCT).with_suffix("")
            names.add(f"{'.'.join(capacity.parts)}.{code.co_qualname}")

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


def run(data: Path, scenario: Callable[[AdmissionSetup], Awaitable[None]]) -> None:
    async def main() -> None:
        setup = AdmissionSetup(data)
        await setup.start()
        await scenario(setup)
        await setup.broker.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


async def answer(setup: AdmissionSetup, way: Way) -> tuple[set[str], bool]:
    """Go this way; return the functions that ran, and whether the request was decoded."""
    request = way.prepare(setup)
    socket = setup.broker.socket
    with called() as names:
        setup.broker.socket.sent.clear()
        socket.was_sent.clear()
        socket.incoming += request
        while socket.incoming:
            assert socket.readable is not None
            socket.readable()
        is_decoded = _DECODING in names
        way.then(setup)
        if not socket.sent:
            await asyncio.wait_for(socket.was_sent.wait(), 20)
    return names, is_decoded


@pytest.mark.parametrize("name", WAYS)
def test_a_request_is_answered_in_each_way(tmp_path: Path, name: str) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        names, is_decoded = await answer(setup, WAYS[name])
        assert WAYS[name].answers in names
        assert is_decoded is ("known" not in name)

    run(tmp_path / "data", scenario)


def test_the_ways_are_all_there_are() -> None:
    assert {way.answers for way in WAYS.values()} >= _answering_functions()


class Refusing:
    """An authorizer that allows nothing."""

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Throttling:
    """Quotas that each request exceeds."""

    def __init__(self, throttle_ms: int) -> None:
        self.throttle_ms = throttle_ms
        self.charged: list[tuple[str, str, str, int]] = []

    def charge(self, principal: Principal, client_id: str, api: Api, size_bytes: int) -> int:
        self.charged.append((str(principal), client_id, api.name, size_bytes))
        return self.throttle_ms


def responses(request: bytes, answer: bytes) -> list[Any]:
    """The messages in an answer to requests that are like this one."""
    _, key, version = struct.unpack_from(">ihh", request)
    found = []
    while answer:
        end = 4 + struct.unpack_from(">i", answer)[0]
        found.append(decode_response(APIS[key], version, answer[4:end])[1])
        answer = answer[end:]
    return found


def codes(message: Any) -> list[int]:
    """The code of a Fetch response, or that of each partition of a Produce response."""
    if isinstance(message, FetchResponse):
        assert message.responses == []
        return [message.error_code]
    assert isinstance(message, ProduceResponse)
    return [each.error_code for topic in message.responses for each in topic.partition_responses]


def _ends(setup: AdmissionSetup) -> list[int]:
    return [setup.partition(topic).log.log_end_offset for topic in TOPICS]


@pytest.mark.parametrize("name", WAYS)
def test_a_refusal_answers_with_its_code_and_does_nothing(tmp_path: Path, name: str) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        request = WAYS[name].prepare(setup)
        ends = _ends(setup)
        admission = setup.broker.server.broker.admission
        admission.authorizer = Refusing()
        admission.revoke()
        setup.broker.take_answer()
        answered = responses(request, setup.broker.ask(request))
        refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        count = 5 if name.endswith("a run") else 1
        assert [codes(message) for message in answered] == [refused] * count
        assert ends == _ends(setup)
        assert setup.broker.connection.cached_request is None, "a refusal teaches nothing"
        assert not setup.broker.connection.closed

    run(tmp_path / "data", scenario)


@pytest.mark.parametrize("name", WAYS)
def test_an_expired_session_is_closed_without_an_answer(tmp_path: Path, name: str) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        setup.broker.principal = Principal("User", "alice")
        setup.broker.connect()
        request = WAYS[name].prepare(setup)
        ends = _ends(setup)
        setup.broker.take_answer()
        setup.broker.connection.session.authentication.expire()
        assert not setup.broker.ask(request)
        assert setup.broker.connection.closed
        assert ends == _ends(setup)

    run(tmp_path / "data", scenario)


@pytest.mark.parametrize("name", WAYS)
def test_each_request_of_a_client_with_a_quota_is_charged_to_it(tmp_path: Path, name: str) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        request = WAYS[name].prepare(setup)
        admission, quotas = setup.broker.server.broker.admission, Throttling(40)
        admission.quotas = quotas
        admission.revoke()
        way = Way(lambda setup: request, WAYS[name].answers, WAYS[name].then)
        _, is_decoded = await answer(setup, way)
        assert is_decoded
        first = responses(request, setup.broker.take_answer())[0]
        assert first.throttle_time_ms == 40
        assert setup.broker.connection.cached_request is None
        api = "Fetch" if name.startswith("fetch") else "Produce"
        size = struct.unpack_from(">i", request)[0]
        principal = setup.broker.principal or ANONYMOUS
        assert (str(principal), "test", api, size) in quotas.charged

    run(tmp_path / "data", scenario)


def test_a_throttled_client_is_answered_and_then_muted(tmp_path: Path) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        admission, quotas = setup.broker.server.broker.admission, Throttling(50)
        admission.quotas = quotas
        request, socket = setup.fetch(), setup.broker.socket
        assert len(responses(request, setup.broker.ask(request * 2))) == 1
        assert len(quotas.charged) == 1
        assert not setup.broker.ask(request), "it may send, and waits"
        quotas.throttle_ms = 0
        socket.was_sent.clear()
        await asyncio.wait_for(socket.was_sent.wait(), 20)
        assert len(responses(request, setup.broker.take_answer())) == 2
        assert len(responses(request, setup.broker.ask(request))) == 1, "within its quota again"

    run(tmp_path / "data", scenario)


def test_a_client_that_has_to_authenticate_may_only_negotiate(tmp_path: Path) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        def connect() -> Authentication:
            setup.broker.connect()
            session = setup.broker.connection.session
            session.authentication = Authentication(is_required=True)
            return session.authentication

        negotiation = request_frame(ApiVersionsRequest(), 0)
        metadata = request_frame(MetadataRequest(topics=None), 4)
        connect()
        assert setup.broker.ask(negotiation)
        assert not setup.broker.ask(metadata)
        assert setup.broker.connection.closed
        connect().begin()
        assert not setup.broker.ask(negotiation)
        assert setup.broker.connection.closed
        authentication = connect()
        authentication.begin()
        authentication.succeed(Principal("User", "alice"))
        assert setup.broker.ask(negotiation)
        assert setup.broker.ask(metadata)

    run(tmp_path / "data", scenario)


def test_an_unknown_version_of_api_versions_passes_admission_control_too(tmp_path: Path) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        newer = bytearray(request_frame(ApiVersionsRequest(), 4))
        newer[6:8] = struct.pack(">h", 99)
        negative = bytearray(request_frame(ApiVersionsRequest(), 0))
        negative[6:8] = struct.pack(">h", -1)
        for unknown in (newer, negative):
            answer = setup.broker.ask(bytes(unknown))
            (response,) = responses(request_frame(ApiVersionsRequest(), 0), answer)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        admission = setup.broker.server.broker.admission
        allowing, admission.authorizer = admission.authorizer, Refusing()
        answer = setup.broker.ask(bytes(newer))
        (response,) = responses(request_frame(ApiVersionsRequest(), 0), answer)
        assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert response.api_keys == []
        admission.authorizer = allowing
        session = setup.broker.connection.session
        session.authentication = Authentication(is_required=True)
        session.authentication.begin()
        assert not setup.broker.ask(bytes(newer))
        assert setup.broker.connection.closed

    run(tmp_path / "data", scenario)


async def _on_another_connection(setup: AdmissionSetup, frames: bytes) -> None:
    connection, socket = setup.broker.connection, setup.broker.socket
    setup.broker.connect()
    assert await setup.answered(frames)
    setup.broker.connection, setup.broker.socket = connection, socket


async def _change_broker(setup: AdmissionSetup) -> None:
    broker = setup.broker.server.broker
    broker.use_config(broker.config)


async def _change_topic(setup: AdmissionSetup) -> None:
    change = IncrementalConfig(name="max.message.bytes", config_operation=0, value="5000")
    resource = IncrementalResource(resource_type=2, resource_name="plain", configs=[change])
    await _on_another_connection(
        setup, request_frame(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    )


async def _delete_topic(setup: AdmissionSetup) -> None:
    request = DeleteTopicsRequest(topic_names=["plain"], timeout_ms=10_000)
    await _on_another_connection(setup, request_frame(request, 5))


async def _take_offline(setup: AdmissionSetup) -> None:
    setup.partition("plain").take_offline("planted")


async def _authenticate_again(setup: AdmissionSetup) -> None:
    authentication = setup.broker.connection.session.authentication
    authentication.begin()
    authentication.succeed(authentication.principal)


async def _give_a_quota(setup: AdmissionSetup) -> None:
    admission = setup.broker.server.broker.admission
    admission.quotas = Throttling(0)
    admission.revoke()


@pytest.mark.parametrize("name", ["produce, known", "fetch, known"])
@pytest.mark.parametrize(
    "change",
    [
        _change_broker,
        _change_topic,
        _delete_topic,
        _take_offline,
        _authenticate_again,
        _give_a_quota,
    ],
)
def test_a_cached_request_does_not_outlive_a_change(
    tmp_path: Path, change: Callable[[AdmissionSetup], Awaitable[None]], name: str
) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        setup.broker.principal = Principal("User", "alice")
        setup.broker.connect()
        frames = WAYS[name].prepare(setup)
        assert not _is_decoded(setup, frames)
        await change(setup)
        assert _is_decoded(setup, frames)

    run(tmp_path / "data", scenario)


def test_an_idle_connection_does_not_keep_a_deleted_partition(tmp_path: Path) -> None:
    async def scenario(setup: AdmissionSetup) -> None:
        WAYS["produce, known"].prepare(setup)
        connection = setup.broker.connection
        setup.broker.dispatcher.connections.add(connection)
        setup.broker.server._maintenance._sweep()
        assert connection.cached_request is not None, "it is admitted"
        await _delete_topic(setup)
        setup.broker.server._maintenance._sweep()
        assert connection.cached_request is None

    run(tmp_path / "data", scenario)


def _is_decoded(setup: AdmissionSetup, frames: bytes) -> bool:
    with called() as names:
        setup.broker.ask(frames)
    return _DECODING in names


@pytest.mark.parametrize("api", ["produce", "fetch"])
def test_a_request_that_its_handler_rejects_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """Otherwise its third repetition would skip a check that only the handler makes."""

    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def reject(*_: object, **__: object) -> None:
        raise error

    async def scenario(setup: AdmissionSetup) -> None:
        frames = setup.produce()
        assert await setup.answered(frames)
        if api == "fetch":
            frames = setup.fetch()
        monkeypatch.setattr("lakelog.server.handlers.produce.check_entry", reject)
        monkeypatch.setattr("lakelog.server.fetches.pending.read", lambda *_, **__: error)
        setup.sampling.left = 1 << 30
        before = setup.partition("plain").log.log_end_offset
        answers = [await setup.answered(frames) for _ in range(4)]
        assert len(set(answers)) == 1
        assert setup.partition("plain").log.log_end_offset == before

    run(tmp_path / "data", scenario)
