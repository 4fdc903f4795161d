"""Simulated clients whose broker is a list of responses, so that a test can break a law on purpose.

Requests are encoded as on the network: an invalid field fails the test.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from lakelog.wire.framing import encode_request
from lakelog.wire.schema import Message
from simulator import World
from simulator.checkers.observations import Place
from simulator.clients.client import Client
from simulator.clients.consumers.reading import EARLIEST
from simulator.network.connection import ClientConnection, NoResponse
from simulator.plan import Plan

T = TypeVar("T")
Answer = Message | Callable[[Any], Message | None] | None
"""A response, or a function of the request; None is a lost response."""

_QUIET_S = 10.0
"""Longer than the recovery from the start of a world: no disturbance excuses the broker."""


class ScriptedConnection(ClientConnection):
    """Returns the responses of each type of request in order; the last one repeats.

    Attributes:
        requests: all requests, in order.
        delay_s: seconds until each response.
    """

    def __init__(self, client: Client, answers: dict[type[Message], list[Answer]]) -> None:
        super().__init__(client.context.network, client.process, ("scripted", 9092))
        self._answers = answers
        self.requests: list[Any] = []
        self.delay_s = 0.001

    def sent(self, kind: type[T]) -> list[T]:
        """Return the requests of one type."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def call(self, message: Any, version: int, timeout_s: float = 5.0) -> Any:
        b"".join(encode_request(api_for(type(message)), version, 1, "client", message))
        self.requests.append(message)
        await asyncio.sleep(self.delay_s)
        answers = self._answers[type(message)]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        response = answer(message) if callable(answer) else answer
        if response is None:
            raise NoResponse("scripted")
        return response

    async def cast(self, message: Any, version: int) -> None:
        self.requests.append(message)


class ScriptedWorld(World):
    """A world without faults, whose brokers are not started."""

    def __init__(self, *faults: str) -> None:
        super().__init__(1, Plan(faults=frozenset(faults)))

    def answer(self, client: Client, *answers: tuple[type[Message], Answer]) -> ScriptedConnection:
        """Connect a client to a broker that returns these responses."""
        script: dict[type[Message], list[Answer]] = defaultdict(list)
        for kind, each in answers:
            script[kind].append(each)
        connection = client.connection = ScriptedConnection(client, script)
        return connection

    def play(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, begun when no disturbance excuses the broker any more."""

        async def begin() -> T:
            await asyncio.sleep(_QUIET_S)
            return await work

        return self.simulator.loop.run_until_complete(begin())

    def play_for(self, seconds: float, client: Client) -> None:
        """Run a client until the world ends after so many seconds."""

        async def end() -> None:
            await asyncio.sleep(seconds)
            self.conditions.is_ending = True

        async def both() -> None:
            await asyncio.gather(client.run(), end())

        self.play(both())


@contextmanager
def scripted_world(*faults: str) -> Iterator[ScriptedWorld]:
    """Return a world with these faults in its plan, and close its loop at the end."""
    world = ScriptedWorld(*faults)
    try:
        yield world
    finally:
        world.simulator.loop.close()


def produced(code: int = 0, offset: int = -1) -> Callable[[Any], ProduceResponse]:
    """Return the response to a Produce request of one partition."""

    def answer(request: Any) -> ProduceResponse:
        (topic,) = request.topic_data
        part = PartitionProduceResponse(
            index=topic.partition_data[0].index, error_code=code, base_offset=offset
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, partition_responses=[part])]
        )

    return answer


def listed(
    start: int, end: int, *, stable: int | None = None
) -> tuple[type[Message], Callable[[Any], ListOffsetsResponse]]:
    """Answer ListOffsets of one partition; `stable` is its last stable offset."""

    def answer(request: Any) -> ListOffsetsResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        latest = end if stable is None or not request.isolation_level else stable
        offset = start if wanted.timestamp == EARLIEST else latest
        return list_response((topic.name, wanted.partition_index), offset)

    return ListOffsetsRequest, answer


def list_response(partition: Place, offset: int, code: int = 0) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(
        partition_index=partition[1], error_code=code, timestamp=0, offset=offset
    )
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=partition[0], partitions=[part])]
    )
