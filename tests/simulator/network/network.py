"""A network in memory whose connections are slow, stall, break and are partitioned.

As in TCP, a connection loses and reorders no bytes. The network may deliver them late, in other
portions than they were sent in, and one connection's before another's. A reset loses the bytes
under way. A host that is cut off from another, in one direction or both, receives nothing from it
until `heal` delivers the waiting bytes. A connection that is broken at its near end only may
deliver late the bytes sent on it, when the sender has sent them again on another connection.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable, Iterable

from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.network.sockets import RESET, Address, Portion, SimulatedListener, SimulatedSocket

_FIRST_PORT = 40_000
_DELAY_S = (0.000_1, 0.002)
_FILTERED_S = 0.01
_READ_S = 0.05
"""In which a process reads late bytes before it hears of the end of their connection."""


class Network:
    """All connections between hosts. `trace` is called with each portion that arrives."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        trace: Callable[..., None],
        faults: Counter[str],
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = faults
        self.delay_s = _DELAY_S
        self.stall_chance = 0.0
        """Chance that a portion, and all behind it, is late by up to `stall_s_max` seconds."""
        self.stall_s_max = 2.0
        self.partial_chance = 0.0
        """Chance that a call sends or receives fewer bytes than it could."""
        self._trace = trace
        self._listeners: dict[Address, SimulatedListener] = {}
        self._cuts: set[tuple[str, str]] = set()
        self.filtered: set[tuple[str, str]] = set()
        """Pairs of hosts of which the first may open no connection to the second."""
        self._held: dict[tuple[str, str], list[SimulatedSocket]] = {}
        self._late: dict[SimulatedSocket, int] = {}
        """Portions that have waited at the ends to which `release` delivers again."""
        self.delays: list[Callable[[SimulatedSocket, Portion], bool]] = []
        """Each says whether this end's bytes, from this portion on, wait for `release`."""
        self._ports = _FIRST_PORT
        self.down: set[str] = set()
        """Hosts without power: they send no reset either."""

    # Connecting

    def listen(self, process: Process, host: str, port: int) -> SimulatedListener:
        """Return a listener. Raises `OSError` if the address is in use."""
        address = host, port
        if address in self._listeners:
            raise OSError(98, "Address already in use")
        listener = self._listeners[address] = SimulatedListener(self, process, address)
        return listener

    def forget(self, listener: SimulatedListener) -> None:
        """Free the address of a listener."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, process: Process, address: Address) -> SimulatedSocket:
        """Return the near end of a new connection, or wait while the hosts are cut off.

        Raises `ConnectionRefusedError` if no process listens at the address, and another `OSError`
        if a filter is between the hosts.
        """
        await asyncio.sleep(self._delay())
        there, here = address[0], process.host
        if (here, there) in self.filtered:
            await asyncio.sleep(_FILTERED_S)
            raise OSError(errno.EHOSTUNREACH, "filtered")
        ways = {(here, there), (there, here)}
        while ways & self._cuts or there in self.down:  # noqa: ASYNC110 - as a SYN is repeated
            await asyncio.sleep(0.1)
        listener = self._listeners.get(address)
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(f"{address} refuses the connection")
        self._ports += 1
        near = SimulatedSocket(self, process, (here, self._ports), address)
        far = SimulatedSocket(self, listener.process, address, (here, self._ports))
        near.other, far.other = far, near
        listener.offer(far)
        return near

    # Carrying

    def carry(self, source: SimulatedSocket, portion: Portion) -> None:
        """Deliver a portion to the other end, after all portions before it."""
        delay = self._delay()
        if self.stall_chance and self.rng.random() < self.stall_chance:
            delay += self.rng.random() * self.stall_s_max
            self.faults["stall"] += 1
        target = source.other
        if target not in self._late and any(delay(source, portion) for delay in self.delays):
            self._late[target] = 0
        target.due = max(self.loop.time() + delay, target.due)
        target.coming.append(portion)
        self.loop.call_at(target.due, self._arrive, target, context=target.no_context)

    def _delay(self) -> float:
        low, high = self.delay_s
        return low + self.rng.random() * (high - low)

    def _arrive(self, target: SimulatedSocket) -> None:
        if not target.coming:
            return
        if target in self._late:
            self._late[target] += 1
            return
        way = target.other.process.host, target.process.host
        if way in self._cuts:
            self._held.setdefault(way, []).append(target)
            return
        portion = target.coming.popleft()
        if target.process.host in self.down:
            return
        self._trace("net", target.number, portion)
        if target.closed or not target.process.alive:
            if not isinstance(portion, str):
                target.other.receive(RESET)
            return
        target.receive(portion)

    # Faults

    def slow_down(self) -> None:
        """Delay and stall more, and split more calls, until `restore_speed`."""
        self.delay_s, self.stall_chance, self.partial_chance = (0.001, 0.2), 0.05, 0.5

    def restore_speed(self) -> None:
        """Return to short delays; a few calls stay split."""
        self.delay_s, self.stall_chance, self.partial_chance = _DELAY_S, 0.0, 0.05

    @property
    def is_slow(self) -> bool:
        """Whether portions stall."""
        return self.stall_chance > 0.0

    def cut(self, source: str, target: str) -> None:
        """Deliver nothing from one host to the other until `heal`."""
        self._cuts.add((source, target))
        self.faults["partition"] += 1

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether nothing arrives from one host at the other."""
        return (source, target) in self._cuts

    def filter(self, caller: str, callee: str) -> None:
        """Break and refuse connections that the caller opens, as a firewall does, until `heal`."""
        self.filtered.add((caller, callee))
        for listener in list(self._listeners.values()):
            for sock in list(listener.process.sockets):
                is_opened = sock.other.process.host == caller
                if is_opened and listener.address[0] == callee == sock.getsockname()[0]:
                    self.reset(sock)

    def heal(self) -> None:
        """End all cuts and filters, and deliver all waiting bytes."""
        self.filtered.clear()
        self.mend(set(self._held) | self._cuts)
        for source in [target.other for target in self._late]:
            self.release(source)

    def mend(self, ways: Iterable[tuple[str, str]]) -> None:
        """End some cuts, and deliver what waited for it."""
        self._cuts.difference_update(ways)
        held = [way for way in self._held if way not in self._cuts]
        for targets in [self._held.pop(way) for way in held]:
            for target in targets:
                self._arrive(target)

    def give_up(self, source: SimulatedSocket) -> None:
        """Break this end of a connection alone; its late bytes wait for `release`.

        As where a connection-tracking firewall has forgotten it, or its keep-alives were lost.
        """
        self.faults["given up"] += 1
        source.coming.clear()
        source.receive(RESET)

    def release(self, source: SimulatedSocket) -> None:
        """Deliver the late bytes of this end; the peer reads them before an end or a reset."""
        target = source.other
        for _ in range(self._late.pop(target, 0)):
            if target.coming and isinstance(target.coming[0], str):
                when = self.loop.time() + _READ_S
                self.loop.call_at(when, self._arrive, target, context=target.no_context)
            else:
                self._arrive(target)

    def reset(self, socket: SimulatedSocket) -> None:
        """Break a connection at both ends; portions under way are lost."""
        self.faults["reset"] += 1
        for end in (socket, socket.other):
            end.coming.clear()
            end.receive(RESET)

    def disconnect(self, process: Process, *, silently: bool) -> None:
        """Close everything of a dead process.

        Its operating system resets the connections, unless the machine lost power (`silently`).
        """
        for listener in list(self._listeners.values()):
            if listener.process is process:
                self.forget(listener)
        for socket in process.sockets:
            if not socket.closed:
                socket.closed = True
                if not silently:
                    self.carry(socket, RESET)
        process.sockets.clear()
