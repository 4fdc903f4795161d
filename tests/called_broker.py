"""A broker that others call over the simulated network, and answers little."""

from __future__ import annotations

import contextlib

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.brokers import AlterPartitionRequest, BrokerHeartbeatRequest
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.protocol.connections import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.server.authentication import NONCE_BYTES, Process, ProofCheck
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header, encode_response
from lakelog.wire.schema import Message
from simulator.engine.process import Process as SimulatedProcess
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet, SimulatedSocket

ADDRESS = ("b", 9092)
API_VERSIONS, METADATA, DESCRIBE_CLUSTER, HANDSHAKE, AUTHENTICATE = 18, 3, 60, 17, 36
UNANSWERED: dict[int, type[Message]] = {
    56: AlterPartitionRequest,
    63: BrokerHeartbeatRequest,
}
CALLED = Process(2, b"called" + bytes(10))
CALLER = Process(1, b"caller" + bytes(10))


class CalledBroker:
    """Answers ApiVersions, DescribeCluster, Metadata with topics' names, and proofs of CALLER.

    Requests to the controller get no answer.
    """

    def __init__(self, network: Network) -> None:
        self.process = SimulatedProcess(ADDRESS[0])
        self._network = network
        self._net = SimulatedNet(network, self.process)
        self.listen()
        self.sockets: list[SimulatedSocket] = []
        self.asked: list[str] = []
        self.calls: list[DescribeClusterRequest] = []
        self.denied_lease = -1
        self.is_silent = False
        self.is_reading = True
        self.greeting_error = 0
        self.padding = ""
        self.own = CALLED
        self._check = ProofCheck("", self.own, b"")

    def listen(self) -> None:
        """Accept connections."""
        listener = self._net.listen(*ADDRESS, backlog=5)
        self._net.on_acceptable(listener, lambda: self._open(listener.accept()))
        self._listener = listener

    def stop_listening(self) -> None:
        """Refuse and reset all connections."""
        self._listener.close()
        for sock in self.sockets:
            self._network.reset(sock)

    def _open(self, sock: SimulatedSocket) -> None:
        self.sockets.append(sock)
        received, unsent, buffer = bytearray(), bytearray(), bytearray(1 << 16)

        def read() -> None:
            if not self.is_reading and self.asked:
                self._net.on_readable(sock, None)
                return
            try:
                count = sock.recv_into(buffer)
            except OSError:  # reset
                count = 0
            if not count:
                self._net.on_readable(sock, None)
                sock.close()
                return
            received.extend(buffer[:count])
            while len(received) >= 4 and len(received) >= (end := 4 + size_of(received)):
                unsent.extend(self._answer(bytes(received[:end])))
                del received[:end]
            write()

        def write() -> None:
            with contextlib.suppress(BlockingIOError, OSError):
                while unsent:
                    del unsent[: sock.send(unsent)]
            self._net.on_writable(sock, write if unsent else None)

        self._net.on_readable(sock, read)

    def _answer(self, frame: bytes) -> bytes:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (4, 6))
        kind, response = self._response(key, version, frame)
        if response is None:
            return b""
        flexible = version >= api_for(kind).flexible_from
        correlation_id = decode_request_header(frame, 4, len(frame), flexible=flexible)[0]
        return b"".join(encode_response(api_for(kind), version, correlation_id, response))

    def _response(
        self, key: int, version: int, frame: bytes
    ) -> tuple[type[Message], Message | None]:
        if key == API_VERSIONS:
            rows = [
                ApiVersion(api_key=METADATA, min_version=0, max_version=12),
                ApiVersion(api_key=DESCRIBE_CLUSTER, min_version=0, max_version=2),
                ApiVersion(api_key=HANDSHAKE, min_version=0, max_version=1),
                ApiVersion(api_key=AUTHENTICATE, min_version=0, max_version=2),
                *(ApiVersion(api_key=each, min_version=2, max_version=2) for each in UNANSWERED),
            ]
            response = ApiVersionsResponse(error_code=self.greeting_error, api_keys=rows)
            return ApiVersionsRequest, response
        if key in UNANSWERED:
            self.asked.append(UNANSWERED[key].__name__)
            return UNANSWERED[key], None
        if key == HANDSHAKE:
            self._check = ProofCheck("cluster", self.own, b"n" * NONCE_BYTES)
            return SaslHandshakeRequest, SaslHandshakeResponse()
        if key == AUTHENTICATE:
            return SaslAuthenticateRequest, self._authenticated(version, frame)
        if key == DESCRIBE_CLUSTER:
            self.asked.append("")
            start = decode_request_header(frame, 4, len(frame), flexible=True)[2]
            self.calls.append(decode(DescribeClusterRequest, frame, version, start, len(frame)))
            described = DescribeClusterResponse(denied_lease=self.denied_lease)
            return DescribeClusterRequest, None if self.is_silent else described
        start = decode_request_header(frame, 4, len(frame), flexible=True)[2]
        topics = decode(MetadataRequest, frame, version, start, len(frame)).topics
        name = ",".join(topic.name or "" for topic in topics or ())
        self.asked.append(name)
        answer = MetadataResponse(cluster_id=(self.padding + name)[-32_000:])
        return MetadataRequest, None if self.is_silent else answer

    def _authenticated(self, version: int, frame: bytes) -> SaslAuthenticateResponse:
        start = decode_request_header(frame, 4, len(frame), flexible=True)[2]
        token = decode(SaslAuthenticateRequest, frame, version, start, len(frame)).auth_bytes
        check = self._check
        is_first = check.node_id < 0
        answer = check.begin(token) if is_first else check.answer(token, CALLER.incarnation_id)
        if answer is None:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        return SaslAuthenticateResponse(auth_bytes=answer)


def size_of(received: bytearray) -> int:
    return int.from_bytes(received[:4], "big")
