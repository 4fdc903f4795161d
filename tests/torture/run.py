"""One run: clients work, faults come and end, and the checker judges the history."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from torture.anomalies import Anomaly
from torture.availability import silences
from torture.checker import check
from torture.crew import Crew
from torture.faults import Fault, Faults
from torture.final_reads import GROUPS, Offsets, append_last, read_to_last
from torture.following import Following
from torture.history import History, parse
from torture.hosts import Hosts
from torture.journal import Journal
from torture.patience import Pace, Patience
from torture.plan import CONSUMERS, PRODUCERS, Plan
from torture.progress import recoveries
from torture.servers import (
    BROKERS,
    LEDGER,
    NUMBERS,
    OUTPUTS,
    SERVERS,
    SESSION_S,
    Servers,
    host_of_broker,
    host_of_server,
)
from torture.surfaces import Surfaces
from waiting import eventually

PROGRESS_S = 180.0
"""The deadline of each role after a healing; generous, for machines with other work."""
_FAULT_S = 1.0, 4.0
_LONG_S = 25.0
"""The time of some faults of a minority: the cluster has to go on while they last."""
_LONG = 0.15
_SECOND_FAULT = 0.2
_FULL = 0.3
_SETTLE_S = 180.0


class TortureRun:
    """A run in a folder, which afterwards contains the history and the logs of the servers.

    Args:
        folder: an empty folder.
        plan: clients and faults.
        store: `EMBEDDED` or `ZOOKEEPER`.
        seconds: no fault begins after this time.
        faults_max: no fault begins after this count.
        seed: of the faults and of their durations.
    """

    def __init__(
        self, folder: Path, plan: Plan, store: str, seconds: float, faults_max: int, seed: int
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._store = store
        self._seconds = seconds
        self._faults_max = faults_max
        self._seed = seed
        self._rng = random.Random(seed)
        self._begun = time.monotonic()

    def run(self) -> History:
        """Return the history. Raises `AssertionError` if it did not reach its end."""
        names = [*map(host_of_broker, BROKERS), *map(host_of_server, SERVERS)]
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(names))
            servers = stack.enter_context(Servers(self._folder, hosts, self._store))
            crew = Crew(servers.bootstrap, self._folder, self._seed)
            stack.callback(crew.end)
            self._journal = Journal(crew.journals / "nemesis.jsonl", "nemesis")
            self._following = Following(crew.journals)
            self._offsets = Offsets(servers.bootstrap, self._journal)
            stack.callback(self._offsets.close)
            self._watch(stack, servers, hosts, crew)
            self._torture(servers, crew, Faults(self._plan, servers, hosts, crew, self._rng))
            self._finish(servers, crew)
            servers.stop()
            differing = servers.differing_replicas()
            assert not differing, f"the replicas of {', '.join(differing)} differ"
        return self.history()

    def _watch(self, stack: ExitStack, servers: Servers, hosts: Hosts, crew: Crew) -> None:
        """Measure the pace of the machine, and ask the surfaces, until the run ends."""
        pace = Journal(crew.journals / "pace.jsonl", "pace")
        stack.enter_context(Pace(self._folder, pace))
        addresses = [hosts.address(host_of_broker(number)) for number in BROKERS]
        stack.enter_context(Surfaces(servers.bootstrap, addresses, crew.journals))

    def history(self) -> History:
        """Merge the journals into `history.jsonl`, in order of time, and parse them."""
        lines = [
            line
            for path in sorted((self._folder / "journals").iterdir())
            for line in path.read_bytes().splitlines()
            if line.endswith(b"}")
        ]
        history = parse(lines)
        (self._folder / "history.jsonl").write_bytes(b"\n".join(sorted(lines)) + b"\n")
        return history

    def _torture(self, servers: Servers, crew: Crew, faults: Faults) -> None:
        self._offsets.commit_start()
        for name in (*self._plan.steady, *self._plan.mortal):
            crew.start(name)
        self._await_progress(crew)
        self._begun = time.monotonic()
        number = 0
        while number < self._faults_max and time.monotonic() - self._begun < self._seconds:
            begun = []
            is_double = not self._plan.only_leaders and self._rng.random() < _SECOND_FAULT
            for fault in faults.begin(2 if is_double else 1):
                is_minor = fault.is_minor and not is_double
                self._journal.note("fault", text=fault.text, minor=is_minor, blind=fault.is_blind)
                begun.append(fault)
            fault_s = self._rng.uniform(*_FAULT_S)
            is_long = self._rng.random() < _LONG and not is_double and begun[0].is_minor
            time.sleep(_LONG_S if is_long else fault_s)
            number += len(begun)
            self._heal(number, begun, servers, crew)

    def _heal(self, number: int, faults: list[Fault], servers: Servers, crew: Crew) -> None:
        for fault in faults:
            fault.heal()
        for fault in faults:
            fault.wait()
        took_s = self._await_progress(crew)
        servers.check()
        self._offsets.ask()
        text = "; ".join(fault.text for fault in faults)
        elapsed_s = time.monotonic() - self._begun
        operations = self._following.operations
        print(
            f"{elapsed_s:6.1f} s  {number:3} faults  {operations:6} operations  "
            f"progress after {took_s:4.1f} s  {text}",
            flush=True,
        )
        if self._rng.random() < _FULL:
            servers.await_full()

    def _await_progress(self, crew: Crew) -> float:
        """Return after how many seconds each role has succeeded."""
        roles = self._plan.roles
        self._journal.note("healed", roles=roles)
        since = time.monotonic_ns()

        def is_made() -> bool:
            return crew.has_ended() or self._following.have_succeeded(roles, since)

        try:
            eventually(is_made, PROGRESS_S)
        except AssertionError as failure:
            stuck = [role for role in roles if self._following.newest[role] <= since]
            text = f"no progress of {', '.join(stuck)}; {crew.printed()}"
            raise AssertionError(text) from failure
        crew.check()
        return (time.monotonic_ns() - since) / 1e9

    def _finish(self, servers: Servers, crew: Crew) -> None:
        """Let all clients complete their work, then read everything."""
        servers.await_full()
        crew.stop(PRODUCERS)
        ends = append_last(servers.bootstrap, self._journal, [NUMBERS])
        if self._plan.has_groups:
            wanted = {(group, name): end + 1 for group in GROUPS for name, end in ends.items()}
            eventually(lambda: self._offsets.ask() == wanted, _SETTLE_S, "groups were at the end")
        crew.stop(CONSUMERS)
        ends |= append_last(servers.bootstrap, self._journal, [LEDGER, OUTPUTS])
        read_to_last(servers.bootstrap, self._journal, ends)
        self._journal.note("complete")
        servers.check()

    def judge(self, history: History) -> list[Anomaly]:
        """Return the anomalies of a history."""
        return check(history, PROGRESS_S, SESSION_S)


def summary(history: History, anomalies: list[Anomaly]) -> Iterator[str]:
    """Yield the lines of a readable summary."""
    outcomes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for operation in history.operations:
        outcomes[operation.kind][operation.outcome] += 1
    yield f"{history.count} operations, {len(history.faults)} faults, {len(anomalies)} anomalies"
    for kind, counts in sorted(outcomes.items()):
        text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        yield f"  {kind:10} {text}"
    received = sum(len(reader.records) for reader in history.readers)
    yield f"  {'poll':10} {history.polls} with {received} records"
    waits = [each.seconds for each in recoveries(history) if each.role.startswith(f"{NUMBERS}-")]
    if waits:
        yield (
            f"  after a healing, a partition accepts writes within {median(waits):.2f} s "
            f"(median), {max(waits):.2f} s (maximum)"
        )
    if found := silences(history):
        seconds, partition, fault, at = found[0]
        limit_s = Patience(SESSION_S, history).between(at, at + seconds * 1e9)
        text = f"{seconds:.2f} s (at most {limit_s:.1f} s), of {partition} after: {fault}"
        yield f"  the longest silence was {text}"
    yield from map(str, anomalies[:50])
