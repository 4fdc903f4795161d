"""Random histories of connections: each byte of the memory budget has one owner at any time."""

from __future__ import annotations

import random
import struct
from typing import cast

import pytest

from fake_transport import OTHER, FakeTransport, Sink, connect, frame, request
from lakelog.base.memory_budget import MemoryBudget
from lakelog.runtime.api import Tasks
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.listeners import ConnectionRegistry
from storage_kit import ManualClock

KIB = 1 << 10
STEPS = 600
Member = tuple[FakeTransport, Sink, Connection]


class History:
    """Clients that connect, send, read, stall and leave, while the broker is short of memory."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.budget = MemoryBudget(150 * KIB, unread_max=600 * KIB)
        clock, tasks = ManualClock(), cast(Tasks, FakeTransport())
        self.registry = ConnectionRegistry(clock, LoopIterations(clock, tasks), self.budget)
        self.members: list[Member] = []

    def step(self) -> None:
        steps = [self.join, self.send, self.send_part, self.answer, self.read]
        steps += [self.release_idle, self.leave]
        self.chance.choices(steps, [2, 6, 6, 2, 3, 1, 1])[0]()
        for transport, _, _ in list(self.members):
            transport.run()

    def join(self) -> None:
        sink = Sink()
        sink.wait = self.chance.random() < 0.3
        limits = self.registry
        member = connect(sink=sink, memory=limits.memory, unread=limits.unread)
        member[0].capacity = self.chance.choice([0, 10_000, 1 << 30])
        self.members.append(member)

    def some(self) -> Member | None:
        return self.chance.choice(self.members) if self.members else None

    def send(self) -> None:
        if (one := self.some()) is not None:
            one[0].incoming += frame(request(1, size=self.chance.choice([8, 5_000, 100_000])))

    def send_part(self) -> None:
        if (one := self.some()) is not None:
            begin = struct.pack(">ihh", 100_000, OTHER, 0)
            one[0].incoming += begin + bytes(self.chance.randrange(9_000))

    def answer(self) -> None:
        if (one := self.some()) is not None:
            sink = one[1]
            for index, reply in enumerate(sink.replies):
                if reply.parts is None:
                    sink.complete(index)

    def read(self) -> None:
        if (one := self.some()) is not None:
            one[0].capacity += 100_000

    def release_idle(self) -> None:
        if (one := self.some()) is not None:
            one[2].drop_idle_buffer()

    def leave(self) -> None:
        if (one := self.some()) is not None:
            one[2].close()
            self.members.remove(one)

    def check(self) -> None:
        self.budget.check()
        memory, unread = self.registry.memory, self.registry.unread
        overdrawn = 400 * KIB
        assert self.budget.received.used <= self.budget.received.bytes_max + overdrawn
        assert self.budget.unread.used <= self.budget.unread.bytes_max
        for _, _, connection in self.members:
            if connection.closed:
                assert not memory.of(connection.received)
                assert not unread.of(connection)
            else:
                assert memory.of(connection.received) >= connection.received.held_bytes
                assert unread.of(connection) == connection.responses.unread_memory


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(10))
def test_each_byte_has_one_owner_which_releases_it(seed: int) -> None:
    history = History(seed)
    waited = 0
    for _ in range(STEPS):
        history.step()
        history.check()
        waited = max(waited, len(history.registry.memory.waiting))
    for _, _, connection in history.members:
        connection.close()
    history.budget.check()
    assert history.budget.used == 0
    assert not history.registry.memory.is_short
    assert waited, "memory was never short"
