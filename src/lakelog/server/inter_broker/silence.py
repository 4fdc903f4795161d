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

NONE = -1
"""The number of no denial."""
_COUNTS_FOR = 0.4
"""Part of a session for which a report counts."""
_FENCED_AFTER = 0.6
"""Part of a session. A broker counts as not answering after the rest of it."""


@dataclass(slots=True)
class _Known:
    """The view of one process; times in seconds.

    missed: the brokers that do not answer it, as its last call says; None before such a call.
    reported_s: since that call.
    is_missed: whether no broker reached it when that was known last.
    missed_s: for how long.
    unsteady_s: how much longer it has to be reached before it counts as steady.
    is_given_up: whether its fencing is pending.
    given_up_s: how much longer it gets no lease, because its fencing was pending.
    denial: the number of the present denial, `NONE` without one.
    has_ended: whether its lease has ended since.
    """

    process: Process
    missed: frozenset[int] | None = None
    reported_s: float = 0.0
    is_missed: bool = False
    missed_s: float = 0.0
    unsteady_s: float = 0.0
    is_given_up: bool = False
    given_up_s: float = 0.0
    denial: int = NONE
    has_ended: bool = False


class Deafness:
    """The reports of all other processes, and the conclusions of this one.

    A broker may call all others while none can call it, behind a one-way filter: it is deaf. Its
    calls and its heartbeats arrive, but no follower copies from it. Each regular call names the
    brokers that have not answered its sender, so every broker knows which ones the others reach. It
    concludes that a broker is deaf if there is no way to it over brokers that answer each other,
    beginning at itself. So the report of a broker that is itself deaf does not count, neither for
    another one nor against it.

    Without the report of another broker there is no conclusion, as in a cluster of two: either of
    them may be at fault. A broker of an older version names none, and counts as if it reached all.

    A deaf broker gets the answers to its own calls, and would extend the lease of its coordinators
    by the controller's. So the controller denies it the lease in these answers, with a number. The
    next call has this number once the lease has ended, and only then the broker may be fenced. It
    gets no lease before others have reached it for half a session after it was fenced.
    """

    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._brokers: dict[int, _Known] = {}
        self._denials = 0

    def follow(self, processes: Iterable[Process]) -> None:
        """Apply the registered processes of other brokers."""
        brokers = self._brokers
        self._brokers = {
            process.node_id: broker
            if (broker := brokers.get(process.node_id)) is not None and broker.process == process
            else _Known(process)
            for process in processes
        }

    def note_report(self, node_id: int, missed: frozenset[int], ended: int) -> None:
        """Note a regular call of a broker.

        missed: the brokers that do not answer it.
        ended: the number of the denial by this broker that has ended its lease, or `NONE`.
        """
        if (broker := self._brokers.get(node_id)) is None:
            return
        broker.missed, broker.reported_s = missed, 0.0
        if ended != NONE and ended == broker.denial:
            broker.has_ended = True

    def tick(
        self, elapsed_s: float, answering: frozenset[int], unanswering: frozenset[int]
    ) -> None:
        """Count the time since the last tick.

        answering: the brokers that answer this one.
        unanswering: the brokers that have not answered for a while. A broker that was not called
            for long enough is in neither set.
        """
        for broker in self._brokers.values():
            broker.reported_s += elapsed_s
            broker.given_up_s = max(broker.given_up_s - elapsed_s, 0.0)
        reached = self._reached(answering, self._surely_answering)
        maybe = self._reached(frozenset(self._brokers) - unanswering, self._maybe_answering)
        may_conclude = self._is_quorum(maybe)
        for node_id, broker in self._brokers.items():
            if node_id in reached:
                broker.is_missed, broker.missed_s = False, 0.0
                broker.unsteady_s = max(broker.unsteady_s - elapsed_s, 0.0)
            elif may_conclude and node_id not in maybe:
                broker.is_missed, broker.missed_s = True, broker.missed_s + elapsed_s
                if broker.missed_s >= self._session_s * _FENCED_AFTER:
                    broker.unsteady_s = self._session_s * _STEADY

    def denial(self, node_id: int, *, is_controller: bool) -> int:
        """Return the number to deny a broker its lease with; `NONE` extends the lease.

        is_controller: whether this broker is the controller, whose answers extend leases.
        """
        if (broker := self._brokers.get(node_id)) is None:
            return NONE
        if not (is_controller and self.is_denied(node_id)):
            broker.denial, broker.has_ended = NONE, False
        elif broker.denial == NONE:
            self._denials += 1
            broker.denial = self._denials
        return broker.denial

    def forget_denials(self) -> None:
        """Forget that leases have ended: in another term, another controller extends them."""
        for broker in self._brokers.values():
            broker.denial, broker.has_ended = NONE, False

    def give_up(self, node_ids: Iterable[int]) -> None:
        """Deny leases to brokers that are about to be fenced, until half a session after `settle`.

        An answer before the fencing is committed would extend the lease of a broker that returns,
        and the commit may take as long as the store does.
        """
        for node_id in node_ids:
            if (broker := self._brokers.get(node_id)) is not None:
                broker.is_given_up = True

    def settle(self) -> None:
        """Note that no fencing is pending any more.

        The brokers concerned get no lease for half a session: they may not know of it yet, and a
        fencing that failed may be committed nevertheless.
        """
        for broker in self._brokers.values():
            if broker.is_given_up:
                broker.is_given_up, broker.given_up_s = False, self._session_s * _STEADY

    def is_denied(self, node_id: int) -> bool:
        """Return whether a broker gets no lease.

        No broker reaches it, or has for long enough since it was deaf; or it was given up.
        """
        broker = self._brokers.get(node_id)
        return broker is not None and (
            broker.is_missed
            or broker.unsteady_s > 0.0
            or broker.is_given_up
            or broker.given_up_s > 0.0
        )

    def deaf(self) -> frozenset[int]:
        """Return the brokers that were missed for a session, and whose lease has ended."""
        return frozenset(
            node_id
            for node_id, broker in self._brokers.items()
            if broker.has_ended and broker.missed_s >= self._session_s * _FENCED_AFTER
        )

    def _reached(
        self, first: frozenset[int], answering: Callable[[_Known], frozenset[int]]
    ) -> frozenset[int]:
        """Return the brokers to which there is a way, of which this broker reaches `first`."""
        reached, ends = set(first), list(first)
        while ends:
            new = answering(self._brokers[ends.pop()]) - reached
            reached |= new
            ends += new
        return frozenset(reached)

    def _counts(self, broker: _Known) -> bool:
        return broker.missed is not None and broker.reported_s < self._session_s * _COUNTS_FOR

    def _surely_answering(self, broker: _Known) -> frozenset[int]:
        return self._maybe_answering(broker) if self._counts(broker) else frozenset()

    def _maybe_answering(self, broker: _Known) -> frozenset[int]:
        everyone = frozenset(self._brokers)
        return everyone - (broker.missed or frozenset()) if self._counts(broker) else everyone

    def _is_quorum(self, reached: frozenset[int]) -> bool:
        """Return whether others reach each other, and are half of the brokers that call."""
        calling = sum(1 for broker in self._brokers.values() if self._counts(broker))
        return bool(reached) and 2 * (1 + len(reached)) >= 1 + calling


LEADS_FOR = 0.4
"""Part of a session after which a silent broker no longer counts as reached by a controller."""
_MISSED_AFTER = 0.3
"""Part of a session after which a broker that does not answer may lose the controller's term."""
_CALLED_WITHIN = 0.6
"""Part of a session after which a broker that answers, and does not call, is not reached either: it
misses one call, and the next one after its connection was broken."""
_STEADY = 0.5
"""Part of a session for which a broker has to be reached before it is unfenced, and for which one
has to be seen that was unseen for a session."""
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
        if (broker := self._answered_by(process, NONE)) is not None:
            _note_contact(broker, called_s)

    def note_denial(self, process: Process, denial: int, now_s: float) -> None:
        """Note an answer that denies this broker a lease; its process is no contact any more."""
        if (broker := self._answered_by(process, denial)) is not None:
            broker.contact_s, broker.denied_s = float("-inf"), now_s

    def _answered_by(self, process: Process, denial: int) -> _Witnessed | None:
        broker = self._witnessed.get(process.node_id)
        if broker is None or broker.process != process:
            return None
        broker.denial, broker.unanswered_s = denial, 0.0
        broker.was_reached = broker.has_answered = True
        return broker

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
