"""Which live brokers no other one reaches, by the reports of all.

A broker may call all others while none can call it, behind a one-way filter: it is deaf. Its calls
and its heartbeats arrive, but no follower copies from it. Each regular call names the brokers that
have not answered its sender, so every broker knows which ones the others reach. It concludes that a
broker is deaf if there is no way to it over brokers that answer each other, beginning at itself. So
the report of a broker that is itself deaf does not count, neither for another one nor against it.

Without the report of another broker there is no conclusion, as in a cluster of two: either of them
may be at fault. A broker of an older version names none, and counts as if it reached all.

A deaf broker gets the answers to its own calls, and would extend the lease of its coordinators by
the controller's. So the controller denies it the lease in these answers, with a number. The
next call has this number once the lease has ended, and only then the broker may be fenced. It gets
no lease before others have reached it for half a session after it was fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakelog.server.authentication import Process

NONE = -1
"""The number of no denial."""
_COUNTS_FOR = 0.4
"""Part of a session for which a report counts."""
_FENCED_AFTER = 0.6
"""Part of a session. A broker counts as not answering after the rest of it."""
_STEADY = 0.5
"""Part of a session for which a broker has to be reached before it is unfenced."""


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
    """The reports of all other processes, and the conclusions of this one."""

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
