"""How long each other broker has not answered this one, and has not called it.

Both directions count apart. A follower that does not call its leader cannot copy from it either. A
controller that is not called gets no proposals. A broker that cannot call the controller may send
its heartbeats through another broker: it is seen, and keeps its partitions.

Silence is counted in ticks. A pause of this process, in which it called no broker and heard none,
counts as two ticks at most, so that a broker that wakes up takes no other one for silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lakelog.server.authentication import Process
from lakelog.server.inter_broker.deafness import NONE, Deafness

LEADS_FOR = 0.4
"""Part of a session after which a silent broker no longer counts as reached by a controller."""
_MISSED_AFTER = 0.3
"""Part of a session after which a broker that does not answer may lose the controller's term."""
_CALLED_WITHIN = 0.6
"""Part of a session after which a broker that answers, and does not call, is not reached either: it
misses one call, and the next one after its connection was broken."""
_STEADY = 0.5
"""Part of a session for which a broker has to be seen after it was unseen for a session."""
LEASE_PERCENT = 60
"""For how long an answer of the controller extends the lease of coordinators, in percent of a
session: for all regular calls in that time but one to be lost."""
_OLDER_LEASE_PERCENT = 90
"""Of a broker that has not named its own in a call."""
_DRIFT_PERCENT = 10
"""Between the end of such a lease and the fencing, in percent of a session; clocks drift."""


@dataclass(slots=True)
class _Witnessed:
    """The view of one process; times in seconds.

    contact_s: when the last call began that the process answered, on the monotonic clock. Calls
        through another broker count.
    unanswered_s: since the last answer to a call of this broker.
    unheard_s: since the last call of the process.
    unseen_s: the same, but a request that another broker has sent on counts.
    unsteady_s: how much longer it has to be seen before it counts as steady.
    lease_percent: for how long the answer to its call extends its lease.
    denial: the number with which its last answer has denied this broker a lease.
    denied_s: when such an answer came last; older calls are no contact.
    """

    process: Process
    contact_s: float
    unanswered_s: float = 0.0
    unheard_s: float = 0.0
    unseen_s: float = 0.0
    unsteady_s: float = 0.0
    lease_percent: int = _OLDER_LEASE_PERCENT
    was_reached: bool = False
    has_answered: bool = False
    denial: int = NONE
    denied_s: float = float("-inf")


