"""The socket side, against peers that are scripted here and mostly mean."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from lakelog.client.connection import Connection
from lakelog.client.errors import (
    ConnectionLostError,
    ProtocolError,
    UnreachableError,
    UnsupportedError,
)
from lakelog.protocol.connections import ApiVersion, ApiVersionsResponse
from lakelog.protocol.groups import HeartbeatRequest
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.protocol.registry import APIS
from lakelog.wire.framing import encode_response

Peer = Callable[[socket.socket], None]


@pytest.fixture
def peer() -> Iterator[Callable[[Peer], tuple[str, int]]]:
    """Starts a listener that serves one connection with the function given."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def start(serve: Peer) -> tuple[str, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            sock, _ = listener.accept()
            sockets.append(sock)
            serve(sock)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        host, port = listener.getsockname()
        return host, port

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for sock in [*sockets, *listeners]:
        sock.close()


def read_frame(sock: socket.socket) -> bytes:
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    return sock.recv(size, socket.MSG_WAITALL)


def greet(sock: socket.socket) -> None:
    read_frame(sock)
    rows = [ApiVersion(api_key=3, min_version=0, max_version=12)]
    sock.sendall(frame(18, 3, 0, ApiVersionsResponse(api_keys=rows)))


def frame(key: int, version: int, correlation_id: int, message: object) -> bytes:
    return b"".join(encode_response(APIS[key], version, correlation_id, message))  # type: ignore[arg-type]


def test_request_and_answer_in_small_pieces(peer: Callable[[Peer], tuple[str, int]]) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        assert b"\0\3" in read_frame(sock)
        for byte in frame(3, 12, 1, MetadataResponse(cluster_id="c" * 100)):
            sock.sendall(bytes([byte]))

    with Connection.open(peer(serve), timeout_s=60) as connection:
        answer = connection.request(MetadataRequest(topics=[]), timeout_s=60)
    assert answer == MetadataResponse(cluster_id="c" * 100)


def test_pipelined_answers_keep_their_order(peer: Callable[[Peer], tuple[str, int]]) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        read_frame(sock), read_frame(sock)
        both = [frame(3, 12, number, MetadataResponse(controller_id=number)) for number in (1, 2)]
        sock.sendall(b"".join(both))

    with Connection.open(peer(serve), timeout_s=60) as connection:
        sent = [connection.send(MetadataRequest(topics=[])) for _ in range(2)]
        assert connection.in_flight == 2
        assert [connection.receive(60)[0] for _ in range(2)] == sent


@pytest.mark.parametrize("size", [-1, 0, 3, 5001, 2**31 - 1])
def test_frames_of_impossible_sizes(peer: Callable[[Peer], tuple[str, int]], size: int) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        read_frame(sock)
        sock.sendall(size.to_bytes(4, "big", signed=True) + b"x" * 100)

    connection = Connection.open(peer(serve), timeout_s=60, max_response_bytes=5000)
    with pytest.raises(ProtocolError, match=rf"127\.0\.0\.1:\d+: a response of {size} bytes"):
        connection.request(MetadataRequest(topics=[]), timeout_s=60)
    assert not connection.is_open


def test_silence_is_a_lost_connection(peer: Callable[[Peer], tuple[str, int]]) -> None:
    done = threading.Event()

    def serve(sock: socket.socket) -> None:
        greet(sock)
        done.wait(60)

    connection = Connection.open(peer(serve), timeout_s=60)
    with pytest.raises(ConnectionLostError, match=r"0\.05 s"):
        connection.request(MetadataRequest(topics=[]), timeout_s=0.05)
    done.set()
    assert not connection.is_open


def test_hanging_up_within_an_answer(peer: Callable[[Peer], tuple[str, int]]) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        read_frame(sock)
        sock.sendall(frame(3, 12, 1, MetadataResponse())[:-1])
        sock.close()

    connection = Connection.open(peer(serve), timeout_s=60)
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:\d+: .*closed"):
        connection.request(MetadataRequest(topics=[]), timeout_s=60)


def test_a_peer_that_speaks_something_else(peer: Callable[[Peer], tuple[str, int]]) -> None:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(ProtocolError) as caught:
        Connection.open(peer(serve), timeout_s=60)
    assert "listener" in caught.value.hint


def test_a_garbled_answer_closes_the_connection(peer: Callable[[Peer], tuple[str, int]]) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        read_frame(sock)
        sock.sendall(b"\0\0\0\x0a\0\0\0\1\0" + b"\xff" * 5)

    connection = Connection.open(peer(serve), timeout_s=60)
    with pytest.raises(ProtocolError):
        connection.request(MetadataRequest(topics=[]), timeout_s=60)
    assert not connection.is_open


def test_an_idle_connection_that_was_hung_up_is_stale(
    peer: Callable[[Peer], tuple[str, int]],
) -> None:
    def serve(sock: socket.socket) -> None:
        greet(sock)
        sock.shutdown(socket.SHUT_RDWR)

    with Connection.open(peer(serve), timeout_s=60) as connection:
        with socket.socket(fileno=socket.dup(connection.fileno())) as copy:
            copy.settimeout(60)
            assert copy.recv(1) == b""
        assert connection.is_stale


def test_an_api_that_the_broker_lacks_is_not_sent(peer: Callable[[Peer], tuple[str, int]]) -> None:
    with (
        Connection.open(peer(greet), timeout_s=60) as connection,
        pytest.raises(UnsupportedError, match="Heartbeat"),
    ):
        connection.request(HeartbeatRequest(), timeout_s=60)


def test_a_port_without_a_listener_is_unreachable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError) as caught:
            Connection.open(bound.getsockname(), timeout_s=60)
    assert caught.value.hint
    assert caught.value.retriable
