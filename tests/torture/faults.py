"""The faults: each begins, and ends when it is healed.

Faults of the network cut both ways or one way. A broker that is cut off hears neither brokers nor
the store nor clients.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaException

from torture.crew import Crew
from torture.failing_disk import KINDS, WORKS
from torture.hosts import CLIENTS, Cut, Hosts
from torture.plan import Plan
from torture.servers import (
    BROKERS,
    FAILING,
    FILLED,
    NUMBERS,
    PARTITIONS,
    SERVERS,
    Servers,
    host_of_broker,
    host_of_server,
)


class Fault(NamedTuple):
    """A fault that has begun: its description, the call to end it, and a wait after that."""

    text: str
    heal: Callable[[], object]
    wait: Callable[[], object] = lambda: None
    is_minor: bool = False
    """Whether a majority of brokers, and of the store, works on and is connected."""
    is_blind: bool = False
    """Whether clients are cut off a part of the cluster, and may not see what works."""


class Faults:
    """All kinds of faults of a cluster, drawn from a shuffled deck: each kind is as frequent."""

    def __init__(
        self, plan: Plan, servers: Servers, hosts: Hosts, crew: Crew, rng: random.Random
    ) -> None:
        self._plan = plan
        self._servers = servers
        self._hosts = hosts
        self._crew = crew
        self._rng = rng
        self._deck: list[Callable[[], Fault | None]] = []
        self._still: set[str] = set()
        """Hosts whose broker or server does not run."""

    def begin(self, count: int) -> Iterator[Fault]:
        """Begin faults; all earlier ones have ended. No two stop the same process."""
        self._still.clear()
        while count:
            if not self._deck:
                kinds = self._kinds()
                self._deck = self._rng.sample(kinds, len(kinds))
            if (fault := self._deck.pop()()) is not None:
                count -= 1
                yield fault

    def _kinds(self) -> list[Callable[[], Fault | None]]:
        if self._plan.only_leaders:
            return [lambda: self._kill([self._leader()])]
        kinds = [*self._of_brokers(), self._kill_client]
        return kinds + self._of_store() if self._servers.ensemble is not None else kinds

    def _running(self, numbers: Iterable[int], host_of: Callable[[int], str]) -> list[int]:
        """Return the numbers whose process still runs, which the caller stops now."""
        found = [number for number in numbers if host_of(number) not in self._still]
        self._still.update(map(host_of, found))
        return found

    def _of_brokers(self) -> list[Callable[[], Fault | None]]:
        others = [*map(host_of_broker, BROKERS)]
        everybody = [*others, CLIENTS]
        if self._servers.ensemble is not None:
            everybody += map(host_of_server, SERVERS)
        return [
            lambda: self._kill([self._leader()]),
            lambda: self._kill([self._controller()]),
            lambda: self._kill(self._rng.sample(BROKERS, 2)),
            lambda: self._kill(list(BROKERS)),
            lambda: self._stop(self._leader()),
            self._fill_disk,
            *(partial(self._fail_disk, kind) for kind in KINDS if kind != WORKS),
            lambda: self._pause([self._leader()]),
            lambda: self._pause([self._controller()]),
            lambda: self._pause(self._rng.sample(BROKERS, 2)),
            lambda: self._cut_broker(self._leader(), everybody),
            lambda: self._cut_broker(self._controller(), everybody),
            lambda: self._cut_broker(self._leader(), others),
            lambda: self._cut_broker(self._leader(), others, out=False),
            lambda: self._cut_broker(self._leader(), others, into=False),
            lambda: self._cut_broker(self._any(), others, out=False),
            lambda: self._cut_broker(self._any(), others, into=False),
            lambda: self._cut_broker(self._leader(), [CLIENTS]),
        ]

    def _of_store(self) -> list[Callable[[], Fault | None]]:
        servers = [*map(host_of_server, SERVERS)]
        return [
            self._kill_server,
            lambda: self._pause_servers(1),
            lambda: self._pause_servers(2),
            self._cut_server,
            lambda: self._cut_broker(self._leader(), servers),
            lambda: self._cut_broker(self._controller(), servers),
            lambda: self._cut_broker(self._controller(), servers, out=False),
            lambda: self._cut_broker(self._controller(), servers, into=False),
        ]

    def _any(self) -> int:
        return self._rng.choice(BROKERS)

    def _leader(self) -> int:
        """Return the leader of some partition, or any broker when no broker answers."""
        index = self._rng.randrange(PARTITIONS)
        try:
            leader = self._servers.metadata().topics[NUMBERS].partitions[index].leader
        except (KafkaException, KeyError):
            return self._any()
        return leader if leader in BROKERS else self._any()

    def _controller(self) -> int:
        try:
            found = self._servers.metadata().controller_id
        except KafkaException:
            return self._any()
        return found if found in BROKERS else self._any()

    def _kill(self, wanted: Iterable[int]) -> Fault | None:
        numbers = self._running(wanted, host_of_broker)
        for number in numbers:
            self._servers.brokers[number].kill()

        def heal() -> None:
            for number in numbers:
                self._servers.brokers[number].launch()

        def wait() -> None:
            for number in numbers:
                self._servers.brokers[number].await_ready()

        text, is_minor = f"kill {_brokers(numbers)}", len(numbers) == 1
        return Fault(text, heal, wait, is_minor) if numbers else None

    def _stop(self, number: int) -> Fault | None:
        if not self._running([number], host_of_broker):
            return None
        broker = self._servers.brokers[number]
        broker.stop()
        text = f"stop {_brokers([number])} in order"
        return Fault(text, broker.launch, broker.await_ready, True)

    def _fill_disk(self) -> Fault | None:
        if not self._running([FILLED], host_of_broker):
            return None
        disk = self._servers.disk
        disk.fill()
        text = f"fill the disk of {_brokers([FILLED])}"
        return Fault(text, disk.free_capacity, is_minor=True)

    def _fail_disk(self, kind: str) -> Fault | None:
        """Fail operations of a disk, and restart its broker once the disk works again."""
        if not self._running([FAILING], host_of_broker):
            return None
        broker, disk = self._servers.brokers[FAILING], self._servers.failing_disk
        disk.fail(kind)

        def heal() -> None:
            disk.fail(WORKS)
            broker.kill()
            broker.launch()

        text = f"fail {kind} of the disk of {_brokers([FAILING])}"
        return Fault(text, heal, broker.await_ready, True)

    def _pause(self, wanted: Iterable[int]) -> Fault | None:
        numbers = self._running(wanted, host_of_broker)
        for number in numbers:
            self._servers.signal(number, signal.SIGSTOP)

        def heal() -> None:
            for number in numbers:
                self._servers.signal(number, signal.SIGCONT)

        text, is_minor = f"pause {_brokers(numbers)}", len(numbers) == 1
        return Fault(text, heal, is_minor=is_minor) if numbers else None

    def _cut_broker(
        self, number: int, others: Iterable[str], *, out: bool = True, into: bool = True
    ) -> Fault:
        host = host_of_broker(number)
        names = [name for name in others if name != host]
        way = "-x-" if out and into else "-x>" if out else "<x-"
        return self._cut(host, names, out, into, f"cut {host} {way} {', '.join(names)}")

    def _cut(self, host: str, names: list[str], out: bool, into: bool, text: str) -> Fault:
        cuts = [Cut(host, name) for name in names if out]
        cuts += [Cut(name, host) for name in names if into]
        self._hosts.cut(cuts)
        # A broker that only its clients do not reach remains the leader.
        is_blind = names == [CLIENTS]
        return Fault(text, lambda: self._hosts.heal(cuts), is_minor=not is_blind, is_blind=is_blind)

    def _kill_server(self) -> Fault | None:
        ensemble, number = self._servers.ensemble, self._rng.choice(SERVERS)
        assert ensemble is not None
        if not self._running([number], host_of_server):
            return None
        ensemble.kill(number)
        return Fault(
            f"kill ZooKeeper {number}",
            lambda: ensemble.start(number),
            lambda: ensemble.wait_for(number),
            True,
        )

    def _pause_servers(self, count: int) -> Fault | None:
        ensemble = self._servers.ensemble
        assert ensemble is not None
        numbers = self._running(self._rng.sample(SERVERS, count), host_of_server)
        for number in numbers:
            ensemble.pause(number)

        def heal() -> None:
            for number in numbers:
                ensemble.resume(number)

        text = f"pause ZooKeeper {' and '.join(map(str, numbers))}"
        return Fault(text, heal, is_minor=count == 1) if numbers else None

    def _cut_server(self) -> Fault:
        host = host_of_server(self._rng.choice(SERVERS))
        names = [*map(host_of_server, SERVERS), *map(host_of_broker, BROKERS)]
        others = [name for name in names if name != host]
        return self._cut(host, others, True, True, f"cut {host} off all others")

    def _kill_client(self) -> Fault:
        name = self._crew.kill_one(self._rng, self._plan.mortal)
        return Fault(f"kill client {name}", lambda: self._crew.start(name), is_minor=True)


def _brokers(numbers: list[int]) -> str:
    return f"broker{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, sorted(numbers)))}"
