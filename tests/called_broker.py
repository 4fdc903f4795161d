"""A script that other brokers call over the simulated network."""

from __future__ import annotations

import contextlib

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import AlterPartitionRequest, BrokerHeartbeatRequest
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.server.authentication import NONCE_BYTES, Process, ProofCheck
from lakelog.wire.schema import Message
from scripted_broker import SILENCE, Response, Script
from simulator.engine.process import Process as SimulatedProcess
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet, SimulatedSocket

ADDRESS = ("b", 9092)
CALLED = Process(2, b"called" + bytes(10))
CALLER = Process(1, b"caller" + bytes(10))


class CalledBroker(Script):
    """Answers Metadata with the names of the topics, DescribeCluster, and proofs of CALLER.

    Requests to the controller get no response.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(ADDRESS, node_id=CALLED.node_id)
        self.on(ApiVersionsRequest, self._greeting)
        self.on(MetadataRequest, self._names)
        self.on(DescribeClusterRequest, self._described)
        self.on(SaslHandshakeRequest, self._begin_proof)
        self.on(SaslAuthenticateRequest, self._authenticated)
        for kind in (AlterPartitionRequest, BrokerHeartbeatRequest):
            self.on(kind, self._unanswered)
        self.process = SimulatedProcess(ADDRESS[0])
        self._network = network
        self._net = SimulatedNet(network, self.process)
        self.listen()
        self.sockets: list[SimulatedSocket] = []
        self.notes: list[str] = []
        """The names of the topics of each Metadata request, and the kinds of other requests."""
        self.denied_lease = -1
        self.is_silent = False
        self.is_reading = True
        self.greeting_error = 0
        self.padding = ""
        self.own = CALLED
        self._check = ProofCheck("", self.own, b"")

    @property
    def calls(self) -> list[DescribeClusterRequest]:
        return self.asked(DescribeClusterRequest)

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
            if not self.is_reading and self.notes:
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
                unsent.extend(self.answer(bytes(received[4:end])) or b"")
                del received[:end]
            write()

        def write() -> None:
            with contextlib.suppress(BlockingIOError, OSError):
                while unsent:
                    del unsent[: sock.send(unsent)]
            self._net.on_writable(sock, write if unsent else None)

        self._net.on_readable(sock, read)

    def _greeting(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        response = self.api_versions(request)
        response.error_code = self.greeting_error
        return response

    def _unanswered(self, request: Message) -> Response:
        self.notes.append(type(request).__name__)
        return SILENCE

    def _names(self, request: MetadataRequest) -> Response:
        name = ",".join(topic.name or "" for topic in request.topics or ())
        self.notes.append(name)
        if self.is_silent:
            return SILENCE
        return MetadataResponse(cluster_id=(self.padding + name)[-32_000:])

    def _described(self, request: DescribeClusterRequest) -> Response:
        self.notes.append("")
        return (
            SILENCE if self.is_silent else DescribeClusterResponse(denied_lease=self.denied_lease)
        )

    def _begin_proof(self, request: SaslHandshakeRequest) -> Response:
        self._check = ProofCheck("cluster", self.own, b"n" * NONCE_BYTES)
        return SaslHandshakeResponse()

    def _authenticated(self, request: SaslAuthenticateRequest) -> Response:
        check, token = self._check, request.auth_bytes
        is_first = check.node_id < 0
        answer = check.begin(token) if is_first else check.answer(token, CALLER.incarnation_id)
        if answer is None:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        return SaslAuthenticateResponse(auth_bytes=answer)


def size_of(received: bytearray) -> int:
    return int.from_bytes(received[:4], "big")
