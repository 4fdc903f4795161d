"""The cases of `latency.py` that measure latencies, and the rows they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from brokers import Broker, KafkaBroker
from load import Case, LoadGenerator, MeasuredServer, Measurement, measured
from programs import Program
from rounds import interleaved, note, warmed
from tables import Table

_PEAK_PART = 0.5
_FANOUT_TOPIC = "fanout"
_CONSUMERS = 100
_RECORDS_PER_S = 20
_COLUMNS = ("p50 ms", "to Kafka's", "p99 ms", "to Kafka's", "CPU ms/s", "p50 / p99 of each round")
CASES = (
    Case("produce 1 KB", "produce", "small", 1024, 100_000),
    Case("produce 1 KB, 8 conn.", "produce", "small8", 1024, 100_000, connections=8),
    Case(
        "produce 16 KB, 8 conn.", "produce", "medium8", 16_384, 100_000, records=16, connections=8
    ),
)


@dataclass(frozen=True, slots=True)
class Fanout:
    """One producer of `_RECORDS_PER_S` records of 1 KB, and consumers that wait for them."""

    name: str
    sessions: bool


FANOUTS = (
    Fanout(f"fan-out to {_CONSUMERS}, sessions", sessions=True),
    Fanout(f"fan-out to {_CONSUMERS}, no sessions", sessions=False),
)


def measure_produce(
    build: Path,
    brokers: Sequence[MeasuredServer],
    cases: Sequence[Case],
    rounds: int,
    seconds: int,
    rate: int | None,
) -> Table:
    """At `rate` requests/s, or at half of Kafka's peak."""
    load, steady = LoadGenerator(build), Program("steady", build)
    rows = []
    for case in cases:
        for broker in brokers:
            load.create_topic(broker, case.topic, case.partitions, case.replicas)
        case_rate = rate or _half_of_peak(load, brokers, case, seconds)

        def measure(
            broker: MeasuredServer, case: Case = case, case_rate: int = case_rate
        ) -> Measurement:
            return measured(
                steady,
                broker,
                topic=case.topic,
                partitions=case.partitions,
                connections=case.connections,
                batch=case.batch,
                records=case.records,
                rate=case_rate,
                seconds=seconds,
            )

        found = interleaved(case.name, brokers, rounds, measure, _p50)
        rows += _rows(f"{case.name}, {case_rate:,}/s", found)
    return Table(("open loop", "broker", *_COLUMNS), rows, len(brokers))


def _half_of_peak(
    load: LoadGenerator, brokers: Sequence[MeasuredServer], case: Case, seconds: int
) -> int:
    kafka = next(broker for broker in brokers if broker.name == KafkaBroker.name)
    peaks = warmed(lambda: load.measure(kafka, case, seconds).requests_per_s)
    note(f"{case.name}: Kafka's peak, requests/s: {', '.join(f'{peak:,.0f}' for peak in peaks)}")
    return max(1, int(max(peaks) * _PEAK_PART))


def measure_fanout(
    build: Path, brokers: Sequence[Broker], cases: Sequence[Fanout], rounds: int, seconds: int
) -> Table:
    load, fanout = LoadGenerator(build), Program("fanout", build)
    rows = []
    for broker in brokers:
        load.create_topic(broker, _FANOUT_TOPIC, 1)
    for case in cases:

        def measure(broker: Broker, case: Fanout = case) -> Measurement:
            return measured(
                fanout,
                broker,
                topic=_FANOUT_TOPIC,
                consumers=_CONSUMERS,
                rate=_RECORDS_PER_S,
                sessions=int(case.sessions),
                seconds=seconds,
            )

        rows += _rows(case.name, interleaved(case.name, brokers, rounds, measure, _p50))
    return Table(("end to end", "broker", *_COLUMNS), rows, len(brokers))


def _p50(run: Measurement) -> float:
    return run.p50_ms


def _p99(run: Measurement) -> float:
    return run.p99_ms


def _rows(case: str, found: dict[str, list[Measurement]]) -> list[list[str]]:
    return [
        [
            case,
            name,
            *_with_ratio(found, name, _p50),
            *_with_ratio(found, name, _p99),
            f"{median(run.cpu_s / run.seconds for run in runs) * 1000:.0f}",
            ", ".join(f"{run.p50_ms:.2f} / {run.p99_ms:.2f}" for run in runs),
        ]
        for name, runs in found.items()
    ]


def _with_ratio(
    found: dict[str, list[Measurement]], name: str, figure: Callable[[Measurement], float]
) -> tuple[str, str]:
    own = median(map(figure, found[name]))
    if name == KafkaBroker.name or KafkaBroker.name not in found:
        return f"{own:.2f}", ""
    return f"{own:.2f}", f"{own / median(map(figure, found[KafkaBroker.name])):.2f} x"
