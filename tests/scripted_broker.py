"""A broker whose responses a test scripts: on loopback, or behind a transport of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar

from lakelog.protocol.api import api_for
from lakelog.protocol.connections import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.protocol.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header, encode_response
from lakelog.wire.schema import Message

M = TypeVar("M", bound=Message)


class Silence(Enum):
    """The answer to a request that gets no response."""

    SILENCE = auto()


SILENCE = Silence.SILENCE
Response = Message | Silence | None
Answer = Response | Callable[[Any], Response]
"""A response, a function of the request, or `None` to close the connection."""
LEADER_EPOCH = 5


def topic_id(name: str) -> bytes:
    """Return the id of a topic, which a test can derive from its name."""
    return name.encode().ljust(16, b"_")


def records_of(request: FetchRequest, records: bytes, end: int, error: int = 0) -> FetchResponse:
    """Return the response with `records` for the first partition of a fetch."""
    asked = request.topics[0]
    row = PartitionData(
        partition_index=asked.partitions[0].partition,
        error_code=error,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )
    name = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[row])
    return FetchResponse(responses=[name])


class Script:
    """The answers of node 1 of a cluster. It leads all partitions of `topics`.

    It coordinates all groups. `leaders` names other leaders, and `versions` other ranges of
    versions by API key. `requests` are all decoded requests except ApiVersions and Metadata, in the
    order of arrival. `where` is the address in its responses.
    """

    def __init__(
        self, where: tuple[str, int], topics: Mapping[str, int] | None = None, node_id: int = 1
    ) -> None:
        self.where = where
        self.node_id = node_id
        self.topics = dict(topics or {"orders": 2})
        self.leaders: dict[tuple[str, int], int] = {}
        self.peers: list[Script] = []
        self.versions: dict[int, tuple[int, int]] = {}
        self.requests: list[Message] = []
        self._answers: dict[type[Message], list[Answer]] = {
            ApiVersionsRequest: [self.api_versions],
            MetadataRequest: [self.metadata],
            FindCoordinatorRequest: [self._coordinator],
        }

    def on(self, kind: type[Message], *answers: Answer) -> None:
        """Set the answers to requests of a class; the last one is given to all later requests."""
        self._answers[kind] = [*answers]

    def asked(self, kind: type[M]) -> list[M]:
        """Return the requests of a class that have arrived."""
        return [request for request in self.requests if isinstance(request, kind)]

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return the response of the topics; unknown ones have an error."""
        names = [*self.topics] if request.topics is None else [row.name for row in request.topics]
        brokers = [
            MetadataResponseBroker(node_id=each.node_id, host=each.where[0], port=each.where[1])
            for each in (self, *self.peers)
        ]
        topics = [self._topic(name or "") for name in names]
        return MetadataResponse(cluster_id="c", controller_id=1, brokers=brokers, topics=topics)

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=self.leaders.get((name, index), self.node_id),
                leader_epoch=LEADER_EPOCH,
            )
            for index in range(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, topic_id=topic_id(name), partitions=partitions)

    def api_versions(self, _: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the ranges of all APIs, of which `versions` replaces some."""
        ranges = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in (ranges | self.versions).items()
        ]
        return ApiVersionsResponse(api_keys=rows)

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self.where
        rows = [
            Coordinator(key=key, node_id=self.node_id, host=host, port=port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def answer(self, frame: bytes) -> bytes | None:
        """Return the frame of the response to a request without its size, `None` to close.

        It is empty for a request without a response.
        """
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        api = APIS[key]
        flexible = version >= api.flexible_from
        correlation_id, _, start = decode_request_header(frame, 0, len(frame), flexible)
        request = decode(api.request, frame, version, start, len(frame))
        if not isinstance(request, ApiVersionsRequest | MetadataRequest):
            self.requests.append(request)
        answers = self._answers[type(request)]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        response = answer(request) if callable(answer) else answer
        if response is None:
            return None
        if response is SILENCE or (isinstance(request, ProduceRequest) and request.acks == 0):
            return b""
        assert isinstance(response, Message)
        assert api is api_for(type(request))
        return b"".join(encode_response(api, version, correlation_id, response))


class ScriptedBroker(Script):
    """A script on loopback, with a thread for each connection."""

    def __init__(self, topics: Mapping[str, int] | None = None, node_id: int = 1) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        super().__init__(self._listener.getsockname(), topics, node_id)
        self._sockets: list[socket.socket] = []
        self._failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        host, port = self.where
        return f"{host}:{port}"

    def close(self) -> None:
        """End all connections. Raises the first error of an answer."""
        for sock in [self._listener, *self._sockets]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for sock in [self._listener, *self._sockets]:
            sock.close()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut down
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):  # the peer has closed the connection
            while size := sock.recv(4, socket.MSG_WAITALL):
                frame = sock.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                try:
                    parts = self.answer(frame)
                except Exception as error:  # noqa: BLE001 - `close` raises it in the test
                    self._failures.append(error)
                    break
                if parts is None:
                    break
                sock.sendall(parts)
            sock.shutdown(socket.SHUT_RDWR)
