"""Bytes on the way between two processes that arrive later, or outlive their connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from simulator.brokers.host import BrokerHost
from simulator.network.network import Network
from simulator.network.sockets import Portion, SimulatedSocket

Chooses = Callable[[SimulatedSocket, Portion], bool]


class LateBytes:
    """A context manager, in which connections come to wait for `release`.

    Args:
        chooses: whether the bytes of this end wait, from this portion on.
    """

    def __init__(self, network: Network, chooses: Chooses) -> None:
        self._network = network
        self._chooses = chooses
        self._sources: dict[SimulatedSocket, bool] = {}
        """The ends whose bytes wait, and whether each one's process has given up the connection."""

    def __enter__(self) -> Self:
        self._network.delays.append(self._is_late)
        return self

    def __exit__(self, *_: object) -> None:
        self._network.delays.remove(self._is_late)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def _is_late(self, source: SimulatedSocket, portion: Portion) -> bool:
        if not self._chooses(source, portion):
            return False
        self._sources[source] = False
        return True

    def give_up(self) -> None:
        """Have the senders give up the connections; the bytes still wait."""
        for source in [each for each, is_given_up in self._sources.items() if not is_given_up]:
            self._sources[source] = True
            self._network.give_up(source)

    def release(self) -> None:
        """Deliver the bytes."""
        for source in self._sources:
            self._network.release(source)


def sent_between(host: BrokerHost, other: BrokerHost) -> Chooses:
    """Return a choice of all bytes of one broker's process to another one's."""

    def chooses(source: SimulatedSocket, portion: Portion) -> bool:
        ends = source.process, source.other.process
        return ends == (host.process, other.process) and isinstance(portion, bytes)

    return chooses