class Silence:
    """The silence of all registered processes of other brokers.

    Args:
        tick_s: the time between two calls of `tick`.
    """

    def __init__(self, session_s: float, tick_s: float) -> None:
        self._session_s = session_s
        self._tick_s = tick_s
        self._witnessed: dict[int, _Witnessed] = {}
        self.deafness = Deafness(session_s)

    def follow(self, processes: Iterable[Process], now_s: float) -> None:
        """Apply the registered processes; a new one counts as heard now."""
        witnessed, processes = self._witnessed, list(processes)
        self.deafness.follow(processes)
        self._witnessed = {
            process.node_id: broker
            if (broker := witnessed.get(process.node_id)) is not None and broker.process == process
            else _Witnessed(process, now_s)
            for process in processes
        }

    def note_answer(self, process: Process, called_s: float) -> None:
        """Note that a process has answered a call that began at `called_s`."""
        broker = self._witnessed.get(process.node_id)
        if broker is not None and broker.process == process:
            _note_contact(broker, called_s)
            broker.denial, broker.unanswered_s = NONE, 0.0
            broker.was_reached = broker.has_answered = True

    def note_denial(self, process: Process, denial: int, now_s: float) -> None:
        """Note an answer that denies this broker a lease; its process is no contact any more."""
        broker = self._witnessed.get(process.node_id)
        if broker is not None and broker.process == process:
            broker.contact_s, broker.denied_s = float("-inf"), now_s
            broker.denial, broker.unanswered_s = denial, 0.0
            broker.was_reached = broker.has_answered = True

    def denial_by(self, node_id: int) -> int:
        """Return the number with which a broker has denied this one a lease, or `NONE`."""
        broker = self._witnessed.get(node_id)
        return NONE if broker is None else broker.denial

    def note_relayed_answer(self, node_id: int, called_s: float) -> None:
        """Note the answer of a broker to a call that another one has sent on."""
        if (broker := self._witnessed.get(node_id)) is not None:
            _note_contact(broker, called_s)

    def note_request(self, node_id: int) -> None:
        """Note a request of a broker, over a connection of its own."""
        if (broker := self._witnessed.get(node_id)) is not None:
            broker.unheard_s, broker.unseen_s, broker.was_reached = 0.0, 0.0, True

    def note_relayed(self, node_id: int) -> None:
        """Note a request of a broker that another one has sent on."""
        if (broker := self._witnessed.get(node_id)) is not None:
            broker.unseen_s = 0.0

    def note_lease(self, node_id: int, percent: int) -> None:
        """Note for how long the answers to the calls of a broker extend its lease."""
        if (broker := self._witnessed.get(node_id)) is not None:
            broker.lease_percent = percent

    def tick(self, elapsed_s: float) -> None:
        """Count the time since the last tick."""
        elapsed_s = min(elapsed_s, 2 * self._tick_s)
        for broker in self._witnessed.values():
            broker.unanswered_s += elapsed_s
            broker.unheard_s += elapsed_s
            broker.unseen_s += elapsed_s
            if broker.unseen_s >= self._session_s or self._is_cut_off(broker):
                broker.unsteady_s = self._session_s * _STEADY
            elif broker.unseen_s < self._session_s * LEADS_FOR and broker.unsteady_s > 0.0:
                broker.unsteady_s -= elapsed_s
        unanswering = self.unanswering()
        answering = self._brokers(lambda broker: broker.has_answered) - unanswering
        self.deafness.tick(elapsed_s, answering, unanswering)

    def unseen(self) -> frozenset[int]:
        """Return the brokers that sent no request for a session, through another one either."""
        return self._brokers(lambda broker: broker.unseen_s >= self._session_s)

    def cut_off(self) -> frozenset[int]:
        """Return the brokers that neither call nor answer, and whose leases are over.

        A broker among them that runs is cut off from this one, and from each broker that would
        send its requests on. A paused one has the rest of its session to continue.
        """
        return self._brokers(self._is_cut_off)

    def unheard(self) -> frozenset[int]:
        """Return the brokers that have not called this one for a session."""
        return self._brokers(lambda broker: broker.unheard_s >= self._session_s)

    def unanswering(self) -> frozenset[int]:
        """Return the brokers whose last answer is two fifths of a session ago."""
        return self._brokers(lambda broker: broker.unanswered_s >= self._session_s * LEADS_FOR)

    def missed(self) -> frozenset[int]:
        """Return the brokers whose last answer is three tenths of a session ago."""
        after_s = self._session_s * _MISSED_AFTER
        return self._brokers(lambda broker: broker.was_reached and broker.unanswered_s >= after_s)

    def unanswered(self) -> frozenset[int]:
        """Return the brokers that this one reports: they do not answer, or never have."""
        return self.unanswering() | self._brokers(lambda broker: not broker.has_answered)

    def unreached(self) -> frozenset[int]:
        """Return the brokers that do not count as reached by a controller.

        A broker that answers is reached even if it calls late, but not if its requests do not
        arrive.
        """
        late_s, unheard_s = self._session_s * LEADS_FOR, self._session_s * _CALLED_WITHIN
        return self._brokers(
            lambda broker: (
                broker.unheard_s >= (late_s if broker.unanswered_s >= late_s else unheard_s)
            )
        )

    def is_steady(self, node_id: int) -> bool:
        """Return whether a broker may be unfenced: it was seen and reached for a while."""
        broker = self._witnessed.get(node_id)
        is_seen = broker is None or broker.unsteady_s <= 0.0
        return is_seen and not self.deafness.is_denied(node_id)

    def reaches_half(self, live: Mapping[int, bytes]) -> bool:
        """Return whether this broker and the brokers that it reaches are half of the live ones."""
        counted = self.counted(live)
        lost = self.unreached().intersection(counted)
        return 2 * (1 + len(counted) - len(lost)) >= 1 + len(counted)

    def is_majority(self, count: int, live: Mapping[int, bytes]) -> bool:
        """Return whether so many brokers are more than half of the live ones."""
        return 2 * count > 1 + len(self.counted(live))

    def counted(self, live: Mapping[int, bytes]) -> list[int]:
        """Return the other live brokers.

        live: the processes that the metadata store counts as live. A process that this broker has
        never reached does not count: after a power failure of all hosts, the store still counts the
        former processes.
        """
        return [
            node_id
            for node_id, broker in self._witnessed.items()
            if broker.was_reached and live.get(node_id) == broker.process.incarnation_id
        ]

    def contact_s(self, node_id: int) -> float:
        """Return when the last call began that a broker has answered; infinite without such one."""
        broker = self._witnessed.get(node_id)
        return float("inf") if broker is None else broker.contact_s

    def _is_cut_off(self, broker: _Witnessed) -> bool:
        after_s = self._session_s * (broker.lease_percent + _DRIFT_PERCENT) / 100
        # An answer extends its lease no longer than a call that came later: `unseen_s` is enough
        # for the lease. A broker that answers is not cut off.
        return broker.unseen_s >= after_s and broker.unanswered_s >= after_s

    def _brokers(self, is_meant: Callable[[_Witnessed], bool]) -> frozenset[int]:
        return frozenset(node_id for node_id, broker in self._witnessed.items() if is_meant(broker))


def _note_contact(broker: _Witnessed, called_s: float) -> None:
    if called_s > broker.denied_s:
        broker.contact_s = max(broker.contact_s, called_s)
