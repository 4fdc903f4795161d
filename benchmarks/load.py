"""Runs the load generator against one broker and measures both sides."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from brokers import Broker, BrokerError

_HERE = Path(__file__).parent
_SOURCES = (_HERE / "load.c", _HERE / "batch.h")
_LOAD_SECONDS_MAX = 20
_PROCESS_SECONDS_MAX = 90


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `batch` is bytes per batch, or per fetched partition."""

    name: str
    mode: str
    topic: str
    batch: int
    megabytes: int
    records: int = 1
    connections: int = 1
    requests: int = 1_000_000

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
    def requests_per_cpu_s(self) -> float:
        return self.requests / max(self.cpu_s, 0.01)


class LoadGenerator:
    """The compiled `load.c`."""

    def __init__(self, build_folder: Path) -> None:
        self._program = build_folder / "load"
        newest = max(source.stat().st_mtime for source in _SOURCES)
        if not self._program.exists() or self._program.stat().st_mtime < newest:
            self._compile(build_folder)

    def _compile(self, build_folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise BrokerError("cc not found: install a C compiler (Debian: apt-get install gcc)")
        build_folder.mkdir(parents=True, exist_ok=True)
        target = str(self._program)
        subprocess.run([compiler, "-O2", "-Wall", "-o", target, str(_SOURCES[0])], check=True)

    def create_topic(self, broker: Broker, topic: str, partitions: int) -> None:
        self._run("create", broker, topic=topic, partitions=partitions)

    def delete_topic(self, broker: Broker, topic: str) -> None:
        self._run("delete", broker, topic=topic)

    def measure(self, broker: Broker, case: Case) -> Measurement:
        before = broker.cpu_seconds()
        printed = self._run(
            case.mode,
            broker,
            topic=case.topic,
            partitions=case.partitions,
            connections=case.connections,
            batch=case.batch,
            records=case.records,
            megabytes=case.megabytes,
            requests=case.requests,
            seconds=_LOAD_SECONDS_MAX,
        )
        return Measurement(cpu_s=broker.cpu_seconds() - before, **json.loads(printed))

    def _run(self, mode: str, broker: Broker, **arguments: object) -> str:
        words = [f"{name}={value}" for name, value in arguments.items()]
        done = subprocess.run(
            [self._program, mode, f"port={broker.port}", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROCESS_SECONDS_MAX,
        )
        if done.returncode:
            raise BrokerError(f"{mode} against {broker.name}: {done.stderr.strip()}")
        return done.stdout
