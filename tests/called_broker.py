"""A broker that others call over the simulated network, and answers little."""

from __future__ import annotations

import contextlib

from lakelog.protocol.api import api_for
from lakelog.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.testing.simulation.engine.process import Process
from lakelog.testing.simulation.network.network import Network
from lakelog.testing.simulation.network.sockets import SimulatedNet, SimulatedSocket
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header, encode_response
from lakelog.wire.schema import Message

ADDRESS = ("b", 9092)
API_VERSIONS, METADATA, DESCRIBE_CLUSTER = 18, 3, 60


class CalledBroker:
    """Answers ApiVersions, DescribeCluster, and Metadata with the names of the topics."""

    def __init__(self, network: Network) -> None:
        self.process = Process(ADDRESS[0])
        self._network = network
        self._net = SimulatedNet(network, self.process)
        self.listen()
        self.sockets: list[SimulatedSocket] = []
        self.asked: list[str] = []
        self.is_silent = False
        self.is_reading = True
        self.greeting_error = 0
        self.padding = ""

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
        correlation_id = decode_request_header(frame, 4, len(frame), flexible=True)[0]
        return b"".join(encode_response(api_for(kind), version, correlation_id, response))

    def _response(
        self, key: int, version: int, frame: bytes
    ) -> tuple[type[Message], Message | None]:
        if key == API_VERSIONS:
            rows = [
                ApiVersion(api_key=METADATA, min_version=0, max_version=12),
                ApiVersion(api_key=DESCRIBE_CLUSTER, min_version=0, max_version=2),
            ]
            response = ApiVersionsResponse(error_code=self.greeting_error, api_keys=rows)
            return ApiVersionsRequest, response
        if key == DESCRIBE_CLUSTER:
            self.asked.append("")
            return DescribeClusterRequest, None if self.is_silent else DescribeClusterResponse()
        start = decode_request_header(frame, 4, len(frame), flexible=True)[2]
        topics = decode(MetadataRequest, frame, version, start, len(frame)).topics
        name = ",".join(topic.name or "" for topic in topics or ())
        self.asked.append(name)
        answer = MetadataResponse(cluster_id=(self.padding + name)[-32_000:])
        return MetadataRequest, None if self.is_silent else answer


def size_of(received: bytearray) -> int:
    return int.from_bytes(received[:4], "big")
