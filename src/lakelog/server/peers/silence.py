"""How long each other broker has not answered this one.

Silence is counted in ticks. A pause of this process, in which it called no broker and heard none,
counts as two ticks at most, so that a broker that wakes up takes no other one for silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakelog.server.auth.broker_proof import Process

LEADS_FOR = 0.4
"""Part of a session after which a silent broker no longer counts as reached by a controller."""
_STEADY = 0.5
"""Part of a session for which a broker has to answer after it was silent for a session."""


@dataclass(slots=True)
class _Witnessed:
    """The view of one process.

    contact_s: when the last call began that the process answered, on the monotonic clock.
    unsteady_s: how much longer it has to answer before it counts as steady.
    """

    process: Process
    contact_s: float
    silent_s: float = 0.0
    unsteady_s: float = 0.0
    was_reached: bool = False


class Silence:
    """The silence of all registered processes of other brokers.

    Args:
        tick_s: the time between two calls of `tick`.
    """

    def __init__(self, session_s: float, tick_s: float) -> None:
        self._session_s = session_s
        self._tick_s = tick_s
        self._known: dict[int, _Witnessed] = {}

    def follow(self, processes: Iterable[Process], now_s: float) -> None:
        """Adopt the registered processes; a new one counts as heard now."""
        known = self._known
        self._known = {
            each.node_id: found
            if (found := known.get(each.node_id)) is not None and found.process == each
            else _Witnessed(each, now_s)
            for each in processes
        }

    def note_answer(self, process: Process, called_s: float) -> None:
        """Note that a process has answered a call that began at `called_s`."""
        found = self._known.get(process.node_id)
        if found is not None and found.process == process:
            found.contact_s = max(found.contact_s, called_s)
            found.silent_s, found.was_reached = 0.0, True

    def note_request(self, node_id: int) -> None:
        """Note a request of a broker, over a connection of its own."""
        if (found := self._known.get(node_id)) is not None:
            found.silent_s, found.was_reached = 0.0, True

    def tick(self, elapsed_s: float) -> None:
        """Count the time since the last tick."""
        for each in self._known.values():
            each.silent_s += min(elapsed_s, 2 * self._tick_s)
            if each.silent_s >= self._session_s:
                each.unsteady_s = self._session_s * _STEADY
            elif each.silent_s < self._session_s * LEADS_FOR and each.unsteady_s > 0.0:
                each.unsteady_s -= min(elapsed_s, 2 * self._tick_s)

    def silent(self, part: float = 1.0) -> frozenset[int]:
        """Return the brokers that have been silent for this part of a session."""
        limit_s = part * self._session_s
        return frozenset(
            node_id for node_id, each in self._known.items() if each.silent_s >= limit_s
        )

    def is_steady(self, node_id: int) -> bool:
        """Return whether a broker may be unfenced: it has answered for a while since a silence."""
        found = self._known.get(node_id)
        return found is None or found.unsteady_s <= 0.0

    def reaches_half(self, live: Mapping[int, bytes]) -> bool:
        """Return whether this broker and the brokers that it reaches are half of the live ones.

        live: the processes that the metadata store counts as live. A process that this broker has
        never reached does not count: after a power failure of all hosts, the store still counts the
        former processes.
        """
        counted = [
            node_id
            for node_id, each in self._known.items()
            if each.was_reached and live.get(node_id) == each.process.incarnation_id
        ]
        silent = self.silent(LEADS_FOR).intersection(counted)
        return 2 * (1 + len(counted) - len(silent)) >= 1 + len(counted)

    def contact_s(self, node_id: int) -> float:
        """Return when the last call began that a broker has answered; infinite without such one."""
        found = self._known.get(node_id)
        return float("inf") if found is None else found.contact_s
