"""The measurements of a run of the benchmark, and the rows of its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from load import Case, Measurement
from tables import Table

LOAD_COLUMNS = (
    "case",
    "broker",
    "MB/s",
    "requests/s",
    "CPU-s/GB",
    "requests/CPU-s",
    "p50 ms",
    "p99 ms",
    "per CPU-s",
)
ROUND_COLUMNS = ("requests/CPU-s", "broker", "rounds")
BARE_COLUMNS = ("the kernel alone", "server", "MB/s", "CPU-s/GB", "per CPU-s", "requests/CPU-s")
START_COLUMNS = ("start", "broker", "ready s", "idle MB")


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to the first reply, the median of some starts, and resident memory in 10^6 bytes ten
    seconds after the last.
    """

    name: str
    broker: str
    ready_s: float
    idle_mb: float


@dataclass(slots=True)
class Results:
    """Everything one run measured. Runs of a case are in the order they were made."""

    brokers: list[str]
    loads: dict[tuple[Case, str], list[Measurement]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)

    def load_rows(self) -> list[list[str]]:
        return [self._load_row(case, name) for case, name in self.loads if name in self.brokers]

    def bare_rows(self) -> list[list[str]]:
        """Return the rows of measurements without a broker."""
        return [
            [
                case.name,
                name,
                f"{median(run.mb_per_s for run in runs):,.0f}",
                f"{median(run.cpu_s_per_gb for run in runs):.2f}",
                self._ratio(case, name),
                ", ".join(f"{run.requests_per_cpu_s:,.0f}" for run in runs),
            ]
            for (case, name), runs in self.loads.items()
            if name not in self.brokers
        ]

    def _load_row(self, case: Case, name: str) -> list[str]:
        runs = self.loads[case, name]
        return [
            case.name,
            name,
            f"{median(run.mb_per_s for run in runs):,.0f}",
            f"{median(run.requests_per_s for run in runs):,.0f}",
            f"{median(run.cpu_s_per_gb for run in runs):.2f}",
            f"{median(run.requests_per_cpu_s for run in runs):,.0f}",
            f"{median(run.p50_ms for run in runs):.2f}",
            f"{median(run.p99_ms for run in runs):.2f}",
            self._ratio(case, name),
        ]

    def round_rows(self) -> list[list[str]]:
        return [
            [case.name, name, ", ".join(f"{run.requests_per_cpu_s:,.0f}" for run in runs)]
            for (case, name), runs in self.loads.items()
            if name in self.brokers
        ]

    def _ratio(self, case: Case, name: str) -> str:
        """Return the ratio of both servers' bytes per server-CPU-second."""
        if name == self.brokers[-1]:
            return ""
        own, other = (
            median(run.bytes_per_cpu_s for run in self.loads[case, broker])
            for broker in (name, self.brokers[-1])
        )
        return f"{own / other:.2f} x"

    def start_rows(self) -> list[list[str]]:
        return [[s.name, s.broker, f"{s.ready_s:.2f}", f"{s.idle_mb:.0f}"] for s in self.starts]


def tables(results: Results) -> list[Table]:
    group = len(results.brokers)
    loads = Table(LOAD_COLUMNS, results.load_rows(), group)
    rounds = Table(ROUND_COLUMNS, results.round_rows(), group)
    starts = Table(START_COLUMNS, results.start_rows(), group)
    bare = Table(BARE_COLUMNS, results.bare_rows(), 1)
    return [table for table in (loads, rounds, bare, starts) if table.rows]
