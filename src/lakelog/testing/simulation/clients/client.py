"""What all simulated clients have in common: a process, a connection, patience."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.testing.simulation.keys import TOMBSTONE
from lakelog.testing.simulation.laws import Law
from lakelog.testing.simulation.ledger import Ledger, Place
from lakelog.testing.simulation.process import Process
from lakelog.testing.simulation.wire import Lost, WireConnection

if TYPE_CHECKING:
    from lakelog.testing.simulation.world import World

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)


class Client:
    """`run` is its life: until the world's end is near, or its process is killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng: random.Random = world.chance(name)
        self.home = world.home_of(name)
        """The broker that it knows."""
        self.process = Process(name)
        self.connection = self.connect()
        self._serial = 0
        self.lost = 0
        """How many of its questions had no answer, and were asked again."""

    @property
    def ledger(self) -> Ledger:
        return self.world.ledger

    def connect(self) -> WireConnection:
        return WireConnection(self.world.net, self.process, self.home.address, self._on_late)

    def _on_late(self, request: str, asked_at: float) -> None:
        self.ledger.expect(
            Law.PROMPT,
            self.world.was_disturbed(asked_at),
            f"{self.name}: {request} was not answered in time",
        )

    def start(self) -> asyncio.Task[None]:
        return self.world.loop.create_task(
            self._live(), name=self.name, context=self.process.context()
        )

    async def _live(self) -> None:
        try:
            await self.run()
        except Exception as error:
            self.ledger.violation(Law.CLIENTS_LIVE, f"{self.name} failed: {error!r}")
            raise

    def run(self) -> Coroutine[Any, Any, None]:
        raise NotImplementedError

    def replaced(self) -> Client:
        """Another one that takes its place when this one's process has been killed."""
        raise NotImplementedError

    @property
    def next_name(self) -> str:
        base, _, number = self.name.partition("'")
        return f"{base}'{int(number or 0) + 1}"

    async def pause(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(low_s + self.rng.random() * (high_s - low_s))

    async def ask(self, message: Any, version: int, timeout_s: float = 5.0) -> Any:
        """The answer, however often the question has to be asked."""
        while True:
            try:
                return await self.connection.call(message, version, timeout_s)
            except Lost:
                self.lost += 1
                await self.pause(0.05, 0.5)

    def expect_progress(self, what: str, code: int, asked_at: float) -> None:
        """Check an error that asks for another try, of a question from then.

        A log that has failed, or has a damage, stays offline until it is mended.
        """
        self.ledger.expect(
            Law.PROGRESS,
            code == ErrorCode.KAFKA_STORAGE_ERROR or self.world.was_disturbed(asked_at),
            f"{self.name}: {what} was answered {ErrorCode(code).name}, and nothing is in the way",
        )

    def unexpected(self, what: str, code: int) -> None:
        self.ledger.violation(
            Law.ANSWERS, f"{self.name}: {what} was answered {ErrorCode(code).name}"
        )

    def note(self, what: str, *details: object) -> None:
        self.world.trace(what, self.name, *details)

    def new_values(self, count: int, *, key: bytes = b"") -> list[bytes]:
        """Unique in the world; of very different sizes."""
        found = []
        for _ in range(count):
            self._serial += 1
            padding = b"." * self.rng.choice((0, 10, 10, 60, 300))
            found.append(b"%s%s:%d%s" % (key, self.name.encode(), self._serial, padding))
        return found

    def some_key(self) -> bytes:
        """Some of them often, most of them seldom; now and then what is written deletes it."""
        key = b"k%d/" % self.rng.randrange(4 if self.rng.random() < 0.7 else 40)
        return key + TOMBSTONE if self.rng.random() < 0.15 else key

    def some_place(self, places: Sequence[Place]) -> Place:
        return places[self.rng.randrange(len(places))]
