"""Two brokers in this process that are asked the same, one of which knows repeated requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.server.connections.connection import Connection
from lakelog.server.requests import dispatch
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import FakeSocket, SocketlessBroker
from storage_kit import make_batch

PARTITIONS = 2


class Twins:
    """Two brokers alike, one of which never knows a request again."""

    def __init__(self, folder: Path) -> None:
        settings = {"num_partitions": str(PARTITIONS)}
        self.quick = SocketlessBroker(folder / "quick", settings=settings)
        self.plain = SocketlessBroker(folder / "plain", repeats=False, settings=settings)
        self.both = (self.quick, self.plain)
        self.earlier: list[list[tuple[Connection, FakeSocket]]] = []

    async def start(self) -> None:
        for broker in self.both:
            await broker.start()
            assert not await broker.server.broker.topics.ensure(["orders"])
        ids = {broker.server.broker.image.topic_ids["orders"] for broker in self.both}
        (self.topic_id,) = ids

    def connect(self) -> None:
        """Speaks on new connections from now on; the former are in `earlier`."""
        self.earlier.append([(broker.connection, broker.socket) for broker in self.both])
        for broker in self.both:
            broker.connect()

    def return_to_earlier(self) -> None:
        """Speaks again on the connections before the present ones, which become the earlier."""
        present = [(broker.connection, broker.socket) for broker in self.both]
        for broker, (connection, socket) in zip(self.both, self.earlier.pop(), strict=True):
            broker.connection, broker.socket = connection, socket
        self.earlier.append(present)

    def take_answer(self) -> bytes:
        """Return the responses of waiting requests, after trying them once more."""
        for broker in self.both:
            broker.server.broker.purgatory._try_some()
        quick, plain = (broker.take_answer() for broker in self.both)
        assert quick == plain
        return quick

    def ask(self, frames: bytes) -> bytes:
        quick, plain = (broker.ask(frames) for broker in self.both)
        assert quick == plain
        assert self.quick.connection.closed == self.plain.connection.closed
        if self.quick.connection.closed:
            self.connect()
        return quick

    async def stop(self) -> None:
        for broker in self.both:
            await broker.stop()
        logs = [
            {
                path.relative_to(broker.data): path.read_bytes()
                for path in broker.data.glob("orders-*/*")
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
            }
            for broker in self.both
        ]
        assert logs[0] == logs[1]
        assert len(logs[0]) > 2


def run(folder: Path, scenario: Callable[[Twins], None]) -> None:
    async def whole() -> None:
        twins = Twins(folder)
        await twins.start()
        scenario(twins)
        await twins.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


class Client:
    """Makes requests of a producer and a consumer that go on from where they were."""

    def __init__(
        self, twins: Twins, version: int, *, client_id: str = "a client", producer_id: int = 77
    ) -> None:
        self.twins = twins
        self.version = version
        self.client_id = client_id
        self.producer_id = producer_id
        self.correlation_id = 0
        self.sequence = [0] * PARTITIONS
        self.session = (0, 0)

    def frame(self, message: Any) -> bytes:
        self.correlation_id += 1
        api = api_for(type(message))
        parts = encode_request(api, self.version, self.correlation_id, self.client_id, message)
        return b"".join(parts)

    def produce(
        self, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = 1
    ) -> bytes:
        entry = PartitionProduceData(index=partition, records=batch)
        topic = TopicProduceData(
            name="orders", topic_id=self.twins.topic_id, partition_data=[entry]
        )
        return self.frame(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]))

    def batch(self, size: int, count: int = 1, *, partition: int = 0, skip: int = 0) -> bytes:
        sequence = self.sequence[partition] + skip
        if not skip:
            self.sequence[partition] += count
        return bytes(make_batch(count, size=size, producer=(self.producer_id, 0, sequence)))

    def fetch(
        self,
        offset: int | None,
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        committed: bool = False,
        max_wait_ms: int = 0,
    ) -> bytes:
        """Return a Fetch request; without an offset, for the partitions of the session."""
        entry = FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=max_bytes)
        topic = FetchTopic(topic="orders", topic_id=self.twins.topic_id, partitions=[entry])
        session_id, epoch = self.session
        return self.frame(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=1 << 20,
                isolation_level=int(committed),
                session_id=session_id,
                session_epoch=epoch,
                topics=[] if offset is None else [topic],
            )
        )

    def consume(self, frame: bytes) -> FetchResponse:
        """Send a Fetch request, and continue in the session that the response names."""
        answer = self.twins.ask(frame)
        if not answer:
            return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return self.read(answer)

    def read(self, answer: bytes) -> FetchResponse:
        _, response = decode_response(api_for(FetchRequest), self.version, answer[4:])
        assert isinstance(response, FetchResponse)
        self.session = (response.session_id, self.session[1] + 1) if response.session_id else (0, 0)
        return response


@contextmanager
def decoded_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    """The connections of the requests that were decoded, one each."""
    seen: list[Connection] = []
    read_header = dispatch._read_header

    def spy(api: Api, version: int, connection: Connection, *rest: Any) -> Any:
        seen.append(connection)
        return read_header(api, version, connection, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "_read_header", spy)
        yield seen
