"""Runs a load generator against one broker and measures both sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from programs import Program, Server

_LOAD_SECONDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `batch` is bytes per batch, or the most that is fetched of a partition."""

    name: str
    mode: str
    topic: str
    batch: int
    megabytes: int
    records: int = 1
    connections: int = 1
    requests: int = 1_000_000
    replicas: int = 1
    verifies_all: bool = False
    """Whether lakelog walks every batch of the topic, as Kafka always does."""

    @property
    def partitions(self) -> int:
        return self.connections


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a case showed; `cpu_s` is the server's."""

    seconds: float
    bytes: int
    requests: int
    cpu_s: float
    p50_ms: float
    p99_ms: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.bytes / 1e9)

    @property
    def bytes_per_cpu_s(self) -> float:
        return self.bytes / max(self.cpu_s, 0.01)

    @property
    def requests_per_cpu_s(self) -> float:
        return self.requests / max(self.cpu_s, 0.01)


class MeasuredServer(Server, Protocol):
    """A broker or a cluster whose processor time is known."""

    def cpu_seconds(self) -> float: ...


class LoadGenerator:
    """The closed loop of `load.c`."""

    def __init__(self, build_folder: Path) -> None:
        self._program = Program("load", build_folder)

    def create_topic(self, broker: Server, topic: str, partitions: int, replicas: int = 1) -> None:
        self._program.run(broker, "create", topic=topic, partitions=partitions, replicas=replicas)

    def delete_topic(self, broker: Server, topic: str) -> None:
        self._program.run(broker, "delete", topic=topic)

    def measure(
        self, broker: MeasuredServer, case: Case, seconds_max: int = _LOAD_SECONDS_MAX
    ) -> Measurement:
        return measured(
            self._program,
            broker,
            case.mode,
            topic=case.topic,
            partitions=case.partitions,
            connections=case.connections,
            batch=case.batch,
            records=case.records,
            megabytes=case.megabytes,
            requests=case.requests,
            seconds=seconds_max,
        )


def measured(
    program: Program, broker: MeasuredServer, *words: str, **arguments: object
) -> Measurement:
    """One run of a load generator, and its cost on the server."""
    before = broker.cpu_seconds()
    found = program.run(broker, *words, **arguments)
    return Measurement(cpu_s=broker.cpu_seconds() - before, **found)
