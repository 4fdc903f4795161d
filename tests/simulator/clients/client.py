"""The base of all simulated clients: a process, a connection, retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from lakelog.base.errors import ErrorCode
from simulator.checkers.compaction import TOMBSTONE
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.observations import Place
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.record_history import RecordHistory
from simulator.clients.context import ClientContext, Connection
from simulator.conditions import Conditions
from simulator.engine.process import Process
from simulator.network.connection import NoResponse

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
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
    """A client process; `run` works until the run of the world ends, or a fault kills it."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self.context = context
        self.name = name
        self.rng: random.Random = context.simulator.random_stream(name)
        self.home = context.brokers.home_of(name)
        self.process = Process(name)
        self.connection = self.connect()
        self._serial = 0
        self.lost = 0
        """How many requests had no response and were sent again."""

    @property
    def history(self) -> RecordHistory:
        return self.context.records

    @property
    def findings(self) -> Findings:
        return self.context.findings

    @property
    def offsets(self) -> OffsetHistory:
        return self.context.offsets

    @property
    def members(self) -> MembershipHistory:
        return self.context.members

    @property
    def conditions(self) -> Conditions:
        return self.context.conditions

    @property
    def now(self) -> float:
        """The loop's time in seconds."""
        return self.context.simulator.loop.time()

    def connect(self) -> Connection:
        """Return another connection to the client's broker, or to its cluster."""
        return self.home.connect(self.context.network, self.process, self._on_late)

    def _on_late(self, request: str, asked_at: float) -> None:
        self.findings.expect(
            Law.PROMPT,
            self.conditions.was_disturbed(asked_at),
            f"{self.name}: {request} was not answered in time",
        )

    def start(self) -> asyncio.Task[None]:
        """Run the client in its process; return the task."""
        return self.context.simulator.loop.create_task(
            self._live(), name=self.name, context=self.process.context()
        )

    async def _live(self) -> None:
        try:
            await self.run()
        except Exception as error:
            self.findings.violation(Law.CLIENTS_LIVE, f"{self.name} failed: {error!r}")
            raise

    def run(self) -> Coroutine[Any, Any, None]:
        """Do the client's work."""
        raise NotImplementedError

    def replaced(self) -> Client:
        """Return a client that continues the work after a fault killed this one's process."""
        raise NotImplementedError

    @property
    def next_name(self) -> str:
        base, _, number = self.name.partition("'")
        return f"{base}'{int(number or 0) + 1}"

    async def pause(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(low_s + self.rng.random() * (high_s - low_s))

    async def ask(self, message: Any, version: int, timeout_s: float = 5.0) -> Any:
        """Return the response; repeat the request until one arrives.

        timeout_s: of each attempt, in seconds.
        """
        while True:
            try:
                return await self.connection.call(message, version, timeout_s)
            except NoResponse:
                self.lost += 1
                await self.pause(0.05, 0.5)

    def expect_progress(self, what: str, code: int, asked_at: float) -> None:
        """Check that a fault explains a retriable error of a request sent at `asked_at`.

        A log that failed, or is damaged, stays offline until the repair.
        """
        self.findings.expect(
            Law.PROGRESS,
            code == ErrorCode.KAFKA_STORAGE_ERROR or self.conditions.was_disturbed(asked_at),
            f"{self.name}: {what} returned {ErrorCode(code).name} without a fault",
        )

    def may_be_stale(self, since: float) -> bool:
        """Return whether a coordinator may answer that does not know its successor.

        As in Apache Kafka, after a cut or a pause it answers from its state until it learns of the
        next leader epoch. since: the loop's time of the first request that its state must include.
        """
        return self.context.plan.replicas > 1 and self.conditions.was_disturbed(since)

    def unexpected(self, what: str, code: int) -> None:
        """Record a violation: no client can expect this error."""
        self.findings.violation(Law.ANSWERS, f"{self.name}: {what} returned {ErrorCode(code).name}")

    def note(self, what: str, *details: object) -> None:
        """Add an event of the client to the hash of the world."""
        self.context.simulator.trace(what, self.name, *details)

    def new_values(self, count: int, *, key: bytes = b"") -> list[bytes]:
        """Return values that are unique in the world, of very different sizes."""
        found = []
        for _ in range(count):
            self._serial += 1
            padding = b"." * self.rng.choice((0, 10, 10, 60, 300))
            found.append(b"%s%s:%d%s" % (key, self.name.encode(), self._serial, padding))
        return found

    def some_key(self) -> bytes:
        """Return a key and its slash, sometimes for a tombstone; four keys are frequent."""
        key = b"k%d/" % self.rng.randrange(4 if self.rng.random() < 0.7 else 40)
        return key + TOMBSTONE if self.rng.random() < 0.15 else key

    def some_place(self, partitions: Sequence[Place]) -> Place:
        return partitions[self.rng.randrange(len(partitions))]
